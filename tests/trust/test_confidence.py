"""What a judge's confidence says about how often it is right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from rubric_integrations import Rubric
from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import Reliability, reliability
from rubric_integrations.trust.confidence import StatedJudgment, divide_by_confidence, estimate_loss, squared_error
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE, TWO = binary_rubric(), binary_rubric(2)
VERDICTS = ("UNMET", "MET")


def confident_run(
    rubric: Rubric, answers: Sequence[Sequence[str | None]], confidences: Sequence[Sequence[float | None]]
) -> list[GradedRow]:
    """Make a run of a judge that states these confidences; the expected value is that of MET."""
    rows = run_of(rubric, answers)
    for place, (row, of_row) in enumerate(zip(rows, confidences, strict=True)):
        assert row.report is not None
        entries = tuple(
            entry.model_copy(
                update={"confidence": c, "expected_value": None if c is None else _expected(c, entry.value)}
            )
            for entry, c in zip(row.report.criteria, of_row, strict=True)
        )
        rows[place] = row._replace(report=row.report.model_copy(update={"report": entries}))
    return rows


def _expected(confidence: float, value: float | None) -> float:
    return confidence if value == 1.0 else 1 - confidence


def simulated(submissions: int, seed: int = 0) -> tuple[Reliability, Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    confidences = np.round(0.5 + rng.random((submissions, 2)) / 2, 2)
    people = rng.random((submissions, 2)) < 0.5
    right = rng.random((submissions, 2)) < confidences
    judge = np.where(right, people, ~people)
    run = confident_run(TWO, [[VERDICTS[int(x)] for x in row] for row in judge], confidences.tolist())
    labels = labels_of(TWO, [[VERDICTS[int(x)] for x in row] for row in people])
    expected = np.where(judge, confidences, 1 - confidences)
    return reliability(run, labels), confidences.ravel(), right.ravel(), expected.ravel(), people.ravel()


def test_figures_equal_those_of_scikit_learn() -> None:
    figures, confidences, right, expected, people = simulated(120)
    assert figures.brier.value == pytest.approx(brier_score_loss(right, confidences))
    assert figures.auroc == pytest.approx(roc_auc_score(right, confidences))
    assert figures.accuracy.value == pytest.approx(right.mean())
    assert figures.overconfidence.value == pytest.approx(confidences.mean() - right.mean())
    # The judge gives MET its confidence or the rest: both Brier scores are the same.
    assert figures.expected_brier.value == pytest.approx(figures.brier.value)
    assert figures.expected_brier.value == pytest.approx(brier_score_loss(people, expected))
    assert figures.n == 240
    assert figures.calibration_error is not None
    assert 0 <= figures.calibration_error < 0.1


def test_few_different_confidences_have_a_bin_each() -> None:
    run = confident_run(ONE, [["MET"]] * 40, [[0.9]] * 20 + [[0.95]] * 15 + [[1.0]] * 5)
    figures = reliability(run, labels_of(ONE, [["MET"], ["UNMET"]] * 10 + [["MET"]] * 20))
    assert [(row.lowest, row.highest, row.accuracy.n) for row in figures.bins] == [
        (0.9, 0.9, 20), (0.95, 0.95, 15), (1.0, 1.0, 5),
    ]  # fmt: skip
    assert figures.bins[0].accuracy.value == 0.5
    assert figures.bins[1].accuracy.low is not None
    assert figures.bins[1].accuracy.low < 0.9  # right in 15 of 15
    assert [(point.threshold, point.coverage) for point in figures.selective] == [(1.0, 0.125), (0.95, 0.5), (0.9, 1.0)]
    assert figures.calibration_error == pytest.approx((20 * 0.4 + 15 * 0.05) / 40)


def test_equal_confidences_are_never_in_two_bins() -> None:
    confidences = [0.5] * 3 + [0.6] * 50 + [0.61, 0.62, 0.63, 0.64] * 5 + [0.9] * 30
    stated = [StatedJudgment(row, confidence, True, None, 1.0) for row, confidence in enumerate(confidences)]
    bins = divide_by_confidence(stated, 4)
    assert sum(map(len, bins)) == len(stated)
    assert 1 < len(bins) <= 4
    values = [{item.confidence for item in of_bin} for of_bin in bins]
    assert all(max(one) < min(other) for one, other in pairwise(values))
    apart = [StatedJudgment(row, row / 100, True, None, 1.0) for row in range(100)]
    assert [len(of_bin) for of_bin in divide_by_confidence(apart, 5)] == [20] * 5


def test_confidence_that_says_nothing_has_no_auroc_or_one_of_chance() -> None:
    labels = labels_of(ONE, [["MET"]] * 12)
    always_right = reliability(confident_run(ONE, [["MET"]] * 12, [[0.9]] * 12), labels)
    assert always_right.auroc is None
    assert always_right.brier.high is not None
    assert always_right.brier.high > 0.1  # 12 of 12 is no proof that it never errs
    assert "only 0 of 12 judgments are wrong" in always_right.warnings[0]
    mixed = reliability(confident_run(ONE, [["MET"], ["UNMET"]] * 6, [[0.9]] * 12), labels)
    assert mixed.auroc == 0.5


def test_abstentions_failures_and_answers_without_a_confidence_are_left_out() -> None:
    answers: list[list[str | None]] = [["MET"], ["CANNOT_ASSESS"], [None], ["MET"], ["MET"]]
    run = confident_run(ONE, answers, [[0.8], [0.9], [0.9], [None], [0.7]])
    figures = reliability(run, labels_of(ONE, [["MET"], ["MET"], ["MET"], ["MET"], ["CANNOT_ASSESS"]]))
    assert (figures.n, figures.without_confidence) == (1, 1)


def test_labels_by_verdict_are_left_out_and_a_run_without_confidence_is_refused() -> None:
    run = confident_run(ONE, [["MET"]] * 10, [[0.8]] * 10)
    labels = labels_of(ONE, [["MET"]] * 6) + labels_of(ONE, [["MET"]] * 10, "by_verdict")[6:]
    figures = reliability(run, labels)
    assert figures.n == 6
    assert "4 labelled judgments are left out" in figures.warnings[0]
    with pytest.raises(ValueError, match="no labelled judgment has a confidence"):
        reliability(run_of(ONE, [["MET"]] * 3), labels)
    with pytest.raises(ValueError, match="no labelled judgment has a confidence"):
        reliability(run, labels_of(ONE, [["MET"]] * 3, "by_verdict"))
    with pytest.raises(ValueError, match="`bins` must be at least 1, got 0"):
        reliability(run, labels, bins=0)


def test_brier_interval_contains_the_truth_as_often_as_it_promises() -> None:
    rng = np.random.default_rng(4)
    truth = float(np.mean([c * (1 - c) ** 2 + (1 - c) * c**2 for c in (0.9, 0.95, 1.0)]))
    inside = 0
    for _ in range(300):
        confidences = rng.choice([0.9, 0.95, 1.0], 40)
        right = rng.random(40) < confidences
        stated = zip(confidences.tolist(), right.tolist(), strict=True)
        items = [StatedJudgment(row, c, is_right, None, 1.0) for row, (c, is_right) in enumerate(stated)]
        brier = estimate_loss(items, squared_error, 0.95)
        assert brier.low is not None
        assert brier.high is not None
        inside += brier.low <= truth <= brier.high
    # The mean of the losses with Wilson's interval contains it in 85 %: most samples have one error or none.
    assert inside / 300 >= 0.91


def test_summary_table_and_page_show_the_bins() -> None:
    figures, *_ = simulated(60)
    assert len(figures.to_dataframe()) == len(figures.bins) == 5
    assert figures._repr_html_().count("<circle") == 5  # pyright: ignore[reportPrivateUsage]
    assert figures.summary().count("confidence 0.") == 5
    assert "surest 100% (at least 0.5" in figures.summary()
    assert Reliability.model_validate_json(figures.model_dump_json()) == figures
