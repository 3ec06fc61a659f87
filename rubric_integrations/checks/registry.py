"""The registry of conditions: for every condition field of `Check`, the function that decides it."""

from __future__ import annotations

from collections.abc import Callable

from rubric_integrations.checks.fields import field_share, has_fields
from rubric_integrations.checks.json_schema import satisfies_schema
from rubric_integrations.checks.length import has_max_words, has_min_words
from rubric_integrations.checks.metrics import measure_metric
from rubric_integrations.checks.numbers import states_number
from rubric_integrations.checks.similarity import is_similar, similarity_ratio
from rubric_integrations.checks.text import contains, equals, matches, not_contains
from rubric_integrations.checks.tool_calls import makes_calls
from rubric_integrations.checks.trajectory import (
    has_max_cost,
    has_max_seconds,
    has_max_steps,
    has_max_tokens,
    has_no_errors,
    has_no_repeated_calls,
    uses_no_forbidden_tool,
    uses_tools,
)
from rubric_integrations.checks.type_checks import has_no_type_errors
from rubric_integrations.rubric.check import Check, MeasureName
from rubric_integrations.submission.submission import Submission

Condition = Callable[[Check, Submission], str]
"""Decides one condition of a check on a submission.

Returns the reason why the condition does not hold, as a predicate of the response (`is not JSON`) or about a step of
the trajectory (`step 4 calls ...`), or an empty string if it holds. Raises a `JudgeFailure` of kind `check` if it
cannot be decided. It is called only if its field is set.
"""

Measure = Callable[[Check, Submission], tuple[float, str]]
"""Computes the value of a condition, in [0, 1], and the reason that reports show.

Raises a `JudgeFailure` of kind `check` if it cannot be computed. It is called if the condition is `Check.measure`.
"""

CHECKS: dict[str, Condition] = {
    "contains": contains,
    "not_contains": not_contains,
    "regex": matches,
    "equals": equals,
    "number": states_number,
    "json_schema": satisfies_schema,
    "fields": has_fields,
    "similarity": is_similar,
    "type_checks": has_no_type_errors,
    "min_words": has_min_words,
    "max_words": has_max_words,
    "tool_calls": makes_calls,
    "tool_used": uses_tools,
    "tool_forbidden": uses_no_forbidden_tool,
    "max_steps": has_max_steps,
    "max_tokens": has_max_tokens,
    "max_cost": has_max_cost,
    "max_seconds": has_max_seconds,
    "no_errors": has_no_errors,
    "no_repeated_calls": has_no_repeated_calls,
}
"""The function of each condition field of `Check`. `metric` is not among them: it has a value, not a verdict."""

MEASURES: dict[MeasureName, Measure] = {
    "metric": measure_metric,
    "fields": field_share,
    "similarity": similarity_ratio,
}
"""The function of each condition that may have a value in place of a verdict."""
