"""`agreement`: how far a judge agrees with human labels, per criterion and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, data_frame, html_table
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import (
    ScorePair,
    Stratum,
    UnexplainedScoreError,
    corrected_rate,
    rate_bias,
    score_pairs,
    verdict_weights,
    weight_table,
)
from rubric_integrations.trust.matching import (
    Match,
    RunLike,
    VerdictAgreement,
    adjacent_share,
    answer_levels,
    chance_agreement,
    count_verdicts,
    group_matches,
    match_labels,
    phi_coefficient,
    read_rows,
    verdict_agreement,
)
from rubric_integrations.trust.means import estimate_mean
from rubric_integrations.trust.statistics import (
    Matrix,
    OrderedAgreement,
    cohen_kappa,
    compare_values,
    difference_p_value,
    effect_size,
    estimate_difference,
    estimate_rate,
    estimate_rate_difference,
    gwet_ac1,
    krippendorff_alpha,
    level_distances,
)

if TYPE_CHECKING:
    from pandas import DataFrame


class CriterionAgreement(Record):
    """How far the judge agrees with people on one criterion.

    Rows of the `confusion` are people's answers and columns the judge's, in the order of `levels`. Where several people
    labelled a judgment, the answer that most of them gave counts; without one, the judgment is left out.

    Labels that were drawn by the judge's verdict are weighted by how often the run has that verdict. If the run has a
    verdict without a label, the figures that need it are None.

    Attributes:
        name: The criterion's name in the rubric.
        requirement: Its requirement.
        kind: Its kind of answer.
        n: The number of judgments that people and the judge both decided.
        coverage: The share of the labelled judgments that both decided; None without labels.
        judge_abstained: How many of the labelled judgments the judge could not assess: CANNOT_ASSESS, or an option that
            is marked `na`.
        people_abstained: How many people could not assess.
        both_abstained: How many neither could assess. The judge abstains without reason on `judge_abstained -
            both_abstained`, and answers what people cannot on `people_abstained - both_abstained`.
        undecided: How many labelled judgments have no answer that most raters gave.
        failed: How many labelled judgments the judge failed at.
        abstention_kappa: Agreement on what cannot be assessed; None if neither ever abstains.
        levels: The answers, from the criterion; empty for a scale with more than 21 numbers.
        confusion: How often each pair of answers occurs.
        accuracy: The share of equal answers.
        chance_agreement: The share of equal answers that would occur by chance, if both gave each answer as often as
            they do.
        sensitivity: For a binary criterion, the share of people's MET on which the judge agrees.
        specificity: For a binary criterion, the share of people's UNMET on which the judge agrees.
        phi: For a binary criterion, the correlation of both answers (Matthews).
        kappa: Cohen's kappa: quadratic for ordered answers. Undefined if only one answer occurs.
        ac1: Gwet's AC1, for criteria on which nearly all answers are alike.
        people_alpha: Krippendorff's alpha among people; None without two raters of a judgment, and for labels that were
            drawn by the judge's verdict.
        judge_alpha: The same between the judge and people's answers.
        bias: The judge's mean value minus people's: for a binary criterion, the difference of the MET rates. Above 0,
            the judge is too lenient, but too strict on a penalty, where MET is the error.
        effect_size: The bias by the standard deviation of the differences (Cohen's d); None if these are all equal, and
            for labels that were drawn by the judge's verdict.
        per_verdict: Precision, recall and F1 of each answer.
        adjacent_accuracy: For ordered answers, the share that differs by one level at most.
        ordered: For ordered answers, errors and correlations of the values; None for labels that were drawn by the
            judge's verdict.
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


class _Pair(NamedTuple):
    """What people and the judge answered; None for an abstention."""

    people: str | None
    judge: str | None
    people_value: float | None
    judge_value: float | None
    weight: float = 1.0


def measure_criterion(
    matches: Sequence[Match], judged: Mapping[str, int] | None = None, level: float = 0.95
) -> CriterionAgreement:
    """Measure agreement on one criterion.

    Args:
        matches: The labelled judgments of the criterion, at least one.
        judged: How often the judge gave each verdict in the whole run. Labels that were drawn by the judge's verdict
            are weighted by it; None for labels that were drawn at random.
        level: The level of the intervals.
    """
    criterion, name = matches[0].criterion, matches[0].judged.name
    matches = [match for match in matches if match.judged.was_asked and not match.judged.not_applicable]
    weights = verdict_weights(matches, judged)
    answered = [match for match in matches if match.judge_answer is not None and match.consensus is not None]
    pairs = [_pair(match, weights) for match in answered]
    decided = [pair for pair in pairs if pair.people_value is not None and pair.judge_value is not None]
    levels = answer_levels(criterion)
    places = {answer: place for place, answer in enumerate(levels)}
    table = np.zeros((len(levels), len(levels)))
    for pair in decided if levels else ():
        table[places[pair.people or ""], places[pair.judge or ""]] += 1
    weighted = weight_table(table, levels, judged) if judged else table
    values = [_value(criterion, answer) for answer in levels]
    apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic") if levels else None
    ordered = criterion.kind in ("ordinal", "scaled")
    people_values = [pair.people_value or 0.0 for pair in decided]
    judge_values = [pair.judge_value or 0.0 for pair in decided]
    nothing = Estimate(None, None, None, len(decided))
    is_binary = criterion.kind == "binary"
    if judged is not None:  # what the judge could not assess has no part in the figures below
        judged = {verdict: n for verdict, n in judged.items() if to_judgment(criterion, verdict).value is not None}
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
        confusion=tuple(tuple(int(count) for count in row) for row in table),
        accuracy=_accuracy(decided, judged, level),
        chance_agreement=chance_agreement(weighted) if levels else None,
        sensitivity=_recall(table, weighted, 1, level) if is_binary else None,
        specificity=_recall(table, weighted, 0, level) if is_binary else None,
        phi=phi_coefficient(weighted) if is_binary else None,
        kappa=cohen_kappa(weighted, apart, level)._replace(n=len(decided)) if levels else nothing,
        ac1=gwet_ac1(weighted) if levels else None,
        people_alpha=_people_alpha(matches, places, apart) if judged is None else None,
        judge_alpha=_judge_alpha(decided, places, apart) if judged is None else None,
        bias=_bias(decided, is_binary, level) if judged is None else _weighted_bias(decided, judged, is_binary, level),
        effect_size=effect_size(_differences(decided)) if judged is None else None,
        per_verdict={answer: verdict_agreement(weighted, table, place) for answer, place in places.items()},
        adjacent_accuracy=adjacent_share(weighted) if ordered and levels else None,
        ordered=compare_values(people_values, judge_values) if ordered and judged is None else None,
    )


def _pair(match: Match, weights: Mapping[str, float] | None) -> _Pair:
    judge = match.judge_answer or ""
    weight = 1.0 if weights is None else weights.get(judge, 0.0)
    return _Pair(match.consensus, judge, match.people_value, match.judged.value, weight)


def _coverage(matches: Sequence[Match], decided: Sequence[_Pair], weights: Mapping[str, float] | None) -> float | None:
    if weights is None:
        return len(decided) / len(matches) if matches else None
    total = sum(weights.get(match.judge_answer or "", 0.0) for match in matches)
    return sum(pair.weight for pair in decided) / total if total else None


def _value(criterion: Criterion, answer: str) -> float:
    return to_judgment(criterion, answer).value or 0.0


def _accuracy(pairs: Sequence[_Pair], judged: Mapping[str, int] | None, level: float) -> Estimate:
    if judged is None:
        return estimate_rate(sum(pair.people == pair.judge for pair in pairs), len(pairs), level)
    strata: list[Stratum] = []
    for verdict, count in judged.items():
        same = [pair for pair in pairs if pair.judge == verdict]
        strata.append(Stratum(count, len(same), sum(pair.people == verdict for pair in same)))
    return corrected_rate(strata, level)


def _recall(table: Matrix, weighted: Matrix, place: int, level: float) -> Estimate:
    """Estimate the share of people's answers of one kind on which the judge agrees; weighted, it has no interval."""
    right, support = int(table[place, place]), int(table[place].sum())
    if weighted is table:
        return estimate_rate(right, support, level)
    if not weighted[place].sum():
        return Estimate(None, None, None, support)
    return Estimate(float(weighted[place, place] / weighted[place].sum()), None, None, support)


def _bias(pairs: Sequence[_Pair], is_binary: bool, level: float) -> Estimate:
    differences = _differences(pairs)
    if not is_binary:
        return estimate_difference(differences, level)
    rose, fell = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return estimate_rate_difference(rose=rose, fell=fell, pairs=len(pairs), level=level)


def _weighted_bias(pairs: Sequence[_Pair], judged: Mapping[str, int], is_binary: bool, level: float) -> Estimate:
    """Estimate the bias by labels drawn by the judge's verdict; only that of a binary criterion has limits."""
    if not pairs or {pair.judge for pair in pairs} != set(judged):
        return Estimate(None, None, None, len(pairs))
    if is_binary:
        met = Counter(pair.judge or "" for pair in pairs if pair.people == "MET")
        return rate_bias(judged, Counter(pair.judge or "" for pair in pairs), met, level)
    differences = [pair.weight * apart for pair, apart in zip(pairs, _differences(pairs), strict=True)]
    return Estimate(sum(differences) / sum(pair.weight for pair in pairs), None, None, len(pairs))


def _differences(pairs: Sequence[_Pair]) -> list[float]:
    return [(pair.judge_value or 0.0) - (pair.people_value or 0.0) for pair in pairs]


def _abstention_kappa(pairs: Sequence[_Pair]) -> float | None:
    table = np.zeros((2, 2))
    for pair in pairs:
        table[int(pair.people_value is None), int(pair.judge_value is None)] += pair.weight
    return cohen_kappa(table, level_distances([0, 1])).value if table.sum() else None


def _people_alpha(matches: Sequence[Match], places: Mapping[str, int], apart: Matrix | None) -> float | None:
    if apart is None or all(len(match.labels) < 2 for match in matches):
        return None
    units = [[places[answer] for answer in match.answers if answer in places] for match in matches]
    return krippendorff_alpha(units, apart)


def _judge_alpha(pairs: Sequence[_Pair], places: Mapping[str, int], apart: Matrix | None) -> float | None:
    if apart is None:
        return None
    return krippendorff_alpha([[places[pair.people or ""], places[pair.judge or ""]] for pair in pairs], apart)


_COLUMNS = ("criterion", "n", "coverage", "accuracy", "kappa", "AC1", "bias", "people's alpha", "judge's alpha")


class ScoreAgreement(NamedTuple):
    """How close the judge's scores are to the scores by people's answers.

    Attributes:
        n: The number of submissions of which people answered every criterion.
        bias: The mean of the judge's score minus people's.
        values: Errors, correlations and distances of the distributions; None without such a submission.
        p_value: The p-value of the bias, by the paired t-test, two-sided; None if the differences are all equal.
        effect_size: The bias by the standard deviation of the differences (Cohen's d); None if they are all equal.
    """

    n: int
    bias: Estimate
    values: OrderedAgreement | None
    p_value: float | None
    effect_size: float | None


class Agreement(Record):
    """How far a judge agrees with people.

    Attributes:
        criteria: Agreement on each criterion, by its name; by its words if several criteria have one name.
        accuracy: The share of equal answers: the mean over the labelled submissions, whose judgments depend on each
            other. If labels were drawn by the judge's verdict, it is `micro_accuracy`, without an interval.
        micro_accuracy: The share of equal answers among all judgments; None without one. Labels that were drawn by the
            judge's verdict are weighted by how often the run has that verdict.
        macro_accuracy: The mean accuracy of the criteria; None without one.
        mean_kappa: The mean kappa of the criteria that have one.
        micro_kappa: How far `micro_accuracy` exceeds chance: 1 is perfect, and 0 is the `chance_agreement` of the
            criteria. (The pooled kappa of De Vries et al. 2008. Cohen's kappa of all answers in one table would be
            high for a judge that knows only which criteria are mostly MET.) Scales with more than 21 numbers have no
            part in it; None if only one answer occurs on each criterion.
        scores: Agreement on the scores; undefined if labels were drawn by the judge's verdict.
        raters: The names of the people.
        labels: The number of labels that belong to a judgment of the run, without those that people chose.
        blind: How many of them are marked as blind: the rater did not see the judge's answer.
        unmatched: The number of labels that do not.
        warnings: What limits the figures.
    """

    criteria: dict[str, CriterionAgreement]
    accuracy: Estimate
    micro_accuracy: float | None
    macro_accuracy: float | None
    mean_kappa: float | None
    micro_kappa: float | None
    scores: ScoreAgreement
    raters: tuple[str, ...]
    labels: int
    blind: int
    unmatched: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text: one line for each criterion, and one for the whole."""
        lines = [
            f"{name}: accuracy {row.accuracy}, kappa {row.kappa}, coverage {_percent(row.coverage)}"
            for name, row in self.criteria.items()
        ]
        unmatched = f"; {self.unmatched:,} labels belong to no judgment of the run" if self.unmatched else ""
        kappa = "undefined" if self.micro_kappa is None else f"{self.micro_kappa:.3f}"
        lines.append(f"all: accuracy {self.accuracy}, kappa {kappa}, bias of the scores {self.scores.bias}{unmatched}")
        lines.append(f"{self.labels:,} labels, {self.blind:,} of them blind")
        return "\n".join([*lines, *self.warnings])

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one row for each criterion.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame([dict(zip(_COLUMNS, row, strict=True)) for row in self._rows()], _COLUMNS)

    def _repr_html_(self) -> str:
        rows = [[str(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self._rows()]
        return html_table(f"Agreement with people on {self.labels:,} labels", _COLUMNS, rows)

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (name, row.n, row.coverage, row.accuracy, row.kappa, row.ac1, row.bias, row.people_alpha, row.judge_alpha)
            for name, row in self.criteria.items()
        ]


def agreement(
    judged: RunLike, labels: Iterable[LabelledJudgment], *, rubric: Rubric | None = None, level: float = 0.95
) -> Agreement:
    """Measure how far a judge agrees with people.

    Args:
        judged: The run that was labelled: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        labels: People's labels of a part of it, drawn at random or by the judge's verdict; several raters may have
            labelled the same judgment.
        rubric: The run's rubric, for the agreement of scores, if groups make them.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: All labels were chosen by people, such as the overruled answers alone. If only some were,
            these are left out, with a warning.
        ValueError: The judge was aligned with all labels that belong to the run. Those of a part of the run are left
            out, with a warning.
    """
    rows = read_rows(judged)
    matched = match_labels(rows, labels)
    matches = matched.matches
    criteria: dict[str, CriterionAgreement] = {}
    weights: dict[str, int] = {}
    for key, of_criterion in group_matches(matches).items():
        judged_verdicts = count_verdicts(rows, of_criterion[0])
        drawn_by = None if all(match.is_random for match in of_criterion) else judged_verdicts
        criteria[key] = measure_criterion(of_criterion, drawn_by, level)
        weights[key] = sum(judged_verdicts.values())
    kappas = [row.kappa.value for row in criteria.values() if row.kappa.value is not None]
    accuracies = {key: row.accuracy.value for key, row in criteria.items() if row.accuracy.value is not None}
    equal = _equal_answers(matches)
    accuracy = estimate_mean([sum(of_row) / len(of_row) for of_row in equal.values()], level)
    micro_accuracy = _mean([float(answer) for of_row in equal.values() for answer in of_row])
    is_random = all(match.is_random for match in matches)
    micro_kappa = _pooled_kappa(criteria, None if is_random else weights)
    pairs: list[ScorePair] = []
    warnings: list[str] = []
    if is_random:
        try:
            pairs = score_pairs(rows, matches, rubric)
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
        scores=_score_agreement(pairs, level),
        raters=tuple(sorted({label.rater for label in matched.labels if label.rater})),
        labels=len(matched.labels),
        blind=sum(label.blind for label in matched.labels),
        unmatched=len(matched.unmatched),
        warnings=(*warnings, *matched.warnings),
    )


def _equal_answers(matches: Sequence[Match]) -> dict[int, list[bool]]:
    """Return, for each row, whether each answer that both decided is the same."""
    equal: dict[int, list[bool]] = {}
    for match in matches:
        people, judge = match.consensus, match.judge_answer
        if (
            people is not None
            and judge is not None
            and match.judged.value is not None
            and match.people_value is not None
        ):
            equal.setdefault(match.row, []).append(people == judge)
    return equal


def _pooled_kappa(criteria: Mapping[str, CriterionAgreement], weights: Mapping[str, int] | None) -> float | None:
    """Compute kappa from the mean accuracy and the mean chance agreement of criteria, by their number of answers."""
    above = possible = 0.0
    for key, row in criteria.items():
        if row.accuracy.value is not None and row.chance_agreement is not None:
            weight = row.n if weights is None else weights[key]
            above += weight * (row.accuracy.value - row.chance_agreement)
            possible += weight * (1 - row.chance_agreement)
    return above / possible if possible else None


def _score_agreement(pairs: Sequence[ScorePair], level: float) -> ScoreAgreement:
    differences = [pair.judge - pair.people for pair in pairs]
    return ScoreAgreement(
        len(pairs),
        estimate_difference(differences, level),
        compare_values([pair.people for pair in pairs], [pair.judge for pair in pairs]),
        difference_p_value(differences),
        effect_size(differences),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
