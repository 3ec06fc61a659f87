"""Corrects the figures of a run by people's labels of a part of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rubric_integrations._util.records import Record
from rubric_integrations.agreement.correction import (
    Stratum,
    corrected_mean,
    corrected_rate,
    rogan_gladen_rate,
)
from rubric_integrations.agreement.intervals import Estimate
from rubric_integrations.agreement.matching import Match, match_labels
from rubric_integrations.agreement.measure import count_verdicts
from rubric_integrations.agreement.ranks import compare_values
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.agreement.scores import score_pairs
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric

# With fewer labelled submissions on which judge and people differ, the interval of the mean is too narrow.
_FEW_DIFFERENCES = 5


class CriterionCalibration(Record):
    """The corrected figures of one criterion.

    Attributes:
        name: The criterion's name.
        rate: For a binary criterion, the share of submissions on which people say MET; for others None.
        options: For criteria with options or numbers, the share of each answer.
        judge_rates: The judge's own share of each answer.
    """

    name: str
    rate: Estimate | None
    options: dict[str, Estimate]
    judge_rates: dict[str, float]


class Calibration(Record):
    """The figures of a run as people would see them.

    Attributes:
        score: The mean score that people's answers would give. It is undefined if labels were drawn by the judge's
            verdict on criteria, or if no submission has a label for every criterion.
        judge_score: The judge's mean score; None without a score.
        criteria: The corrected figures of each criterion.
        weight: How much the judge's scores of the unlabelled submissions count, from 0 to 1.
        labels_saved: The share of labels that the judge saves: without it, `1 / (1 - labels_saved)` times as many
            would be needed for the same interval.
        warnings: What limits the figures.
    """

    score: Estimate
    judge_score: float | None
    criteria: dict[str, CriterionCalibration]
    weight: float
    labels_saved: float | None
    warnings: tuple[str, ...] = ()


def calibrate(
    run: RunLike, labels: Iterable[LabelledJudgment], *, rubric: Rubric | None = None, level: float = 0.95
) -> Calibration:
    """Correct the mean score and the rates of a run by labels of a part of it.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        labels: Labels of a part of the same run, drawn at random or by the judge's verdict. For labels of other
            submissions there is `calibrate_rate`.
        rubric: The run's rubric, if checks decide criteria, or groups the score.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: Labels were chosen by people, such as the overruled answers alone.
        ValueError: No label belongs to the run, or the scores do not follow from the criteria.
    """
    rows = read_rows(run)
    matches, unmatched = match_labels(rows, labels)
    if not matches:
        raise ValueError(
            f"none of the {len(unmatched):,} labels belongs to a judgment of this run: for labels of other submissions "
            "there is `calibrate_rate`"
        )
    scores = [row.report.score for row in rows if row.report and row.report.score is not None and not row.report.error]
    judge_score = math.fsum(scores) / len(scores) if scores else None
    warnings: list[str] = []
    score, weight, saved = Estimate(None, None, None, 0), 0.0, None
    is_random = all(label.sampled == "random" for match in matches for label in match.labels)
    pairs = score_pairs(rows, matches, rubric) if is_random else []
    if not is_random:
        warnings.append("labels were drawn by the judge's verdict: they correct the rates, and not the mean score")
    elif not pairs or judge_score is None:
        warnings.append("no submission has a label for each of its criteria: they correct the rates alone")
    else:
        people, judge = [pair.people for pair in pairs], [pair.judge for pair in pairs]
        bounded = min(*scores, *people) >= 0 and max(*scores, *people) <= 1
        corrected = corrected_mean(people, judge, judge_score, len(scores), level=level, bounded=bounded)
        score, weight = corrected.estimate, corrected.weight
        saved = _explained(people, judge)
        if sum(abs(one - other) > 1e-9 for one, other in zip(people, judge, strict=True)) < _FEW_DIFFERENCES:
            warnings.append(
                f"people and the judge differ on fewer than {_FEW_DIFFERENCES} labelled submissions: the interval of "
                "the mean may be too narrow; label more, or read the rates of the criteria"
            )
    by_criterion: dict[tuple[str, str], list[Match]] = {}
    for match in matches:
        by_criterion.setdefault((match.judged.name, match.judged.requirement), []).append(match)
    repeated = Counter(name for name, _ in by_criterion)
    criteria = {
        (name if repeated[name] == 1 else words): _calibrate_criterion(name, of, count_verdicts(rows, words), level)
        for (name, words), of in by_criterion.items()
    }
    return Calibration(
        score=score, judge_score=judge_score, criteria=criteria, weight=weight, labels_saved=saved,
        warnings=tuple(warnings),
    )  # fmt: skip


def calibrate_rate(judged: Mapping[str, int], confusion: Sequence[Sequence[int]], *, level: float = 0.95) -> Estimate:
    """Correct the judge's rate by labels of other submissions. It assumes that the judge errs here as often as there.

    Args:
        judged: How often the judge says MET, and UNMET, in the run: `{"MET": 620, "UNMET": 380}`.
        confusion: The labels: how often people say UNMET and MET (rows) and the judge says UNMET and MET (columns).
        level: The level of the interval.

    Raises:
        ValueError: The labels show a judge that is no better than chance, or lack one of the verdicts.

    Example:
        >>> print(calibrate_rate({"MET": 620, "UNMET": 380}, [[40, 10], [5, 45]]))
        0.600 [0.495, 0.717] (n = 100)
    """
    (true_unmet, false_met), (false_unmet, true_met) = confusion
    estimate = rogan_gladen_rate(
        met=judged.get("MET", 0),
        judged=sum(judged.values()),
        sensitivity=(true_met, true_met + false_unmet),
        specificity=(true_unmet, true_unmet + false_met),
        level=level,
    )
    if estimate is None:
        raise ValueError(
            "the labels show a judge that is no better than chance, or have only one of the verdicts: its rate says "
            "nothing about people's; label some submissions of this run, and use `calibrate`"
        )
    return estimate


def _calibrate_criterion(
    name: str, matches: Sequence[Match], judged: Mapping[str, int], level: float
) -> CriterionCalibration:
    criterion = matches[0].criterion
    answered = [(match.judged.verdict or "", match.consensus) for match in matches if match.judged.error is None]
    decided = [
        (verdict, answer)
        for verdict, answer in answered
        if answer is not None and to_judgment(criterion, answer).value is not None
    ]

    def rate_of(answer: str) -> Estimate:
        strata: list[Stratum] = []
        for verdict, count in judged.items():
            answers = [people for judge, people in decided if judge == verdict]
            strata.append(Stratum(count, len(answers), answers.count(answer)))
        return corrected_rate(strata, level)

    is_binary = criterion.kind == "binary"
    options = [option.label for option in criterion.choices] or sorted({answer for _, answer in decided})
    total = sum(judged.values())
    return CriterionCalibration(
        name=name,
        rate=rate_of("MET") if is_binary else None,
        options={} if is_binary else {option: rate_of(option) for option in options},
        judge_rates={verdict: count / total for verdict, count in judged.items()},
    )


def _explained(people: Sequence[float], judge: Sequence[float]) -> float | None:
    compared = compare_values(people, judge)
    correlation = compared.pearson if compared else None
    return None if correlation is None else max(0.0, correlation) ** 2
