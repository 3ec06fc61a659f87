"""Computes the figures of the report page for one run: its summary, and the points lost per criterion or tag.

All are computed in one pass over the rows, of which none is kept: each class has a method `add` for one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.agreement.intervals import estimate_scores
from rubric_integrations.reporting.page.columns import ColumnKey, Columns, column_key
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.escalations import NO_ESCALATIONS, Escalations
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.usage import SpendTotal
from rubric_integrations.runs.run_files import GradedRow

BINS = 20
"""The number of bars of the histogram of scores."""


class Summary(NamedTuple):
    """The figures of one run.

    Attributes:
        submissions: The number of submissions.
        score: The mean score of the complete grades, with its 95 % interval; None if there is none.
        histogram: The number of scores in each of `BINS` equal parts of [0, 1]; others count in the first or the last.
        passed: The number of submissions that passed.
        graded: The number of complete grades.
        coverage: The mean coverage, in [0, 1]; None without a report.
        abstained: The number of criteria that a judge could not assess.
        failed: The number of submissions without a valid grade.
        calls: The number of calls to models.
        tokens: Tokens sent and received; None where a call did not report them.
        cost: US dollars; None where the price of a call is unknown.
        escalations: How many answers the expensive judge of a cascade gave.
    """

    submissions: int
    score: Estimate | None
    histogram: list[int]
    passed: int
    graded: int
    coverage: float | None
    abstained: int
    failed: int
    calls: int
    tokens: int | None
    cost: float | None
    escalations: Escalations = NO_ESCALATIONS


class CriterionFigures(NamedTuple):
    """The figures of one criterion, or of all criteria with one tag, over a run.

    Attributes:
        name: The criterion's name, or the tag.
        requirement: The criterion's text; empty if it differs between rows.
        weight: The weight, negative for a penalty; None if it differs between criteria.
        required: Whether a submission must fulfil it to pass.
        lost: Points lost per submission, on average over the submissions with an answer.
        worst: The most points that can be lost: the sum of the absolute weights, on average over those submissions.
        met, partly, unmet: The number of answers that are fully, partly and not at all as the author wants.
        abstained, failed, open: The number of missing answers: the judge could not tell, failed, or got no request.
        inapplicable: The number of submissions to which the criterion does not apply.
    """

    name: str
    requirement: str
    weight: float | None
    required: bool
    lost: float
    worst: float
    met: int
    partly: int
    unmet: int
    abstained: int
    failed: int
    open: int
    inapplicable: int


class SummaryFigures:
    """Computes the `Summary` of one run."""

    def __init__(self) -> None:
        self._submissions = self._reports = self._graded = self._passed = self._abstained = 0
        self._coverage = 0.0
        self._scores: list[float] = []
        self._histogram = [0] * BINS
        self._spend, self._escalations = SpendTotal(), NO_ESCALATIONS

    def add(self, row: GradedRow) -> None:
        """Add one row."""
        self._submissions += 1
        self._graded += row.is_graded
        report = row.report
        if not report:
            return
        self._reports += 1
        self._coverage += report.coverage
        self._abstained += report.cannot_assess_count
        self._spend.add(report.spend)
        if (escalations := report.escalations).judgments:
            self._escalations += escalations
        if report.score is not None:
            self._histogram[min(BINS - 1, max(0, int(report.score * BINS)))] += 1
        if row.is_graded:
            self._passed += report.passed
            if report.score is not None:
                self._scores.append(report.score)

    @property
    def summary(self) -> Summary:
        """The figures of the rows so far."""
        spend = self._spend.spend
        return Summary(
            submissions=self._submissions,
            score=estimate_scores(self._scores) if self._scores else None,
            histogram=self._histogram,
            passed=self._passed,
            graded=self._graded,
            coverage=self._coverage / self._reports if self._reports else None,
            abstained=self._abstained,
            failed=self._submissions - self._graded,
            calls=spend.calls,
            tokens=spend.total_tokens,
            cost=spend.cost,
            escalations=self._escalations,
        )


def desirability(row: CriterionReport) -> float | None:
    """Rate an answer from 0 to 1, where 1 is what the rubric's author wants, also for a penalty; None without one."""
    if row.value is None or row.error:
        return None
    return 1.0 - row.value if row.weight < 0 else row.value


class _Group:
    """The criteria of one column: sums over the rows."""

    def __init__(self) -> None:
        self.requirements = set[str]()
        self.weights = set[float]()
        self.required = False
        self.rows = 0
        self.lost = self.worst = 0.0
        self.met = self.partly = self.unmet = self.abstained = self.failed = self.open = self.inapplicable = 0

    def add(self, criteria: Sequence[CriterionReport]) -> None:
        has_answer = False
        for criterion in criteria:
            # Two are enough to know that they differ.
            if len(self.requirements) < 2:
                self.requirements.add(criterion.requirement)
            if len(self.weights) < 2:
                self.weights.add(criterion.weight)
            self.required = self.required or criterion.required
            value = desirability(criterion)
            if value is not None:
                has_answer = True
                self.lost += abs(criterion.weight) * (1 - value)
                self.worst += abs(criterion.weight)
                self.met += value == 1
                self.partly += 0 < value < 1
                self.unmet += value == 0
            self.abstained += criterion.abstained
            self.inapplicable += criterion.not_applicable
            self.failed += criterion.error is not None
            self.open += not criterion.was_asked
        self.rows += has_answer

    def figures(self, name: str) -> CriterionFigures:
        return CriterionFigures(
            name=name,
            requirement=next(iter(self.requirements)) if len(self.requirements) == 1 else "",
            weight=next(iter(self.weights)) if len(self.weights) == 1 else None,
            required=self.required,
            lost=self.lost / self.rows if self.rows else 0.0,
            worst=self.worst / self.rows if self.rows else 0.0,
            met=self.met,
            partly=self.partly,
            unmet=self.unmet,
            abstained=self.abstained,
            failed=self.failed,
            open=self.open,
            inapplicable=self.inapplicable,
        )


class ColumnFigures:
    """Computes the figures of the criteria that all rows share, and of the tags."""

    def __init__(self) -> None:
        self._criteria: dict[ColumnKey, _Group] | None = None
        self._tags: dict[str, _Group] = {}

    def add(self, row: GradedRow) -> None:
        """Add one row. A criterion that it does not have is given up, so that memory holds only shared ones."""
        criteria = row.report.criteria if row.report else ()
        if not criteria:
            return
        by_key: dict[ColumnKey, list[CriterionReport]] = {}
        by_tag: dict[str, list[CriterionReport]] = {}
        for place, criterion in enumerate(criteria):
            by_key.setdefault(column_key(criterion), []).append(criterion)
            for tag in row.criterion_tags[place] if place < len(row.criterion_tags) else ():
                by_tag.setdefault(tag, []).append(criterion)
        if self._criteria is None:
            self._criteria = {key: _Group() for key in by_key}
        self._criteria = {key: group for key, group in self._criteria.items() if key in by_key}
        for key, group in self._criteria.items():
            group.add(by_key[key])
        for tag, tagged in by_tag.items():
            self._tags.setdefault(tag, _Group()).add(tagged)

    def of(self, columns: Columns) -> list[CriterionFigures]:
        """Return the figures of each column that has some, those that lost most points first."""
        groups = (
            (self._criteria or {}) if columns.kind == "criteria" else {(tag, ""): self._tags[tag] for tag in self._tags}
        )
        figures = [groups[key].figures(key[0]) for key in columns.keys if key in groups]
        return sorted(figures, key=lambda criterion: -criterion.lost)
