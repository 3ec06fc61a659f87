"""Computes the figures of the report page: the summary, points lost by criterion, a comparison, and trust in the judge.

All figures are computed in one pass over the rows, and no row is kept: each class has a method `add` for one row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from rubric_integrations.runs.files import GradedRow, RowKey, RunFile
from rubric_integrations.scoring.judgment import SpendTotal
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import NO_ESCALATIONS, CriterionReport, Escalations
from rubric_integrations.trust.calibration import CriterionCalibration, calibrate
from rubric_integrations.trust.comparable_runs import Comparability
from rubric_integrations.trust.comparison import (
    CriterionChange,
    PairedChanges,
    RunChanges,
    RunComparison,
    compare_changes,
)
from rubric_integrations.trust.matching import Match, match_labels
from rubric_integrations.trust.means import estimate_scores
from rubric_integrations.trust.measure import Agreement, CriterionAgreement, agreement

# More columns than this do not fit in a window.
_MOST_TAGS = 30
# An underscore follows where a criterion has such a name of its own.
_POSITION = re.compile(r"c\d+_*")

ColumnKey = tuple[str, str]


class TableColumns(NamedTuple):
    """What the columns are.

    Attributes:
        kind: What a column shows: the answer to one criterion, or the score of one tag.
        keys: The keys of the criteria (see `column_key`), or the tags with an empty requirement.
    """

    kind: Literal["criteria", "tags"]
    keys: tuple[ColumnKey, ...]


def column_key(criterion: CriterionReport) -> ColumnKey:
    """Return the name of a criterion, with its requirement if the name is only a position, such as `c1`.

    Criteria with a name that the author chose measure the same thing in each row, though the words may differ.

    Example:
        >>> column_key(CriterionReport(name="c1", requirement="Says 42", weight=1, verdict=None, value=None))
        ('c1', 'Says 42')
        >>> column_key(CriterionReport(name="fact", requirement="Says 42", weight=1, verdict=None, value=None))
        ('fact', '')
    """
    return criterion.name, criterion.requirement if _POSITION.fullmatch(criterion.name) else ""


class SharedColumns:
    """Finds what the rows share while they are read.

    Attributes:
        shared: The keys of the criteria that all rows so far have; empty before the first row with criteria.
        has_criteria: Whether a row has criteria; a holistic judge's have none.
    """

    def __init__(self) -> None:
        self.shared: dict[ColumnKey, None] = {}
        self.has_criteria = False
        self._rows = 0
        self._tags = Counter[str]()

    def add(self, grades: Sequence[GradedRow | None]) -> None:
        """Add one row with its grade in each run. Rows without criteria share nothing, and are not considered."""
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
        """The criteria that all rows share; if there are none, the tags that most rows share."""
        if self.shared:
            return TableColumns("criteria", tuple(self.shared))
        shared = [tag for tag, count in self._tags.most_common(_MOST_TAGS) if count >= min(2, self._rows)]
        return TableColumns("tags", tuple((tag, "") for tag in sorted(shared)))


def tags_of(row: GradedRow) -> set[str]:
    """Return the tags of a row's criteria, and those with a score."""
    return {tag for tags in row.criterion_tags for tag in tags} | row.tags.keys()


# Scores are sums of floats: a difference of this size is rounding.
_ROUNDING = 1e-9


_COMPARABLE = Comparability()


class ChangedCriterion(NamedTuple):
    """One criterion in two runs.

    Attributes:
        name: Its name; its words if several criteria have one name.
        key: Its name and its requirement in the second run.
        change: The change of its value.
        before, after: Its mean value in each run, over the submissions with a value in both.
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
        """The key of its column (see `column_key`)."""
        return self.key[0], self.key[1] if _POSITION.fullmatch(self.key[0]) else ""


class Comparison(NamedTuple):
    """Two runs compared on the submissions that both have scored and at which no judge failed.

    Attributes:
        figures: The figures of `compare_runs`.
        better, worse, same: The number of scores that rose, fell and stayed the same.
        flips: The number of criteria whose answer changed, among those with an answer in both runs.
        criteria: The criteria, those that changed most surely first.
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
        comparable: How the runs differ in more than their answers.
    """

    def __init__(self, comparable: Comparability = _COMPARABLE) -> None:
        self._changes, self._comparable = RunChanges(), comparable
        self._better = self._worse = self._same = self._flips = 0

    def add(self, key: RowKey, first: GradedRow | None, second: GradedRow | None) -> Sequence[CriterionReport]:
        """Add one submission with its row in each run; None where a run does not have it.

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
        """The figures of the rows so far; None if no submission is scored in both runs."""
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
        place: The place of the column among those of the table, from 0.
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
    place: int = 0


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

    @property
    def keys(self) -> list[ColumnKey]:
        """The keys of the criteria that all rows so far share."""
        return list(self._criteria or {})

    def of(self, columns: TableColumns) -> list[CriterionFigures]:
        """Return the figures of each column that has some, those that lost most points first."""
        groups = (
            (self._criteria or {}) if columns.kind == "criteria" else {(tag, ""): self._tags[tag] for tag in self._tags}
        )
        places = {key: place for place, key in enumerate(columns.keys)}
        figures = [groups[key].figures(key[0])._replace(place=place) for key, place in places.items() if key in groups]
        return sorted(figures, key=lambda criterion: -criterion.lost)


# More would make a list that nobody reads; the labels themselves have all.
_MOST_DISAGREEMENTS = 200
_MOST_CHARACTERS = 300
# A scale with more numbers has no list of them: its bias says more.
_MOST_NUMBERS = 7


class CorrectedRate(NamedTuple):
    """How often a criterion has one answer.

    Attributes:
        answer: The answer: MET, an option, or a number.
        judged: The judge's own share of it, from 0 to 1.
        corrected: The share that people would give.
    """

    answer: str
    judged: float
    corrected: Estimate


class CriterionTrust(NamedTuple):
    """How far the judge can be trusted on one criterion.

    Attributes:
        measured: Its agreement with people.
        rates: How often each answer occurs; only MET for a binary criterion, and none for a scale with many numbers.
    """

    measured: CriterionAgreement
    rates: list[CorrectedRate]


class ShownDisagreement(NamedTuple):
    """One judgment on which people and the judge differ.

    Attributes:
        place: The place of its row on the page, from 0.
        id: The row's id.
        criterion: The criterion's name.
        people: The answer of most people.
        judged: The judge's answer.
        reason: What a rater noted about it, or the beginning of it; may be empty.
    """

    place: int
    id: str
    criterion: str
    people: str
    judged: str
    reason: str


class Trust(NamedTuple):
    """What the section shows.

    Attributes:
        problem: Why there are no figures; None if there are.
        agreement: The agreement with people; None without figures.
        criteria: The figures of each criterion.
        labelled: The number of labelled judgments.
        decided: How many of them people and the judge both decided.
        score: The mean score that people's answers would give; None without figures.
        judge_score: The judge's mean score; None without a score.
        warnings: What limits the figures.
        disagreements: Where people and the judge differ, in the order of the run.
        more: How many more of these there are than are shown.
    """

    problem: str | None = None
    agreement: Agreement | None = None
    criteria: Sequence[CriterionTrust] = ()
    labelled: int = 0
    decided: int = 0
    score: Estimate | None = None
    judge_score: float | None = None
    warnings: Sequence[str] = ()
    disagreements: Sequence[ShownDisagreement] = ()
    more: int = 0

    @property
    def has_alpha(self) -> bool:
        """Whether several people labelled the same judgments, so that there is their agreement with each other."""
        return any(criterion.measured.people_alpha is not None for criterion in self.criteria)


def trust_figures(runs: Sequence[RunFile], labels: Sequence[LabelledJudgment]) -> Trust:
    """Compute the figures of the last run from people's labels. Labels that people chose to make are left out."""
    run = runs[-1]
    if not labels:
        return Trust("There are no labels. Draw judgments, and label them: rubric-integrations label RUN.")
    if all(label.sampled == "chosen" for label in labels):
        return Trust(
            f"All {len(labels):,} labels are of judgments that people chose, such as those that they overruled: they "
            "say nothing about how often the judge is right. Draw what to read: rubric-integrations label RUN."
        )
    rows = list(run.rows)
    try:
        matches = match_labels(rows, labels).matches
        if not matches:
            return Trust(f"None of the {len(labels):,} labels belongs to a judgment of this run.")
        measured = agreement(rows, labels)
        corrected = calibrate(rows, labels)
    except (ImportError, ValueError) as error:
        return Trust(f"The figures cannot be computed: {error}.")
    warnings = list(dict.fromkeys([*measured.warnings, *corrected.warnings]))
    if undecided := sum(criterion.undecided for criterion in measured.criteria.values()):
        warnings.append(
            f"{undecided:,} of {len(matches):,} labelled judgments are not in the list of differences: their raters "
            "disagree, and no answer has a majority"
        )
    if measured.unmatched:
        warnings.append(f"{measured.unmatched:,} labels belong to no judgment of this run")
    disagreements = list(_disagreements(runs, rows, matches))
    return Trust(
        agreement=measured,
        criteria=[CriterionTrust(of, _rates(of, corrected.criteria.get(key))) for key, of in measured.criteria.items()],
        labelled=len(matches),
        decided=sum(criterion.n for criterion in measured.criteria.values()),
        score=corrected.score,
        judge_score=corrected.judge_score,
        warnings=warnings,
        disagreements=disagreements[:_MOST_DISAGREEMENTS],
        more=max(0, len(disagreements) - _MOST_DISAGREEMENTS),
    )


def _rates(measured: CriterionAgreement, calibration: CriterionCalibration | None) -> list[CorrectedRate]:
    if calibration is None:
        return []
    if measured.kind == "scaled" and len(calibration.rates) > _MOST_NUMBERS:
        return []
    return [CorrectedRate(answer, judged or 0.0, rate) for answer, rate, judged in calibration.rates]


def _disagreements(
    runs: Sequence[RunFile], rows: Sequence[GradedRow], matches: Sequence[Match]
) -> Iterator[ShownDisagreement]:
    # The page has the rows of the first run, and then those that only the second one has.
    places = {key: place for place, key in enumerate(dict.fromkeys(key for run in runs for key in run.row_keys()))}
    keys = runs[-1].row_keys()
    for match in matches:
        judged, people = match.judged.verdict, match.consensus
        if judged is None or people is None or match.judged.error or people == judged:
            continue
        reason = next((label.reason for label in match.labels if label.reason), "")
        if len(reason) > _MOST_CHARACTERS:
            reason = reason[:_MOST_CHARACTERS] + "..."
        yield ShownDisagreement(places[keys[match.row]], rows[match.row].id, match.judged.name, people, judged, reason)
