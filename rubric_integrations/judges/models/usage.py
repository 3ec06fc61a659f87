"""What a call to a model cost, and what kind of failure its error is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import (
    AdapterParseError,
    DSPyError,
    LMProviderError,
    LMRateLimitError,
    is_retryable_lm_error,
)

from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import Spend, TokenUsage, total_spend


def spend_from_history(entries: Sequence[Mapping[str, Any]], lm: dspy.BaseLM) -> Spend:
    """What a call cost, by the entries it would have left in the LM's history; a lost one has none."""
    if not entries:
        return Spend(calls=1)
    # Without usage it was answered by DSPy's own cache, at no cost.
    return total_spend(spend_from_entry(entry) for entry in entries if entry["usage"] or not lm.cache)


def spend_from_entry(entry: Mapping[str, Any]) -> Spend:
    """What one call cost, by its entry in a history: `usage` and `cost`."""
    usage: dict[str, Any] = entry["usage"] or {}
    details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
    tokens = TokenUsage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
    )
    return Spend(calls=1, usage=tokens, cost=entry["cost"])


def failure_from_error(error: DSPyError, spend: Spend) -> JudgeFailure:
    """A DSPy error as a judge's failure, with what the call cost all the same."""
    if isinstance(error, AdapterParseError):
        return JudgeFailure("parse", first_line(error), retryable=True, spend=spend)
    if is_retryable_lm_error(error):
        limited = isinstance(error, LMRateLimitError)
        return JudgeFailure(
            "transport", first_line(error), retryable=True, retry_after=error.retry_after, rate_limited=limited,
            spend=spend,
        )  # fmt: skip
    kind = "transport" if type(error) is LMProviderError else "config"
    return JudgeFailure(kind, first_line(error), spend=spend)


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its name where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
