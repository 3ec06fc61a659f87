"""Compares two runs over the same inputs: scores, passes and each criterion, in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.correction import corrected_mean
from rubric_integrations.agreement.intervals import (
    ROUNDING,
    difference_p_value,
    estimate_difference,
    estimate_rate_difference,
    mcnemar_p_value,
)
from rubric_integrations.agreement.matching import Matches, criterion_keys, match_labels
from rubric_integrations.agreement.rows import RunLike, complete_score, is_trained_on, read_rows
from rubric_integrations.agreement.scores import score_pairs
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow, RowKey, RunFile

ClusterOf = Callable[[str], str]
"""Returns the input to which a row belongs, by the row's id: several samples of one input are no several inputs."""

# The quantiles of a level of 95 % and a power of 80 %, added.
_DETECTABLE = 2.8
# Below it, Student's interval of skewed differences is too narrow.
_FEW_INPUTS = 50


class CriterionChange(NamedTuple):
    """How one criterion changed between two runs.

    Attributes:
        difference: The second run's mean value minus the first run's; for a binary criterion of its MET rates. For a
            penalty, where MET is the error, above 0 is worse.
        p_value: Of this criterion alone; None if nothing changed.
        adjusted: The p-value after Holm's correction for all criteria.
    """

    difference: Estimate
    p_value: float | None
    adjusted: float | None


class RunComparison(Record):
    """The second run compared with the first, on the inputs that both have scored and at which no judge failed.

    Attributes:
        score: The difference of the mean scores, second minus first.
        p_value: Of the paired t-test; None if all differences are equal.
        passed: The difference of the shares of passed rows; None if inputs have several samples.
        criteria: The change of each criterion, by its name; by its words if several criteria have one name.
        inputs: The number of inputs in both runs.
        detectable: The smallest true difference that so many inputs show in 80 % of cases; None if the differences
            have no spread.
        corrected: The difference after correction by labels of both runs; None without labels.
        decision: `better` if the difference is surely above 0, `worse` if surely below `-margin`, else `unclear`; with
            labels, by the corrected difference.
        is_not_worse: Whether the difference is surely above `-margin`.
        unmatched: How many rows only one run has.
        warnings: What limits the figures.
    """

    score: Estimate
    p_value: float | None
    passed: Estimate | None
    criteria: dict[str, CriterionChange]
    inputs: int
    detectable: float | None
    corrected: Estimate | None
    decision: str
    is_not_worse: bool
    unmatched: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text."""
        lines = [f"{self.decision}: the mean score changed by {self.score}"]
        if self.corrected is not None:
            lines.append(f"corrected by labels: {self.corrected}")
        if self.detectable is not None:
            lines.append(f"{self.inputs:,} inputs show a difference of {self.detectable:.3f} in 80 % of cases")
        changed = {name: row for name, row in self.criteria.items() if row.adjusted is not None and row.adjusted < 0.05}
        lines += [f"{name}: {row.difference}, p = {row.adjusted:.3g} (Holm)" for name, row in changed.items()]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [(name, str(row.difference), row.p_value, row.adjusted) for name, row in self.criteria.items()]
        return html_table(self.summary(), ["criterion", "difference", "p", "p (Holm)"], rows)


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
    first, second = read_rows(before), read_rows(after)
    pairs, unmatched = _pair_rows(first, second)
    scored = [(key, complete_score(one), complete_score(other)) for key, one, other in pairs]
    changes = {key: b - a for key, a, b in scored if a is not None and b is not None}
    if not changes:
        raise ValueError(
            "the runs have no scored row in common: rows are paired by their ids, name those of both alike"
        )
    differences = _by_cluster(changes, cluster)
    score = estimate_difference(differences, level)
    are_bounded = all(0 <= a <= 1 for _, a, _ in scored if a is not None)
    if are_bounded and not any(differences):
        # No input changed: that bounds how many others would, each by 1 at most.
        score = estimate_rate_difference(rose=0, fell=0, pairs=len(differences), level=level)
    corrected, warnings = None, list[str]()
    if labels is not None:
        corrected, warnings = _corrected(first, second, list(labels), changes, cluster, rubric, level)
    deciding = corrected or score
    is_better, is_worse = _above(deciding.low, 0.0), deciding.high is not None and deciding.high < -margin
    return RunComparison(
        score=score,
        p_value=difference_p_value(differences),
        passed=None if cluster else _passed(pairs, level),
        criteria=_criteria(pairs, cluster, level),
        inputs=len(differences),
        detectable=_detectable(differences),
        corrected=corrected,
        decision="better" if is_better else "worse" if is_worse else "unclear",
        is_not_worse=_above(deciding.low, -margin),
        unmatched=unmatched,
        warnings=(*_warnings(differences, left_out=len(pairs) - len(changes)), *warnings),
    )


_Pairs = Sequence[tuple[RowKey, GradedRow, GradedRow]]


def _pair_rows(first: Sequence[GradedRow], second: Sequence[GradedRow]) -> tuple[_Pairs, int]:
    """Pair the rows of two runs by their ids; rows with an equal id are paired in their order."""
    others = dict(zip(_row_keys(second), second, strict=True))
    pairs = [(key, row, others[key]) for key, row in zip(_row_keys(first), first, strict=True) if key in others]
    return pairs, len(first) + len(second) - 2 * len(pairs)


def _row_keys(rows: Sequence[GradedRow]) -> list[RowKey]:
    """Return the key of each row: its id, and its number from 1 among the rows with an equal id."""
    return RunFile("run", None, None, rows).row_keys()


def _is_complete(row: GradedRow) -> bool:
    return row.report is not None and not row.report.failed_count


def _by_cluster(changes: Mapping[RowKey, float], cluster: ClusterOf | None) -> list[float]:
    """Return the mean change of each input."""
    if cluster is None:
        return list(changes.values())
    of_inputs: dict[str, list[float]] = {}
    for (row_id, _), change in changes.items():
        of_inputs.setdefault(cluster(row_id), []).append(change)
    return [math.fsum(values) / len(values) for values in of_inputs.values()]


def _passed(pairs: _Pairs, level: float) -> Estimate:
    graded = [
        (one.report.passed, other.report.passed)
        for _, one, other in pairs
        if one.report and other.report and _is_complete(one) and _is_complete(other)
    ]
    rose = sum(after and not before for before, after in graded)
    fell = sum(before and not after for before, after in graded)
    return estimate_rate_difference(rose=rose, fell=fell, pairs=len(graded), level=level)


def _criteria(pairs: _Pairs, cluster: ClusterOf | None, level: float) -> dict[str, CriterionChange]:
    values: dict[tuple[str, str], dict[RowKey, tuple[float, float]]] = {}
    for key, one, other in pairs:
        if one.report and other.report:
            answered = [entry for entry in other.report.criteria if not entry.error]
            after = {(entry.name, entry.requirement): entry.value for entry in answered}
            for entry in one.report.criteria:
                criterion = (entry.name, entry.requirement)
                value = after.get(criterion)
                if entry.value is not None and value is not None and not entry.error:
                    values.setdefault(criterion, {})[key] = (entry.value, value)
    changes: dict[str, tuple[Estimate, float | None]] = {}
    names = criterion_keys(values)
    for name, of_rows in ((names[criterion], of_rows) for criterion, of_rows in values.items()):
        is_binary = cluster is None and all(value in (0.0, 1.0) for pair in of_rows.values() for value in pair)
        if is_binary:
            rose, fell = sum(b > a for a, b in of_rows.values()), sum(b < a for a, b in of_rows.values())
            difference = estimate_rate_difference(rose=rose, fell=fell, pairs=len(of_rows), level=level)
            changes[name] = difference, mcnemar_p_value(rose, fell)
        else:
            differences = _by_cluster({key: b - a for key, (a, b) in of_rows.items()}, cluster)
            changes[name] = estimate_difference(differences, level), difference_p_value(differences)
    adjusted = _holm({name: p_value for name, (_, p_value) in changes.items() if p_value is not None})
    return {name: CriterionChange(change, p, adjusted.get(name)) for name, (change, p) in changes.items()}


def _holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values for their number (Holm 1979)."""
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p_value * (len(p_values) - rank)))
        adjusted[name] = highest
    return adjusted


def _corrected(
    first: Sequence[GradedRow],
    second: Sequence[GradedRow],
    labels: Sequence[LabelledJudgment],
    changes: Mapping[RowKey, float],
    cluster: ClusterOf | None,
    rubric: Rubric | None,
    level: float,
) -> tuple[Estimate, list[str]]:
    """Correct the difference by the inputs that people labelled in both runs; the texts are what limits it."""
    if any(label.sampled == "by_verdict" for label in labels):
        raise ValueError(
            "labels were drawn by the judge's verdict: they say nothing about mean scores; label a random part of the "
            "inputs, the same in both runs"
        )
    if any(row.report is not None and row.submission is None for row in (*first, *second)):
        raise ValueError(
            "the runs have no submissions, so that nothing tells which run a label is about: pass the results of "
            "`grade_many`, or the files that `grade --out` wrote"
        )
    of_runs: list[dict[RowKey, tuple[float, float]]] = []
    of_both, trained_on = Matches([], [], [], []), set[RowKey]()
    for rows in (first, second):
        keys, matched = _row_keys(rows), match_labels(rows, labels)
        chosen, seen = of_both.chosen + matched.chosen, of_both.trained_on + matched.trained_on
        of_both = Matches(of_both.matches + matched.matches, [], chosen, seen)
        trained_on.update(key for key, row in zip(keys, rows, strict=True) if is_trained_on(row))
        pairs = score_pairs(rows, matched.matches, rubric)
        of_runs.append({keys[pair.row]: (pair.people, pair.judge) for pair in pairs})
    shared = [key for key in of_runs[0] if key in of_runs[1]]
    people = _by_cluster({key: of_runs[1][key][0] - of_runs[0][key][0] for key in shared}, cluster)
    judge = _by_cluster({key: of_runs[1][key][1] - of_runs[0][key][1] for key in shared}, cluster)
    # As in `calibrate`: the labels tell how the judge errs on inputs that it was not aligned with.
    differences = _by_cluster({key: change for key, change in changes.items() if key not in trained_on}, cluster)
    if not differences:
        return Estimate(None, None, None, 0), of_both.warnings
    mean = math.fsum(differences) / len(differences)
    corrected = corrected_mean(people, judge, mean, len(differences), level=level, bounded=False).estimate
    return corrected, of_both.warnings


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
