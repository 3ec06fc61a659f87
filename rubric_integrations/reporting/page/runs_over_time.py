"""Follows many runs: the mean score and each criterion of every run, and the differences between comparable runs.

A run that cannot be compared with the runs before it starts a new series, because a change of the rubric, the inputs or
the judge would look like a change of the program. Runs of different series are not compared.

The page marks significant differences. Each mark is the result of a hypothesis test, and Holm's correction is applied
to all tests of a page. If the runs do not really differ, at most 5 % of pages have a mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Literal, NamedTuple

from rubric_integrations.reporting.page.figures import Comparison, ComparisonFigures, Summary, SummaryFigures
from rubric_integrations.runs.files import GradedRow, RunFile, matched_rows
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.comparable_runs import Comparability, QuestionKey, comparability, question_keys
from rubric_integrations.trust.comparison import holm, sample_groups
from rubric_integrations.trust.means import GroupedScores

MOST_RUNS, MOST_ROWS = 12, 3_000
"""The largest numbers of runs, and of rows in total, for which the page has all rows. A page with more runs or
rows has only the rows of the last run and of the previous run of its series. It compares each run only with the first
run and the previous run of its series.
"""

_MOST_CRITERIA = 60
_SIGNIFICANT = 0.05

Baseline = Literal["first", "previous"]


class Mark(NamedTuple):
    """A significant difference of a figure from the same figure in an earlier run, the baseline.

    Attributes:
        decision: Whether the figure is better or worse than in the baseline, according to the rubric.
        rose: Whether the figure is higher than in the baseline. For a penalty, higher is worse.
    """

    decision: Literal["better", "worse"]
    rose: bool


class RunFigures(NamedTuple):
    """One run of the page.

    Attributes:
        name: The name of the run.
        judge: The name of the judge. None if it is unknown.
        summary: The figures of its rows.
        series: The number of the run's series, from 0. A series consists of runs that can be compared with each other.
        reason: Why the run starts a new series. Empty for the first run and for a run that continues a series.
        baselines: The indices of the first and the previous run of its series. Empty for the first run of a series.
    """

    name: str
    judge: str | None
    summary: Summary
    series: int
    reason: str
    baselines: Mapping[Baseline, int]


class Cell(NamedTuple):
    """One figure of one run of the page.

    Attributes:
        figure: The mean, with its 95 % interval.
        marks: The significant differences from the first and the previous run of the series, after Holm's correction.
    """

    figure: Estimate
    marks: Mapping[Baseline, Mark]


class Line(NamedTuple):
    """One row of the page's table of runs: the mean score, or the mean value of one criterion, in every run.

    Attributes:
        name: The name of the criterion. Empty for the score.
        requirement: The requirement of the criterion. Empty for the score.
        weight: The weight of the criterion. 0 for the score.
        cells: The figure in each run, or None if a run does not have it.
    """

    name: str
    requirement: str
    weight: float
    cells: Sequence[Cell | None]


class ComparedPair(NamedTuple):
    """The comparison of two runs.

    Attributes:
        before, after: The indices of the two runs.
        comparison: The figures. None if no submission is scored in both runs.
    """

    before: int
    after: int
    comparison: Comparison | None


class RunsOverTime(NamedTuple):
    """The figures of many runs.

    Attributes:
        runs: The runs, in chronological order.
        score: The mean score of each run.
        criteria: The criteria that at least two rows of a run have.
        more: The number of further criteria that are not shown.
        pairs: The comparisons of runs of one series.
        tests: The number of tests in Holm's correction.
        has_all: Whether the page has the rows of all runs, and compares each run with every other run of its series.
        with_rows: The indices of the runs whose rows are on the page: all runs, or the last run and the previous run of
            its series.
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
        """The indices of the two runs that the page compares first.

        The second of these runs is the last run with an earlier run in its series. The first is the previous run of
        this series. If each series has only one run, they are the last two runs.
        """
        pairs = [(run.baselines["previous"], place) for place, run in enumerate(self.runs) if run.baselines]
        return pairs[-1] if pairs else (len(self.runs) - 2, len(self.runs) - 1)

    @property
    def series(self) -> list[list[int]]:
        """The indices of the runs of each series."""
        count = 1 + max(run.series for run in self.runs)
        return [[place for place, run in enumerate(self.runs) if run.series == number] for number in range(count)]

    def changes(self, place: int) -> list[tuple[str, Mark]]:
        """Return the significant differences of a run from the previous run of its series.

        Each entry is a pair of the name of the criterion (or `mean score`) and the `Mark`.
        """
        cells = [(line.name or "mean score", line.cells[place]) for line in (self.score, *self.criteria)]
        return [(name, cell.marks["previous"]) for name, cell in cells if cell and "previous" in cell.marks]

    def comparison(self, before: int, after: int) -> Comparison | None:
        """Return the comparison of two runs, by their indices. None if the page does not compare them."""
        return next((pair.comparison for pair in self.pairs if pair[:2] == (before, after)), None)


def follow_runs(runs: Sequence[RunFile]) -> RunsOverTime:
    """Compute the figures of many runs. Only few runs are in memory at a time.

    Args:
        runs: The runs, in chronological order.
    """
    has_all = len(runs) <= MOST_RUNS and sum(len(run.rows) for run in runs) <= MOST_ROWS
    figures: list[RunFigures] = []
    values: list[dict[QuestionKey, _Values]] = []
    pairs: list[ComparedPair] = []
    # The earlier runs of each series that later runs are compared with, by index.
    held: list[dict[int, RunFile]] = []
    for place, lazy in enumerate(runs):
        run = lazy._replace(rows=list(lazy.rows))
        series, reason, compared = _series_of(run, held)
        if series == len(held):
            held.append({})
        earlier = held[series]
        for number, other in earlier.items():
            # The comparison with the first run was made to find the series.
            comparable = compared if number == next(iter(earlier)) else comparability(other, run)
            pairs.append(ComparedPair(number, place, compare_pair(other, run, comparable)))
        baselines: dict[Baseline, int] = {}
        if earlier:
            baselines = {"first": next(iter(earlier)), "previous": next(reversed(earlier))}
        if not has_all and len(earlier) > 1:
            del earlier[next(reversed(earlier))]
        earlier[place] = run
        summary = SummaryFigures(missing=run.missing)
        for row in run.rows:
            summary.add(row)
        values.append(_criterion_values(run.rows))
        figures.append(RunFigures(run.name, run.judge, summary.summary, series, reason, baselines))
    return _with_marks(figures, values, pairs, has_all)


def compare_pair(before: RunFile, after: RunFile, comparable: Comparability) -> Comparison | None:
    """Compare two runs, with `comparable` as the differences between their rubrics, inputs and judges.

    Return None if no submission is scored in both runs.
    """
    figures = ComparisonFigures(comparable, sample_groups((before, after)))
    for key, (one, other) in matched_rows((before, after)):
        figures.add(key, one, other)
    return figures.comparison


def _series_of(run: RunFile, held: Sequence[Mapping[int, RunFile]]) -> tuple[int, str, Comparability]:
    """Return the number of the series that a run continues, or the number of a new series with the reason."""
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
    scores: GroupedScores


def _criterion_values(rows: Iterable[GradedRow]) -> dict[QuestionKey, _Values]:
    """Return the values of each criterion that at least two rows have."""
    criteria: dict[QuestionKey, _Values] = {}
    for row in rows:
        entries = row.report.criteria if row.report else ()
        for key, entry in zip(question_keys(entries), entries, strict=True):
            if entry.value is not None and not entry.error:
                if key not in criteria:
                    criteria[key] = _Values(entry.name, entry.requirement, entry.weight, GroupedScores())
                criteria[key].scores.add(entry.value, row.group)
    return {key: values for key, values in criteria.items() if len(values.scores.values) > 1}


# The indices of the two runs, and the name and requirement of the criterion in the later run (empty for the score).
_Test = tuple[int, int, str, str]


def _with_marks(
    runs: Sequence[RunFigures],
    values: Sequence[Mapping[QuestionKey, _Values]],
    pairs: Sequence[ComparedPair],
    has_all: bool,
) -> RunsOverTime:
    """Mark the significant changes of the scores and of the criteria between the runs."""
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
        cells = [of and cell(place, of.name, of.requirement, of.scores.estimate) for place, of in enumerate(of_runs)]
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
        """Add the tests of two runs: for the score and for each criterion that is shown."""
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
            # If nothing changed, there is no p-value, but it still counts as a test.
            self._p_values[test] = 1.0 if p_value is None else p_value
            self._marks[test] = Mark("better" if rose == (weight >= 0) else "worse", rose)

    @property
    def count(self) -> int:
        """The number of tests."""
        return len(self._p_values)

    def significant(self) -> dict[_Test, Mark]:
        """Return the marks of the tests whose p-value is below 0.05 after Holm's correction."""
        return {test: self._marks[test] for test, p_value in holm(self._p_values).items() if p_value < _SIGNIFICANT}


class Chart(NamedTuple):
    """The coordinates of a chart of means, in pixels.

    Attributes:
        width, height: The size of the chart.
        ticks: The y coordinate of each line of the grid, with its value.
        points: The x coordinate of each run, and the y coordinates of its mean and the ends of its interval. None for a
            run without a mean.
        lines: The lines that join two runs of a series. Each entry has the number of the series, the coordinates of the
            two ends, and whether runs of other series are between the two runs.
        step: The horizontal distance between neighbouring runs.
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
    """Compute the chart of a figure over all runs, with its intervals. Only runs of one series are joined."""
    step = _STEP if len(line.cells) <= MOST_RUNS else _SMALL_STEP
    chart = _draw(over_time, line, (_LEFT, _TOP), _HEIGHT, step)
    return chart._replace(width=chart.width + 10, height=chart.height + 20)


def draw_small(over_time: RunsOverTime, line: Line) -> Chart:
    """Compute a small chart of one criterion for the table of criteria. Each small chart has its own scale."""
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
    """Compute the coordinates of a chart of one score or criterion over all runs."""
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
