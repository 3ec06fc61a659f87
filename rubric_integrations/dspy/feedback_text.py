"""A report in words for a model that reflects, and in one number a criterion for a Pareto front."""

from __future__ import annotations

from rubric_integrations.results.report import CriterionReport, EvaluationReport


def feedback(report: EvaluationReport) -> str:
    """A report in words that a reflecting model can act on: what cost most first, what was met in one line.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> print(feedback(rubric.grade_sync("41", grader=PerCriterionGrader(judge="offline"))))
        Score 0.00 (not passed).
        UNMET (weight 1): Says 42: does not state the number 42
    """
    score = "undefined" if report.score is None else f"{report.score:.2f}"
    lines = [f"Score {score} ({'passed' if report.passed else 'not passed'})."]
    lost = [row for row in report.criteria if row.value is not None and _lost(row) > 0]
    lines += [_line(row) for row in sorted(lost, key=_lost, reverse=True)]
    lines += [_line(row) for row in report.criteria if row.value is None]
    kept = [row for row in report.criteria if row.value is not None and _lost(row) == 0]
    met = [f"{row.requirement} (avoided)" if row.weight < 0 else row.requirement for row in kept]
    if met:
        lines.append("As it should be: " + "; ".join(met))
    if report.reason:
        lines.append(report.reason)
    return "\n".join(lines)


def objective_scores(report: EvaluationReport) -> dict[str, float]:
    """The criteria's values in [0, 1], a penalty's turned so that higher is better; those without one are left out."""
    return {
        row.name: 1 - row.value if row.weight < 0 else row.value for row in report.criteria if row.value is not None
    }


def _lost(row: CriterionReport) -> float:
    value = row.value or 0.0
    return -row.weight * value if row.weight < 0 else row.weight * (1 - value)


def _line(row: CriterionReport) -> str:
    what = "PENALTY" if row.weight < 0 and row.value else row.verdict or "NOT JUDGED"
    return f"{what} (weight {row.weight:g}): {row.requirement}: {row.error or row.reason}"
