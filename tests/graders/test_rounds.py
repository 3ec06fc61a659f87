"""Further rounds of a grade: only where they may help, with the best report and the spend of all."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Submission, grade_many
from rubric_integrations.graders.rounds import grade_in_rounds
from rubric_integrations.judges.models.incomplete import FILTERED
from rubric_integrations.results import EvaluationReport, JudgeFailure, Spend
from tests.fakes import FakeJudge
from tests.graders.rubrics import rubric_of

TEXT = Submission(response="text")


def unreadable() -> JudgeFailure:
    return JudgeFailure("parse", "prose", retryable=True, spend=Spend(calls=1))


async def test_grade_whose_replies_were_unreadable_is_completed_in_the_second_round() -> None:
    judge = FakeJudge({"r0": "MET", "r1": [*[unreadable() for _ in range(3)], "MET"]})
    report = await grade_in_rounds(PerCriterionGrader(judge), rubric_of(2), TEXT)
    assert (report.score, report.complete) == (1.0, True)
    assert report.spend.calls == len(judge.questions) == 6


@pytest.mark.parametrize(
    ("failure", "max_retries"), [(JudgeFailure("config", "wrong key"), 2), (JudgeFailure("parse", "prose"), 0)]
)
async def test_failure_that_a_second_round_cannot_help_or_may_not_has_one(
    failure: JudgeFailure, max_retries: int
) -> None:
    judge = FakeJudge(failure)
    with pytest.raises(JudgeError):
        await grade_in_rounds(PerCriterionGrader(judge, max_retries=max_retries), rubric_of(1), TEXT)
    assert len(judge.questions) == 1


async def test_reply_that_a_content_filter_stopped_has_no_second_round() -> None:
    filtered = JudgeFailure("parse", f"{FILTERED}: code 7", about_text=True)
    judge = FakeJudge({"r0": filtered, "r1": "MET"})
    with pytest.raises(JudgeError):
        await grade_in_rounds(PerCriterionGrader(judge), rubric_of(2), TEXT)
    assert len(judge.questions) == 2
    judge = FakeJudge({"r0": filtered, "r1": [*[unreadable() for _ in range(3)], "MET"]})
    report = await grade_in_rounds(PerCriterionGrader(judge, on_failure="abstain"), rubric_of(2), TEXT)
    assert [row.verdict for row in report.criteria] == [None, "MET"]


async def test_best_of_incomplete_reports_is_returned_with_the_spend_of_all_rounds() -> None:
    judge = FakeJudge({"r0": [unreadable(), "MET"], "r1": [unreadable()], "r2": ["MET", unreadable()]})
    grader = PerCriterionGrader(judge, max_retries=1, on_failure="abstain")
    report = await grade_in_rounds(grader, rubric_of(3), TEXT)
    assert [row.verdict for row in report.criteria] == ["MET", None, "MET"]
    assert report.spend.calls == len(judge.questions) == 15


@pytest.mark.parametrize(("unreadable_replies", "score"), [(8, 1.0), (9, None)])
def test_row_of_a_run_is_lost_only_after_three_rounds(unreadable_replies: int, score: float | None) -> None:
    judge = FakeJudge({"r0": [*[unreadable() for _ in range(unreadable_replies)], "MET"], "r1": "MET"})
    run = grade_many(["text"], rubric_of(2), PerCriterionGrader(judge))
    assert [graded.score for graded in run] == [score]
    assert run.summary.spend.calls == len(judge.questions)


async def test_failure_of_an_unknown_kind_has_no_second_round() -> None:
    class OwnGrader(PerCriterionGrader):
        rounds = 0

        async def grade(self, *args: Any, **kwargs: Any) -> EvaluationReport:
            self.rounds += 1
            nothing = EvaluationReport(
                score=None, raw_score=None, passed=False, complete=False, coverage=0.0, failed_count=1, report=None,
                error="my own reason",
            )  # fmt: skip
            raise JudgeError("my own reason", nothing)

    grader = OwnGrader(FakeJudge())
    with pytest.raises(JudgeError, match="my own reason"):
        await grade_in_rounds(grader, rubric_of(1), TEXT)
    assert grader.rounds == 1
