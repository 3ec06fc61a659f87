"""How far the judge agrees with people on one criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations._util.records import Record
from rubric_integrations.agreement.correction import Stratum, corrected_rate
from rubric_integrations.agreement.intervals import (
    effect_size,
    estimate_difference,
    estimate_rate,
    estimate_rate_difference,
)
from rubric_integrations.agreement.kappa import Matrix, cohen_kappa, gwet_ac1, krippendorff_alpha, level_distances
from rubric_integrations.agreement.matching import Match
from rubric_integrations.agreement.ranks import OrderedAgreement, compare_values
from rubric_integrations.agreement.tables import (
    VerdictAgreement,
    adjacent_share,
    answer_levels,
    chance_agreement,
    phi_coefficient,
    verdict_agreement,
)
from rubric_integrations.agreement.weighting import rate_bias, verdict_weights, weight_table
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.rubric.criterion import Criterion, Kind


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
