"""`agreement`: measures the agreement of a judge with human labels, for each criterion and in total."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, data_frame, html_table
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import (
    LabelledScore,
    UnexplainedScoreError,
    labelled_scores,
    verdict_weights,
    weight_table,
)
from rubric_integrations.trust.corrections import RatedRow, estimate_share, recall_by_verdict
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    VerdictAgreement,
    adjacent_share,
    answer_levels,
    chance_agreement,
    dependence_warnings,
    group_matches,
    group_rows,
    group_warnings,
    judged_rows,
    match_labels,
    phi_coefficient,
    read_rows,
    verdict_agreement,
)
from rubric_integrations.trust.means import (
    FEWEST_GROUPS,
    Floats,
    Groups,
    estimate_bias,
    estimate_mean,
    estimate_mean_share,
    estimate_shift,
    kappa_of_cells,
    p_value_of,
    select_groups,
    widening,
)
from rubric_integrations.trust.statistics import (
    Matrix,
    OrderedAgreement,
    alpha_limits,
    alpha_of_pairs,
    cohen_kappa,
    compare_values,
    effect_size,
    gwet_ac1,
    krippendorff_alpha,
    level_distances,
    normal_quantile,
)

if TYPE_CHECKING:
    from pandas import DataFrame


class CriterionAgreement(Record):
    """Agreement between the judge and human labels on one criterion.

    A judgment with several raters counts once. Each human answer to it counts as the share of its raters who gave this
    answer. Therefore, the figures describe the average rater. Raters who could not assess a judgment are left out.

    Labels that were drawn by the judge's verdict are weighted by the number of times that the verdict occurs in the
    run. If a verdict of the run has no label, the figures that need it are undefined.

    Attributes:
        name: The criterion's name in the rubric.
        requirement: The criterion's requirement.
        kind: The criterion's kind of answer, such as "binary".
        n: The number of labelled judgments that both the annotators and the judge decided.
        coverage: The share of the labelled judgments that both decided. None without labels.
        judge_abstained: The number of labelled judgments from which the judge abstained, by CANNOT_ASSESS or by an
            option that is marked `na`.
        people_abstained: The number of labelled judgments that no rater could assess.
        both_abstained: The number of labelled judgments that neither the judge nor any rater could assess. Compare it
            with `judge_abstained` and `people_abstained` to find abstentions of only one side.
        undecided: The number of labelled judgments without a most frequent answer of the raters. They count in the
            figures.
        failed: The number of labelled judgments on which the judge failed.
        abstention_kappa: Cohen's kappa of abstaining versus deciding. None if neither side ever abstains.
        levels: The possible answers without abstentions. Empty for a scale with decimals or more than 21 numbers.
        confusion: The confusion table, with the human answers as rows and the judge's answers as columns, in the order
            of `levels`. Each rater's answer is counted.
        accuracy: The share of judgments on which the judge and the human labels agree.
        chance_agreement: The agreement that is expected by chance, computed from the frequencies of the judge's and the
            human answers.
        sensitivity: The share of the human MET answers that the judge also calls MET. Only for a binary criterion.
        specificity: The share of the human UNMET answers that the judge also calls UNMET. Only for a binary criterion.
        phi: The Matthews correlation of the judge's and the human answers. Only for a binary criterion.
        kappa: Cohen's kappa, with quadratic weights for ordered answers. Undefined if only one answer occurs.
        ac1: Gwet's AC1. It is useful for criteria on which nearly all answers are equal.
        people_alpha: Krippendorff's alpha among the raters. None if no judgment has two raters, or if labels were drawn
            by the judge's verdict.
        judge_alpha: Krippendorff's alpha between the judge's and the human answers. None if labels were drawn by the
            judge's verdict.
        bias: The judge's mean value minus the annotators' mean value. For a binary criterion, this is the difference of
            the MET rates. Above 0, the judge is too lenient. On a penalty, where MET means an error, it is too strict.
        effect_size: The bias divided by the standard deviation of the differences (Cohen's d). None if all differences
            are equal, or if labels were drawn by the judge's verdict.
        per_verdict: Precision, recall and F1 of each answer.
        adjacent_accuracy: The share of judgments whose answers differ by at most one level. Only for ordered answers.
        ordered: Errors and correlations of the values of ordered answers. The values of several raters are combined
            first, by default by their mean. None for other answers, or if labels were drawn by the judge's verdict.
    """

    name: str
    requirement: str
    kind: Kind
    n: int
    coverage: float | None
    judge_abstained: int
    people_abstained: int
    both_abstained: int
    undecided: int
    failed: int
    abstention_kappa: float | None
    levels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    accuracy: Estimate
    chance_agreement: float | None
    sensitivity: Estimate | None
    specificity: Estimate | None
    phi: float | None
    kappa: Estimate
    ac1: float | None
    people_alpha: float | None
    judge_alpha: float | None
    bias: Estimate
    effect_size: float | None
    per_verdict: dict[str, VerdictAgreement]
    adjacent_accuracy: float | None
    ordered: OrderedAgreement | None


Consensus = Literal["mean", "median", "mode"]
"""The function that combines the ordered values of several raters. If there are several modes, it takes their mean."""

_CONSENSUS: dict[Consensus, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "mode": lambda values: statistics.fmean(statistics.multimode(values)),
}
# With fewer judgments, the additional information of several raters cannot be estimated.
_FEWEST_RATED = 50


class _Pair(NamedTuple):
    """The answers of the raters and of the judge to one judgment.

    Attributes:
        row: The index of the row.
        shares: The share of each answer among the raters who could assess the submission.
        abstained: The share of the raters who could not assess the submission.
        raters: The number of raters who could assess the submission.
        people_value: The combined value of the raters' answers, or None if no rater could assess the submission.
        judge: The judge's answer.
        judge_value: The value of the judge's answer, or None for an abstention.
        weight: The number of judgments of the run that this judgment represents.
    """

    row: int
    shares: Mapping[str, float]
    abstained: float
    raters: int
    people_value: float | None
    judge: str
    judge_value: float | None
    weight: float = 1.0

    @property
    def right(self) -> float:
        return self.shares.get(self.judge, 0.0)

    @property
    def difference(self) -> float:
        return (self.judge_value or 0.0) - (self.people_value or 0.0)


def measure_criterion(
    matches: Sequence[Match],
    judged: Mapping[int, str] | None = None,
    level: float = 0.95,
    *,
    groups: Groups | None = None,
    consensus: Consensus = "mean",
) -> CriterionAgreement:
    """Measure agreement on one criterion.

    Args:
        matches: The labelled judgments of the criterion, at least one.
        judged: The judge's verdict in each row of the run, to weight labels that were drawn by the judge's verdict.
            None for labels that were drawn at random.
        level: The confidence level of the intervals, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
        consensus: The function that combines the values of several raters, for ordered answers.
    """
    criterion, name = matches[0].criterion, matches[0].judged.name
    matches = [match for match in matches if match.judged.was_asked and not match.judged.not_applicable]
    weights = verdict_weights(matches, judged)
    ordered = criterion.kind in ("ordinal", "scaled")
    combined = consensus if ordered else "mean"
    pairs = [_pair(match, weights, combined) for match in matches if match.judge_answer is not None]
    decided = [pair for pair in pairs if pair.people_value is not None and pair.judge_value is not None]
    levels = answer_levels(criterion)
    table = _table(decided, levels)
    counts = _table(decided, levels, lambda pair: pair.raters)
    values = [_value(criterion, answer) for answer in levels]
    apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic") if levels else None
    people_values = [pair.people_value or 0.0 for pair in decided]
    judge_values = [pair.judge_value or 0.0 for pair in decided]
    is_binary = criterion.kind == "binary"
    if judged is not None:  # the figures below leave out the judge's abstentions
        answers = _answers_among(judged.values(), criterion)
        judged = {row: verdict for row, verdict in judged.items() if verdict in answers}
    weighted = weight_table(table, levels, Counter(judged.values())) if judged is not None else table
    sample = _Sample(decided, judged, level, groups)
    return CriterionAgreement(
        name=name,
        requirement=criterion.requirement,
        kind=criterion.kind,
        n=len(decided),
        coverage=_coverage(matches, decided, weights),
        judge_abstained=sum(pair.judge_value is None for pair in pairs),
        people_abstained=sum(pair.people_value is None for pair in pairs),
        both_abstained=sum(pair.people_value is None and pair.judge_value is None for pair in pairs),
        undecided=sum(match.consensus is None for match in matches),
        failed=sum(match.judged.error is not None for match in matches),
        abstention_kappa=_abstention_kappa(pairs),
        levels=tuple(levels),
        confusion=tuple(tuple(round(count) for count in row) for row in counts),
        accuracy=sample.accuracy(),
        chance_agreement=chance_agreement(weighted) if levels else None,
        sensitivity=sample.recall("MET") if is_binary else None,
        specificity=sample.recall("UNMET") if is_binary else None,
        phi=phi_coefficient(weighted) if is_binary else None,
        kappa=sample.kappa(weighted, levels, apart),
        ac1=gwet_ac1(weighted) if levels else None,
        people_alpha=_people_alpha(matches, levels, apart) if judged is None else None,
        judge_alpha=alpha_of_pairs(table + table.T, apart) if judged is None and apart is not None else None,
        bias=sample.bias(is_binary=is_binary),
        effect_size=effect_size([pair.difference for pair in decided]) if judged is None else None,
        per_verdict={
            answer: verdict_agreement(weighted, table, place, round(counts[place].sum()))
            for place, answer in enumerate(levels)
        },
        adjacent_accuracy=adjacent_share(weighted) if ordered and levels else None,
        ordered=compare_values(people_values, judge_values) if ordered and judged is None else None,
    )


def _answers_among(verdicts: Iterable[str], criterion: Criterion) -> set[str]:
    """Return the verdicts that are not abstentions."""
    return {verdict for verdict in set(verdicts) if to_judgment(criterion, verdict).value is not None}


def _pair(match: Match, weights: Mapping[str, float] | None, consensus: Consensus) -> _Pair:
    judge, values = match.judge_answer or "", match.people_values
    value = _CONSENSUS[consensus](values) if values else None
    weight = 1.0 if weights is None else weights.get(judge, 0.0)
    return _Pair(match.row, match.shares, 1 - match.assessed, len(values), value, judge, match.judged.value, weight)


def _table(pairs: Sequence[_Pair], levels: Sequence[str], times: Callable[[_Pair], float] = lambda _: 1.0) -> Matrix:
    """Return the confusion table, in which each judgment counts once, or as many times as `times` returns."""
    places = {answer: place for place, answer in enumerate(levels)}
    table = np.zeros((len(levels), len(levels)))
    for pair in pairs if levels else ():
        for answer, share in pair.shares.items():
            table[places[answer], places[pair.judge]] += share * times(pair)
    return table


def _coverage(matches: Sequence[Match], decided: Sequence[_Pair], weights: Mapping[str, float] | None) -> float | None:
    if weights is None:
        return len(decided) / len(matches) if matches else None
    total = sum(weights.get(match.judge_answer or "", 0.0) for match in matches)
    return sum(pair.weight for pair in decided) / total if total else None


def _value(criterion: Criterion, answer: str) -> float:
    return to_judgment(criterion, answer).value or 0.0


class _Sample(NamedTuple):
    """The judgments of a criterion that both annotators and the judge decided, with the settings of the intervals.

    Attributes:
        pairs: The judgments.
        judged: The judge's verdict in each row of the run if labels were drawn by it, or None for random labels.
        level: The confidence level of the intervals, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """

    pairs: Sequence[_Pair]
    judged: Mapping[int, str] | None
    level: float
    groups: Groups | None

    def _groups_of(self, pairs: Sequence[_Pair]) -> Groups | None:
        return select_groups(self.groups, [pair.row for pair in pairs])

    def _has_too_few_groups(self) -> bool:
        groups = self._groups_of(self.pairs)
        return groups is not None and groups.max(initial=-1) + 1 < FEWEST_GROUPS

    def _rated(self, shares: Sequence[float]) -> list[RatedRow]:
        rows = zip(self.pairs, shares, strict=True)
        return [RatedRow(pair.row, pair.judge, share, raters=pair.raters) for pair, share in rows]

    def accuracy(self) -> Estimate:
        right = [pair.right for pair in self.pairs]
        if self.judged is None:
            return estimate_mean_share(right, self.level, self._groups_of(self.pairs))
        return estimate_share(self.judged, self._rated(right), self.level, self.groups)

    def recall(self, answer: str) -> Estimate:
        """Estimate the share of the human answers of one kind that the judge also gives."""
        if self.judged is not None:
            shares = [pair.shares.get(answer, 0.0) for pair in self.pairs]
            return recall_by_verdict(self.judged, self._rated(shares), answer, self.level, self.groups)
        pairs = [pair for pair in self.pairs if answer in pair.shares]
        shares = [pair.shares[answer] for pair in pairs]
        weights = None if all(share == 1 for share in shares) else shares
        agreed = [float(pair.judge == answer) for pair in pairs]
        return estimate_mean_share(agreed, self.level, self._groups_of(pairs), weights)

    def kappa(self, weighted: Matrix, levels: Sequence[str], apart: Matrix | None) -> Estimate:
        count = len(self.pairs)
        if apart is None or not weighted.any():
            return Estimate(None, None, None, count)
        cells = kappa_of_cells(weighted, apart)
        variance = float((weighted * cells**2).sum() / weighted.sum())
        times = self.fewer(pair_influences(self.pairs, levels, cells), variance)
        if times is None:
            return cohen_kappa(weighted, apart, self.level)._replace(low=None, high=None, n=count)
        return cohen_kappa(weighted / times, apart, self.level)._replace(n=count)

    def fewer(self, influences: Floats, variance: float) -> float | None:
        """Return the number of judgments divided by the effective number of judgments, or None for too few groups.

        Args:
            influences: The influence of each judgment on the figure, as the mean over its raters.
            variance: The mean square of the influences of single answers.
        """
        times, count = 1.0, len(self.pairs)
        raters = sum(pair.raters for pair in self.pairs) / count
        if raters > 1 and count >= _FEWEST_RATED and variance > 0:
            times = min(1.0, max(1 / raters, float((influences**2).mean()) / variance))
        groups = self._groups_of(self.pairs)
        if groups is None:
            return times
        return None if self._has_too_few_groups() else times * widening(influences, groups, self.level)

    def bias(self, *, is_binary: bool) -> Estimate:
        if self.judged is not None:
            return self._weighted_bias(self.judged, is_binary=is_binary)
        if not is_binary:
            people = [pair.people_value or 0.0 for pair in self.pairs]
            judge = [pair.judge_value or 0.0 for pair in self.pairs]
            return estimate_bias(people, judge, self.level, self._groups_of(self.pairs))
        rose = [float(pair.judge == "MET") * pair.shares.get("UNMET", 0.0) for pair in self.pairs]
        fell = [float(pair.judge == "UNMET") * pair.shares.get("MET", 0.0) for pair in self.pairs]
        return estimate_shift(rose, fell, self.level, self._groups_of(self.pairs))

    def _weighted_bias(self, judged: Mapping[int, str], *, is_binary: bool) -> Estimate:
        """Estimate the bias from labels that were drawn by the judge's verdict.

        Only the bias of a binary criterion has an interval.
        """
        if not self.pairs or {pair.judge for pair in self.pairs} != set(judged.values()):
            return Estimate(None, None, None, len(self.pairs))
        if is_binary:
            rated = self._rated([pair.shares.get("MET", 0.0) for pair in self.pairs])
            people = estimate_share(judged, rated, self.level, self.groups)
            judge = Counter(judged.values())["MET"] / len(judged)
            return _less(judge, people)
        differences = sum(pair.weight * pair.difference for pair in self.pairs)
        return Estimate(differences / sum(pair.weight for pair in self.pairs), None, None, len(self.pairs))


def pair_influences(pairs: Sequence[_Pair], levels: Sequence[str], cells: Matrix) -> Floats:
    """Return the influence of each judgment on a figure, to compute an interval for rows in groups (see `widening`).

    It is the mean of the influences of the judgment's human answers, multiplied by the judgment's relative weight.

    Args:
        pairs: The judgments.
        levels: The answers.
        cells: The influence of a judgment in each cell of the confusion table.
    """
    places = {answer: place for place, answer in enumerate(levels)}
    weight = sum(pair.weight for pair in pairs) / len(pairs)
    return np.array(
        [
            pair.weight / weight * sum(share * cells[places[a], places[pair.judge]] for a, share in pair.shares.items())
            for pair in pairs
        ]
    )


def _less(judge: float, people: Estimate) -> Estimate:
    """Return the judge's known figure minus the estimate of the annotators' figure."""
    if people.value is None:
        return people
    low = None if people.high is None else judge - people.high
    return Estimate(judge - people.value, low, None if people.low is None else judge - people.low, people.n)


def _abstention_kappa(pairs: Sequence[_Pair]) -> float | None:
    table = np.zeros((2, 2))
    for pair in pairs:
        table[:, int(pair.judge_value is None)] += pair.weight * np.array([1 - pair.abstained, pair.abstained])
    return cohen_kappa(table, level_distances([0, 1])).value if table.sum() else None


def _people_alpha(matches: Sequence[Match], levels: Sequence[str], apart: Matrix | None) -> float | None:
    if apart is None or all(len(match.labels) < 2 for match in matches):
        return None
    return krippendorff_alpha(_units(matches, levels), apart)


def _units(matches: Sequence[Match], levels: Sequence[str]) -> list[list[int]]:
    """Return, for each judgment, the positions of its raters' answers in `levels`, without abstentions."""
    places = {answer: place for place, answer in enumerate(levels)}
    return [[places[answer] for answer in match.answers if answer in places] for match in matches]


_COLUMNS = ("criterion", "n", "coverage", "accuracy", "kappa", "AC1", "bias", "people's alpha", "judge's alpha")


class ScoreAgreement(NamedTuple):
    """Agreement between the judge's scores and the scores from the annotators' answers.

    Attributes:
        n: The number of submissions with a score by the judge and a label for every criterion.
        bias: The mean of the judge's score minus the score from the annotators' answers.
        values: Errors and correlations of the scores, and distances between their distributions. None if `n` is 0.
        p_value: The two-sided p-value of the bias, from its interval. None without an interval.
        effect_size: The bias divided by the standard deviation of the differences (Cohen's d). None if all differences
            are equal.
    """

    n: int
    bias: Estimate
    values: OrderedAgreement | None
    p_value: float | None
    effect_size: float | None


class Agreement(Record):
    """Agreement between a judge and human labels, for each criterion and in total.

    Attributes:
        criteria: The agreement on each criterion. The key is the criterion's name, or its requirement if several
            criteria have this name.
        accuracy: The share of judgments on which the judge and the human labels agree, computed for each labelled
            submission and averaged. The interval allows for the dependence of the judgments of a submission. If labels
            were drawn by the judge's verdict, this is `micro_accuracy` without an interval.
        micro_accuracy: The share of all judgments on which the judge and the human labels agree. Labels that were drawn
            by the judge's verdict are weighted by the number of times that the verdict occurs in the run. None without
            a judgment.
        macro_accuracy: The mean accuracy of the criteria. None without a judgment.
        mean_kappa: The mean kappa of the criteria whose kappa is defined.
        micro_kappa: The agreement of all judgments beyond chance, where chance is the `chance_agreement` of each
            criterion (the pooled kappa of De Vries et al. 2008): 1 is perfect agreement, and 0 is agreement by chance.
            Scales with decimals or more than 21 numbers are left out. None if each criterion has only one answer.
        kappa: `micro_kappa` with its interval, which allows for the dependence of the judgments of a submission. It has
            no interval if labels were drawn by the judge's verdict.
        pooled_kappa: Cohen's kappa of all judgments in one table. Publications usually report this kappa. It is high
            even for a judge that only knows which criteria are mostly MET. Such a judge has a `micro_kappa` of 0. The
            table contains all criteria if they have the same answers, otherwise the binary criteria. The interval
            allows for the dependence of the judgments of a submission. It is missing if labels were drawn by the
            judge's verdict.
        scores: The agreement on the scores. Undefined if labels were drawn by the judge's verdict.
        raters: The names of the raters.
        labels: The number of labels that belong to a judgment of the run, without labels that are left out.
        blind: The number of these labels that are marked as blind: the rater did not see the judge's answer.
        unmatched: The number of labels that belong to no judgment of the run.
        warnings: Limitations of the figures, one sentence each.
    """

    criteria: dict[str, CriterionAgreement]
    accuracy: Estimate
    micro_accuracy: float | None
    macro_accuracy: float | None
    mean_kappa: float | None
    micro_kappa: float | None
    kappa: Estimate
    pooled_kappa: Estimate
    scores: ScoreAgreement
    raters: tuple[str, ...]
    labels: int
    blind: int
    unmatched: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text: one line for each criterion, one line for all criteria, and the warnings."""
        lines = [
            f"{name}: accuracy {row.accuracy}, kappa {row.kappa}, coverage {_percent(row.coverage)}"
            for name, row in self.criteria.items()
        ]
        unmatched = f"; {self.unmatched:,} labels belong to no judgment of the run" if self.unmatched else ""
        lines.append(
            f"all: accuracy {self.accuracy}, kappa {self.kappa}, bias of the scores {self.scores.bias}{unmatched}"
        )
        lines += [f"{self.kappa_text}."] if len(self.criteria) > 1 else []
        lines.append(f"{self.labels:,} labels, {self.blind:,} of them blind")
        return "\n".join([*lines, *self.warnings])

    @property
    def kappa_text(self) -> str:
        """A sentence with the pooled kappa and the reason why it differs from `micro_kappa`."""
        return (
            f"Kappa of all judgments in one table is {self.pooled_kappa}: it is also high for a judge that only knows "
            "which criteria are mostly MET, for which the kappa over all is 0"
        )

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one row for each criterion.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame([dict(zip(_COLUMNS, row, strict=True)) for row in self._rows()], _COLUMNS)

    def _repr_html_(self) -> str:
        rows = [[str(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self._rows()]
        return html_table(f"Agreement with {self.labels:,} human labels", _COLUMNS, rows)

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (name, row.n, row.coverage, row.accuracy, row.kappa, row.ac1, row.bias, row.people_alpha, row.judge_alpha)
            for name, row in self.criteria.items()
        ]


def agreement(
    judged: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    rubric: Rubric | None = None,
    cluster: Cluster | None = None,
    consensus: Consensus = "mean",
    level: float = 0.95,
) -> Agreement:
    """Measure the agreement of a judge with human labels.

    Labels that were used to align the judge are left out with a warning.

    Args:
        judged: The run that was labelled: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        labels: Human labels of a part of the run, drawn at random or by the judge's verdict. Several raters may have
            labelled the same judgment.
        rubric: The run's rubric. It is needed only for `Agreement.scores`, if the rubric has groups.
        cluster: How to group rows that depend on each other, such as the questions about one document: a column of the
            graded table, `"id"`, `"query"`, or a function that gets a row's id. The intervals are then computed for
            groups of rows.
        consensus: How to combine the ordered values of several raters for `ordered` and `bias`: by their `mean`,
            `median` or `mode`.
        level: The confidence level of the intervals, between 0 and 1.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves, such as
            only the judge's errors. If only some labels are chosen, these are left out with a warning.
        ValueError: All labels that belong to the run were used to align the judge, or a row does not have the column of
            `cluster`.
    """
    rows = read_rows(judged)
    groups = group_rows(rows, cluster)
    matched = match_labels(rows, labels)
    matches = matched.matches
    criteria: dict[str, CriterionAgreement] = {}
    weights: dict[str, int] = {}
    for key, of_criterion in group_matches(matches).items():
        verdicts = judged_rows(rows, of_criterion[0])
        drawn_by = None if all(match.is_random for match in of_criterion) else verdicts
        criteria[key] = measure_criterion(of_criterion, drawn_by, level, groups=groups, consensus=consensus)
        weights[key] = len(verdicts)
    kappas = [row.kappa.value for row in criteria.values() if row.kappa.value is not None]
    accuracies = {key: row.accuracy.value for key, row in criteria.items() if row.accuracy.value is not None}
    accuracy = estimate_accuracy(matches, level, groups)
    micro_accuracy = _mean([right for match in matches if (right := match.right) is not None])
    is_random = all(match.is_random for match in matches)
    micro_kappa = _micro_kappa(criteria, None if is_random else weights)
    scores: list[LabelledScore] = []
    warnings: list[str] = []
    if is_random:
        try:
            scores, partly = labelled_scores(rows, matches, rubric)
            if partly:
                warnings.append(
                    f"{partly:,} labelled submissions lack a label on some criterion: they have no part in the "
                    "agreement of the scores"
                )
        except UnexplainedScoreError as error:
            warnings.append(str(error))
    else:
        warnings.append("labels were drawn by the judge's verdict: they say nothing about the scores")
        total = sum(weights[key] for key in accuracies)
        micro_accuracy = sum(weights[key] * value for key, value in accuracies.items()) / total if total else None
        accuracy = Estimate(micro_accuracy, None, None, accuracy.n)
    return Agreement(
        criteria=criteria,
        accuracy=accuracy,
        micro_accuracy=micro_accuracy,
        macro_accuracy=_mean(list(accuracies.values())),
        mean_kappa=_mean(kappas),
        micro_kappa=micro_kappa,
        kappa=estimate_kappa_over_all(matches, micro_kappa, len(rows), level, groups)
        if is_random
        else Estimate(micro_kappa, None, None, accuracy.n),
        pooled_kappa=pool_kappa(rows, matches, is_random=is_random, level=level, groups=groups),
        scores=_score_agreement(scores, level, groups),
        raters=tuple(sorted({label.rater for label in matched.labels if label.rater})),
        labels=len(matched.labels),
        blind=sum(label.blind for label in matched.labels),
        unmatched=len(matched.unmatched),
        warnings=(
            *warnings,
            *dependence_warnings(rows, cluster),
            *group_warnings(select_groups(groups, [match.row for match in matches])),
            *(rater_warnings(matches, groups) if is_random else ()),
            *matched.warnings,
        ),
    )


def estimate_accuracy(matches: Sequence[Match], level: float = 0.95, groups: Groups | None = None) -> Estimate:
    """Estimate the share of judgments on which the judge and the human labels agree.

    The share is computed for each labelled submission and averaged.

    Args:
        matches: The labelled judgments.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    of_rows: dict[int, list[float]] = {}
    for match in matches:
        if (right := match.right) is not None:
            of_rows.setdefault(match.row, []).append(right)
    shares = [sum(of_row) / len(of_row) for of_row in of_rows.values()]
    return estimate_mean(shares, level, groups=select_groups(groups, list(of_rows)))


def pool_kappa(
    rows: Sequence[GradedRow],
    matches: Sequence[Match],
    *,
    is_random: bool = True,
    level: float = 0.95,
    groups: Groups | None = None,
) -> Estimate:
    """Estimate Cohen's kappa of all judgments in one table.

    The interval allows for the dependence of the judgments of a submission or of a group of rows.

    Args:
        rows: The rows of the run.
        matches: The labelled judgments.
        is_random: Whether the judgments were drawn at random and not by the judge's verdict.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    by_answers: dict[tuple[object, ...], list[Match]] = {}
    for match in matches:
        levels = answer_levels(match.criterion)
        values = [_value(match.criterion, answer) for answer in levels]
        by_answers.setdefault((match.criterion.kind, *levels, *values), []).append(match)
    binary = ("binary", "UNMET", "MET", 0.0, 1.0)
    pooled = next(iter(by_answers.values())) if len(by_answers) == 1 else by_answers.get(binary, [])
    criterion = pooled[0].criterion if pooled else None
    pairs: list[_Pair] = []
    for of_criterion in group_matches(pooled).values():
        verdicts = None if is_random else judged_rows(rows, of_criterion[0])
        weights = verdict_weights(of_criterion, verdicts)
        answers = _answers_among(verdicts.values(), of_criterion[0].criterion) if verdicts else set[str]()
        if weights is not None and answers - weights.keys():
            return Estimate(None, None, None, 0)  # the agreement on a verdict without a label is unknown
        decided = [match for match in of_criterion if match.right is not None]
        pairs += [_pair(match, weights, "mean") for match in decided]
    if criterion is None or not pairs:
        return Estimate(None, None, None, 0)
    levels = answer_levels(criterion)
    values = [_value(criterion, answer) for answer in levels]
    apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic") if levels else None
    of_rows = np.arange(len(rows)) if groups is None else groups
    table = _table(pairs, levels, lambda pair: pair.weight)
    estimate = _Sample(pairs, None, level, of_rows).kappa(table, levels, apart)
    return estimate if is_random else estimate._replace(low=None, high=None)


def _micro_kappa(criteria: Mapping[str, CriterionAgreement], weights: Mapping[str, int] | None) -> float | None:
    """Compute kappa from the accuracies and chance agreements of criteria, weighted by their numbers of judgments."""
    above = possible = 0.0
    for key, row in criteria.items():
        if row.accuracy.value is not None and row.chance_agreement is not None:
            weight = row.n if weights is None else weights[key]
            above += weight * (row.accuracy.value - row.chance_agreement)
            possible += weight * (1 - row.chance_agreement)
    return above / possible if possible else None


def estimate_kappa_over_all(
    matches: Sequence[Match], value: float | None, rows: int, level: float = 0.95, groups: Groups | None = None
) -> Estimate:
    """Estimate `Agreement.kappa`, the kappa of all criteria together.

    The interval allows for the dependence of the judgments of a submission or of a group of rows. As in `cohen_kappa`,
    it is computed from smoothed tables. Each criterion has a table, with a row and a column for each of its k answers.
    The value 1 / (k m) is added to each cell, where m is the number of criteria. For a single criterion, the result is
    the interval of the criterion's kappa.

    Args:
        matches: The labelled judgments, drawn at random.
        value: The `micro_kappa`. None gives an undefined estimate.
        rows: The number of rows of the run.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    parts: list[tuple[list[_Pair], list[str]]] = []
    for of_criterion in group_matches(matches).values():
        pairs = [_pair(match, None, "mean") for match in of_criterion if match.right is not None]
        if pairs and (levels := answer_levels(of_criterion[0].criterion)):
            parts.append((pairs, levels))
    all_pairs = [pair for pairs, _ in parts for pair in pairs]
    if value is None or not all_pairs:
        return Estimate(None, None, None, len(all_pairs))
    tables = [_table(pairs, levels) for pairs, levels in parts]
    cells = kappa_cells(tables)
    influences = np.concatenate(
        [pair_influences(pairs, levels, of) for (pairs, levels), of in zip(parts, cells, strict=True)]
    )
    variance = sum(float((table * of**2).sum()) for table, of in zip(tables, cells, strict=True)) / len(all_pairs)
    of_rows = np.arange(rows) if groups is None else groups
    times = _Sample(all_pairs, None, level, of_rows).fewer(influences, variance)
    if times is None:
        return Estimate(value, None, None, len(all_pairs))
    smoothed = [table / times + 1 / len(table) / len(tables) for table in tables]
    center, cells = kappa_of_tables(smoothed), kappa_cells(smoothed)
    total = sum(float(table.sum()) for table in smoothed)
    squares = sum(float((table * of**2).sum()) for table, of in zip(smoothed, cells, strict=True))
    half = normal_quantile(level) * math.sqrt(squares) / total
    return Estimate(value, max(-1.0, center - half), min(1.0, center + half), len(all_pairs))


def kappa_of_tables(tables: Sequence[Matrix]) -> float:
    """Compute Cohen's kappa without weights over several confusion tables. 1 if only one answer occurs."""
    by_chance = sum(_unequal_by_chance(table) for table in tables)
    return 1 - sum(float(table.sum() - np.trace(table)) for table in tables) / by_chance if by_chance else 1.0


def _unequal_by_chance(table: Matrix) -> float:
    """Return the expected number of unequal answers in a table by chance."""
    return float(table.sum() - table.sum(axis=1) @ table.sum(axis=0) / table.sum())


def kappa_cells(tables: Sequence[Matrix]) -> list[Matrix]:
    """Return the influence of a judgment in each cell of each table on the overall kappa (see `widening`)."""
    by_chance = sum(_unequal_by_chance(table) for table in tables)
    if by_chance == 0:
        return [np.zeros_like(table) for table in tables]
    ratio, total = 1 - kappa_of_tables(tables), sum(float(table.sum()) for table in tables)
    cells: list[Matrix] = []
    for table in tables:
        people, judge, count = table.sum(axis=1), table.sum(axis=0), float(table.sum())
        chance = 1 - np.add.outer(judge, people) / count + float(people @ judge) / count**2
        cells.append(-(1 - np.eye(len(table)) - ratio * chance) / by_chance * total)
    return cells


# Below the first value of alpha, raters may agree only by chance. Below the second value, Krippendorff (2004) advises
# not to draw conclusions from the labels.
_LITTLE_AGREEMENT, _ENOUGH_AGREEMENT = 0.2, 2 / 3


def rater_warnings(matches: Sequence[Match], groups: Groups | None = None) -> list[str]:
    """Return warnings about criteria on which raters agree too little with each other to measure a judge.

    One warning lists criteria whose labels are useless: Krippendorff's alpha is below 0.2 and its interval contains 0.
    In simulations with 20 or more judgments and 2 or 3 raters who answer at random, this warning occurs in at least
    92 % of cases. The other warning lists the other criteria with an alpha below 2/3.

    Args:
        matches: The labelled judgments, drawn at random.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    useless: list[str] = []
    weak: list[str] = []
    for key, of_criterion in group_matches(matches).items():
        criterion = of_criterion[0].criterion
        levels = answer_levels(criterion)
        values = [_value(criterion, answer) for answer in levels]
        apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic") if levels else None
        alpha = _people_alpha(of_criterion, levels, apart)
        if alpha is None or apart is None or alpha >= _ENOUGH_AGREEMENT:
            continue
        of_rows = None if groups is None else groups[[match.row for match in of_criterion]].tolist()
        limits = alpha_limits(_units(of_criterion, levels), apart, of_rows)
        text = f"`{key}` ({alpha:.2f}" + (f" [{limits[0]:.2f}, {limits[1]:.2f}])" if limits else ")")
        is_useless = alpha < _LITTLE_AGREEMENT and (limits is None or limits[0] <= 0)
        (useless if is_useless else weak).append(text)
    warnings: list[str] = []
    if useless:
        warnings.append(
            f"raters are not shown to agree with each other more than by chance on {_listed(useless)} (Krippendorff's "
            "alpha): no judge can be measured by their answers; rewrite the requirement, or let more raters label it"
        )
    if weak:
        warnings.append(
            f"raters agree little with each other on {_listed(weak)} (Krippendorff's alpha below .67): a judge can "
            "hardly agree with them more than they do; compare its kappa with `people's alpha`"
        )
    return warnings


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST_LISTED:,} more criteria" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + more


_MOST_LISTED = 3


def _score_agreement(scores: Sequence[LabelledScore], level: float, groups: Groups | None) -> ScoreAgreement:
    pairs = [(score.row, score.people, score.judge) for score in scores]
    rated = [(row, people, judge) for row, people, judge in pairs if people is not None and judge is not None]
    people, judge = [people for _, people, _ in rated], [judge for _, _, judge in rated]
    of_rows = select_groups(groups, [row for row, _, _ in rated])
    return ScoreAgreement(
        len(rated),
        estimate_bias(people, judge, level, of_rows),
        compare_values(people, judge),
        p_value_of(lambda level: estimate_bias(people, judge, level, of_rows)),
        effect_size([of_judge - of_people for _, of_people, of_judge in rated]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
