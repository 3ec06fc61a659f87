"""Compares two runs over the same inputs: scores, passes and each criterion, in pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from rubric_integrations.agreement.changes import ClusterOf, PairedChanges, RunChanges
from rubric_integrations.agreement.comparison_result import CriterionChange, RunComparison
from rubric_integrations.agreement.correction import corrected_mean
from rubric_integrations.agreement.intervals import (
    ROUNDING,
    difference_p_value,
    estimate_difference,
    estimate_rate_difference,
    mcnemar_p_value,
)
from rubric_integrations.agreement.matching import Matches, criterion_keys, match_labels
from rubric_integrations.agreement.rows import RunLike, is_trained_on, read_rows
from rubric_integrations.agreement.scores import score_pairs
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import RowKey, RunFile, matched_rows

Key = TypeVar("Key")

# The quantiles of a level of 95 % and a power of 80 %, added.
_DETECTABLE = 2.8
# Below it, Student's interval of skewed differences is too narrow.
_FEW_INPUTS = 50


def compare_runs(
    before: RunLike,
    after: RunLike,
    *,
    labels: Iterable[LabelledJudgment] | None = None,
    cluster: ClusterOf | None = None,
    margin: float = 0.0,
    rubric: Rubric | None = None,
    level: float = 0.95,
) -> RunComparison:
    """Compare two runs over the same inputs.

    Rows are paired by their ids. A significant difference of a judge's scores may be its taste: two equally good
    programs differ if the judge is more lenient to one of them. Labels of both runs correct it.

    Args:
        before: The first run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        after: The second run.
        labels: People's labels of a random part of both runs: the same inputs in each.
        cluster: The input to which a row belongs, by its id, if inputs have several samples.
        margin: How much worse the second run may be, at least 0.
        rubric: The rubric, for labels, if groups make the score.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: All labels were chosen by people. If only some were, these are left out, with a warning.
        ValueError: The runs share no scored input, `margin` is negative, labels were drawn by the judge's verdict, or
            the runs do not have the submissions that labels are about.
    """
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0, got {margin!r}: it is how much worse the second run may be")
    runs = [RunFile(name, None, None, read_rows(run)) for name, run in (("before", before), ("after", after))]
    changes = RunChanges(cluster)
    for key, (one, other) in matched_rows(runs):
        changes.add(key, one, other)
    if labels is None:
        return compare_changes(changes, margin=margin, level=level)
    corrected, warnings = _corrected(runs, list(labels), changes, rubric, level)
    comparison = compare_changes(changes, corrected, margin=margin, level=level)
    return comparison.model_copy(update={"warnings": (*comparison.warnings, *warnings)})


def compare_changes(
    changes: RunChanges, corrected: Estimate | None = None, *, margin: float = 0.0, level: float = 0.95
) -> RunComparison:
    """Compare two runs whose rows were collected before.

    Args:
        changes: The rows of both runs.
        corrected: The difference after correction by labels; None without labels.
        margin: How much worse the second run may be, at least 0.
        level: The level of the intervals.

    Raises:
        ValueError: The runs share no scored input.
    """
    differences = _differences(changes)
    score = _mean_change(changes.score, level)
    if changes.score.are_bounded and not any(differences):
        # No input changed: that bounds how many others would, each by 1 at most.
        score = estimate_rate_difference(rose=0, fell=0, pairs=len(differences), level=level)
    deciding = corrected or score
    is_better, is_worse = _above(deciding.low, 0.0), deciding.high is not None and deciding.high < -margin
    passed = estimate_rate_difference(rose=changes.rose, fell=changes.fell, pairs=changes.graded, level=level)
    return RunComparison(
        score=score,
        p_value=difference_p_value(differences),
        passed=None if changes.cluster else passed,
        criteria=_criteria(changes, level),
        inputs=len(differences),
        detectable=_detectable(differences),
        corrected=corrected,
        decision="better" if is_better else "worse" if is_worse else "unclear",
        is_not_worse=_above(deciding.low, -margin),
        unmatched=changes.unmatched,
        warnings=_warnings(differences, left_out=changes.pairs - len(changes.score.differences)),
    )


def _criteria(changes: RunChanges, level: float) -> dict[str, CriterionChange]:
    names = criterion_keys(changes.criteria)
    measured = {
        criterion: _change(of_rows, level, is_clustered=changes.cluster is not None)
        for criterion, of_rows in changes.criteria.items()
    }
    adjusted = holm({criterion: p_value for criterion, (_, p_value) in measured.items() if p_value is not None})
    return {
        names[criterion]: CriterionChange(
            difference, p_value, adjusted.get(criterion), criterion[1], changes.criteria[criterion].weight
        )
        for criterion, (difference, p_value) in measured.items()
    }


def _change(of_rows: PairedChanges, level: float, *, is_clustered: bool) -> tuple[Estimate, float | None]:
    if of_rows.are_binary and not is_clustered:
        rose, fell = (sum(sign * change > 0 for change in of_rows.differences) for sign in (1, -1))
        difference = estimate_rate_difference(rose=rose, fell=fell, pairs=len(of_rows.differences), level=level)
        return difference, mcnemar_p_value(rose, fell)
    return _mean_change(of_rows, level), difference_p_value(of_rows.of_inputs)


def _mean_change(of_rows: PairedChanges, level: float) -> Estimate:
    """Estimate the mean change of the inputs; values in [0, 1] change by 1 at most."""
    estimate = estimate_difference(of_rows.of_inputs, level)
    if not of_rows.are_bounded or estimate.low is None or estimate.high is None:
        return estimate
    return estimate._replace(low=max(-1.0, estimate.low), high=min(1.0, estimate.high))


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Adjust p-values for their number (Holm 1979)."""
    adjusted: dict[Key, float] = {}
    highest = 0.0
    for rank, (criterion, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p_value * (len(p_values) - rank)))
        adjusted[criterion] = highest
    return adjusted


def _corrected(
    runs: Sequence[RunFile],
    labels: Sequence[LabelledJudgment],
    changes: RunChanges,
    rubric: Rubric | None,
    level: float,
) -> tuple[Estimate, list[str]]:
    """Correct the difference by the inputs that people labelled in both runs; the texts are what limits it."""
    if any(label.sampled == "by_verdict" for label in labels):
        raise ValueError(
            "labels were drawn by the judge's verdict: they say nothing about mean scores; label a random part of the "
            "inputs, the same in both runs"
        )
    if any(row.report is not None and row.submission is None for run in runs for row in run.rows):
        raise ValueError(
            "the runs have no submissions, so that nothing tells which run a label is about: pass the results of "
            "`grade_many`, or the files that `grade --out` wrote"
        )
    of_runs: list[dict[RowKey, tuple[float, float]]] = []
    of_both = Matches([], [], [], [])
    for run in runs:
        keys, matched = run.row_keys(), match_labels(run.rows, labels)
        chosen, trained_on = of_both.chosen + matched.chosen, of_both.trained_on + matched.trained_on
        of_both = Matches(of_both.matches + matched.matches, [], chosen, trained_on)
        pairs = score_pairs(run.rows, matched.matches, rubric)
        of_runs.append({keys[pair.row]: (pair.people, pair.judge) for pair in pairs})
    people, judge = PairedChanges(), PairedChanges()
    for key, (by_people, by_judge) in of_runs[0].items():
        if key in of_runs[1]:
            people.add(by_people, of_runs[1][key][0], changes.place_of(key))
            judge.add(by_judge, of_runs[1][key][1], changes.place_of(key))
    # As in `calibrate`: the labels tell how the judge errs on inputs that it was not aligned with.
    others = RunChanges(changes.cluster)
    for key, rows in matched_rows(runs):
        if not any(row is not None and is_trained_on(row) for row in rows):
            others.add(key, rows[0], rows[1])
    differences = others.score.of_inputs
    if not differences:
        return Estimate(None, None, None, 0), of_both.warnings
    mean = math.fsum(differences) / len(differences)
    corrected = corrected_mean(people.of_inputs, judge.of_inputs, mean, len(differences), level=level, bounded=False)
    return corrected.estimate, of_both.warnings


def _differences(changes: RunChanges) -> Sequence[float]:
    """Return the change of each input's score.

    Raises:
        ValueError: There is none.
    """
    if not changes.score.differences:
        raise ValueError(
            "the runs have no scored row in common: rows are paired by their ids, name those of both alike"
        )
    return changes.score.of_inputs


def _detectable(differences: Sequence[float]) -> float | None:
    if len(differences) < 2 or np.ptp(differences) <= ROUNDING:
        return None
    return _DETECTABLE * float(np.std(differences, ddof=1)) / math.sqrt(len(differences))


def _warnings(differences: Sequence[float], *, left_out: int) -> tuple[str, ...]:
    warnings: list[str] = []
    if len(differences) < _FEW_INPUTS:
        warnings.append(f"fewer than {_FEW_INPUTS} inputs: the interval is too narrow if few of them change much")
    if left_out:
        rows = "1 input is" if left_out == 1 else f"{left_out:,} inputs are"
        warnings.append(f"{rows} left out, because a judge failed there in one of the runs, or gave no score")
    return tuple(warnings)


def _above(value: float | None, threshold: float) -> bool:
    return value is not None and value > threshold
