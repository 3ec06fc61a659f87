"""One score for the whole submission: its range, its scale, gates, and panels."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, JudgeError, Rubric
from rubric_integrations.graders import RubricAsJudgeGrader, Voting
from rubric_integrations.judges import LMJudge
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeOverallJudge
from tests.graders.rubrics import FIVE_KINDS, ONE
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.parametrize("reply", ["101", "-1", "NaN", "Infinity", "true", "null", '"eighty"'])
def test_reply_without_a_score_of_0_to_100_is_a_failure(server: OpenAIServer, reply: str) -> None:
    server.script = lambda _call: Reply(text=f'{{"explanation": "e", "overall_score": {reply}}}')
    grader = RubricAsJudgeGrader(LMJudge("openai/mock", api_base=server.url), max_retries=1)
    with pytest.raises(JudgeError, match="parse"):
        FIVE_KINDS.grade_sync("text", grader=grader)
    assert len(server.calls) == 4


def test_raw_score_is_on_the_scale_of_the_weighted_sum() -> None:
    grader = RubricAsJudgeGrader(FakeOverallJudge(25), normalize=False)
    negative = Rubric([Criterion(requirement="a", weight=-6), Criterion(requirement="b", weight=-2)])
    assert negative.grade_sync("text", grader=grader).score == -6.0
    assert FIVE_KINDS.grade_sync("text", grader=grader).score == 6.0


def test_rubric_with_a_required_criterion_never_passes() -> None:
    grader = RubricAsJudgeGrader(FakeOverallJudge(100))
    assert Rubric([Criterion(requirement="a")]).grade_sync("text", grader=grader).passed
    assert not Rubric([Criterion(requirement="a", required=True)]).grade_sync("text", grader=grader).passed


@pytest.mark.parametrize(("strategy", "score"), [("mean", 0.6), ("median", 0.5), ("min", 0.4), ("max", 0.9)])
def test_scores_of_a_panel_are_joined_by_the_ordinal_strategy(strategy: str, score: float) -> None:
    judges = [FakeOverallJudge(percent) for percent in (90, 50, 40)]
    voting = Voting.model_validate({"ordinal": strategy})
    report = ONE.grade_sync("text", grader=RubricAsJudgeGrader(judges=judges, voting=voting))
    assert report.score == pytest.approx(score)


def test_judge_of_a_panel_that_fails_is_reported_and_left_out() -> None:
    judges = [FakeOverallJudge(90), FakeOverallJudge(JudgeFailure("config", "down")), FakeOverallJudge(130)]
    grader = RubricAsJudgeGrader(judges=judges, max_retries=0)
    report = ONE.grade_sync("text", grader=grader)
    assert (report.score, report.complete, report.failed_count) == (0.9, False, 0)
    assert list(report.judge_scores.values()) == [0.9, None, None]
    assert report.error == "2 of 3 judges gave no score: config: down"


@pytest.mark.parametrize(("voting", "words"), [(Voting(sequential=True), "sequential"),
                                               (Voting(ordinal="mode"), "ordinal")])  # fmt: skip
def test_voting_that_does_not_apply_to_scores_is_refused(voting: Voting, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RubricAsJudgeGrader(FakeOverallJudge(50), voting=voting)


def test_judge_that_cannot_score_the_whole_is_refused() -> None:
    with pytest.raises(TypeError, match="use PerCriterionGrader"):
        RubricAsJudgeGrader("offline")
