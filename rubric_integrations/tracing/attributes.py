"""From the result of a grade to the attributes of its span and of its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from rubric_integrations._util.records import encodable
from rubric_integrations.results.judgment import FailureKind
from rubric_integrations.results.outcomes import Outcome, outcomes_of
from rubric_integrations.results.report import EvaluationReport

Attributes = dict[str, str | bool | int | float]

MAX_CHARS = 8192
"""The characters of a text that are recorded. A judge may return a megabyte, and servers refuse a batch of spans as a
whole if it is too large."""


def outcomes_to_record(report: EvaluationReport | None, name: str, failure: BaseException | None) -> list[Outcome]:
    """Return the outcomes of a grade; none if it was cancelled, because then nobody has evaluated anything.

    Args:
        report: The report, also the incomplete one of a `JudgeError`; None if there is none.
        name: The name of the whole.
        failure: What the grade raised.
    """
    if failure is not None and not isinstance(failure, Exception):
        return []
    if report is not None:
        return outcomes_of(report, name, failure)
    return [Outcome(name=name, kind="failure", explanation=f"not graded: {failure}", error=str(failure))]


def event_attributes(outcome: Outcome, failure: BaseException | None, *, explanations: bool) -> Attributes:
    """Return the attributes of the event `gen_ai.evaluation.result` of one outcome."""
    error_type = None
    if outcome.kind == "failure":
        is_whole = outcome.weight is None
        error_type = error_type_of(failure) if is_whole and failure else _failure_kind(outcome.error or "")
    return present(
        {
            "gen_ai.evaluation.name": outcome.name,
            "gen_ai.evaluation.score.value": outcome.score,
            "gen_ai.evaluation.score.label": outcome.label,
            "gen_ai.evaluation.explanation": (outcome.explanation or None) if explanations else None,
            "error.type": error_type,
            "rubric.weight": outcome.weight,
        }
    )


def span_attributes(report: EvaluationReport, *, has_score: bool) -> Attributes:
    """Return the attributes of the span of a grade; what is not known, such as a cost, is left out."""
    usage = report.token_usage
    return present(
        {
            "rubric.score": report.score if has_score else None,
            "rubric.passed": report.passed if has_score else None,
            "rubric.coverage": report.coverage,
            "rubric.cannot_assess_count": report.cannot_assess_count,
            "rubric.failed_count": report.failed_count,
            "rubric.calls": report.spend.calls,
            "rubric.cost": report.cost,
            "gen_ai.usage.input_tokens": usage and usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage and usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage and usage.cached_tokens,
        }
    )


def openinference_attributes(
    outcomes: Iterable[Outcome], report: EvaluationReport | None, *, explanations: bool
) -> Attributes:
    """Return the outcomes as OpenInference's attributes of a span.

    Failures are left out: OpenInference has no attribute for them, and the message of an error alone would look like
    the explanation of a result. The status of the span shows them.
    """
    attributes: Attributes = {"openinference.span.kind": "EVALUATOR"}
    # The outcomes are the whole, and then the criteria, in the order of the report.
    computed = [row.computed for row in report.criteria if row.was_asked] if report else []
    kinds = [bool(computed) and all(computed), *computed]
    number = 0
    for outcome, is_computed in zip(outcomes, kinds, strict=False):
        if outcome.kind == "failure":
            continue
        values = {
            "name": outcome.name,
            "score": outcome.score,
            "label": outcome.label,
            "explanation": (outcome.explanation or None) if explanations else None,
            "annotator_kind": "CODE" if is_computed else "LLM",
        }
        attributes |= {f"evaluations.{number}.evaluation.{key}": value for key, value in present(values).items()}
        number += 1
    return attributes


def error_type_of(failure: BaseException) -> str:
    """Return the name of an exception's class, which is the same for all of a kind, as dashboards need it."""
    return type(failure).__qualname__


def present(values: Mapping[str, Any]) -> Attributes:
    """Leave out values that are not known, and numbers that no JSON could hold; shorten texts."""
    return {
        key: recordable(value) if isinstance(value, str) else value
        for key, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def recordable(text: str) -> str:
    r"""Shorten a text, and escape half an emoji, for which an exporter would lose the whole batch.

    Example:
        >>> recordable("fine \ud83d"), len(recordable("x" * 10**6))
        ('fine \\ud83d', 8192)
    """
    text = encodable(text[: MAX_CHARS + 1])
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


def _failure_kind(error: str) -> str:
    kind = error.partition(":")[0]
    return kind if kind in get_args(FailureKind) else "judge_failure"
