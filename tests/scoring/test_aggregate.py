"""Reports of known answers: gates, the pass mark, and failures under every policy."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Rubric
from rubric_integrations.results.judgment import Verdict
from tests.scoring.rubrics import report_of, rubric_of
from tests.scoring.test_formula import WEIGHTED_VERDICTS


def test_required_criterion_changes_passed_but_not_the_score() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=1, required=True), Criterion(requirement="b", weight=99)])
    for answer, passed in [("MET", True), ("UNMET", False), ("CANNOT_ASSESS", False)]:
        report = report_of(rubric, answer, "MET")
        assert report.score is not None
        assert report.score >= 0.99
        assert report.passed is passed
    failed = report_of(rubric, "ERROR", "MET", on_failure={"positive": "MET"})
    assert (failed.score, failed.passed) == (1.0, False)


def test_required_penalty_passes_if_it_is_unmet() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=99), Criterion(requirement="b", weight=-1, required=True)])
    assert report_of(rubric, "MET", "UNMET").passed
    assert not report_of(rubric, "MET", "MET").passed


def test_pass_mark_applies_to_the_normalized_score() -> None:
    assert report_of(rubric_of(8, 2), "MET", "UNMET").passed
    report = report_of(rubric_of(8, 2, -5), "MET", "MET", "MET", normalize=False)
    assert (report.score, report.raw_score, report.passed) == (5.0, 5.0, False)


@pytest.mark.parametrize(
    ("on_failure", "verdicts", "score"),
    [
        ("abstain", [None, "MET", None], 1.0),
        ("worst_case", ["UNMET", "MET", "MET"], 0.0),
        ({"positive": "MET", "negative": "UNMET"}, ["MET", "MET", "UNMET"], 1.0),
        ({"positive": "UNMET", "negative": "MET"}, ["UNMET", "MET", "MET"], 0.0),
        ({}, ["UNMET", "MET", "UNMET"], 1 / 3),
    ],
)
def test_failures_are_scored_by_the_policy_and_reported(
    on_failure: object, verdicts: list[str | None], score: float
) -> None:
    report = report_of(rubric_of(10, 5, -15), "ERROR", "MET", "ERROR", on_failure=on_failure)
    assert [row.verdict for row in report.criteria] == verdicts
    assert report.score == pytest.approx(score)
    assert (report.complete, report.failed_count, report.cannot_assess_count) == (False, 2, 0)
    assert report.coverage == pytest.approx(5 / 30)
    assert report.error == "`c1` was not judged: transport: lost (and 1 more)"
    assert [row.error for row in report.criteria] == ["transport: lost", None, "transport: lost"]


@given(WEIGHTED_VERDICTS, st.data())
def test_failure_under_worst_case_never_raises_the_score(
    rows: list[tuple[float, Verdict]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    assume(rows[index][1] != "CANNOT_ASSESS")
    rubric = rubric_of(*(weight for weight, _ in rows))
    verdicts = [verdict for _, verdict in rows]
    complete = report_of(rubric, *verdicts, on_failure="worst_case")
    failed = report_of(rubric, *verdicts[:index], "ERROR", *verdicts[index + 1 :], on_failure="worst_case")
    assert not failed.complete
    if complete.score is not None and failed.score is not None:
        assert failed.score <= complete.score
