"""Criteria that name their judge: it alone answers them, and nobody else's vote is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader, Voting
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, batch_of

SECOND = "FakeJudge#2"


def rubric_for(judge: str | None = SECOND, **fields: object) -> Rubric:
    exact = {"name": "exact", "requirement": "Is exact", "weight": 1, "judge": judge, **fields}
    return Rubric.from_dict([{"name": "kind", "requirement": "Is kind", "weight": 1}, exact])


@pytest.mark.parametrize("settings", [{}, {"voting": Voting(sequential=True)}, {"stop_when_decided": True}])
def test_only_the_judge_that_is_named_answers(settings: dict[str, Any]) -> None:
    judges = [FakeJudge("UNMET"), FakeJudge({"Is kind": "UNMET", "Is exact": "MET"}), FakeJudge("UNMET")]
    report = rubric_for(required=True).grade_sync("text", PerCriterionGrader(judges=judges, **settings))
    assert [judge.requirements.count("Is exact") for judge in judges] == [0, 1, 0]
    row = report.criteria[1]
    assert (row.verdict, row.agreement, row.not_asked, row.lost_votes) == ("MET", 1.0, (), 0)
    assert [(vote.judge, vote.verdict) for vote in row.votes] == [(SECOND, "MET")]
    assert (report.complete, report.failed_count) == (True, 0)


def test_failure_of_the_judge_that_is_named_is_no_lost_vote_of_the_others() -> None:
    failing = FakeJudge({"Is kind": "MET", "Is exact": JudgeFailure("parse", "no verdict")})
    grader = PerCriterionGrader(judges=[FakeJudge(), failing], on_failure="abstain", max_retries=0)
    row = rubric_for().grade_sync("text", grader).criteria[1]
    assert (row.error, row.lost_votes, row.value) == ("parse: no verdict", 1, None)


def test_one_shot_asks_each_judge_about_its_own_criteria() -> None:
    judges = [FakeBatchJudge(batch_of({1: "MET"})), FakeBatchJudge(batch_of({1: "MET", 2: "UNMET"}))]
    report = rubric_for("FakeBatchJudge#2").grade_sync("text", PerCriterionOneShotGrader(judges=judges))
    assert [judge.requests for judge in judges] == [[[1]], [[1, 2]]]
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET"]
    lone = Rubric.from_dict([{"requirement": "Is exact", "judge": "FakeBatchJudge"}])
    lone.grade_sync("text", PerCriterionOneShotGrader(judges=judges))
    assert [len(judge.requests) for judge in judges] == [2, 1]


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        (PerCriterionGrader(judges=[FakeJudge(), FakeJudge()]), r"\('FakeJudge', 'FakeJudge#2'\): name one of them"),
        (PerCriterionGrader(FakeJudge()), r"\('default'\): name one of them, where `default` is the judge of a grader"),
        (RubricAsJudgeGrader(FakeOverallJudge(80)), "a score of the whole has no answers to single criteria"),
    ],
)
def test_judge_that_is_not_on_the_panel_is_an_error_before_any_call(grader: Grader, message: str) -> None:
    with pytest.raises(ValueError, match=f"`exact` has the `judge` 'gpt-6'.*{message}"):
        rubric_for("gpt-6").grade_sync("text", grader)
    with pytest.raises(ValueError, match=message):
        grade_many(["text"], rubric_for("gpt-6"), grader)
    [graded] = grade_many([{"response": "text", "rubric": rubric_for("gpt-6")}], None, grader)
    assert graded.report is None
    assert "`exact` has the `judge` 'gpt-6'" in (graded.row.error or "")


def test_ledger_has_no_judgment_of_the_others_and_rescore_needs_none(tmp_path: Path) -> None:
    judges = [FakeJudge(fingerprint="one"), FakeJudge("UNMET", fingerprint="two")]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        [before] = grade_many(["text"], rubric_for(), PerCriterionGrader(judges=judges), ledger=ledger)
        [after] = rescore(ledger, rubric_for())
        [other] = rescore(ledger, rubric_for("FakeJudge"))
    assert before.report is not None
    assert (after.missing, other.missing) == (0, 1)
    assert [row.verdict for row in after.report.criteria] == [row.verdict for row in before.report.criteria]


def test_judge_beside_a_check_is_refused() -> None:
    with pytest.raises(ValueError, match="has a `check` and a `judge`"):
        rubric_for(check={"contains": "text"})
