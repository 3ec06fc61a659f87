"""Tests of the named scores that evaluation frameworks get."""

from __future__ import annotations

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.scoring import JudgeError, JudgeFailure, outcomes_of
from tests.fakes import FakeJudge

RUBRIC = Rubric.from_dict(
    [
        {"name": "right", "requirement": "Is right", "weight": 2},
        {"name": "rude", "requirement": "Is rude", "weight": -1},
    ]
)


def grader_of(right: object, rude: object) -> PerCriterionGrader:
    return PerCriterionGrader(FakeJudge({"Is right": right, "Is rude": rude}), max_retries=0)


def test_penalty_that_was_committed_has_the_score_0_and_the_verdict_met() -> None:
    whole, right, rude = outcomes_of(RUBRIC.grade_sync("text", grader_of("MET", "MET")))
    assert (whole.name, whole.kind, whole.score, whole.label) == ("rubric", "verdict", 0.5, "not passed")
    assert (right.name, right.score, right.label) == ("rubric.right", 1.0, "MET")
    assert (rude.name, rude.score, rude.label, rude.weight) == ("rubric.rude", 0.0, "MET", -1.0)


def test_abstention_has_a_label_and_no_score() -> None:
    whole, right, rude = outcomes_of(RUBRIC.grade_sync("text", grader_of("MET", "CANNOT_ASSESS")), "quality")
    assert (whole.name, whole.kind, whole.score) == ("quality", "verdict", 1.0)
    assert right.kind == "verdict"
    assert (rude.name, rude.kind, rude.score, rude.label) == ("quality.rude", "abstention", None, "CANNOT_ASSESS")


def test_undefined_score_is_an_abstention_of_the_whole() -> None:
    whole, *_ = outcomes_of(RUBRIC.grade_sync("text", grader_of("CANNOT_ASSESS", "CANNOT_ASSESS")))
    assert (whole.kind, whole.score, whole.label) == ("abstention", None, "CANNOT_ASSESS")


def test_failure_has_an_error_and_the_whole_has_no_score_from_the_other_criteria() -> None:
    failing = grader_of("MET", JudgeFailure("parse", "no verdict"))
    with pytest.raises(JudgeError) as caught:
        RUBRIC.grade_sync("text", failing)
    whole, right, rude = outcomes_of(caught.value.report, failure=caught.value)
    assert (whole.kind, whole.score, whole.label) == ("failure", None, None)
    assert whole.error == str(caught.value)
    assert right.score == 1.0
    assert (rude.kind, rude.score, rude.label) == ("failure", None, None)
    assert "no verdict" in (rude.error or "")


def test_criterion_that_does_not_apply_has_no_score() -> None:
    rubric = Rubric.from_dict(
        [{"requirement": "Refunds", "applies_when": "A refund is due"}, {"requirement": "Is right"}]
    )
    judge = FakeJudge(lambda question: "UNMET" if "refund is due" in question.criterion.requirement else "MET")
    _, refunds, _ = outcomes_of(rubric.grade_sync("text", PerCriterionGrader(judge)))
    assert (refunds.kind, refunds.score, refunds.label) == ("not applicable", None, "NOT_APPLICABLE")
