"""Corrects the figures of a run by people's labels of a part of it."""

from __future__ import annotations

import math
import warnings as python_warnings
from collections.abc import Iterable, Mapping, Sequence

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.correction import (
    Stratum,
    corrected_mean,
    corrected_rate,
    rogan_gladen_rate,
)
from rubric_integrations.agreement.matching import Match, chosen_warning, count_verdicts, group_matches, match_labels
from rubric_integrations.agreement.planning import FEWEST_LABELS
from rubric_integrations.agreement.ranks import compare_values
from rubric_integrations.agreement.rows import RunLike, complete_score, is_trained_on, read_rows
from rubric_integrations.agreement.scores import UnexplainedScoreError, score_pairs
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric

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
