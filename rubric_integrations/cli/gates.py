"""The end of a `grade` run: writes the results to terminal and files, evaluates gates, and chooses the exit code.

A gate is a condition on the complete run. With `--alpha`, `--min-score` passes only if the mean score is
significantly above the threshold. All rows of the input file are read once before the first call to a judge.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import err, print_lines, print_warnings, refuse, with_limits
from rubric_integrations.cli.loading import load_labels, refuse_bad_input
from rubric_integrations.reporting.grades import (
    names_text,
    shortfall_text,
    unassessed_criteria,
    unmet_criteria,
)
from rubric_integrations.runs.files import GradedRow, RunFile, read_run
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust import Estimate, GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.trust.gates import decide_mean
from rubric_integrations.trust.matching import dependence_warnings
from rubric_integrations.trust.planning import FEWEST_LABELS

if TYPE_CHECKING:
    from rubric_integrations.cli.grade import GateOptions
    from rubric_integrations.cli.rows import RowsOfFile
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded, RunSummary
    from rubric_integrations.scoring.report import CriterionReport

# The most rows and criteria that are printed for a failed gate. `--out` and `--junit` have every row.
MAX_ROWS = 5
MAX_CRITERIA = 5


class Gates(NamedTuple):
    """The conditions on a run. A condition that is None or False is not tested.

    Attributes:
        every_row: Every row must pass.
        min_score: The smallest mean score.
        min_pass_rate: The smallest share of rows that pass.
        min_coverage: The smallest mean coverage.
        max_failed: The largest number of rows on which the judge may fail.
        mean: The statistical gate on the mean score, for `--alpha`. It replaces the comparison of the run's mean with
            `min_score`.
    """

    every_row: bool = False
    min_score: float | None = None
    min_pass_rate: float | None = None
    min_coverage: float | None = None
    max_failed: int | None = None
    mean: MeanGate | None = None

    @property
    def is_decided_early(self) -> bool:
        """Whether the run may end before its last row, because the gate on the mean is decided."""
        return self.mean is not None and self.mean.is_decided_early


class FailedGate(NamedTuple):
    """A gate that a run does not satisfy, with the rows and the criteria that caused it.

    Attributes:
        message: The gate and the figures that it is based on.
        rows: The worst rows, which lower these figures.
        is_inconclusive: Whether the figures are too uncertain for a decision. Such a gate does not pass either.
    """

    message: str
    rows: _WorstRows
    is_inconclusive: bool = False


class GateTally:
    """Collects from each row the data that the gates need. It uses little memory for each row.

    Args:
        gates: The gates of the run.
    """

    def __init__(self, gates: Gates):
        self._gates = gates
        self._low, self._not_passed, self._uncovered, self._failed = (_WorstRows() for _ in range(4))
        self._coverage_sum, self._covered = 0.0, 0
        self._uncounted_sum, self._uncounted, self._undefined = 0.0, 0, 0

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
        grade = None if graded.judge_error else report
        lacks_answers = grade is not None and (grade.failed_count > 0 or grade.low_coverage)
        if lacks_answers:
            self._uncounted_sum += score or 0.0
            self._uncounted += 1
            self._undefined += score is None
        if graded.judge_error:
            self._failed.add(place, graded.row.id, shortfall_text(graded), worth, ())
        if report is None or graded.judge_error or not report.passed:
            self._not_passed.add(place, graded.row.id, shortfall_text(graded), worth, unmet_criteria(graded))
        is_counted = score is not None or lacks_answers
        if gates.min_score is not None and is_counted and not reaches_mark(graded.gate_score, gates.min_score):
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
        gates, rows = self._gates, summary.submissions
        counted_rows = summary.scored + self._undefined
        mean = (summary.score_sum - self._uncounted_sum) / counted_rows if summary.scored else None
        passed = f"{summary.passed} of {counted(rows, 'row')} passed"
        coverage = self._coverage_sum / self._covered if self._covered else None
        if gates.max_failed is not None and summary.failed > gates.max_failed:
            message = f"--max-failed {gates.max_failed}: the judge failed on {summary.failed} of {counted(rows, 'row')}"
            yield FailedGate(message, self._failed)
        if gates.every_row and summary.passed < rows:
            yield FailedGate(f"--gate: {passed}", self._not_passed)
        if gates.mean:
            if (decision := gates.mean.result.decision) != "pass":
                yield FailedGate(gates.mean.message(), self._low, is_inconclusive=decision == "inconclusive")
        elif gates.min_score is not None and not reaches_mark(mean, gates.min_score):
            state = "no row has a score" if mean is None else f"the mean score is {mean:.3f}"
            if self._uncounted and mean is not None:
                rows_text = "1 row counts" if self._uncounted == 1 else f"{self._uncounted:,} rows count"
                state += f", where {rows_text} as 0, because too many of the answers are missing"
            yield FailedGate(f"--min-score {gates.min_score:g}: {state}", self._low)
        if gates.min_pass_rate is not None and not reaches_mark(summary.passed / max(rows, 1), gates.min_pass_rate):
            yield FailedGate(f"--min-pass-rate {gates.min_pass_rate:g}: {passed}", self._not_passed)
        if gates.min_coverage is not None and not reaches_mark(coverage, gates.min_coverage):
            state = "no row was assessed" if coverage is None else f"the mean coverage is {coverage:.3f}"
            yield FailedGate(f"--min-coverage {gates.min_coverage:g}: {state}", self._uncovered)


def print_failed_gates(failed_gates: Iterable[FailedGate]) -> bool:
    """Print each failed gate, its worst rows and their most frequent unmet criteria. Return whether a gate failed."""
    has_failed = False
    for failed in failed_gates:
        has_failed = True
        state = "inconclusive" if failed.is_inconclusive else "failed"
        err.print(plain(f"gate {state}: {failed.message}"), style="red", soft_wrap=True)
        for line in failed.rows.lines():
            err.print(plain(f"  {line}"), soft_wrap=True)
    return has_failed


class _WorstRows:
    """The rows that make a gate fail: the worst of them, their number, and the number for each unmet criterion."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._count = 0
        self._criteria: Counter[str] = Counter()

    def add(self, place: int, row_id: str, text: str, worth: float, criteria: Iterable[CriterionReport]) -> None:
        self._count += 1
        self._criteria.update(row.name for row in criteria)
        # The first entry of a heap is its smallest. With both signs reversed, the best and latest row is dropped first.
        entry = (-worth, -place, f"{row_id}: {text}")
        (heapq.heappush if len(self._heap) < MAX_ROWS else heapq.heappushpop)(self._heap, entry)

    def lines(self) -> Iterator[str]:
        yield from (text for *_, text in sorted(self._heap, reverse=True))
        if self._count > len(self._heap):
            yield f"and {counted(self._count - len(self._heap), 'more row')}"
        common = [f"{name} in {counted(count, 'row')}" for name, count in self._criteria.most_common(MAX_CRITERIA)]
        if common and self._count > 1:
            yield f"criteria: {', '.join(common)}"


class MeanGate:
    """Decides whether the mean score of a run is significantly above a threshold, significantly below it, or neither.

    The gate keeps a few numbers for each row in memory. With labels, a baseline or a cluster, it keeps complete rows.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The largest probability of a wrong pass, and also of a wrong failure.
        labels: A file of human labels of a random part of the run, for correcting the mean.
        baseline: An earlier run over the same inputs. The gate passes only if this run is also not worse.
        margin: The largest accepted decrease of the mean score from the baseline.
        rubric: The rubric of the run. Needed with labels.
        stop_early: Whether the run ends as soon as the gate is decided.
        cluster: The column whose equal values mark dependent rows. None if all rows are independent.
        floor: The lowest score that a row can have.
        anyway: Whether the baseline may have another rubric or other inputs.
        strict: Whether an invalid line in the file of labels is an error.
    """

    def __init__(
        self, min_score: float, alpha: float, *, labels: Path | None, baseline: Path | None, margin: float,
        rubric: Rubric | None, stop_early: bool, strict: bool = False, cluster: str | None = None, floor: float = 0.0,
        anyway: bool = False,
    ):  # fmt: skip
        self.min_score, self.alpha = min_score, alpha
        self._cluster, self._floor, self._anyway = cluster, floor, anyway
        self._queries = _Queries()
        self._labels_path, self._baseline_path, self._margin, self._rubric = labels, baseline, margin, rubric
        self._scores, self._missing = array("d"), 0
        self._rows: list[GradedRow] = []
        with refuse_bad_input(*(path for path in (labels, baseline) if path)):
            self.fewest = fewest_to_pass(min_score, alpha, sequential=stop_early, floor=floor)
            self.sequential = SequentialGate(min_score, alpha) if stop_early else None
            self._baseline = read_run(baseline) if baseline else None
            if labels and rubric is None:
                raise ValueError("--labels: needs a rubric of the whole run, and here each row brings its own")
            self._labels = load_labels(labels, None, rubric, strict=strict) if labels else None
        if self._labels is not None:
            drawn = [label for label in self._labels if label.sampled != "chosen"]
            self._labelled = len({label.id or label.submission.response for label in drawn})
            if self._labelled < FEWEST_LABELS:
                refuse(
                    f"--labels {labels}: has labels of {self._labelled:,} submissions, and a gate needs "
                    f"{FEWEST_LABELS}: label more of them, drawn at random"
                )

    @property
    def is_decided_early(self) -> bool:
        """Whether the scores so far have decided the gate. If so, the run needs no further rows."""
        return self.sequential is not None and self.sequential.decision != "inconclusive"

    @property
    def _name(self) -> str:
        return f"--min-score {self.min_score:g} --alpha {self.alpha:g}"

    def warn_of_few(self, count: int, file: Path) -> None:
        """Print a warning before the first call, if the run has too few submissions to pass.

        Args:
            count: The number of submissions in the file.
            file: The file.
        """
        rows = [(count, file, "submissions")]
        labelled = [(self._labelled, self._labels_path, "labelled submissions")] if self._labels is not None else []
        for number, path, what in rows + labelled:
            if number < self.fewest:
                text = f"{self._name} needs at least {self.fewest:,} {what}, and {path} has {number:,}"
                err.print(plain(f"{text}: this run cannot pass, however high its scores are"), style="yellow",
                          soft_wrap=True)  # fmt: skip

    def add(self, graded: Graded) -> None:
        """Add the next graded row to the rows that decide the gate."""
        score = graded.gate_score
        if self._keeps_rows:
            self._rows.extend(RunFile.of("run", [graded]).rows)
        elif score is None:
            self._missing += 1
        else:
            self._scores.append(score)
        if not self._keeps_rows:
            self._queries.add(graded)

    @property
    def _keeps_rows(self) -> bool:
        return any(part is not None for part in (self._labels, self._baseline, self._cluster))

    @cached_property
    def result(self) -> GateResult:
        """The decision of the gate, from the scores of the rows so far. It is computed once."""
        if not self._keeps_rows:
            print_warnings(self._queries.warnings)
        if self.sequential:
            # The interval of a run that stopped because of its own scores would be too narrow.
            unknown = Estimate(None, None, None, self.sequential.count)
            return GateResult(self.sequential.decision, unknown, self.min_score, None, self.sequential.missing)
        with refuse_bad_input():
            if not self._keeps_rows:
                scores = [*self._scores, *[None] * self._missing]
                return decide_mean(scores, self.min_score, self.alpha, floor=self._floor)
            result = gate(
                self._rows, self.min_score, labels=self._labels, baseline=self._baseline, margin=self._margin,
                rubric=self._rubric, alpha=self.alpha, cluster=self._cluster, floor=self._floor, anyway=self._anyway,
            )  # fmt: skip
        print_warnings(result.warnings)
        return result

    def message(self) -> str:
        """Return a text with the decision and the figures that it is based on."""
        result = self.result
        if self.sequential:
            missing = f", {result.missing:,} without a score" if result.missing else ""
            undecided = "" if result.decision != "inconclusive" else "not decided "
            return f"{self._name} --stop-early: {undecided}after {result.score.n:,} submissions{missing}"
        corrected = ", corrected by labels" if self._labels is not None else ""
        sure = f"{1 - 2 * self.alpha:.0%} interval, n = {result.score.n:,}"
        mean = f"the mean score is {with_limits(result.score)} ({sure}){corrected}"
        score = mean if result.score.n else "no row has a score"
        parts = [f"{self._name}: {score}"]
        if result.missing:
            parts.append(f"{result.missing:,} rows without a score may be anything from 0 to 1")
        if result.baseline is not None:
            change = with_limits(result.baseline, signed=True)
            parts.append(
                f"{result.change}: the change from {self._baseline_path} is {change}, and it may be {self._margin:g} "
                "worse"
            )
        if result.unmatched:
            rows = "1 row is" if result.unmatched == 1 else f"{result.unmatched:,} rows are"
            parts.append(f"{rows} in only one of the runs")
        return "; ".join([*parts, *self._advice(result)])

    def print_decision(self, *, quiet: bool) -> None:
        """Print the decision as the last line. If the gate passes, also print its figures.

        If the gate does not pass, `print_failed_gates` has already printed the figures.
        """
        decision, change = self.result.decision, self.result.change
        if decision != "pass":
            against = f" (against the baseline: {change})" if change else ""
            err.print(plain(f"gate decision: {decision}{against}"), style="red", soft_wrap=True)
        elif not quiet:
            print_lines([f"gate passed: {self.message()}"])

    def _advice(self, result: GateResult) -> Sequence[str]:
        if result.decision != "inconclusive":
            return ()
        if advice := list(result.advice("--floor", "--margin")):
            return advice
        if result.score.n < self.fewest:
            return (f"a pass needs at least {self.fewest:,} submissions",)
        if result.score.low is not None and result.score.low > self.min_score and result.baseline is not None:
            return ("more submissions would show whether the run is worse than the baseline",)
        if self._labels is not None:
            return ("more labels would decide",)
        return ("the mean is too close to the threshold to decide",)


class _Queries:
    """Counts the rows of each query with little memory: only repeated texts are kept."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self._repeated: dict[int, str] = {}

    def add(self, graded: Graded) -> None:
        query = graded.row.submission.query if graded.row.submission else None
        if query is not None:
            key = hash(query)
            self._counts[key] += 1
            if self._counts[key] == 2:
                self._repeated[key] = query

    @property
    def warnings(self) -> list[str]:
        """The warnings about rows with the same query, because such rows depend on each other."""
        queries = (self._repeated.get(key, str(key)) for key in self._counts.elements())
        rows = [
            GradedRow(str(number), Submission(response="-", query=query), None, None)
            for number, query in enumerate(queries)
        ]
        return dependence_warnings(rows, None) if self._repeated else []


def make_mean_gate(options: GateOptions, *, rubric: Rubric | None, rows: RowsOfFile, file: Path) -> MeanGate | None:
    """Make the `MeanGate` from the options of `grade`, or return None without `--alpha`.

    Options without effect are refused, and a file with too few submissions for a pass is reported.

    Args:
        options: The options.
        rubric: The rubric of the run.
        rows: The rows of the file of responses.
        file: The file of responses.
    """
    labels, baseline, margin, stop_early = options.labels, options.baseline, options.margin, options.stop_early
    if options.alpha is None:
        needless = {
            "--labels": labels,
            "--baseline": baseline,
            "--margin": margin,
            "--stop-early": stop_early or None,
            "--cluster": options.cluster,
            "--floor": options.floor,
        }
        for option, value in needless.items():
            if value is not None:
                refuse(f"{option}: is for a gate with --alpha, and would have no effect: add --alpha 0.05")
        return None
    if options.min_score is None:
        refuse("--alpha: needs --min-score: it is the probability that this gate decides wrongly")
    if margin is not None and baseline is None:
        refuse("--margin: is how much worse than --baseline the run may be: name the baseline, too")
    if stop_early and (labels is not None or baseline is not None):
        refuse("--stop-early: decides by the scores alone: leave out --labels and --baseline, which need the whole run")
    if stop_early and options.cluster is not None:
        refuse(
            "--stop-early: cannot take --cluster: after each row it bets on an independent one, and rows of one group "
            "would pass too often: leave out one of them"
        )
    if stop_early and options.floor is not None:
        refuse("--stop-early: cannot use --floor, which would have no effect: leave out one of them")
    columns = ("id", "query", *sorted(rows.metadata or ()))
    if options.cluster is not None and options.cluster not in columns:
        known = ", ".join(columns)
        refuse(
            f"--cluster {options.cluster}: not all rows of {file} have this column: name one of {known}; the tasks are "
            "in `query` and the ids in `id`, whatever their names in the file"
        )
    mean_gate = MeanGate(
        options.min_score, options.alpha, labels=labels, baseline=baseline, margin=margin or 0.0, rubric=rubric,
        stop_early=stop_early, strict=options.strict, cluster=options.cluster, floor=options.floor or 0.0,
        anyway=options.anyway,
    )  # fmt: skip
    mean_gate.warn_of_few(len(rows), file)
    return mean_gate
