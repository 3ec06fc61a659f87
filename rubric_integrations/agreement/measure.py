"""How far a judge agrees with people, per criterion and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement, measure_criterion
from rubric_integrations.agreement.intervals import Estimate, estimate_difference, estimate_mean
from rubric_integrations.agreement.matching import Match, match_labels
from rubric_integrations.agreement.ranks import OrderedAgreement, compare_values
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.agreement.scores import score_pairs
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("criterion", "n", "coverage", "accuracy", "kappa", "AC1", "bias", "people's alpha", "judge's alpha")


class ScoreAgreement(NamedTuple):
    """How close the judge's scores are to the scores by people's answers.

    Attributes:
        n: The number of submissions of which people answered every criterion.
        bias: The mean of the judge's score minus people's.
        values: Errors and correlations; None without such a submission.
    """

    n: int
    bias: Estimate
    values: OrderedAgreement | None


class Agreement(Record):
    """How far a judge agrees with people.

    Attributes:
        criteria: Agreement on each criterion, by its name; by its words if several criteria have one name.
        accuracy: The share of equal answers: the mean over the labelled submissions, whose judgments depend on each
            other.
        micro_accuracy: The share of equal answers among all judgments; None without one.
        macro_accuracy: The mean accuracy of the criteria; None without one.
        mean_kappa: The mean kappa of the criteria that have one.
        scores: Agreement on the scores.
        raters: The names of the people.
        labels: The number of labels that belong to a judgment of the run.
        unmatched: The number of labels that do not.
    """

    criteria: dict[str, CriterionAgreement]
    accuracy: Estimate
    micro_accuracy: float | None
    macro_accuracy: float | None
    mean_kappa: float | None
    scores: ScoreAgreement
    raters: tuple[str, ...]
    labels: int
    unmatched: int

    def summary(self) -> str:
        """Return the figures as text: one line for each criterion, and one for the whole."""
        lines = [
            f"{name}: accuracy {row.accuracy}, kappa {row.kappa}, coverage {_percent(row.coverage)}"
            for name, row in self.criteria.items()
        ]
        unmatched = f"; {self.unmatched:,} labels belong to no judgment of the run" if self.unmatched else ""
        lines.append(f"all: accuracy {self.accuracy}, bias of the scores {self.scores.bias}{unmatched}")
        return "\n".join(lines)

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
        rubric: The run's rubric, for the agreement of scores where checks decide criteria, or groups the score.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: Labels were chosen by people, such as the overruled answers alone.
        ValueError: The scores do not follow from the criteria.
    """
    rows = read_rows(judged)
    matches, unmatched = match_labels(rows, labels)
    by_criterion: dict[tuple[str, str], list[Match]] = {}
    for match in matches:
        by_criterion.setdefault((match.judged.name, match.judged.requirement), []).append(match)
    repeated = Counter(name for name, _ in by_criterion)
    criteria: dict[str, CriterionAgreement] = {}
    for (name, requirement), of_criterion in by_criterion.items():
        is_random = all(label.sampled == "random" for match in of_criterion for label in match.labels)
        verdicts = None if is_random else count_verdicts(rows, requirement)
        key = name if repeated[name] == 1 else requirement
        criteria[key] = measure_criterion(name, of_criterion, verdicts, level)
    equal = _equal_answers(matches)
    kappas = [row.kappa.value for row in criteria.values() if row.kappa.value is not None]
    accuracies = [row.accuracy.value for row in criteria.values() if row.accuracy.value is not None]
    pairs = score_pairs(rows, matches, rubric)
    return Agreement(
        criteria=criteria,
        accuracy=estimate_mean([sum(of_row) / len(of_row) for of_row in equal.values()], level),
        micro_accuracy=_mean([float(answer) for of_row in equal.values() for answer in of_row]),
        macro_accuracy=_mean(accuracies),
        mean_kappa=_mean(kappas),
        scores=ScoreAgreement(
            len(pairs),
            estimate_difference([pair.judge - pair.people for pair in pairs], level),
            compare_values([pair.people for pair in pairs], [pair.judge for pair in pairs]),
        ),
        raters=tuple(sorted({label.rater for match in matches for label in match.labels if label.rater})),
        labels=sum(len(match.labels) for match in matches),
        unmatched=len(unmatched),
    )


def count_verdicts(rows: Sequence[GradedRow], requirement: str) -> dict[str, int]:
    """Count the judge's verdicts on a criterion in a run; CANNOT_ASSESS is a verdict, and a failure is none."""
    entries = (entry for row in rows if row.report for entry in row.report.criteria)
    same = (entry for entry in entries if entry.requirement == requirement and not entry.error)
    return dict(Counter(entry.verdict for entry in same if entry.verdict is not None and not entry.not_applicable))


def _equal_answers(matches: Sequence[Match]) -> dict[int, list[bool]]:
    """Return, for each row, whether each answer that both decided is the same."""
    equal: dict[int, list[bool]] = {}
    for match in matches:
        if match.consensus is not None and match.judged.value is not None and match.judged.error is None:
            equal.setdefault(match.row, []).append(match.consensus == match.judged.verdict)
    return equal


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
