"""Corrects the figures of a run by human labels of a part of it: rates, the mean score, and rates by other labels.

In the formulas, Y is the human label and F the judge's answer; n of the N judged submissions are labelled. Labels that
were drawn by the judge's verdict have more of the rare verdicts than the run. Each label of a verdict v therefore
stands for p_v / n_v judgments: the share of the verdict in the run, divided by the number of its labels.
"""

from __future__ import annotations

import math
import warnings as python_warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.formula import Score, WeightedValue, score_parts, score_values
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.trust.matching import (
    Match,
    RunLike,
    chosen_warning,
    complete_score,
    count_verdicts,
    group_matches,
    is_trained_on,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.planning import FEWEST_LABELS
from rubric_integrations.trust.statistics import (
    ROUNDING,
    Matrix,
    compare_values,
    jeffreys_limits,
    normal_quantile,
    student_quantile,
    wilson_limits,
)


class Stratum(NamedTuple):
    """The submissions to which the judge gave one verdict; CANNOT_ASSESS is a verdict.

    Attributes:
        judged: How many of the run's submissions they are.
        labelled: How many of them have a label.
        true: On how many of the labelled ones people say that it holds.
    """

    judged: int
    labelled: int
    true: int


class CorrectedMean(NamedTuple):
    """A mean score that labels correct.

    Attributes:
        estimate: The mean with its interval.
        weight: How much the judge's scores of the other submissions count, from 0 (not at all) to 1.
    """

    estimate: Estimate
    weight: float


def corrected_rate(strata: Sequence[Stratum], level: float = 0.95) -> Estimate:
    """Correct the judge's rate by labels that were drawn at random, or by the judge's verdict.

    The rates of the strata are weighted by their shares (Tenenbein 1970); the limits combine Jeffreys limits of each
    stratum (MOVER, Zou and Donner 2008). Undefined if nothing is judged or labelled.

    Example:
        >>> print(corrected_rate([Stratum(620, 31, 27), Stratum(380, 19, 4)]))
        0.620 [0.512, 0.719] (n = 50)
    """
    judged, labelled = sum(stratum.judged for stratum in strata), sum(stratum.labelled for stratum in strata)
    if judged == 0 or labelled == 0:
        return Estimate(None, None, None, labelled)
    shares = np.array([stratum.judged / judged for stratum in strata])
    rates = np.array([stratum.true / stratum.labelled if stratum.labelled else 0.5 for stratum in strata])
    limits = np.array([jeffreys_limits(s.true, s.labelled, level) if s.labelled else (0.0, 1.0) for s in strata])
    rate = float(shares @ rates)
    of_shares = normal_quantile(level) ** 2 * max(0.0, float(shares @ rates**2) - rate**2) / judged
    below = float((shares**2) @ (rates - limits[:, 0]) ** 2)
    above = float((shares**2) @ (limits[:, 1] - rates) ** 2)
    low, high = rate - math.sqrt(below + of_shares), rate + math.sqrt(above + of_shares)
    return Estimate(rate, max(0.0, low), min(1.0, high), labelled)


def corrected_mean(
    people: Sequence[float], judge: Sequence[float], judge_mean: float, judged: int, *, level: float = 0.95,
    bounded: bool = True,
) -> CorrectedMean:  # fmt: skip
    """Correct the judge's mean score by labels of a random part of the run.

    People's scores are regressed on the judge's, and predicted at the run's mean judge score, with the HC3 variance;
    the interval is Wilson's at the effective sample size, or Student's for scores without bounds.

    Args:
        people: The scores by people's answers, of the labelled submissions.
        judge: The scores by the judge's answers, of the same submissions.
        judge_mean: The judge's mean score of all submissions of the run.
        judged: The number of all submissions of the run.
        level: The level of the interval.
        bounded: Whether scores are in [0, 1].

    Returns:
        The mean; without an interval for fewer than three labels, and for equal labels of scores without bounds.

    Raises:
        ValueError: There are more labelled submissions than judged ones, of which they are a part.
    """
    y, f = np.asarray(people, float), np.asarray(judge, float)
    n = len(y)
    if n > judged:
        raise ValueError(f"people labelled {n} submissions of {judged}: the labelled ones must be a part of the run")
    if n == 0:
        return CorrectedMean(Estimate(None, None, None, 0), 0.0)
    y_apart, f_apart = y - y.mean(), f - f.mean()
    spread, shift = float(f_apart @ f_apart), judge_mean - float(f.mean())
    if spread <= ROUNDING:
        spread = 0.0
    weight = min(1.0, max(0.0, float(y_apart @ f_apart) / spread)) if spread else 0.0
    mean = float(y.mean()) + weight * shift
    if bounded:
        mean = min(1.0, max(0.0, mean))
    if n < 3:
        return CorrectedMean(Estimate(mean, None, None, n), weight)
    rest = y_apart - weight * f_apart
    leverage = 1 / n + (f_apart**2 / spread if spread else 0.0)
    growth = 1 + (n * shift * f_apart / spread if spread else 0.0)
    of_labels = float(((growth * rest / (1 - np.minimum(leverage, 0.9))) ** 2).sum()) / n**2
    variance_y, variance_rest = float(y_apart @ y_apart) / (n - 1), float(rest @ rest) / (n - 2)
    explained = max(variance_y - variance_rest, 0.0) / (n * (n - 1))
    variance = (1 - n / judged) * (of_labels + explained) + variance_y / judged
    quantile = student_quantile(n - 2, level)
    is_constant = float(np.ptp(y)) <= ROUNDING
    if not bounded:
        # Labels that are all equal do not tell how much others would vary.
        half = None if is_constant else quantile * math.sqrt(variance)
        limits = (None, None) if half is None else (mean - half, mean + half)
        return CorrectedMean(Estimate(mean, *limits, n), weight)
    size = n if is_constant or mean in (0.0, 1.0) or variance <= 0 else max(mean * (1 - mean) / variance, 0.9 * n)
    return CorrectedMean(Estimate(mean, *wilson_limits(mean, size, quantile), n), weight)


def rogan_gladen_rate(
    *, met: int, judged: int, sensitivity: tuple[int, int], specificity: tuple[int, int], level: float = 0.95
) -> Estimate | None:
    """Correct the judge's rate by labels of other submissions (Rogan and Gladen; Lang and Reiczigel 2014).

    It assumes that the judge is as sensitive and as specific here as it was there.

    Args:
        met: On how many submissions of the run the judge says MET.
        judged: How many submissions the run has.
        sensitivity: On how many submissions that people call MET the judge does so, too; and how many these are.
        specificity: The same for UNMET.
        level: The level of the interval.

    Returns:
        The rate; None if the judge is no better than chance there, so that its rate tells nothing.

    Example:
        >>> print(rogan_gladen_rate(met=620, judged=1000, sensitivity=(45, 50), specificity=(40, 50)))
        0.600 [0.495, 0.717] (n = 100)
    """
    (true_met, people_met), (true_unmet, people_unmet) = sensitivity, specificity
    if not judged or not people_met or not people_unmet:
        return None
    youden = true_met / people_met + true_unmet / people_unmet - 1
    if youden <= 0:
        return None
    rate = min(1.0, max(0.0, (met / judged + true_unmet / people_unmet - 1) / youden))
    z2 = normal_quantile(level) ** 2
    share = (met + z2 / 2) / (judged + z2)
    sens, spec = (true_met + 1) / (people_met + 2), (true_unmet + 1) / (people_unmet + 2)
    informedness = sens + spec - 1
    if informedness <= 0:
        return None
    center = (share + spec - 1) / informedness
    of_spec, of_sens = spec * (1 - spec) / (people_unmet + 2), sens * (1 - sens) / (people_met + 2)
    shift = 2 * z2 * (center * of_sens - (1 - center) * of_spec)
    variance = share * (1 - share) / (judged + z2) + (1 - center) ** 2 * of_spec + center**2 * of_sens
    half = math.sqrt(z2 * variance) / informedness
    low, high = (min(1.0, max(0.0, center + shift + sign * half)) for sign in (-1, 1))
    return Estimate(rate, low, high, people_met + people_unmet)


def strata_by_verdict(judged: Mapping[str, int], labelled: Mapping[str, tuple[int, int]]) -> list[Stratum]:
    """Make the strata of a rate: one for each verdict of the judge.

    Args:
        judged: How often the judge gave each verdict in the run.
        labelled: For each verdict, how many of these submissions people labelled, and on how many of them it holds.
    """
    return [Stratum(count, *labelled.get(verdict, (0, 0))) for verdict, count in judged.items()]


_ROUNDING = 1e-6


class UnexplainedScoreError(ValueError):
    """Raised if the score of a run does not follow from the answers to its criteria, and people's would not."""


class ScorePair(NamedTuple):
    """The scores of one submission.

    Attributes:
        row: The index of its row in the run.
        people: The score by people's answers.
        judge: The score by the judge's answers.
    """

    row: int
    people: float
    judge: float


def score_pairs(rows: Sequence[GradedRow], matches: Sequence[Match], rubric: Rubric | None = None) -> list[ScorePair]:
    """Score each submission of which people answered every criterion that a judge decides, and the judge did so, too.

    Args:
        rows: The rows of the run.
        matches: The labelled judgments.
        rubric: The rubric of the run. Without it, a score must follow from the weights of its criteria alone, and in
            runs of earlier versions, whose reports do not mark them, criteria with a check need labels too.

    Raises:
        UnexplainedScoreError: (a ValueError) The judge's score of a row does not follow from its answers.
    """
    of_rows: dict[int, dict[str, Match]] = {}
    for match in matches:
        of_rows.setdefault(match.row, {})[match.judged.name] = match
    labelled: list[tuple[int, EvaluationReport, float, list[float | None]]] = []
    for index, of_row in of_rows.items():
        report, score = rows[index].report, complete_score(rows[index])
        values = _people_values(report, of_row, rubric) if report else None
        if report is not None and values is not None and score is not None:
            labelled.append((index, report, score, values))
    by_judge = [_score(report, [entry.value for entry in report.criteria], rubric) for _, report, _, _ in labelled]
    scores = [score for _, _, score, _ in labelled]
    is_raw = _unequal(scores, [score.normalized for score in by_judge]) is not None
    place = _unequal(scores, [score.raw for score in by_judge]) if is_raw else None
    if place is not None:
        raise UnexplainedScoreError(
            f"the score of row {rows[labelled[place][0]].id!r} is {scores[place]!r}, and its criteria alone give "
            f"{by_judge[place].normalized!r}: pass the run's `rubric`, whose groups may explain it; scores with "
            "metrics, penalties for length or other policies for abstentions cannot be corrected"
        )
    pairs: list[ScorePair] = []
    for index, report, score, values in labelled:
        people = _score(report, values, rubric).reported(normalize=not is_raw)
        if people is not None:
            pairs.append(ScorePair(index, people, score))
    return pairs


def _unequal(scores: Sequence[float], others: Sequence[float | None]) -> int | None:
    """Return the place of the first score that is not the other one."""
    pairs = enumerate(zip(scores, others, strict=True))
    return next((place for place, (a, b) in pairs if b is None or abs(a - b) > _ROUNDING), None)


def _people_values(
    report: EvaluationReport, matches: Mapping[str, Match], rubric: Rubric | None
) -> list[float | None] | None:
    """Return people's value of each criterion; None if they did not answer all."""
    values: list[float | None] = []
    checked = {key for key, c in zip(rubric.keys, rubric.criteria, strict=True) if c.check} if rubric else set[str]()
    for entry in report.criteria:
        match = matches.get(entry.name)
        if match is not None and match.consensus is not None:
            values.append(to_judgment(match.criterion, match.consensus).value)
        elif entry.computed or entry.name in checked or entry.not_applicable:
            values.append(entry.value)
        else:
            return None
    return values


def _score(report: EvaluationReport, values: Sequence[float | None], rubric: Rubric | None) -> Score:
    absent = [index for index, entry in enumerate(report.criteria) if entry.not_applicable]
    if rubric is not None and len(rubric) == len(values):
        return score_values(rubric, values, not_applicable=absent)
    weights = [entry.weight for entry in report.criteria]
    return score_parts([WeightedValue(w, value, 0.0) for w, value in zip(weights, values, strict=True)])


# With fewer labelled submissions on which judge and people differ, the interval of the mean is too narrow.
_FEW_DIFFERENCES = 5
# Sensitivity and specificity, less one, below which the correction divides by nearly nothing.
_WEAK_JUDGE = 0.3


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

    @property
    def rates(self) -> list[tuple[str, Estimate, float | None]]:
        """Each answer with its corrected share and the judge's own; of a binary criterion, only MET.

        The judge's share is 0 for an answer that it never gave, and None if it gave none at all.
        """
        rates = self.options if self.rate is None else {"MET": self.rate}
        judged = self.judge_rates
        return [(answer, rate, judged.get(answer, 0.0) if judged else None) for answer, rate in rates.items()]


class Calibration(Record):
    """The figures of a run as people would see them.

    Attributes:
        score: The mean score that people's answers would give, on the submissions at which the judge did not fail. It
            is undefined if labels were drawn by the judge's verdict on criteria, if no submission has a label for every
            criterion, or if the scores do not follow from the criteria; `warnings` say which.
        judge_score: The judge's mean score on the same submissions; None without a score.
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

    def summary(self) -> str:
        """Return the figures as text: the mean score, a line for each answer to each criterion, and the warnings."""
        lines = [
            f"{name}: {answer} {rate}, by the judge {'undefined' if judged is None else f'{judged:.3f}'}"
            for name, row in self.criteria.items()
            for answer, rate, judged in row.rates
        ]
        return "\n".join([*self.score_lines, *lines, *self.warnings])

    @property
    def score_lines(self) -> list[str]:
        """The mean score by the judge and by people, and what the judge saves, as sentences."""
        if self.judge_score is None:
            return ["The run has no mean score."]
        judged = f"Mean score: {self.judge_score:.3f} by the judge"
        if self.score.value is None:
            return [f"{judged}; these labels do not correct it."]
        lines = [f"{judged}, {self.score} by people's labels."]
        if self.labels_saved is not None:
            lines.append(
                f"The judge saves {self.labels_saved:.0%} of the labels that the same interval would need without it."
            )
        return lines

    def _repr_html_(self) -> str:
        rows = [
            (name, answer, judged, str(rate))
            for name, row in self.criteria.items()
            for answer, rate, judged in row.rates
        ]
        return html_table(" ".join(self.score_lines), ("criterion", "answer", "judge", "corrected"), rows)


def calibrate(
    run: RunLike, labels: Iterable[LabelledJudgment], *, rubric: Rubric | None = None, level: float = 0.95
) -> Calibration:
    """Correct the mean score and the rates of a run by labels of a part of it.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        labels: Labels of a part of the same run, drawn at random or by the judge's verdict. For labels of other
            submissions there is `calibrate_rate`. Submissions whose labels the judge was aligned with are left out of
            the run, and so are their labels: the judge errs less there, so that these labels correct nothing, and
            those of the others do not correct their scores. Since an alignment draws its labels at random, the rest of
            the run has the same mean; after a draw by verdict, that is only nearly so.
        rubric: The run's rubric, if groups make its score.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: All labels were chosen by people, such as the overruled answers alone. If only some were,
            these are left out, with a warning.
        ValueError: No label belongs to the run, or the judge was aligned with all that do.
    """
    rows = read_rows(run)
    matched = match_labels(rows, labels)
    matches = matched.matches
    if not matches:
        left_out = f"; {chosen_warning(len(matched.chosen))}" if matched.chosen else ""
        raise ValueError(
            f"none of the {len(matched.unmatched):,} labels belongs to a judgment of this run: for labels of other "
            f"submissions there is `calibrate_rate`{left_out}"
        )
    # The labels are a random part of these rows, and tell how the judge errs on these alone.
    new_rows = [row for row in rows if not is_trained_on(row)]
    scores = [score for row in new_rows if (score := complete_score(row)) is not None]
    judge_score = math.fsum(scores) / len(scores) if scores else None
    warnings: list[str] = []
    if len(new_rows) < len(rows):
        warnings.append(
            f"the judge was aligned with labels of {len(rows) - len(new_rows):,} submissions: the figures are about "
            f"the other {len(new_rows):,}"
        )
    score, weight, saved = Estimate(None, None, None, 0), 0.0, None
    is_random, pairs, unexplained = all(match.is_random for match in matches), [], None
    try:
        pairs = score_pairs(rows, matches, rubric) if is_random else []
    except UnexplainedScoreError as error:
        unexplained = str(error)
    if unexplained:
        warnings.append(unexplained)
    elif not is_random:
        warnings.append("labels were drawn by the judge's verdict: they correct the rates, and not the mean score")
    elif not pairs or judge_score is None:
        warnings.append("no submission has a label for each of its criteria: they correct the rates alone")
    else:
        people, judge = [pair.people for pair in pairs], [pair.judge for pair in pairs]
        bounded = min(*scores, *people) >= 0 and max(*scores, *people) <= 1
        corrected = corrected_mean(people, judge, judge_score, len(scores), level=level, bounded=bounded)
        score, weight = corrected.estimate, corrected.weight
        saved = _explained(people, judge)
        if not bounded and len(pairs) < FEWEST_LABELS:
            warnings.append(
                f"scores without bounds have an honest interval from {FEWEST_LABELS} labelled submissions on, and "
                f"there are {len(pairs)}"
            )
        if sum(abs(one - other) > 1e-9 for one, other in zip(people, judge, strict=True)) < _FEW_DIFFERENCES:
            warnings.append(
                f"people and the judge differ on fewer than {_FEW_DIFFERENCES} labelled submissions: the interval of "
                "the mean may be too narrow; label more, or read the rates of the criteria"
            )
    criteria = {
        key: _calibrate_criterion(of_criterion, count_verdicts(rows, of_criterion[0]), level)
        for key, of_criterion in group_matches(matches).items()
    }
    return Calibration(
        score=score, judge_score=judge_score, criteria=criteria, weight=weight, labels_saved=saved,
        warnings=(*warnings, *matched.warnings),
    )  # fmt: skip


def calibrate_rate(judged: Mapping[str, int], confusion: Sequence[Sequence[int]], *, level: float = 0.95) -> Estimate:
    """Correct the judge's rate by labels of other submissions. It assumes that the judge errs here as often as there.

    Args:
        judged: How often the judge says MET, and UNMET, in the run: `{"MET": 620, "UNMET": 380}`.
        confusion: The labels: how often people say UNMET and MET (rows) and the judge says UNMET and MET (columns).
        level: The level of the interval.

    Raises:
        ValueError: The labels show a judge that is no better than chance, or lack one of the verdicts, or `judged` has
            other ones.

    Warns:
        UserWarning: The judge is hardly better than chance: its sensitivity and specificity add up to less than 1.3.

    Example:
        >>> print(calibrate_rate({"MET": 620, "UNMET": 380}, [[40, 10], [5, 45]]))
        0.600 [0.495, 0.717] (n = 100)
    """
    others = [verdict for verdict in judged if verdict not in ("MET", "UNMET")]
    if others:
        raise ValueError(
            f"`judged` has {others!r}: count MET and UNMET alone, as labels from elsewhere say nothing about others"
        )
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
    informedness = true_met / (true_met + false_unmet) + true_unmet / (true_unmet + false_met) - 1
    if informedness < _WEAK_JUDGE:
        python_warnings.warn(
            "the judge is hardly better than chance on these labels: its corrected rate changes much with each of "
            "them; label some submissions of this run, and use `calibrate`",
            stacklevel=2,
        )
    return estimate


def _calibrate_criterion(matches: Sequence[Match], judged: Mapping[str, int], level: float) -> CriterionCalibration:
    criterion = matches[0].criterion
    answered = [(match.judge_answer, match.consensus) for match in matches]
    decided = [
        (verdict, answer)
        for verdict, answer in answered
        if verdict is not None and answer is not None and to_judgment(criterion, answer).value is not None
    ]

    def rate_of(answer: str) -> Estimate:
        strata: list[Stratum] = []
        for verdict, count in judged.items():
            answers = [people for judge, people in decided if judge == verdict]
            strata.append(Stratum(count, len(answers), answers.count(answer)))
        return corrected_rate(strata, level)

    def value_of(answer: str) -> float:
        return to_judgment(criterion, answer).value or 0.0

    is_binary = criterion.kind == "binary"
    options = [option.label for option in criterion.choices] or sorted({answer for _, answer in decided}, key=value_of)
    total = sum(judged.values())
    return CriterionCalibration(
        name=matches[0].judged.name,
        rate=rate_of("MET") if is_binary else None,
        options={} if is_binary else {option: rate_of(option) for option in options},
        judge_rates={verdict: count / total for verdict, count in judged.items()},
    )


def _explained(people: Sequence[float], judge: Sequence[float]) -> float | None:
    compared = compare_values(people, judge)
    correlation = compared.pearson if compared else None
    return None if correlation is None else max(0.0, correlation) ** 2


def verdict_weights(matches: Sequence[Match], judged: Mapping[str, int] | None) -> dict[str, float] | None:
    """Return, for each verdict of the judge, how many judgments of the run a labelled one stands for.

    Args:
        matches: The labelled judgments of a criterion.
        judged: How often the judge gave each verdict in the run; None for labels that were drawn at random.
    """
    if judged is None:
        return None
    labelled = Counter(match.judge_answer for match in matches)
    return {verdict: count / labelled[verdict] for verdict, count in judged.items() if labelled[verdict]}


def weight_table(table: Matrix, levels: Sequence[str], judged: Mapping[str, int]) -> Matrix:
    """Weight each column of a confusion table by how often the judge gives its answer in the run.

    The sum of the result is the effective sample size (Kish). If the run has an answer without a label, nothing is
    known of its column, and the result is empty: all zeros.
    """
    columns = table.sum(axis=0)
    counts = np.array([judged.get(answer, 0) for answer in levels], float)
    if not columns.sum() or (counts[columns == 0] > 0).any():
        return np.zeros_like(table)
    weights = np.divide(counts, columns, out=np.zeros_like(counts), where=columns > 0)
    total = float((weights * columns).sum())
    return table * weights * total / float((weights**2 * columns).sum())


def rate_bias(
    judged: Mapping[str, int], labelled: Mapping[str, int], met: Mapping[str, int], level: float = 0.95
) -> Estimate:
    """Estimate the judge's MET rate less people's, by labels that were drawn by the judge's verdict.

    Args:
        judged: How often the judge says MET, and UNMET, in the run.
        labelled: How many labels there are for each verdict.
        met: On how many of them people say MET.
        level: The level of the interval.

    Example:
        >>> print(rate_bias({"MET": 90, "UNMET": 10}, {"MET": 10, "UNMET": 10}, {"MET": 10, "UNMET": 5}))
        -0.050 [-0.090, 0.150] (n = 20)
    """
    strata = [Stratum(count, labelled.get(verdict, 0), met.get(verdict, 0)) for verdict, count in judged.items()]
    people, judge = corrected_rate(strata, level), judged.get("MET", 0) / sum(judged.values())
    if people.value is None or people.low is None or people.high is None:
        return people
    return Estimate(judge - people.value, judge - people.high, judge - people.low, people.n)
