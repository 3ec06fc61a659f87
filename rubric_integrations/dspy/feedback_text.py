"""Writes a report as feedback for a reflecting model, and as numbers for GEPA: one for each criterion and tag."""

from __future__ import annotations

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.outcomes import higher_is_better
from rubric_integrations.results.report import EvaluationReport, tag_key


def feedback(report: EvaluationReport) -> str:
    """Write a report as text that a reflecting model can act on.

    The criteria that cost most of the score come first, each with the judge's reason or the error. The criteria
    without a value (abstentions and failures) follow. Those without a loss, and those that do not apply, are listed in
    one line each.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> print(feedback(rubric.grade_sync("41", grader=PerCriterionGrader(judge="offline"))))
        Score 0.00 (not passed).
        UNMET (weight 1): Says 42: does not state the number 42
    """
    score = "undefined" if report.score is None else f"{report.score:.2f}"
    lines = [f"Score {score} ({'passed' if report.passed else 'not passed'})."]
    with_value = [row for row in report.criteria if row.value is not None]
    with_loss = sorted((row for row in with_value if _loss(row) > 0), key=_loss, reverse=True)
    lines += [_line(row) for row in with_loss]
    lines += [_line(row) for row in report.criteria if row.value is None and not row.not_applicable]
    correct = [row for row in with_value if _loss(row) == 0]
    if correct:
        texts = (f"{row.requirement} (avoided)" if row.weight < 0 else row.requirement for row in correct)
        lines.append("As it should be: " + "; ".join(texts))
    if inapplicable := [row.requirement for row in report.criteria if row.not_applicable]:
        lines.append("Does not apply here: " + "; ".join(inapplicable))
    if report.reason:
        lines.append(report.reason)
    return "\n".join(lines)


def objective_scores(report: EvaluationReport) -> dict[str, float]:
    """Return the values in [0, 1] of the criteria by name, and the scores of the tags as `tag.<tag>`; higher is better.

    The value of a penalty (a criterion with a negative weight) is inverted. Criteria without a value, and tags without
    a score, are left out, because GEPA accepts no None.
    """
    tags = {tag_key(tag): score for tag, score in report.tags.items() if score is not None}
    return tags | {
        row.name: higher_is_better(row.value, is_penalty=row.weight < 0)
        for row in report.criteria
        if row.value is not None
    }


def _loss(row: CriterionReport) -> float:
    """The points that a criterion cost: for a penalty those subtracted, otherwise those missing."""
    value = row.value or 0.0
    return -row.weight * value if row.weight < 0 else row.weight * (1 - value)


def _line(row: CriterionReport) -> str:
    outcome = "PENALTY" if row.weight < 0 and row.value else row.verdict or "NOT JUDGED"
    return f"{outcome} (weight {row.weight:g}): {row.requirement}: {row.explanation}"
