"""Panels: the names and weights of their judges, their votes in reports, and lost judges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits, PerCriterionOneShotGrader, RubricAsJudgeGrader, Voting
from rubric_integrations.graders.panel import make_panel
from rubric_integrations.graders.scheduler import CallLimiter
from rubric_integrations.judges import DecisionJudge, LMJudge
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeJudge
from tests.graders.rubrics import ONE
from tests.openai_server import OpenAIServer, Reply

LIMITER = CallLimiter(CallLimits())
DOWN = JudgeFailure("config", "down")


def test_judges_of_a_panel_are_named_by_model_or_class_and_number() -> None:
    judges = [FakeJudge(), LMJudge("openai/one"), FakeJudge(), LMJudge("openai/one", name="two")]
    names = [member.name for member in make_panel(judges, None, LIMITER)]
    assert names == ["FakeJudge", "openai/one", "FakeJudge#2", "two"]
    twice = [LMJudge("openai/one"), LMJudge("openai/one")]
    assert [member.name for member in make_panel(twice, None, LIMITER)] == ["openai/one", "openai/one#2"]
    assert [member.name for member in make_panel([FakeJudge()], None, LIMITER)] == ["default"]
    assert [member.weight for member in make_panel(judges, [1, 2, 3, 4], LIMITER)] == [1, 2, 3, 4]


def test_report_of_a_panel_has_votes_agreement_and_the_score_of_each_judge() -> None:
    rubric = Rubric([Criterion(requirement="r", weight=3), Criterion(requirement="s", weight=1)])
    judges = [FakeJudge("MET"), FakeJudge("UNMET"), FakeJudge("MET")]
    report = rubric.grade_sync("text", grader=PerCriterionGrader(judges=judges))
    row = report.criteria[0]
    assert [(vote.judge, vote.verdict) for vote in row.votes] == [
        ("FakeJudge", "MET"), ("FakeJudge#2", "UNMET"), ("FakeJudge#3", "MET"),
    ]  # fmt: skip
    assert (row.verdict, row.agreement, report.mean_agreement) == ("MET", pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert report.judge_scores == {"FakeJudge": 1.0, "FakeJudge#2": 0.0, "FakeJudge#3": 1.0}


def test_panel_that_lost_a_judge_reports_it_and_continues() -> None:
    judges = [FakeJudge("MET"), FakeJudge(DOWN), FakeJudge("MET")]
    report = ONE.grade_sync("text", grader=PerCriterionGrader(judges=judges))
    assert (report.score, report.complete, report.failed_count) == (1.0, False, 0)
    assert report.error == "1 votes of the panel were lost, the first on `c1`: config: down"
    assert (report.criteria[0].lost_votes, report.criteria[0].agreement) == (1, 1.0)
    with pytest.raises(JudgeError, match="down"):
        ONE.grade_sync("text", grader=PerCriterionGrader(judges=[FakeJudge(DOWN), FakeJudge(DOWN)]))


def test_criterion_with_its_own_strategy_does_not_use_the_graders() -> None:
    rubric = Rubric([Criterion(requirement="r", aggregation="unanimous"), Criterion(requirement="s")])
    judges = [FakeJudge("MET"), FakeJudge("MET"), FakeJudge("UNMET")]
    report = rubric.grade_sync("text", grader=PerCriterionGrader(judges=judges))
    assert [row.verdict for row in report.criteria] == ["UNMET", "MET"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"judges": []}, "exactly one"),
        ({"judges": ["offline", "offline"], "voting": {"weights": [1]}}, "1 entries for 2"),
        ({"judges": ["offline", "offline"], "voting": {"weights": [1, 0]}}, "greater than 0"),
        ({"judge": "offline", "voting": {"binary": "median"}}, "'median'"),
        ({"judge": "offline", "voting": {"ordinal": "majority"}}, "'majority'"),
        ({"judge": "offline", "voting": {"nominal": "mean"}}, "'mean'"),
        ({"judge": "offline", "judges": ["offline"]}, "exactly one"),
    ],
)
def test_invalid_panel_is_refused_when_the_grader_is_made(more: dict[str, Any], words: str) -> None:
    def make_grader() -> PerCriterionGrader:
        settings: dict[str, Any] = {**more, "voting": Voting(**more.get("voting", {}))}
        return PerCriterionGrader(**settings)

    with pytest.raises(ValueError, match=words):
        make_grader()


def test_panel_of_models_votes_under_the_graders_of_one_call(server: OpenAIServer) -> None:
    scores = {"one": 90, "two": 50, "three": 40}

    def batch(verdict: str) -> str:
        return json.dumps({"judgments": [{"id": 1, "explanation": "e", "answer": verdict}]})

    server.script = lambda call: (
        Reply(text=json.dumps({"explanation": "e", "overall_score": scores[call.body["model"]]}))
        if "`overall_score`" in call.prompt
        else Reply(text=batch("MET" if call.body["model"] != "two" else "UNMET"))
    )
    judges = [LMJudge(f"openai/{name}", api_base=server.url) for name in scores]
    whole = ONE.grade_sync("text", grader=RubricAsJudgeGrader(judges=judges, voting=Voting(ordinal="median")))
    assert (whole.score, whole.llm_raw_score, list(whole.judge_scores.values())) == (0.5, 50.0, [0.9, 0.5, 0.4])
    one_shot = ONE.grade_sync("text", grader=PerCriterionOneShotGrader(judges=judges))
    assert (one_shot.score, one_shot.mean_agreement) == (1.0, pytest.approx(2 / 3))


def test_judge_without_an_lm_is_named_by_its_model() -> None:
    [member] = make_panel([DecisionJudge("jev-1.13.0", api_key="k")], None, LIMITER)
    assert (member.name, member.model) == ("default", "typesafe/jev-1.13.0")
