"""Compares two runs over the same inputs: paired differences of scores, passes and each criterion.

Changes are collected row by row, without keeping the runs in memory. `trust/comparable_runs.py` decides whether two
runs can be compared at all.

The mean change has Student's interval. A wider interval would rarely show a regression with fewer than 50 inputs. The
test that belongs to Student's interval finds a difference between equal programs in 3.5 to 6.7 % of cases. However,
Student's interval is too narrow if only a few inputs lose much. Therefore, a decision has a caveat if a wider interval,
by `estimate_change` in `trust/means.py`, does not confirm it. For values in [0, 1], there are two exceptions. If all
changes are equal, or if rows are in groups, this wider interval replaces Student's interval.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RowKey, RunFile, matched_rows
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.trust.calibration import score_pairs
from rubric_integrations.trust.comparable_runs import Comparability, comparability, question_keys
from rubric_integrations.trust.corrections import corrected_mean
from rubric_integrations.trust.matching import (
    Cluster,
    Matches,
    RunLike,
    answer_levels,
    as_run,
    canonical_answer,
    complete_score,
    criterion_keys,
    dependence_warnings,
    group_rows,
    group_warnings,
    is_trained_on,
    match_labels,
    same_submission,
)
from rubric_integrations.trust.means import (
    FEWEST_GROUPS,
    FOR_INTERVAL,
    Groups,
    estimate_change,
    in_groups,
    kappa_influences,
    number_groups,
    p_value_of,
    select_groups,
    widening,
)
from rubric_integrations.trust.statistics import (
    ROUNDING,
    cohen_kappa,
    difference_p_value,
    estimate_difference,
    estimate_rate_difference,
    level_distances,
    mcnemar_p_value,
)

AnswerPair = tuple[str, str, int | None]
"""The answer in the first run, the answer in the second run, and the number of the row's group, or None."""

ClusterOf = Callable[[str], str]
"""A function that gets a row's id and returns the input of the row. Several rows can be samples of one input."""


class PairedChanges:
    """The changes of one figure, such as the score, in the rows for which both runs have a value.

    Attributes:
        before: The first run's value in each row.
        differences: The second run's value minus the first run's value, for each row.
        are_binary: Whether all values are 0 or 1.
        are_bounded: Whether all values are in [0, 1].
        weight: The criterion's weight, or 0 for the score.
        entry: An entry of the criterion in a report, or None for the score.
    """

    __slots__ = ("_groups", "are_binary", "are_bounded", "before", "differences", "entry", "weight")

    def __init__(self, weight: float = 0.0, entry: CriterionReport | None = None):
        self.entry = entry
        self.before, self.differences = array("d"), array("d")
        self.are_binary = self.are_bounded = True
        self.weight = weight
        self._groups: list[int] = []

    def add(self, before: float, after: float, group: int | None) -> None:
        """Add the values of one row in the first and in the second run.

        `group` is the number of the row's group, or None if rows are independent.
        """
        self.before.append(before)
        self.differences.append(after - before)
        self.are_binary = self.are_binary and before in (0.0, 1.0) and after in (0.0, 1.0)
        self.are_bounded = self.are_bounded and 0 <= before <= 1 and 0 <= after <= 1
        if group is not None:
            self._groups.append(group)

    @property
    def groups(self) -> Groups | None:
        """The group of each row, or None if rows are independent."""
        return np.unique(self._groups, return_inverse=True)[1] if self._groups else None

    @property
    def are_equal(self) -> bool:
        """Whether all changes are equal."""
        return len(self.differences) > 0 and float(np.ptp(self.differences)) <= ROUNDING

    def bounded_change(self, level: float, imaginary: float = FOR_INTERVAL) -> Estimate:
        """Estimate the mean change. All values must be in [0, 1].

        With two or more rows (or five or more groups), the interval exists even if all changes are equal, because an
        imaginary row with the worst possible change is added for each limit.

        Args:
            level: The confidence level of the interval, between 0 and 1.
            imaginary: The number of these rows: `FOR_INTERVAL` (0.75) for an interval, or `FOR_GATE` (1.0) for a
                decision by one limit.
        """
        return estimate_change(np.asarray(self.differences), level, groups=self.groups, imaginary=imaginary)

    def mean_change(self, level: float) -> Estimate:
        """Estimate the mean change of the rows, with Student's interval.

        For values in [0, 1], the interval of `bounded_change` replaces it if all changes are equal or if rows are in
        groups. For other values, groups of rows make Student's interval wider.
        """
        groups = self.groups
        if self.are_bounded and (groups is not None or self.are_equal):
            return self.bounded_change(level)
        estimate = estimate_difference(self.differences, level)
        if groups is not None and estimate.value is not None:
            return in_groups(estimate, np.asarray(self.differences) - estimate.value, groups, level)
        if not self.are_bounded or estimate.low is None or estimate.high is None:
            return estimate
        return estimate._replace(low=max(-1.0, estimate.low), high=min(1.0, estimate.high))

    def p_value(self) -> float | None:
        """Compute the two-sided p-value of the mean change, or None if nothing changed.

        It comes from a paired t-test. If all changes are equal or if rows are in groups, it comes from the interval of
        `mean_change`. It is then None if there is no interval.
        """
        if not self.are_equal and self.groups is None:
            return difference_p_value(self.differences)
        return None if not any(self.differences) else p_value_of(self.mean_change)

    def standard_error(self) -> float | None:
        """Compute the standard error of the mean change, or None for one row or one group."""
        groups, differences = self.groups, np.asarray(self.differences)
        rest = differences - differences.mean()
        sums = rest if groups is None else np.bincount(groups, rest)
        count = len(sums)
        return math.sqrt(float(sums @ sums) * count / (count - 1)) / len(rest) if count > 1 else None

    @property
    def inputs(self) -> int:
        """The number of independent inputs: the number of groups, or of rows if rows are independent."""
        return len(self.differences) if not self._groups else len(set(self._groups))


class RowChange(NamedTuple):
    """The changes of one row between two runs.

    Attributes:
        score: The second score minus the first score, or None if a run has no complete score of the row.
        answers: The second run's entries of the criteria that have an answer in both runs and whose answer changed.
    """

    score: float | None
    answers: Sequence[CriterionReport] = ()


# A few refused rows must not stop a release. But the rows that a run has lost may be those that it would have failed.
_MOST_MISSING = 0.1


class RunChanges:
    """Collects the differences between two runs, row by row.

    Attributes:
        score: The changes of the scores, for rows with a score in both runs and without a failure of a judge.
        criteria: The changes of each criterion, by its name and requirement. A criterion is included if at least two
            rows have a value for it in both runs.
        pairs: The number of rows in both runs.
        unmatched: The number of rows in only one run.
        rose: The number of rows that passed only in the second run.
        fell: The number of rows that passed only in the first run.
        graded: The number of rows for which both runs have a report without a failure of a judge.
        answers: The number of answers that changed.
        flips: The number of answers that changed, by the criterion's name and requirement.
        lost: The number of rows of both runs with a complete score in only one of them.
        scored: The number of rows with a complete score in the first run.
        missing: The number of these rows that are not in the second run, or have no complete score there.

    Args:
        groups: The number of each row's group, or None if rows are independent.
    """

    def __init__(self, groups: Mapping[RowKey, int] | None = None):
        self.score = PairedChanges()
        self.criteria: dict[tuple[str, str], PairedChanges] = {}
        self.pairs = self.unmatched = self.rose = self.fell = self.graded = self.answers = self.lost = 0
        self.scored = self.missing = 0
        self.flips = Counter[tuple[str, str]]()
        self._groups = groups
        # Criteria that only one row has so far. If each row has its own rubric, these are nearly all criteria.
        self._single: dict[tuple[str, str], tuple[float, float, int | None]] = {}
        self._answers: dict[tuple[str, str], AnswerPair | Counter[AnswerPair]] = {}

    def add(self, key: RowKey, before: GradedRow | None, after: GradedRow | None) -> RowChange:
        """Add one row with its grade in each run.

        Args:
            key: The row's id, and its number among the rows with an equal id.
            before: The row in the first run, or None if the run does not have it.
            after: The row in the second run, or None if the run does not have it.

        Returns:
            The changes of the row.
        """
        scores = [None if row is None else complete_score(row) for row in (before, after)]
        self.scored += scores[0] is not None
        self.missing += scores[0] is not None and scores[1] is None
        if before is None or after is None:
            self.unmatched += 1
            return RowChange(None)
        self.pairs += 1
        self.lost += (scores[0] is None) != (scores[1] is None)
        if before.report is None or after.report is None:
            return RowChange(None)
        place = self.group_of(key)
        is_same = same_submission(before, after) is True
        changed = self._add_answers(before.report.criteria, after.report.criteria, place, is_same=is_same)
        self.answers += len(changed)
        if before.report.failed_count or after.report.failed_count:
            return RowChange(None, changed)
        self.graded += 1
        self.rose += after.report.passed and not before.report.passed
        self.fell += before.report.passed and not after.report.passed
        if scores[0] is None or scores[1] is None:
            return RowChange(None, changed)
        self.score.add(scores[0], scores[1], place)
        return RowChange(scores[1] - scores[0], changed)

    @property
    def are_unchanged(self) -> bool:
        """Whether all answers and scores are equal in both runs.

        False if the second run is partial, or if more rows are in only one run than in both runs, because the compared
        rows are then too few to tell.
        """
        is_same = not self.answers and not any(self.score.differences)
        return is_same and not self.lost and not self.is_partial and self.unmatched <= self.pairs

    @property
    def is_partial(self) -> bool:
        """Whether more than a tenth of the first run's scored rows have no score in the second run."""
        return self.missing > _MOST_MISSING * self.scored

    def require_scores(self) -> PairedChanges:
        """Return the changes of the scores.

        Raises:
            ValueError: No row has a score in both runs.
        """
        if not self.score.differences:
            raise ValueError(
                "the runs have no scored row in common: rows are paired by their ids, name those of both alike"
            )
        return self.score

    @property
    def left_out(self) -> int:
        """The number of rows that are in both runs but have no scores to compare."""
        return self.pairs - len(self.score.differences)

    @property
    def in_groups(self) -> bool:
        """Whether rows that depend on each other are in groups (by `cluster` of `compare_runs`)."""
        return self._groups is not None

    def group_of(self, key: RowKey) -> int | None:
        """Return the number of a row's group, or None if rows are independent."""
        return None if self._groups is None else self._groups[key]

    def _add_answers(
        self, before: Sequence[CriterionReport], after: Sequence[CriterionReport], place: int | None, *, is_same: bool
    ) -> list[CriterionReport]:
        """Add the answers of one row, and return the second run's entries whose answer changed."""
        changed: list[CriterionReport] = []
        earlier = dict(zip(question_keys(before), before, strict=True))
        for key, entry in zip(question_keys(after), after, strict=True):
            other = earlier.get(key)
            if other is None or other.error or entry.error:
                continue
            criterion = (entry.name, entry.requirement)
            if other.value is not None and entry.value is not None:
                self._add_values(criterion, entry, other.value, place)
            if is_same and other.was_judged and entry.was_judged:
                self._add_pair(criterion, (other.verdict or "", entry.verdict or "", place))
            if other.verdict != entry.verdict and None not in (other.verdict, entry.verdict):
                changed.append(entry)
                self.flips[criterion] += 1
        return changed

    def _add_values(self, criterion: tuple[str, str], entry: CriterionReport, before: float, place: int | None) -> None:
        after = entry.value or 0.0
        changes = self.criteria.get(criterion)
        if changes is None:
            first = self._single.pop(criterion, None)
            if first is None:
                self._single[criterion] = before, after, place
                return
            changes = self.criteria[criterion] = PairedChanges(entry.weight, entry)
            changes.add(*first)
        changes.add(before, after, place)

    def _add_pair(self, criterion: tuple[str, str], pair: AnswerPair) -> None:
        answers = self._answers.setdefault(criterion, pair)
        if isinstance(answers, Counter):
            answers[pair] += 1
        elif answers is not pair:
            self._answers[criterion] = Counter([answers, pair])

    def answers_of(self, criterion: tuple[str, str]) -> Counter[AnswerPair]:
        """Return the number of each pair of answers to a criterion, in the rows that have the same response in both."""
        answers = self._answers.get(criterion, Counter[AnswerPair]())
        return answers if isinstance(answers, Counter) else Counter([answers])


Decision = Literal["better", "worse", "unclear", "unchanged"]

_SIGNIFICANT = 0.05


class CriterionChange(NamedTuple):
    """The change of one criterion between two runs.

    Attributes:
        difference: The second run's mean value minus the first run's mean value. For a binary criterion, this is the
            difference of the MET rates. For a penalty, where MET means an error, a difference above 0 is worse.
        p_value: The p-value of this criterion without a correction for the other criteria, or None if nothing changed.
        adjusted: The p-value after Holm's correction for all criteria, or None if nothing changed.
        requirement: The criterion's requirement.
        weight: The criterion's weight, negative for a penalty.
        answers: The number of answers to responses that are the same in both runs. Abstentions are included.
        changed: The number of these answers that differ. A changed answer may be right or wrong. None if no response is
            the same.
        kappa: Cohen's kappa between these answers of both runs, without abstentions, and with quadratic weights for
            ordered answers. Undefined if only one answer occurs.
        flips: The number of answers that differ, also if the responses differ. Abstentions are included.
    """

    difference: Estimate
    p_value: float | None
    adjusted: float | None
    requirement: str
    weight: float
    answers: int = 0
    changed: int | None = None
    kappa: Estimate = Estimate(None, None, None, 0)
    flips: int = 0

    @property
    def decision(self) -> Decision:
        """`better` or `worse` if the adjusted p-value is below 0.05, `unchanged` if no answer changed, or `unclear`.

        For a penalty, with a negative weight, a difference above 0 is `worse`.
        """
        if not self.flips and not self.difference.value:
            return "unchanged"
        if self.adjusted is None or self.adjusted >= _SIGNIFICANT or not self.difference.value:
            return "unclear"
        return "better" if (self.difference.value > 0) == (self.weight >= 0) else "worse"


class RunComparison(Record):
    """The comparison of a second run with a first run, on rows that both runs scored without a failure of a judge.

    Attributes:
        score: The second run's mean score minus the first run's mean score.
        p_value: The p-value of `score`, by a paired t-test. It is computed from the interval instead if rows are in
            groups or if all differences are equal. None if nothing changed, or if there is no interval.
        passed: The second run's share of passed rows minus the first run's share. None if rows are in groups, or if the
            runs have different conditions for a passed row.
        criteria: The change of each criterion for which at least two rows have a value in both runs. The key is the
            criterion's name, or its requirement if several criteria have this name.
        inputs: The number of compared inputs: the number of groups if rows are in groups, otherwise the number of rows.
        detectable: The smallest true difference that this number of inputs would show in 80 % of cases. None if all
            differences are equal, or if rows are in groups.
        corrected: The difference after correction with human labels of both runs. None without labels.
        decision: `better` if the interval of the difference is above 0, `worse` if it is below `-margin`, `unchanged`
            if every answer and score is equal, otherwise `unclear`. With labels, the corrected difference decides.
        is_not_worse: Whether the interval of the difference is above `-margin`, or nothing changed. If the change is
            unclear, the interval of `cautious` must also be above `-margin`.
        unmatched: The number of rows that are in only one run.
        is_partial: Whether more than a tenth of the first run's scored rows have no score in the second run. A gate is
            then inconclusive, because a run must not pass by losing the rows that it fails.
        warnings: Limitations of the figures, and differences between the runs other than their answers.
        cautious: The difference of `score` with a wider interval, which is also valid if only a few inputs lose or gain
            much. With fewer than 50 inputs, this interval rarely shows a change. None if `score` already has this
            interval, if scores are outside [0, 1], or with labels.
        caveat: The assumption on which a decision `better` or `worse` depends, if the interval of `cautious` does not
            confirm this decision. If it alone does not exclude a loss of more than `margin`, the reason. Otherwise "".
        not_comparable: The reasons why the comparison is meaningless, if `anyway` allowed it. Otherwise empty.
        in_groups: Whether the interval is computed for groups of rows.
        margin: The accepted loss.
        stopped: A text for each run that was stopped, or is still in progress. A gate is then inconclusive.
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
    is_partial: bool = False
    warnings: tuple[str, ...] = ()
    cautious: Estimate | None = None
    caveat: str = ""
    not_comparable: tuple[str, ...] = ()
    in_groups: bool = False
    margin: float = 0.0
    stopped: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The decision as text, with its caveat, and with a mark if the runs cannot be compared."""
        mark = "NOT COMPARABLE, and " if self.not_comparable else ""
        return f"{mark}{self.decision}{f', {self.caveat}' if self.caveat else ''}"

    @property
    def has_interval(self) -> bool:
        """Whether the comparison can be decided: the deciding difference has an interval, or nothing changed.

        This difference is `corrected` with labels, otherwise `score`. Without an interval, the decision is `unclear`.
        """
        return self.decision == "unchanged" or (self.corrected or self.score).low is not None

    @property
    def changed_text(self) -> str:
        """How many answers to equal responses changed, as text. "" if no response is the same in both runs."""
        answers = sum(row.answers for row in self.criteria.values())
        if not answers:
            return ""
        changed = sum(row.changed or 0 for row in self.criteria.values())
        share = f"{changed:,} of {counted(answers, 'answer')} to equal responses changed"
        return f"{share}, which does not mean that they are wrong"

    def summary(self) -> str:
        """Return the figures as text."""
        lines = [f"{self.verdict}: the mean score changed by {self.score}"]
        if self.in_groups:
            lines.append(f"the mean of the rows, with the interval of {counted(self.inputs, 'group')}")
        if self.caveat and self.cautious is not None:
            lines.append(f"with the interval that allows for them: {self.cautious}")
        if self.corrected is not None:
            lines.append(f"corrected by labels: {self.corrected}")
        if self.detectable is not None:
            lines.append(f"{self.inputs:,} inputs show a difference of {self.detectable:.3f} in 80 % of cases")
        changed = {name: row for name, row in self.criteria.items() if row.decision in ("better", "worse")}
        lines += [f"{name}: {row.difference}, p = {row.adjusted:.3g} (Holm)" for name, row in changed.items()]
        lines += [self.changed_text] if self.changed_text else []
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [(name, str(row.difference), row.p_value, row.adjusted) for name, row in self.criteria.items()]
        return html_table(self.summary(), ["criterion", "difference", "p", "p (Holm)"], rows)


Key = TypeVar("Key")

# The sum of the normal quantiles of a level of 95 % and a power of 80 %.
_DETECTABLE = 2.8
# With fewer inputs, Student's interval of skewed differences is too narrow.
_FEW_INPUTS = 50


def compare_runs(
    before: RunLike,
    after: RunLike,
    *,
    labels: Iterable[LabelledJudgment] | None = None,
    cluster: Cluster | None = None,
    margin: float = 0.0,
    rubric: Rubric | None = None,
    level: float = 0.95,
    anyway: bool = False,
) -> RunComparison:
    """Compare the mean scores, pass rates and criteria of two runs over the same inputs.

    Rows are paired by their ids. A significant difference of a judge's scores may be a bias of the judge: two equally
    good programs differ if the judge is more lenient to one of them. Human labels of both runs correct this bias.

    Args:
        before: The first run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        after: The second run.
        labels: Human labels of a random part of the inputs. An input corrects the difference only if its responses in
            both runs have labels for every criterion.
        cluster: How to group rows that depend on each other: `"id"`, `"query"`, a key of the second run's `metadata`,
            or a function that gets a row's id. The mean is still over rows, and the interval is computed for groups. By
            default, only the samples of one prompt are a group.
        margin: The accepted loss: how much lower the second run's mean score may be, at least 0.
        rubric: The rubric. It is needed only with labels, if the rubric has groups.
        level: The confidence level of the intervals, between 0 and 1.
        anyway: Whether to compare runs that cannot be compared, such as runs with different rubrics or inputs (see
            `comparability`). The result is then marked.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves. If only
            some labels are chosen, these are left out with a warning.
        ValueError: The runs cannot be compared or share no scored input, `margin` is negative, labels were drawn by
            the judge's verdict, or labels are passed for runs without submissions.
    """
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0, got {margin!r}: it is how much worse the second run may be")
    pair = pair_runs(before, after, cluster=cluster, anyway=anyway)
    changes, comparable = pair.changes, pair.comparable
    corrected, label_warnings = None, list[str]()
    if labels is not None:
        corrected, label_warnings = _corrected(pair, list(labels), rubric, level)
    comparison = compare_changes(changes, corrected, margin=margin, level=level, comparable=comparable)
    warnings = (*comparison.warnings, *dependence_warnings(pair.runs[1].rows, cluster), *label_warnings)
    stopped = tuple(run.stop_note for run in pair.runs if run.missing)
    return comparison.model_copy(update={"warnings": warnings, "stopped": stopped})


class RunPair(NamedTuple):
    """Two runs with their differences.

    Attributes:
        runs: Both runs, in memory.
        groups: The number of each row's group, or None if rows are independent.
        changes: The differences of the answers and scores.
        comparable: The differences of the rubrics, the inputs and the judges.
    """

    runs: Sequence[RunFile]
    groups: Mapping[RowKey, int] | None
    changes: RunChanges
    comparable: Comparability


def pair_runs(before: RunLike, after: RunLike, *, cluster: Cluster | None = None, anyway: bool = False) -> RunPair:
    """Pair the rows of two runs, and check that the runs can be compared.

    Args:
        before: The first run.
        after: The second run.
        cluster: How to group rows that depend on each other: `"id"`, `"query"`, a key of the second run's `metadata`,
            or a function that gets a row's id.
        anyway: Whether to pair runs that cannot be compared, such as runs with different rubrics.

    Raises:
        ValueError: The runs cannot be compared, or a row lacks the value of `cluster`.
    """
    runs = [as_run(run, name, in_memory=True) for run, name in ((before, "before"), (after, "after"))]
    comparable = comparability(*runs).require(anyway)
    groups = sample_groups(runs)
    if (of_rows := None if cluster is None else group_rows(runs[1].rows, cluster)) is not None:
        groups = dict(zip(runs[1].row_keys(), map(int, of_rows), strict=True))
    changes = RunChanges(groups)
    for key, (one, other) in matched_rows(runs):
        changes.add(key, one, other)
    return RunPair(runs, groups, changes, comparable)


def sample_groups(runs: Sequence[RunFile]) -> dict[RowKey, int] | None:
    """Return the number of the group of each row of two runs, or None if no rows are samples of one prompt.

    The samples may be known in only one of the runs, such as the later one. The other run then has no groups.
    """
    for run in reversed(runs):
        own = run.row_groups()
        groups = select_groups(number_groups([name or place for place, name in enumerate(own)]), range(len(own)))
        if groups is not None:
            return dict(zip(run.row_keys(), map(int, groups), strict=True))
    return None


_COMPARABLE = Comparability()


def compare_changes(
    changes: RunChanges,
    corrected: Estimate | None = None,
    *,
    margin: float = 0.0,
    level: float = 0.95,
    comparable: Comparability = _COMPARABLE,
) -> RunComparison:
    """Compare two runs whose differences are already collected.

    Args:
        changes: The differences of the answers and scores.
        corrected: The difference after correction with human labels, or None without labels.
        margin: The accepted loss: how much lower the second run's mean score may be, at least 0.
        level: The confidence level of the intervals, between 0 and 1.
        comparable: The differences of the rubrics, the inputs and the judges.

    Raises:
        ValueError: The runs share no scored input.
    """
    score = changes.require_scores().mean_change(level)
    deciding = corrected or score
    decision: Decision = "unclear"
    if corrected is None and changes.are_unchanged:
        decision = "unchanged"
    elif deciding.low is not None and deciding.low > 0:
        decision = "better"
    elif deciding.high is not None and deciding.high < -margin:
        decision = "worse"
    is_not_worse = decision == "unchanged" or (deciding.low is not None and deciding.low > -margin)
    cautious, caveat = None, ""
    if corrected is None:
        cautious, caveat = _cautious(changes.score, decision, margin, level, is_not_worse=is_not_worse)
    error, passed = None if changes.in_groups else changes.score.standard_error(), None
    if comparable.passing and not changes.in_groups:
        passed = estimate_rate_difference(rose=changes.rose, fell=changes.fell, pairs=changes.graded, level=level)
    return RunComparison(
        score=score,
        p_value=changes.score.p_value(),
        passed=passed,
        criteria=_criteria(changes, level),
        inputs=changes.score.inputs,
        detectable=None if error is None or changes.score.are_equal else _DETECTABLE * error,
        corrected=corrected,
        decision=decision,
        is_not_worse=is_not_worse and not (decision == "unclear" and caveat),
        unmatched=changes.unmatched,
        is_partial=changes.is_partial,
        warnings=(*comparable.all_warnings, *_warnings(changes)),
        cautious=cautious,
        caveat=caveat,
        not_comparable=comparable.refused,
        in_groups=changes.in_groups,
        margin=margin,
    )


def _cautious(
    score: PairedChanges, decision: Decision, margin: float, level: float, *, is_not_worse: bool
) -> tuple[Estimate | None, str]:
    """Return the change with the interval of `estimate_change`, and the caveat of a decision that it does not confirm.

    None and "" if the interval does not apply, or is the interval of the comparison already.
    """
    if not score.are_bounded or score.groups is not None or score.are_equal:
        return None, ""
    cautious = score.bounded_change(level)
    if decision == "better" and cautious.low is not None and cautious.low <= 0:
        return cautious, "unless rare large losses were not seen"
    if decision == "worse" and cautious.high is not None and cautious.high >= -margin:
        return cautious, "unless rare large gains were not seen"
    if decision == "unclear" and is_not_worse and cautious.low is not None and cautious.low <= -margin:
        return cautious, "as rare large losses may not have been seen"
    return cautious, ""


def _criteria(changes: RunChanges, level: float) -> dict[str, CriterionChange]:
    names = criterion_keys(changes.criteria)
    measured = {criterion: _change(of_rows, level) for criterion, of_rows in changes.criteria.items()}
    adjusted = holm({criterion: p_value for criterion, (_, p_value) in measured.items() if p_value is not None})
    return {
        names[criterion]: CriterionChange(
            difference, p_value, adjusted.get(criterion), criterion[1], changes.criteria[criterion].weight,
            *_changed_answers(changes.answers_of(criterion), changes.criteria[criterion].entry, level),
            changes.flips[criterion],
        )
        for criterion, (difference, p_value) in measured.items()
    }  # fmt: skip


def _changed_answers(
    answers: Counter[AnswerPair], entry: CriterionReport | None, level: float
) -> tuple[int, int | None, Estimate]:
    """Return the number of answers to equal responses, the number of changed ones, and the kappa between the runs."""
    if not answers or entry is None:
        return 0, None, Estimate(None, None, None, 0)
    changed = sum(count for (before, after, _), count in answers.items() if before != after)
    return answers.total(), changed, _kappa_between(answers, entry, level)


def _kappa_between(answers: Counter[AnswerPair], entry: CriterionReport, level: float) -> Estimate:
    """Return the kappa between the answers of two runs to a criterion. It may be undefined."""
    try:
        criterion = entry.to_criterion()
    except ValueError:  # a report of an earlier version, without the possible answers
        return Estimate(None, None, None, 0)
    levels = {answer: place for place, answer in enumerate(answer_levels(criterion))}
    pairs = [
        (levels[before], levels[after], group)
        for (before, after, group) in (
            (canonical_answer(criterion, before), canonical_answer(criterion, after), group)
            for before, after, group in answers.elements()
        )
        if before in levels and after in levels
    ]
    if not pairs:
        return Estimate(None, None, None, 0)
    values = [to_judgment(criterion, answer).value or 0.0 for answer in levels]
    distances = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic")
    before, after, of_rows = zip(*pairs, strict=True)
    table = np.zeros_like(distances)
    np.add.at(table, (before, after), 1)
    groups = select_groups(None if of_rows[0] is None else np.array(of_rows, np.intp), range(len(pairs)))
    if groups is None:
        return cohen_kappa(table, distances, level)
    if groups.max(initial=-1) + 1 < FEWEST_GROUPS:
        return cohen_kappa(table, distances, level)._replace(low=None, high=None)
    times = widening(kappa_influences(before, after, distances), groups, level)
    return cohen_kappa(table / times, distances, level)._replace(n=len(pairs))


def _change(of_rows: PairedChanges, level: float) -> tuple[Estimate, float | None]:
    if of_rows.are_binary and of_rows.groups is None:
        rose, fell = (sum(sign * change > 0 for change in of_rows.differences) for sign in (1, -1))
        difference = estimate_rate_difference(rose=rose, fell=fell, pairs=len(of_rows.differences), level=level)
        return difference, mcnemar_p_value(rose, fell)
    return of_rows.mean_change(level), of_rows.p_value()


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return each p-value, by its key, after Holm's correction for the number of tests (Holm 1979)."""
    adjusted: dict[Key, float] = {}
    highest = 0.0
    for rank, (criterion, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p_value * (len(p_values) - rank)))
        adjusted[criterion] = highest
    return adjusted


def _corrected(
    pair: RunPair, labels: Sequence[LabelledJudgment], rubric: Rubric | None, level: float
) -> tuple[Estimate, list[str]]:
    """Correct the difference by the inputs with human labels in both runs, and return it with its warnings."""
    runs = pair.runs
    if any(label.sampled == "by_verdict" for label in labels):
        raise ValueError(
            "labels were drawn by the judge's verdict: they say nothing about mean scores; label a random part of the "
            "inputs, the same in both runs"
        )
    if any(row.report is not None and row.submission is None for run in runs for row in run.rows):
        raise ValueError(
            "the runs have no submissions, so that it is unknown which run a label is about: pass the results of "
            "`grade_many`, or the files that `grade --out` wrote; of imported runs, import them with `--responses`"
        )
    of_runs: list[dict[RowKey, tuple[float, float]]] = []
    of_both = Matches([], [], [], [])
    for run in runs:
        keys, matched = run.row_keys(), match_labels(run.rows, labels)
        chosen, trained_on = of_both.chosen + matched.chosen, of_both.trained_on + matched.trained_on
        of_both = Matches(of_both.matches + matched.matches, [], chosen, trained_on)
        scored = score_pairs(run.rows, matched.matches, rubric)
        of_runs.append({keys[labelled.row]: (labelled.people, labelled.judge) for labelled in scored})
    # As in `calibrate`: labels estimate the judge's errors only on inputs that it was not aligned with.
    others, others_keys = RunChanges(pair.groups), list[RowKey]()
    for key, rows in matched_rows(runs):
        is_other = not any(row is not None and is_trained_on(row) for row in rows)
        if is_other and others.add(key, rows[0], rows[1]).score is not None:
            others_keys.append(key)
    differences = others.score.differences
    people, judge = PairedChanges(), array("d")
    labelled_keys = [key for key in of_runs[0] if key in of_runs[1]]
    for key in labelled_keys:
        (people_before, judge_before), (people_after, judge_after) = (of_run[key] for of_run in of_runs)
        people.add(people_before, people_after, others.group_of(key))
        judge.append(judge_after - judge_before)
    if not differences or not labelled_keys:
        return Estimate(None, None, None, 0), of_both.warnings
    if people.are_bounded and people.are_equal:
        return people.bounded_change(level), of_both.warnings
    mean = math.fsum(differences) / len(differences)
    corrected = corrected_mean(people.differences, judge, mean, len(differences), level=level)
    estimate, groups = corrected.estimate, others.score.groups
    if groups is not None and estimate.value is not None:
        rest = np.subtract(people.differences, corrected.weight * np.asarray(judge))
        influences = corrected.weight * (np.asarray(differences) - mean)
        places = {key: place for place, key in enumerate(others_keys)}
        labelled = [places[key] for key in labelled_keys]
        influences[labelled] += len(differences) / len(rest) * (rest - rest.mean())
        estimate = in_groups(estimate, influences, groups, level)
    return estimate, of_both.warnings


def _warnings(changes: RunChanges) -> Iterator[str]:
    count = changes.score.inputs
    if changes.in_groups:
        yield from group_warnings(changes.score.groups)
    elif count < _FEW_INPUTS:
        yield f"fewer than {_FEW_INPUTS} inputs: the interval is too narrow if few of them change much"
    yield from left_out_warnings(changes)


def left_out_warnings(changes: RunChanges) -> Iterator[str]:
    """Yield warnings if rows of both runs are not compared, if few rows are in both, and if the second is partial."""
    if changes.left_out:
        inputs = counted(changes.left_out, "input is", "inputs are")
        yield f"{inputs} left out, because a judge failed there in one of the runs, or gave no score"
    if changes.unmatched > changes.pairs:
        rows = counted(changes.pairs + changes.unmatched, "row")
        yield f"the runs have only {changes.pairs:,} of {rows} in common: the comparison says nothing about the others"
    if changes.is_partial:
        rows = f"{changes.missing:,} of {counted(changes.scored, 'scored row')} of the first run"
        yield f"{rows} {'has' if changes.missing == 1 else 'have'} no score in the second"
