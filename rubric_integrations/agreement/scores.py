"""The score of each labelled submission by people's answers, beside the judge's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.agreement.matching import Match
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.scoring.formula import WeightedValue, score_parts, score_values

_ROUNDING = 1e-6


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
    """Score each submission of which people answered every criterion that a judge decides.

    Args:
        rows: The rows of the run.
        matches: The labelled judgments.
        rubric: The rubric of the run. Without it, criteria that a check decides need labels too, and a score must
            follow from the weights of its criteria alone.

    Raises:
        ValueError: The judge's score of a row does not follow from its answers, so that people's would not either.
    """
    of_rows: dict[int, dict[str, Match]] = {}
    for match in matches:
        of_rows.setdefault(match.row, {})[match.judged.name] = match
    pairs: list[ScorePair] = []
    for index, of_row in of_rows.items():
        report = rows[index].report
        values = _people_values(report, of_row, rubric) if report else None
        if report is None or values is None or report.score is None:
            continue
        judge = _score(report, [entry.value for entry in report.criteria], rubric)
        if judge is None or abs(judge - report.score) > _ROUNDING:
            raise ValueError(
                f"the score of row {rows[index].id!r} is {report.score!r}, and its criteria alone give {judge!r}: pass "
                "the run's `rubric`, whose groups may explain it; scores with metrics, penalties for length or other "
                "policies for abstentions cannot be corrected"
            )
        people = _score(report, values, rubric)
        if people is not None:
            pairs.append(ScorePair(index, people, judge))
    return pairs


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
        elif entry.name in checked or entry.not_applicable:
            values.append(entry.value)
        else:
            return None
    return values


def _score(report: EvaluationReport, values: Sequence[float | None], rubric: Rubric | None) -> float | None:
    absent = [index for index, entry in enumerate(report.criteria) if entry.not_applicable]
    if rubric is not None and len(rubric) == len(values):
        return score_values(rubric, values, not_applicable=absent).normalized
    weights = [entry.weight for entry in report.criteria]
    return score_parts([WeightedValue(w, value, 0.0) for w, value in zip(weights, values, strict=True)]).normalized
