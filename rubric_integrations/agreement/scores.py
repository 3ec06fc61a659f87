"""The score of each labelled submission by people's answers, beside the judge's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.agreement.matching import Match
from rubric_integrations.agreement.rows import complete_score
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.scoring.formula import Score, WeightedValue, score_parts, score_values

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
        by_people = _score(report, values, rubric)
        people = by_people.raw if is_raw else by_people.normalized
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
