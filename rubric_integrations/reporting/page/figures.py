"""Computes the figures of the report page: the summary, the cost of each criterion, and a comparison.

All figures are computed in one pass over the rows, without keeping rows. Each class has a method `add` for one row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from rubric_integrations.reporting.score_sum import sum_score
from rubric_integrations.runs.files import GradedRow, RowKey
from rubric_integrations.scoring.formula import ROUNDING, reaches_mark
from rubric_integrations.scoring.judgment import SpendTotal
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.scoring.report import NO_ESCALATIONS, CriterionReport, Escalations, desirability
from rubric_integrations.trust.comparable_runs import Comparability, recorded_part
from rubric_integrations.trust.comparison import (
    CriterionChange,
    PairedChanges,
    RunChanges,
    RunComparison,
    compare_changes,
)
from rubric_integrations.trust.means import GroupedScores

# More columns do not fit into a window.
_MOST_TAGS = 30
# An underscore follows if another criterion already has this name.
_POSITION = re.compile(r"c\d+_*")

ColumnKey = tuple[str, str]


class TableColumns(NamedTuple):
    """The columns of the table.

    Attributes:
        kind: The content of a column: the answer to one criterion (`criteria`), or the score of one tag (`tags`).
        keys: For each criterion, a pair of its name and, if the name is only a position, its requirement. For each tag,
            a pair of the tag and an empty text.
    """

    kind: Literal["criteria", "tags"]
    keys: tuple[ColumnKey, ...]


def column_key(criterion: CriterionReport) -> ColumnKey:
    """Return the key of a criterion: its name, and its requirement if the name is only a position, such as `c1`.

    Criteria with a name that the author chose measure the same thing in each row, even if their requirements differ.

    Example:
        >>> column_key(CriterionReport(name="c1", requirement="Says 42", weight=1, verdict=None, value=None))
        ('c1', 'Says 42')
        >>> column_key(CriterionReport(name="fact", requirement="Says 42", weight=1, verdict=None, value=None))
        ('fact', '')
    """
    return criterion.name, criterion.requirement if _POSITION.fullmatch(criterion.name) else ""


class SharedColumns:
    """Finds the criteria and tags that rows have in common, while the rows are read.

    Attributes:
        shared: The keys of the criteria that all rows so far have. Empty before the first row with criteria.
        has_criteria: Whether any row has criteria. Rows of a holistic judge have none.
    """

    def __init__(self) -> None:
        self.shared: dict[ColumnKey, None] = {}
        self.has_criteria = False
        self._rows = 0
        self._tags = Counter[str]()

    def add(self, grades: Sequence[GradedRow | None]) -> None:
        """Add one row with its grade in each run. Rows without criteria are ignored."""
        keys = dict.fromkeys(
            column_key(criterion) for row in grades if row and row.report for criterion in row.report.criteria
        )
        if not keys:
            return
        self._rows += 1
        self._tags.update({tag for row in grades if row for tag in tags_of(row)})
        if not self.has_criteria:
            self.shared, self.has_criteria = keys, True
        elif self.shared:
            self.shared = {key: None for key in self.shared if key in keys}

    @property
    def columns(self) -> TableColumns:
        """The columns: the criteria that all rows share or, if there are none, the most frequent tags."""
        if self.shared:
            return TableColumns("criteria", tuple(self.shared))
        shared = [tag for tag, count in self._tags.most_common(_MOST_TAGS) if count >= min(2, self._rows)]
        return TableColumns("tags", tuple((tag, "") for tag in sorted(shared)))


def tags_of(row: GradedRow) -> set[str]:
    """Return the tags of a row's criteria and the tags that have a score."""
    return {tag for tags in row.criterion_tags for tag in tags} | row.tags.keys()


# Scores are sums of floats: a difference of this size is rounding.
_ROUNDING = 1e-9


_COMPARABLE = Comparability()


class ChangedCriterion(NamedTuple):
    """One criterion, compared in two runs.

    Attributes:
        name: The name of the criterion, or its requirement if several criteria have the same name.
        key: The name and the requirement of the criterion in the second run.
        change: The change of the criterion's value.
        before, after: The mean value in each run, over the submissions that have a value in both runs.
        gained, lost: The number of submissions with a better and with a worse answer in the second run.
    """

    name: str
    key: tuple[str, str]
    change: CriterionChange
    before: float
    after: float
    gained: int
    lost: int

    @property
    def column(self) -> ColumnKey:
        """The key of the criterion's column: its name and, if the name is only a position, its requirement."""
        return self.key[0], self.key[1] if _POSITION.fullmatch(self.key[0]) else ""


class Comparison(NamedTuple):
    """A comparison of two runs, on the submissions that both runs have scored without a failure of a judge.

    Attributes:
        figures: The changes of the mean score, the pass rate and each criterion, as `compare_runs` returns them.
        better, worse, same: The number of scores that rose, fell and stayed the same.
        flips: The number of answers that changed, among criteria with an answer in both runs.
        criteria: The criteria, ordered by the p-value of their change, the smallest first.
    """

    figures: RunComparison
    better: int
    worse: int
    same: int
    flips: int
    criteria: Sequence[ChangedCriterion]


class ComparisonFigures:
    """Computes the `Comparison` of two runs.

    Args:
        comparable: Whether the rubrics, inputs or judges of the two runs differ, as `comparability` returns it.
        groups: The number of each row's group, as `sample_groups` returns it.
    """

    def __init__(self, comparable: Comparability = _COMPARABLE, groups: Mapping[RowKey, int] | None = None) -> None:
        self._changes, self._comparable = RunChanges(groups), comparable
        self._better = self._worse = self._same = self._flips = 0

    def add(self, key: RowKey, first: GradedRow | None, second: GradedRow | None) -> Sequence[CriterionReport]:
        """Add one submission with its row in each run. A row is None if the run does not have the submission.

        Returns:
            The criteria of the second row whose answer changed.
        """
        change = self._changes.add(key, first, second)
        if change.score is not None:
            self._better += change.score > _ROUNDING
            self._worse += change.score < -_ROUNDING
            self._same += abs(change.score) <= _ROUNDING
        self._flips += len(change.answers)
        return change.answers

    @property
    def comparison(self) -> Comparison | None:
        """The figures of the rows so far. None if no submission is scored in both runs."""
        if not self._changes.score.differences:
            return None
        figures = compare_changes(self._changes, comparable=self._comparable)
        criteria = [
            _changed(name, key, change, self._changes.criteria[key])
            for key, (name, change) in zip(self._changes.criteria, figures.criteria.items(), strict=True)
        ]
        return Comparison(
            figures=figures,
            better=self._better,
            worse=self._worse,
            same=self._same,
            flips=self._flips,
            criteria=sorted(criteria, key=_certainty),
        )


def _changed(name: str, key: tuple[str, str], change: CriterionChange, values: PairedChanges) -> ChangedCriterion:
    rose, fell = (sum(sign * value > _ROUNDING for value in values.differences) for sign in (1, -1))
    gained, lost = (rose, fell) if change.weight >= 0 else (fell, rose)
    before = fmean(values.before)
    return ChangedCriterion(name, key, change, before, before + fmean(values.differences), gained, lost)


def _certainty(criterion: ChangedCriterion) -> float:
    p_value = criterion.change.p_value
    return 2.0 if p_value is None else p_value


BINS = 20
"""The number of bars of the histogram of scores."""


class Summary(NamedTuple):
    """The figures of one run.

    Attributes:
        submissions: The number of submissions that the run was given. If that number is unknown, the number of rows in
            the run.
        score: The mean score of the complete grades, with its 95 % interval. None if there are no scores.
        histogram: The number of scores in each of `BINS` equal parts of [0, 1]. Scores outside count in the first or
            the last part.
        passed: The number of submissions that passed.
        graded: The number of complete grades.
        coverage: The mean coverage in [0, 1]. None if there are no reports.
        abstained: The number of abstentions.
        failed: The number of submissions without a valid grade, including `missing`.
        calls: The number of calls to models.
        tokens: The number of tokens sent and received. None if a call did not report them.
        cost: The cost in US dollars. None if the price of a call is unknown.
        escalations: The counts of the answers that the expensive judge of a cascade gave.
        pass_mark: The score that a submission needs to pass. None if it is unknown, or if the scores are not
            normalized.
        reached: The number of scores that reach the pass mark, including submissions that miss a required criterion.
        outside: The number of scores outside [0, 1].
        failed_answers: The number of failures of judges on single criteria.
        judged: The number of answers of judges. It includes answers from a ledger, because a run file does not record
            whether an answer was requested or read from a ledger.
        computed: The number of answers of checks.
        missing: The number of submissions that are not in the run, because it was stopped or is still in progress.
        is_lower_bound: Whether a request was sent and not answered. The tokens and the cost may then be higher.
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
    pass_mark: float | None = None
    reached: int = 0
    outside: int = 0
    failed_answers: int = 0
    judged: int = 0
    computed: int = 0
    missing: int = 0
    is_lower_bound: bool = False

    @property
    def at_least(self) -> str:
        """The words before the tokens and the cost: "at least " or nothing."""
        return "at least " if self.is_lower_bound else ""


class CriterionFigures(NamedTuple):
    """The figures of one criterion, or of all criteria with one tag, over a run.

    Attributes:
        name: The criterion's name, or the tag.
        requirement: The criterion's requirement. Empty if it differs between rows.
        weight: The weight, negative for a penalty. None if it differs between criteria.
        required: Whether a submission must meet the criterion to pass.
        lost: The mean number of points lost per submission, over the submissions with an answer.
        worst: The mean number of points that a submission with only the worst answers would lose, over the same
            submissions. It is the mean of the sum of the absolute weights.
        met, partly, unmet: The number of answers that are fully, partly and not at all as the rubric's author wants.
        abstained, failed, open: The number of missing answers: the judge abstained, the judge failed, or the judge was
            not asked.
        inapplicable: The number of submissions to which the criterion does not apply.
        cost: The increase of the mean score if every submission had the best answer to the criterion. None if the
            scores are not weighted sums of the answers. This is the case with groups, metrics, a length penalty or a
            holistic judge.
        place: The index of the column in the table, from 0.
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
    cost: float | None = None
    place: int = 0

    @property
    def answered(self) -> int:
        """The number of answers with a value."""
        return self.met + self.partly + self.unmet

    @property
    def loss(self) -> float:
        """How much the criterion lowers the mean score or, if this is unknown, the mean number of points lost."""
        return self.lost if self.cost is None else self.cost

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The counts of answers as texts, such as `2 not asked`, each with the table's filter for these rows."""
        words = "as wanted" if self.weight is None else "met" if self.weight > 0 else "deducted"
        # An answer that is not as the author wants is a deduction by a penalty.
        refusal = "" if words == "deducted" else "not "
        answered = f"{self.unmet:,} of {self.answered:,} {refusal}{words}" if self.answered else ""
        parts = [
            (answered, "missed" if self.unmet else ""),
            (f"{self.partly:,} partly {words}" if self.partly else "", "part"),
            (f"{self.abstained:,} could not be judged" if self.abstained else "", "abstained"),
            (f"judge failed at {self.failed:,}" if self.failed else "", "failed"),
            (f"{self.open:,} not asked" if self.open else "", "open"),
            (f"does not apply to {self.inapplicable:,}" if self.inapplicable else "", "inapplicable"),
        ]
        return [(text, answer) for text, answer in parts if text]


class SummaryFigures:
    """Computes the `Summary` of one run.

    Args:
        pass_mark: The score that a submission needs to pass. None if it is unknown.
        missing: The number of submissions that are not in the run.
    """

    def __init__(self, pass_mark: float | None = None, missing: int = 0) -> None:
        self._pass_mark, self._missing = pass_mark, missing
        self._reached = self._outside = self._failed_answers = self._judged = self._computed = 0
        self._submissions = self._reports = self._graded = self._passed = self._abstained = 0
        self._coverage = 0.0
        self._scores = GroupedScores()
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
        for criterion in report.criteria:
            self._failed_answers += criterion.error is not None
            self._computed += criterion.computed
            self._judged += criterion.was_judged and not criterion.computed
        # The pass mark applies to normalized scores only.
        if recorded_part(row, "grader").get("normalize") is False:
            self._pass_mark = None
        if report.score is not None:
            self._histogram[min(BINS - 1, max(0, int(report.score * BINS)))] += 1
            self._outside += not 0 <= report.score <= 1
            self._reached += self._pass_mark is not None and reaches_mark(report.score, self._pass_mark)
        if row.is_graded:
            self._passed += report.passed
            if report.score is not None:
                self._scores.add(report.score, row.group)

    @property
    def summary(self) -> Summary:
        """The figures of the rows so far."""
        spend = self._spend.spend
        return Summary(
            submissions=self._submissions + self._missing,
            score=self._scores.estimate if self._scores.values else None,
            histogram=self._histogram,
            passed=self._passed,
            graded=self._graded,
            coverage=self._coverage / self._reports if self._reports else None,
            abstained=self._abstained,
            failed=self._submissions + self._missing - self._graded,
            calls=spend.calls,
            tokens=spend.total_tokens,
            cost=spend.cost,
            escalations=self._escalations,
            pass_mark=self._pass_mark,
            reached=self._reached,
            outside=self._outside,
            failed_answers=self._failed_answers,
            judged=self._judged,
            computed=self._computed,
            missing=self._missing,
            # The requests of a row that a limit has left unfinished are in no report.
            is_lower_bound=spend.is_lower_bound or self._missing > 0,
        )


class _Group:
    """The sums over the rows for the criteria of one column."""

    def __init__(self) -> None:
        self.requirements = set[str]()
        self.weights = set[float]()
        self.required = False
        self.rows = 0
        self.lost = self.worst = self.cost = 0.0
        self.met = self.partly = self.unmet = self.abstained = self.failed = self.open = self.inapplicable = 0

    def add(self, answers: Sequence[tuple[CriterionReport, float]]) -> None:
        """Add the criteria of one row, each with its cost in points of the score."""
        has_answer = False
        for criterion, cost in answers:
            self.cost += cost
            # Two distinct values are enough to know that they differ.
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

    def figures(self, name: str, place: int, scores: int) -> CriterionFigures:
        """Return the figures. The cost is the mean over `scores` rows. It is unknown if there are 0 rows."""
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
            cost=self.cost / scores if scores else None,
            place=place,
        )


class ColumnFigures:
    """Computes the `CriterionFigures` of each criterion that all rows share, and of each tag."""

    def __init__(self) -> None:
        self._criteria: dict[ColumnKey, _Group] | None = None
        self._tags: dict[str, _Group] = {}
        self._scores, self._forgiven, self._adds_up = 0, 0.0, True

    def add(self, row: GradedRow) -> None:
        """Add one row.

        A criterion that is missing in any row is dropped, because only shared criteria become columns.
        """
        criteria = row.report.criteria if row.report else ()
        if not criteria:
            self._adds_up = self._adds_up and not row.report
            return
        by_key: dict[ColumnKey, list[tuple[CriterionReport, float]]] = {}
        by_tag: dict[str, list[tuple[CriterionReport, float]]] = {}
        for place, answer in enumerate(zip(criteria, self._costs(row), strict=True)):
            by_key.setdefault(column_key(answer[0]), []).append(answer)
            for tag in row.criterion_tags[place] if place < len(row.criterion_tags) else ():
                by_tag.setdefault(tag, []).append(answer)
        if self._criteria is None:
            self._criteria = {key: _Group() for key in by_key}
        self._criteria = {key: group for key, group in self._criteria.items() if key in by_key}
        for key, group in self._criteria.items():
            group.add(by_key[key])
        for tag, tagged in by_tag.items():
            self._tags.setdefault(tag, _Group()).add(tagged)

    def _costs(self, row: GradedRow) -> list[float]:
        """Return the cost of each criterion in the score of a row. 0 if the row has no score."""
        report = row.report
        if report is None or report.score is None or not row.is_graded or not self._adds_up:
            return [0.0] * len(report.criteria if report else ())
        result = sum_score(row)
        self._adds_up = result.score is not None and abs(result.score - report.score) <= ROUNDING
        if not self._adds_up or result.raw is None or result.score is None or not result.divisor:
            return [0.0] * len(result.terms)
        self._scores += 1
        self._forgiven += result.score - result.raw / result.divisor - (not result.has_positive_weight)
        return [term.cost / result.divisor for term in result.terms]

    @property
    def forgiven(self) -> float:
        """The mean difference between the scores and the sums from which they are computed.

        A negative sum gives the score 0. Therefore, the costs of all criteria add up to more than 1 minus the mean
        score. This number is the excess.
        """
        return self._forgiven / self._scores if self._scores and self._adds_up else 0.0

    @property
    def keys(self) -> list[ColumnKey]:
        """The keys of the criteria that all rows so far share."""
        return list(self._criteria or {})

    def of(self, columns: TableColumns) -> list[CriterionFigures]:
        """Return the figures of each column that has any, in the order of lost points, the most first."""
        groups = (
            (self._criteria or {}) if columns.kind == "criteria" else {(tag, ""): self._tags[tag] for tag in self._tags}
        )
        scores = self._scores if self._adds_up else 0
        places = {key: place for place, key in enumerate(columns.keys)}
        figures = [groups[key].figures(key[0], place, scores) for key, place in places.items() if key in groups]
        return sorted(figures, key=lambda criterion: -criterion.lost)
