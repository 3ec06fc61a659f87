"""Follows many runs: the mean and each criterion of every run, and the differences between runs that can be compared.

Runs that cannot be compared with the runs before them start a series: another rubric, other inputs or another judge
would look like a change of the program. Nothing is compared across series.

The marks of a page are tests of many hypotheses. Holm's correction is made for all of them: of equal runs, at most 5 %
of pages have a mark.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Literal, NamedTuple

from rubric_integrations.reporting.page.figures import Comparison, ComparisonFigures, Summary, SummaryFigures
from rubric_integrations.runs.files import GradedRow, RunFile, matched_rows
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.comparable_runs import (
    Comparability,
    QuestionKey,
    as_run,
    comparability,
    question_keys,
)
from rubric_integrations.trust.comparison import holm
from rubric_integrations.trust.means import estimate_scores

MOST_RUNS, MOST_ROWS = 12, 3_000
"""A page of more runs, or of more rows in all, has the rows of the last run and of the previous one of its series. It
compares each run with the first one and with the previous one."""

_MOST_CRITERIA = 60
_SIGNIFICANT = 0.05

Baseline = Literal["first", "previous"]


class Mark(NamedTuple):
    """How a figure differs from that of a baseline.

    Attributes:
        decision: Whether that is better or worse in the sense of the rubric.
        rose: Whether the figure is higher. For a penalty, higher is worse.
    """

    decision: Literal["better", "worse"]
    rose: bool


class RunFigures(NamedTuple):
    """One run.

    Attributes:
        name: The run's name.
        judge: The judge's name; None if it is unknown.
        summary: The figures of its rows.
        series: The number of its series, from 0.
        reason: Why it starts a series; empty for the first run, and for a run that continues one.
        baselines: The first and the previous run of its series, by their place among the runs; empty for the first.
    """

    name: str
    judge: str | None
    summary: Summary
    series: int
    reason: str
    baselines: Mapping[Baseline, int]


class Cell(NamedTuple):
    """One figure of one run.

    Attributes:
        figure: The mean, with its 95 % interval.
        marks: How it differs from each baseline from which it surely differs after Holm's correction.
    """

    figure: Estimate
    marks: Mapping[Baseline, Mark]


class Line(NamedTuple):
    """One figure of all runs: the score, or the value of a criterion.

    Attributes:
        name: The criterion's name; empty for the score.
        requirement: The criterion's requirement; empty for the score.
        weight: The criterion's weight; 0 for the score.
        cells: The figure in each run; None if a run does not have it.
    """

    name: str
    requirement: str
    weight: float
    cells: Sequence[Cell | None]


class ComparedPair(NamedTuple):
    """Two runs compared.

    Attributes:
        before, after: The runs, by their place.
        comparison: The figures; None if no submission is scored in both.
    """

    before: int
    after: int
    comparison: Comparison | None


class RunsOverTime(NamedTuple):
    """The figures of many runs.

    Attributes:
        runs: The runs, in their order.
        score: The mean score of each run.
        criteria: The criteria that several rows of a run have.
        more: How many more criteria there are than are shown.
        pairs: The comparisons of runs of one series.
        tests: The number of tests for which Holm's correction is made.
        has_all: Whether the page has the rows of all runs, and compares each run with every other one of its series.
        with_rows: The runs whose rows are on the page, by their place: all, or the last run and the one before it.
    """

    runs: Sequence[RunFigures]
    score: Line
    criteria: Sequence[Line]
    more: int
    pairs: Sequence[ComparedPair]
    tests: int
    has_all: bool
    with_rows: Sequence[int]

    @property
    def shown_pair(self) -> tuple[int, int]:
        """The runs that are compared first: the last run that has a previous one in its series, and that one."""
        pairs = [(run.baselines["previous"], place) for place, run in enumerate(self.runs) if run.baselines]
        return pairs[-1] if pairs else (len(self.runs) - 2, len(self.runs) - 1)

    @property
    def series(self) -> list[list[int]]:
        """The runs of each series, by their place."""
        count = 1 + max(run.series for run in self.runs)
        return [[place for place, run in enumerate(self.runs) if run.series == number] for number in range(count)]

    def changes(self, place: int) -> list[tuple[str, Mark]]:
        """Return the marks of a run against the previous run of its series, by the name of the criterion."""
        cells = [(line.name or "mean score", line.cells[place]) for line in (self.score, *self.criteria)]
        return [(name, cell.marks["previous"]) for name, cell in cells if cell and "previous" in cell.marks]

    def comparison(self, before: int, after: int) -> Comparison | None:
        """Return the comparison of two runs; None if there is none."""
        return next((pair.comparison for pair in self.pairs if pair[:2] == (before, after)), None)


def follow_runs(runs: Sequence[RunFile]) -> RunsOverTime:
    """Compute the figures of many runs, of which few are in memory at a time.

    Args:
        runs: The runs, in their order.
    """
    has_all = len(runs) <= MOST_RUNS and sum(len(run.rows) for run in runs) <= MOST_ROWS
    figures: list[RunFigures] = []
    values: list[dict[QuestionKey, _Values]] = []
    pairs: list[ComparedPair] = []
    # The runs of each series to compare the next ones with, by their place.
    held: list[dict[int, RunFile]] = []
    for place, lazy in enumerate(runs):
        run = as_run(lazy, lazy.name, in_memory=True)
        series, reason, compared = _series_of(run, held)
        if series == len(held):
            held.append({})
        earlier = held[series]
        for number, other in earlier.items():
            # The series was found by a comparison with its first run.
            comparable = compared if number == next(iter(earlier)) else comparability(other, run)
            pairs.append(ComparedPair(number, place, compare_pair(other, run, comparable)))
        baselines: dict[Baseline, int] = {}
        if earlier:
            baselines = {"first": next(iter(earlier)), "previous": next(reversed(earlier))}
        if not has_all and len(earlier) > 1:
            del earlier[next(reversed(earlier))]
        earlier[place] = run
        summary = SummaryFigures()
        for row in run.rows:
            summary.add(row)
        values.append(_criterion_values(run.rows))
        figures.append(RunFigures(run.name, run.judge, summary.summary, series, reason, baselines))
    return _with_marks(figures, values, pairs, has_all)


def compare_pair(before: RunFile, after: RunFile, comparable: Comparability) -> Comparison | None:
    """Compare two runs; None if no submission is scored in both."""
    figures = ComparisonFigures(comparable)
    for key, (one, other) in matched_rows((before, after)):
        figures.add(key, one, other)
    return figures.comparison


def _series_of(run: RunFile, held: Sequence[Mapping[int, RunFile]]) -> tuple[int, str, Comparability]:
    """Return the number of the series that a run continues, or of a new one with the reason."""
    reason = ""
    keys = set(run.row_keys())
    for number, earlier in enumerate(held):
        first = next(iter(earlier.values()))
        comparable = comparability(first, run)
        problem = comparable.refused[0] if comparable.refused else comparable.other_judge
        if not problem and keys.isdisjoint(first.row_keys()):
            problem = f"no submission of {run.name} is in {first.name}: they are paired by their ids"
        if not problem:
            return number, "", comparable
        reason = reason or problem
    return len(held), reason, Comparability()


class _Values(NamedTuple):
    """The values of one criterion in one run."""

    name: str
    requirement: str
    weight: float
    values: array[float]


def _criterion_values(rows: Iterable[GradedRow]) -> dict[QuestionKey, _Values]:
    """Return the values of each criterion that several rows have."""
    criteria: dict[QuestionKey, _Values] = {}
    for row in rows:
        entries = row.report.criteria if row.report else ()
        for key, entry in zip(question_keys(entries), entries, strict=True):
            if entry.value is not None and not entry.error:
                if key not in criteria:
                    criteria[key] = _Values(entry.name, entry.requirement, entry.weight, array("d"))
                criteria[key].values.append(entry.value)
    return {key: values for key, values in criteria.items() if len(values.values) > 1}


# The runs, by their place, and the criterion's name and requirement in the later run, which are empty for the score.
_Test = tuple[int, int, str, str]


def _with_marks(
    runs: Sequence[RunFigures],
    values: Sequence[Mapping[QuestionKey, _Values]],
    pairs: Sequence[ComparedPair],
    has_all: bool,
) -> RunsOverTime:
    keys = list(dict.fromkeys(key for of_run in values for key in of_run))
    shown = keys[:_MOST_CRITERIA]
    of_criteria = [{key: of_run[key] for key in shown if key in of_run} for of_run in values]
    tests = _Tests()
    for pair in pairs:
        if pair.before in runs[pair.after].baselines.values():
            tests.add(pair, {(of.name, of.requirement) for of in of_criteria[pair.after].values()})
    significant = tests.significant()

    def cell(place: int, name: str, requirement: str, figure: Estimate) -> Cell:
        marks: dict[Baseline, Mark] = {
            baseline: significant[before, place, name, requirement]
            for baseline, before in runs[place].baselines.items()
            if (before, place, name, requirement) in significant
        }
        return Cell(figure, marks)

    scores = [run.summary.score for run in runs]
    score = Line("", "", 0.0, [of and cell(place, "", "", of) for place, of in enumerate(scores)])
    lines: list[Line] = []
    for key in shown:
        of_runs = [of_run.get(key) for of_run in of_criteria]
        latest = next(of for of in reversed(of_runs) if of is not None)
        cells = [
            of and cell(place, of.name, of.requirement, estimate_scores(of.values)) for place, of in enumerate(of_runs)
        ]
        lines.append(Line(latest.name, latest.requirement, latest.weight, cells))
    last = len(runs) - 1
    with_rows = range(len(runs)) if has_all else (runs[last].baselines.get("previous", last - 1), last)
    return RunsOverTime(runs, score, lines, len(keys) - len(shown), pairs, tests.count, has_all, with_rows)


class _Tests:
    """The tests behind the marks of a page."""

    def __init__(self) -> None:
        self._p_values: dict[_Test, float] = {}
        self._marks: dict[_Test, Mark] = {}

    def add(self, pair: ComparedPair, shown: Set[tuple[str, str]]) -> None:
        """Add the tests of two runs: of the score, and of the criteria that are shown."""
        if pair.comparison is None or pair.comparison.figures.not_comparable:
            return
        figures = pair.comparison.figures
        of_both: list[tuple[str, str, float, float | None, float | None]] = [
            ("", "", 1.0, figures.score.value, figures.p_value)
        ]
        for criterion in pair.comparison.criteria:
            if criterion.key in shown:
                change = criterion.change
                of_both.append((*criterion.key, change.weight, change.difference.value, change.p_value))
        for name, requirement, weight, difference, p_value in of_both:
            test, rose = (pair.before, pair.after, name, requirement), bool(difference and difference > 0)
            # Where nothing changed, there is no p-value. It is a test nevertheless.
            self._p_values[test] = 1.0 if p_value is None else p_value
            self._marks[test] = Mark("better" if rose == (weight >= 0) else "worse", rose)

    @property
    def count(self) -> int:
        """The number of tests."""
        return len(self._p_values)

    def significant(self) -> dict[_Test, Mark]:
        """Return the marks of the tests whose p-value is below 0.05 after Holm's correction for all of them."""
        return {test: self._marks[test] for test, p_value in holm(self._p_values).items() if p_value < _SIGNIFICANT}


class Chart(NamedTuple):
    """The mean scores as a drawing, in pixels.

    Attributes:
        width, height: The size.
        ticks: The height of each line of the grid, with its value.
        points: The place of each run with its mean and the ends of its interval; None for a run without a mean.
        lines: The number of a series, the points of two of its runs, and whether other runs are between these.
        step: The distance of two runs.
    """

    width: float
    height: float
    ticks: Sequence[tuple[float, float]]
    points: Sequence[tuple[float, float, float, float] | None]
    lines: Sequence[tuple[int, str, bool]]
    step: float


# The chart of a few runs fits on a phone.
_LEFT, _TOP, _HEIGHT, _STEP, _SMALL_STEP = 40.0, 12.0, 170.0, 44, 34
_SMALL_WIDTH, _SMALL_HEIGHT = 90.0, 18.0


def draw(over_time: RunsOverTime, line: Line) -> Chart:
    """Draw the means of a line with their intervals. Only runs of one series are joined."""
    step = _STEP if len(line.cells) <= MOST_RUNS else _SMALL_STEP
    chart = _draw(over_time, line, (_LEFT, _TOP), _HEIGHT, step)
    return chart._replace(width=chart.width + 10, height=chart.height + 20)


def draw_small(over_time: RunsOverTime, line: Line) -> Chart:
    """Draw a line beside the name of its criterion, on a scale of its own."""
    return _draw(over_time, line, (0, 2), _SMALL_HEIGHT, _SMALL_WIDTH / len(line.cells), has_limits=False)


def _draw(
    over_time: RunsOverTime,
    line: Line,
    margins: tuple[float, float],
    height: float,
    step: float,
    *,
    has_limits: bool = True,
) -> Chart:
    left, top = margins
    figures = [cell.figure for cell in line.cells if cell is not None and cell.figure.value is not None]
    ends = [end for figure in figures for end in (figure if has_limits else figure[:1])[:3] if end is not None]
    low, high = (math.floor(10 * min(ends)) / 10, math.ceil(10 * max(ends)) / 10) if ends else (0.0, 1.0)
    span = (high - low) or 0.1

    def at(value: float) -> float:
        return round(top + height * (1 - (value - low) / span), 1)

    points: list[tuple[float, float, float, float] | None] = []
    for place, cell in enumerate(line.cells):
        if cell is None or (mean := cell.figure.value) is None:
            points.append(None)
            continue
        lowest, highest = (at(mean if limit is None else limit) for limit in (cell.figure.low, cell.figure.high))
        points.append((round(left + step * (place + 0.5), 1), at(mean), lowest, highest))
    lines: list[tuple[int, str, bool]] = []
    for number, places in enumerate(over_time.series):
        for earlier, later in pairwise(places):
            one, other = points[earlier], points[later]
            if one is not None and other is not None:
                lines.append((number, f"{one[0]},{one[1]} {other[0]},{other[1]}", later - earlier > 1))
    count = max(1, min(5, round(10 * span)))
    ticks = [(at(low + span * tick / count), round(low + span * tick / count, 3)) for tick in range(count + 1)]
    return Chart(left + step * len(line.cells), height + 2 * top, ticks, points, lines, step)
