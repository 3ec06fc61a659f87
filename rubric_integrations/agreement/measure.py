"""How far a judge agrees with people, per criterion and in total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement, measure_criterion
from rubric_integrations.agreement.intervals import (
    difference_p_value,
    effect_size,
    estimate_difference,
    estimate_mean,
)
from rubric_integrations.agreement.matching import Match, count_verdicts, group_matches, match_labels
from rubric_integrations.agreement.ranks import OrderedAgreement, compare_values
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.agreement.scores import ScorePair, UnexplainedScoreError, score_pairs
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric

if TYPE_CHECKING:
    from pandas import DataFrame

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
