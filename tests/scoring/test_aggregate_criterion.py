"""The report of one criterion: votes, failures, fallbacks, spend and what a single judge reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Scale
from rubric_integrations.scoring import CriterionReport, JudgeFailure, Judgment, Spend, to_judgment
from rubric_integrations.scoring.aggregate import report_criterion, votes_for
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome
from tests.trust.runs import report_of as graded_by

OPTIONS = (
    Option(label="cold", value=0, description="no greeting"),
    Option(label="warm", value=1),
    Option(label="unclear", na=True),
)
CRITERION = Criterion(requirement="r", weight=2)
MET = Judgment(verdict="MET", value=1.0, reason="it is")
UNMET = Judgment(verdict="UNMET", value=0.0, reason="it is not")
ABSTENTION = Judgment(verdict="CANNOT_ASSESS", value=None, reason="unclear")
LOST = JudgeFailure("transport", "lost", spend=Spend(calls=3))


def panel_of(*outcomes: Outcome | None) -> list[JudgeAnswers]:
    """Make one judge for each outcome; None for a judge without a question."""
    return [
        JudgeAnswers({} if outcome is None else {0: outcome}, f"judge {position}")
        for position, outcome in enumerate(outcomes)
    ]


def report_of(
    outcomes: Sequence[Outcome | None], criterion: Criterion = CRITERION, *, is_open: bool = False, **settings: Any
) -> CriterionReport:
    policies = PerCriterionGrader("offline", **settings).policies
    return report_criterion(criterion, 0, "c1", panel_of(*outcomes), policies, is_open=is_open)


def test_report_of_a_single_judge_has_its_judgment_and_no_votes() -> None:
    judgment = MET.model_copy(update={"confidence": 0.75, "expected_value": 0.5, "spend": Spend(calls=1)})
    report = report_of([judgment])
    assert (report.name, report.requirement, report.weight) == ("c1", "r", 2.0)
    assert (report.verdict, report.value, report.reason, report.error) == ("MET", 1.0, "it is", None)
    assert (report.confidence, report.expected_value, report.spend) == (0.75, 0.5, Spend(calls=1))
    assert (report.votes, report.agreement, report.not_asked, report.passed) == ((), 1.0, (), True)


def test_report_of_a_panel_has_all_votes_and_the_reason_of_the_first_judge_of_the_majority() -> None:
    report = report_of([UNMET, MET, LOST, MET])
    assert [(vote.verdict, vote.error) for vote in report.votes] == [
        ("UNMET", None), ("MET", None), (None, "transport: lost"), ("MET", None),
    ]  # fmt: skip
    assert (report.verdict, report.reason, report.lost_votes) == ("MET", "it is", 1)
    assert (report.agreement, report.confidence) == (pytest.approx(2 / 3), None)
    assert report.spend == Spend(calls=3)


def test_report_names_the_judges_that_were_not_asked() -> None:
    report = report_of([MET, MET, None])
    assert (report.not_asked, len(report.votes), report.was_asked) == (("judge 2",), 2, True)


def test_report_of_an_abstention_is_neither_passed_nor_failed() -> None:
    report = report_of([ABSTENTION])
    assert (report.verdict, report.value, report.error, report.passed) == ("CANNOT_ASSESS", None, None, False)


@pytest.mark.parametrize(
    ("weight", "on_failure", "verdict", "value"),
    [
        (1, "raise", None, None),
        (1, "abstain", None, None),
        (1, "worst_case", "UNMET", 0.0),
        (-1, "worst_case", "MET", 1.0),
        (1, {"positive": "MET"}, "MET", 1.0),
    ],
)
def test_report_of_a_failure_has_the_error_and_the_fallback_and_never_passes(
    weight: float, on_failure: object, verdict: str | None, value: float | None
) -> None:
    report = report_of([LOST], Criterion(requirement="r", weight=weight), on_failure=on_failure)
    assert (report.verdict, report.value, report.error) == (verdict, value, "transport: lost")
    assert (report.passed, report.agreement, report.spend) == (False, None, Spend(calls=3))


def test_report_of_a_panel_that_failed_has_each_error_once() -> None:
    other = JudgeFailure("parse", "no answer")
    assert report_of([LOST, LOST, other], on_failure="abstain").error == "transport: lost; parse: no answer"


def test_report_of_an_open_criterion_has_neither_verdict_nor_error() -> None:
    report = report_of([None, None], is_open=True)
    assert (report.verdict, report.value, report.error, report.was_asked) == (None, None, None, False)
    assert report.not_asked == ("judge 0", "judge 1")


def test_report_of_a_criterion_that_no_judge_was_asked_about_is_a_failure() -> None:
    report = report_of([None], on_failure="abstain")
    assert (report.verdict, report.error) == (None, "no judge was asked")


def test_report_is_neutralized_if_a_text_of_any_judge_was() -> None:
    assert report_of([MET, MET.model_copy(update={"neutralized": True})]).neutralized
    assert not report_of([MET, LOST]).neutralized


def test_votes_are_those_of_judges_that_were_asked() -> None:
    votes = votes_for(0, panel_of(MET, None, LOST))
    assert [(vote.judge, vote.verdict, vote.error) for vote in votes] == [
        ("judge 0", "MET", None), ("judge 2", None, "transport: lost"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("criterion", "answer"),
    [
        (Criterion(requirement="Is kind", name="kind", weight=-2.0), "MET"),
        (Criterion(requirement="Tone?", name="tone", options=OPTIONS, scale_type="nominal"), "warm"),
        (Criterion(requirement="Tone?", name="tone", options=OPTIONS), "unclear"),
        (Criterion(requirement="Depth?", name="depth", scale=Scale(min=1, max=5, levels={2: "poor"})), "4.5"),
        (Criterion(requirement="Errs", name="errors", weight=-3.0, per="occurrence", cap=2), "7"),
    ],
    ids=["binary", "nominal", "ordinal", "scale", "occurrences"],
)
def test_report_in_a_file_gives_its_criterion_back(criterion: Criterion, answer: str) -> None:
    report = graded_by(Rubric([criterion]), [answer]).criteria[0]
    line = report.model_dump(mode="json")
    again = CriterionReport.model_validate(json.loads(json.dumps(line)))
    assert again == report
    assert again.to_criterion() == criterion
    assert to_judgment(again.to_criterion(), answer).verdict == report.verdict
    answers = {"options", "scale_type", "scale", "cap"} & line.keys()
    assert not answers if criterion.kind == "binary" else answers
