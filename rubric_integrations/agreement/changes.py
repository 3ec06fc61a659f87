"""What changed between two runs, collected row by row, so that memory need not hold the runs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rubric_integrations.agreement.rows import complete_score
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.runs.run_files import GradedRow, RowKey

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
