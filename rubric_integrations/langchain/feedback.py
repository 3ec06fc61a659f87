"""Converts a report to LangSmith feedback: one row for the score, one for each tag and one for each criterion."""

from __future__ import annotations

from typing import Any

from langsmith.evaluation import EvaluationResult

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.outcomes import CANNOT_ASSESS, higher_is_better, summary_of
from rubric_integrations.results.report import EvaluationReport, tag_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric

MET_PENALTY = "MET: the error was committed"
UNMET_PENALTY = "UNMET: it was not"

_CONTINUOUS: dict[str, Any] = {"type": "continuous", "min": 0.0, "max": 1.0}


def feedback_key(key_prefix: str, name: str) -> str:
    """Return the feedback key of a criterion.

    Example:
        >>> feedback_key("rubric", "c1")
        'rubric.c1'
    """
    return f"{key_prefix}.{name}"


def to_feedback(
    rubric: Rubric, report: EvaluationReport, key_prefix: str, judge: str | None = None
) -> list[EvaluationResult]:
    """Convert a report to feedback: first the row of the score, then one row for each tag and for each criterion.

    Scores are in [0, 1], higher is better, also for penalties (see `higher_is_better`). An abstention has no score and
    the value `"CANNOT_ASSESS"`; a failure has neither, and `extra={"error": True}`. A criterion that does not apply has
    only a comment. The key of a tag is
    `<key_prefix>.tag.<tag>`; a tag whose score is undefined has no row, because it would have no content.

    LangSmith stores the `evaluator_info` of a row as the `source_info` of its feedback. Each row names the judge there,
    and has `corrected: False`: only a mean can be corrected by people's labels, not the score of one run.
    """
    total = EvaluationResult(
        key=key_prefix,
        score=report.score,
        comment=summary_of(report),
        feedback_config=_CONTINUOUS if report.score is not None else None,
        evaluator_info={
            "passed": report.passed,
            "coverage": report.coverage,
            "raw_score": report.raw_score,
            "calls": report.spend.calls,
            "total_tokens": report.spend.total_tokens,
            "cost": report.cost,
        },
    )
    rows = zip(rubric.criteria, report.criteria, strict=True) if report.report else ()
    tags = [
        EvaluationResult(key=feedback_key(key_prefix, tag_key(tag)), score=score, feedback_config=_CONTINUOUS)
        for tag, score in report.tags.items()
        if score is not None
    ]
    feedback = [total, *tags, *(_criterion_feedback(criterion, row, key_prefix) for criterion, row in rows)]
    source = {"corrected": False, "judge": judge}
    return [row.model_copy(update={"evaluator_info": source | row.evaluator_info}) for row in feedback]


def feedback_config(criterion: Criterion) -> dict[str, Any]:
    """Return how LangSmith displays the feedback of a criterion: as categories by value, or as a number in [0, 1]."""
    if criterion.kind == "binary":
        met, unmet = (MET_PENALTY, UNMET_PENALTY) if criterion.is_penalty else ("MET", "UNMET")
        met_score, unmet_score = (higher_is_better(value, is_penalty=criterion.is_penalty) for value in (1.0, 0.0))
        categories = [{"value": met_score, "label": met}, {"value": unmet_score, "label": unmet}]
        return {"type": "categorical", "categories": categories}
    options = criterion.choices if criterion.options is not None else ()
    # The score selects the category, so options of equal value would be displayed as the same category.
    if options and len({option.value for option in options}) == len(options):
        categories = [
            {"value": higher_is_better(option.value, is_penalty=criterion.is_penalty), "label": option.label}
            for option in options
        ]
        return {"type": "categorical", "categories": categories}
    return dict(_CONTINUOUS)


def _criterion_feedback(criterion: Criterion, row: CriterionReport, key_prefix: str) -> EvaluationResult:
    key, config = feedback_key(key_prefix, row.name), feedback_config(criterion)
    if row.error:
        return EvaluationResult(key=key, comment=f"not judged: {row.error}", extra={"error": True})
    if row.not_applicable:
        return EvaluationResult(key=key, comment=row.explanation)
    if row.value is None:
        return EvaluationResult(key=key, value=CANNOT_ASSESS, comment=row.explanation, feedback_config=config)
    comment = row.explanation if criterion.kind == "binary" else f"{row.verdict}: {row.explanation}"
    score = higher_is_better(row.value, is_penalty=criterion.is_penalty)
    return EvaluationResult(key=key, score=score, comment=comment, feedback_config=config)
