"""Half an emoji in what a judge says: a lone surrogate, which no file and no JSON library can encode."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.scoring import JudgeFailure, Judgment
from tests.fakes import FakeModel

HALF = "fine \ud83d"


def test_text_of_a_judgment_is_readable_and_can_be_encoded() -> None:
    judgment = Judgment(verdict="MET", value=1.0, reason=HALF)
    assert judgment.reason == "fine \\ud83d"
    assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment


def test_message_of_a_failure_can_be_encoded() -> None:
    failure = JudgeFailure("parse", HALF)
    assert (failure.message, str(failure)) == ("fine \\ud83d", "parse: fine \\ud83d")


@pytest.mark.parametrize("grader_type", [PerCriterionGrader, RubricAsJudgeGrader])
async def test_report_of_a_judge_that_writes_half_an_emoji_can_be_encoded(grader_type: type) -> None:
    reply = '{"explanation": "fine \\ud83d", "verdict": "MET", "overall_score": 90}'
    grader = grader_type(LMJudge(FakeModel(reply)))
    report = await Rubric([Criterion(requirement="Is kind")]).grade("x", grader=grader)
    assert "fine \\\\ud83d" in report.model_dump_json()


async def test_report_of_an_unreadable_reply_with_half_an_emoji_can_be_encoded() -> None:
    grader = PerCriterionGrader(LMJudge(FakeModel('{"verdict": "\\ud83d"}')), max_retries=0)
    with pytest.raises(JudgeError) as error:
        await Rubric([Criterion(requirement="Is kind")]).grade("x", grader=grader)
    assert error.value.report.model_dump_json()
