"""Compares two runs over the same inputs: scores, passes and each criterion, in pairs.

Changes are collected row by row, without keeping the runs in memory. Whether two runs used the same rubric is decided
here, in `rubric_mismatch`.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RowKey, RunFile, matched_rows
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.trust.calibration import corrected_mean, score_pairs
from rubric_integrations.trust.matching import (
    Matches,
    RunLike,
    complete_score,
    criterion_keys,
    is_trained_on,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.statistics import (
    ROUNDING,
    difference_p_value,
    estimate_difference,
    estimate_rate_difference,
    mcnemar_p_value,
)

ClusterOf = Callable[[str], str]
"""Returns the input to which a row belongs, by the row's id: several samples of one input are no several inputs."""


class PairedChanges:
    """The changes of one figure, such as the score, of which two runs have a value in each row.

    Attributes:
        differences: The second value minus the first one, for each row.
        are_binary: Whether all values are 0 or 1.
        are_bounded: Whether all values are in [0, 1].
        weight: The criterion's weight; 0 for the score.
    """

    __slots__ = ("_inputs", "are_binary", "are_bounded", "differences", "weight")

    def __init__(self, weight: float = 0.0):
        self.differences = array("d")
        self.are_binary = self.are_bounded = True
        self.weight = weight
        self._inputs: list[int] = []

    def add(self, before: float, after: float, place: int | None) -> None:
        """Add one row with the number of its input; None if each row is an input of its own."""
        self.differences.append(after - before)
        self.are_binary = self.are_binary and before in (0.0, 1.0) and after in (0.0, 1.0)
        self.are_bounded = self.are_bounded and 0 <= before <= 1 and 0 <= after <= 1
        if place is not None:
            self._inputs.append(place)

    @property
    def of_inputs(self) -> Sequence[float]:
        """The mean change of each input."""
        if not self._inputs:
            return self.differences
        groups: dict[int, list[float]] = {}
        for place, difference in zip(self._inputs, self.differences, strict=True):
            groups.setdefault(place, []).append(difference)
        return [math.fsum(changes) / len(changes) for changes in groups.values()]


class RowChange(NamedTuple):
    """How one row changed.

    Attributes:
        score: The second score minus the first one; None if one of the runs has no complete score of it.
        answers: The criteria of the second run with another answer than in the first, if both have one.
    """

    score: float | None
    answers: Sequence[CriterionReport] = ()


class RunChanges:
    """Collects how two runs differ.

    Attributes:
        cluster: The input to which a row belongs, by its id; None if each row is an input of its own.
        score: The changes of the scores, of the rows that both runs have scored and at which no judge failed.
        criteria: The changes of each criterion with a value in both runs on two rows at least, by its name and its
            requirement.
        pairs: The number of rows that both runs have.
        unmatched: The number of rows that only one run has.
        rose, fell, graded: The number of rows that passed only in the second run, only in the first run, and in all.
    """

    def __init__(self, cluster: ClusterOf | None = None):
        self.cluster = cluster
        self.score = PairedChanges()
        self.criteria: dict[tuple[str, str], PairedChanges] = {}
        self.pairs = self.unmatched = self.rose = self.fell = self.graded = 0
        self._places: dict[str, int] = {}
        # Criteria that only one row has so far: nearly all, if each row has its own.
        self._single: dict[tuple[str, str], tuple[float, float, int | None]] = {}

    def add(self, key: RowKey, before: GradedRow | None, after: GradedRow | None) -> RowChange:
        """Add one row with its grade in each run; None if a run does not have it.

        Args:
            key: The row's id, and its number among those with an equal id.
            before: Its grade in the first run.
            after: Its grade in the second run.
        """
        if before is None or after is None:
            self.unmatched += 1
            return RowChange(None)
        self.pairs += 1
        if before.report is None or after.report is None:
            return RowChange(None)
        place = self.place_of(key)
        changed = self._add_answers(before.report.criteria, after.report.criteria, place)
        if before.report.failed_count or after.report.failed_count:
            return RowChange(None, changed)
        self.graded += 1
        self.rose += after.report.passed and not before.report.passed
        self.fell += before.report.passed and not after.report.passed
        scores = complete_score(before), complete_score(after)
        if scores[0] is None or scores[1] is None:
            return RowChange(None, changed)
        self.score.add(scores[0], scores[1], place)
        return RowChange(scores[1] - scores[0], changed)

    def place_of(self, key: RowKey) -> int | None:
        """Return the number of a row's input; None if each row is an input of its own."""
        return self._places.setdefault(self.cluster(key[0]), len(self._places)) if self.cluster else None

    def _add_answers(
        self, before: Sequence[CriterionReport], after: Sequence[CriterionReport], place: int | None
    ) -> list[CriterionReport]:
        """Add the answers of one row, and return those of the second run that are others than in the first."""
        changed: list[CriterionReport] = []
        earlier = {(entry.name, entry.requirement): entry for entry in before if not entry.error}
        for entry in after:
            criterion = (entry.name, entry.requirement)
            other = earlier.get(criterion)
            if other is None or entry.error:
                continue
            if other.value is not None and entry.value is not None:
                self._add_values(criterion, entry.weight, other.value, entry.value, place)
            if other.verdict != entry.verdict and None not in (other.verdict, entry.verdict):
                changed.append(entry)
        return changed

    def _add_values(
        self, criterion: tuple[str, str], weight: float, before: float, after: float, place: int | None
    ) -> None:
        changes = self.criteria.get(criterion)
        if changes is None:
            first = self._single.pop(criterion, None)
            if first is None:
                self._single[criterion] = before, after, place
                return
            changes = self.criteria[criterion] = PairedChanges(weight)
            changes.add(*first)
        changes.add(before, after, place)


Decision = Literal["better", "worse", "unclear"]

_SIGNIFICANT = 0.05


class CriterionChange(NamedTuple):
    """How one criterion changed between two runs.

    Attributes:
        difference: The second run's mean value minus the first run's; for a binary criterion of its MET rates. For a
            penalty, where MET is the error, above 0 is worse.
        p_value: Of this criterion alone; None if nothing changed.
        adjusted: The p-value after Holm's correction for all criteria.
        requirement: The criterion's requirement.
        weight: Its weight in the second run, negative for a penalty.
    """

    difference: Estimate
    p_value: float | None
    adjusted: float | None
    requirement: str
    weight: float

    @property
    def decision(self) -> Decision:
        """`better` or `worse` in the sense of the rubric if the adjusted p-value is below 0.05, else `unclear`."""
        if self.adjusted is None or self.adjusted >= _SIGNIFICANT or not self.difference.value:
            return "unclear"
        return "better" if (self.difference.value > 0) == (self.weight >= 0) else "worse"


class RunComparison(Record):
    """The second run compared with the first, on the inputs that both have scored and at which no judge failed.

    Attributes:
        score: The difference of the mean scores, second minus first.
        p_value: Of the paired t-test; None if all differences are equal.
        passed: The difference of the shares of passed rows; None if inputs have several samples.
        criteria: The change of each criterion with an answer in both runs on two rows at least, by its name; by its
            words if several criteria have one name.
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
    decision: Decision
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
        changed = {name: row for name, row in self.criteria.items() if row.decision != "unclear"}
        lines += [f"{name}: {row.difference}, p = {row.adjusted:.3g} (Holm)" for name, row in changed.items()]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [(name, str(row.difference), row.p_value, row.adjusted) for name, row in self.criteria.items()]
        return html_table(self.summary(), ["criterion", "difference", "p", "p (Holm)"], rows)


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
    corrected = corrected_mean(people.of_inputs, judge.of_inputs, mean, len(differences), level=level)
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


_Key = tuple[str, str, float]


def rubric_mismatch(runs: Sequence[RunFile]) -> str:
    """Describe why the grades of one run or of two measure different things; empty if they can be compared.

    Rows may have criteria of their own. What is compared are rows with an equal id, whose criteria must be the same: a
    criterion is another one if its name, its requirement or its weight differs. If no id is in both runs, one rubric
    must be. Rows without criteria have nothing to compare.
    """
    ids = [[row_id for row_id, _ in run.row_keys()] for run in runs]
    counts = Counter(row_id for of_run in ids for row_id in of_run)
    is_disjoint = len(runs) > 1 and set(ids[0]).isdisjoint(ids[1])
    first_by_id: dict[str, tuple[int, int, int]] = {}
    rubrics = [set[int]() for _ in runs]
    for number, (run, of_run) in enumerate(zip(runs, ids, strict=True)):
        for place, row_id in enumerate(of_run):
            if counts[row_id] == 1 and not is_disjoint:
                continue
            criteria = _criterion_keys(run.rows[place])
            if not criteria:
                continue
            digest = hash(criteria)
            rubrics[number].add(digest)
            before = first_by_id.setdefault(row_id, (number, place, digest))
            if before[2] != digest:
                other = runs[before[0]]
                key = min(criteria ^ _criterion_keys(other.rows[before[1]]))
                where = f"{other.name} and {run.name}" if before[0] != number else f"its rows in {run.name}"
                criterion = f"`{key[0]}` {key[1]!r} (weight {key[2]:g})"
                return f"the row {row_id!r} has the criterion {criterion} in only one of {where}"
    if is_disjoint and all(rubrics) and rubrics[0].isdisjoint(rubrics[1]):
        return f"{runs[0].name} and {runs[1].name} have no row and no rubric in common"
    return ""


def _criterion_keys(row: GradedRow) -> frozenset[_Key]:
    return frozenset((c.name, c.requirement, c.weight) for c in (row.report.criteria if row.report else ()))
