"""Replies that are no answer: the model refused, a content filter stopped it, or the reply is cut off or empty.

Such a reply is a failure whatever its text is: one that was cut off may end after a verdict that the judge only quoted.
The failure is of kind `parse`, not `config`, since it is about one text and not about the judge. The next sample may be
no refusal, or shorter, so that a retry may help. A filter decides about the text, so that a retry cannot help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.judges.models.completion import NORMAL_ENDS, Completion
from rubric_integrations.results.judgment import JudgeFailure

FILTERED = "the model's safety system or the provider's content filter stopped the reply"
"""The message for the finish reason `content_filter`, which is also that of Anthropic's `refusal`."""

FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation",
     "promptFeedback", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
)  # fmt: skip
"""The codes of error responses to a prompt that a content filter blocks: those of OpenAI and Azure, then of Gemini."""

_LONGEST_QUOTE = 200


def require_answer(completion: Completion, settings: Mapping[str, Any]) -> None:
    """Check that a reply ended as it should, and is not empty.

    Args:
        completion: The reply.
        settings: The settings of the model, of which `max_tokens` is named in the message.

    Raises:
        JudgeFailure: Of kind `parse`: it did not, for the reason that the message names.

    Example:
        >>> require_answer(Completion('{"verdict": "M', "length", None, None), {"max_tokens": 10})
        Traceback (most recent call last):
        rubric_integrations.results.judgment.JudgeFailure: parse: the reply was cut off at `max_tokens` (10): raise it
    """
    problem = _problem(completion, settings)
    if problem is not None:
        is_filtered = completion.finish_reason == "content_filter"
        about_text = is_filtered or bool(completion.refusal)
        raise JudgeFailure("parse", problem, retryable=not is_filtered, about_text=about_text, spend=completion.spend)


def _problem(completion: Completion, settings: Mapping[str, Any]) -> str | None:
    if completion.refusal:
        quote = " ".join(completion.refusal.split())[:_LONGEST_QUOTE]
        return f"the model refused to answer: {quote!r}"
    if completion.finish_reason == "content_filter":
        return FILTERED
    is_empty = not completion.text.strip()
    if completion.finish_reason == "length":
        return _cut_off(is_empty, settings.get("max_completion_tokens") or settings.get("max_tokens"))
    if completion.finish_reason is not None and completion.finish_reason not in NORMAL_ENDS:
        return f"the reply ended for the reason {completion.finish_reason!r}, so that it may not be whole"
    if is_empty:
        return (
            "the reply is empty, although nothing cut it off: use a model that follows the prompt's form of the reply"
        )
    return None


def _cut_off(is_empty: bool, max_tokens: object) -> str:
    if not is_empty:
        if max_tokens is None:
            return "the reply was cut off at the server's limit on its length: set `max_tokens` to a higher one"
        return f"the reply was cut off at `max_tokens` ({max_tokens}): raise it"
    limit = "tokens that the server allows" if max_tokens is None else f"`max_tokens` ({max_tokens})"
    return (
        f"all {limit} were used before the answer began, as reasoning models do: "
        "raise `max_tokens` or lower `reasoning_effort`"
    )
