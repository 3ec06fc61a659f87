"""The judge without a model: it finds literal anchors, or abstains."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, Scale
from rubric_integrations.judges import OfflineJudge
from tests.judges.questions import question_about


@pytest.mark.parametrize(
    ("requirement", "weight", "response", "verdict"),
    [
        ("States the margin as 17.2%", 1, "It was 17.2 %.", "MET"),
        ("States the margin as 17.2%", 1, "It was 17.3%.", "UNMET"),
        ('Names "Shapley" and $3', 1, "shapley: $3.00", "MET"),
        ('Names "Shapley" and $3', 1, "shapley: $4", "UNMET"),
        ("Is clear", 1, "anything", "CANNOT_ASSESS"),
        ("Has at most 300 words in 2023", 1, "anything", "CANNOT_ASSESS"),
        ("Don't stop, it isn't over", 1, "anything", "CANNOT_ASSESS"),
        ('Leases "the earth is flat"', -1, "It is round.", "UNMET"),
        ('Leases "the earth is flat"', -1, "Some say the earth is flat; it is not.", "CANNOT_ASSESS"),
    ],
)
async def test_offline_judge_finds_all_anchors_or_abstains(
    requirement: str, weight: float, response: str, verdict: str
) -> None:
    criterion = Criterion(requirement=requirement, weight=weight)
    judgment = await OfflineJudge().judge(question_about(criterion, response))
    assert judgment.verdict == verdict
    assert judgment.reason


async def test_offline_judge_abstains_from_options_and_scales() -> None:
    criterion = Criterion(requirement='How "clear" is it?', scale=Scale())
    judgment = await OfflineJudge().judge(question_about(criterion, "clear"))
    assert (judgment.verdict, judgment.value) == ("CANNOT_ASSESS", None)
