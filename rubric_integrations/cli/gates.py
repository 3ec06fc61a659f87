"""The gates of `grade`: conditions on a whole run that a build depends on, and what made a gate fail."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err
from rubric_integrations.reporting.shortfall import names_text, shortfall_text, unassessed_criteria, unmet_criteria
from rubric_integrations.scoring.formula import reaches_mark

if TYPE_CHECKING:
    from rubric_integrations.cli.mean_gate import MeanGate
    from rubric_integrations.results.criterion_report import CriterionReport
    from rubric_integrations.runs.summary import Graded, RunSummary

# More rows are not read in the log of a build; `--out` and `--junit` have every row.
MAX_ROWS = 5
MAX_CRITERIA = 5


class Gates(NamedTuple):
    """The conditions on a run; one that is None or False is not tested.

    Attributes:
        every_row: Every row must pass.
        min_score: The least mean score.
        min_pass_rate: The least share of rows that pass.
        min_coverage: The least mean coverage.
        max_failed: The most rows whose judge may fail.
        mean: Decides about `min_score` with a bounded probability of error, in place of the run's own mean.
    """

    every_row: bool = False
    min_score: float | None = None
    min_pass_rate: float | None = None
    min_coverage: float | None = None
    max_failed: int | None = None
    mean: MeanGate | None = None

    @property
    def is_decided_early(self) -> bool:
        """Whether the run may end before its last row, because the gate of the mean is decided."""
        return self.mean is not None and self.mean.is_decided_early


class FailedGate(NamedTuple):
    """A gate that a run does not satisfy, with the rows and the criteria that made it fail.

    Attributes:
        message: The gate, and the figures that it rests on.
        rows: The rows that lower these figures.
        is_inconclusive: Whether the figures are too uncertain to tell if it fails; a build must not rely on it either.
    """

    message: str
    rows: _WorstRows
    is_inconclusive: bool = False


class GateTally:
    """Collects what the gates need of each row, in memory that hardly grows with the run.

    Args:
        gates: The gates of the run.
    """

    def __init__(self, gates: Gates):
        self._gates = gates
        self._low, self._not_passed, self._uncovered, self._failed = (_WorstRows() for _ in range(4))
        self._coverage_sum, self._covered = 0.0, 0

    def add(self, graded: Graded, place: int) -> None:
        """Add the next row.

        Args:
            graded: The row with its grade.
            place: The position of the row in the file of responses.
        """
        report, score, gates = graded.report, graded.score, self._gates
        if gates.mean:
            gates.mean.add(graded)
        worth = -1.0 if score is None else score
        if graded.judge_error:
            self._failed.add(place, graded.row.id, shortfall_text(graded), worth, ())
        if report is None or graded.judge_error or not report.passed:
            self._not_passed.add(place, graded.row.id, shortfall_text(graded), worth, unmet_criteria(graded))
        if gates.min_score is not None and score is not None and not reaches_mark(score, gates.min_score):
            self._low.add(place, graded.row.id, shortfall_text(graded), worth, unmet_criteria(graded))
        if report is not None:
            self._coverage_sum += report.coverage
            self._covered += 1
            if gates.min_coverage is not None and not reaches_mark(report.coverage, gates.min_coverage):
                missing = unassessed_criteria(graded)
                text = f"coverage {report.coverage:.3f}; not assessed: {names_text(missing)}"
                self._uncovered.add(place, graded.row.id, text, report.coverage, missing)

    def failures(self, summary: RunSummary) -> Iterator[FailedGate]:
        """Yield the gates that the finished run does not satisfy."""
        gates, mean, rows = self._gates, summary.mean_score, summary.submissions
        passed = f"{summary.passed} of {rows} rows passed"
        coverage = self._coverage_sum / self._covered if self._covered else None
        if gates.max_failed is not None and summary.failed > gates.max_failed:
            message = f"--max-failed {gates.max_failed}: the judge failed on {summary.failed} of {rows} rows"
            yield FailedGate(message, self._failed)
        if gates.every_row and summary.passed < rows:
            yield FailedGate(f"--gate: {passed}", self._not_passed)
        if gates.mean:
            if (decision := gates.mean.result.decision) != "pass":
                yield FailedGate(gates.mean.message(), self._low, is_inconclusive=decision == "inconclusive")
        elif gates.min_score is not None and not reaches_mark(mean, gates.min_score):
            state = "no row has a score" if mean is None else f"the mean score is {mean:.3f}"
            yield FailedGate(f"--min-score {gates.min_score:g}: {state}", self._low)
        if gates.min_pass_rate is not None and not reaches_mark(summary.passed / max(rows, 1), gates.min_pass_rate):
            yield FailedGate(f"--min-pass-rate {gates.min_pass_rate:g}: {passed}", self._not_passed)
        if gates.min_coverage is not None and not reaches_mark(coverage, gates.min_coverage):
            state = "no row was assessed" if coverage is None else f"the mean coverage is {coverage:.3f}"
            yield FailedGate(f"--min-coverage {gates.min_coverage:g}: {state}", self._uncovered)


def print_failed_gates(failed_gates: Iterable[FailedGate]) -> bool:
    """Print each gate that failed, its worst rows, and what most of them do not meet; return whether there is one."""
    has_failed = False
    for failed in failed_gates:
        has_failed = True
        state = "inconclusive" if failed.is_inconclusive else "failed"
        err.print(plain(f"gate {state}: {failed.message}"), style="red", soft_wrap=True)
        for line in failed.rows.lines():
            err.print(plain(f"  {line}"), soft_wrap=True)
    return has_failed


class _WorstRows:
    """The rows that make a gate fail: the worst few, the number of all, and in how many each criterion is lacking."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._count = 0
        self._criteria: Counter[str] = Counter()

    def add(self, place: int, row_id: str, text: str, worth: float, criteria: Iterable[CriterionReport]) -> None:
        self._count += 1
        self._criteria.update(row.name for row in criteria)
        # A heap's first entry is its smallest: with both signs turned, the best and latest row is dropped first.
        entry = (-worth, -place, f"{row_id}: {text}")
        (heapq.heappush if len(self._heap) < MAX_ROWS else heapq.heappushpop)(self._heap, entry)

    def lines(self) -> Iterator[str]:
        yield from (text for *_, text in sorted(self._heap, reverse=True))
        if self._count > len(self._heap):
            yield f"and {self._count - len(self._heap)} more rows"
        common = [f"{name} in {count} rows" for name, count in self._criteria.most_common(MAX_CRITERIA)]
        if common and self._count > 1:
            yield f"criteria: {', '.join(common)}"
