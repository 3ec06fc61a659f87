"""The result of one call to a model, whichever way it went: the reply's text, why it ended, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple, cast

from dspy import lm15

from rubric_integrations.results.usage import Spend, TokenUsage

HAS_FORMAT = "has_format"
"""The key of `provider_data` under which our own engines report whether they requested a JSON format."""

FINISH_REASON = "finish_reason"
"""The key under which they report why a reply ended, or None if they do not know."""

NORMAL_ENDS = frozenset(
    {"stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "completed", "COMPLETE",
     "tool_call", "tool_calls", "tool_use", "function_call"}
)  # fmt: skip
"""What providers call the end of a whole reply."""

# Where a finish reason is: in chat completions, Anthropic's messages, Gemini's, OpenAI's responses, and of our engines.
_FINISH_REASONS: tuple[tuple[str | int, ...], ...] = (
    ("choices", 0, "finish_reason"), ("stop_reason",), ("candidates", 0, "finishReason"), ("status",), (FINISH_REASON,),
)  # fmt: skip


class Completion(NamedTuple):
    """A model's reply.

    Attributes:
        text: The text as the model wrote it; empty if it wrote none.
        finish_reason: Why the reply ended, such as `stop`, `length` or `content_filter`; None where that is unknown.
        usage: The tokens; None where the provider did not report them.
        cost: US dollars; None where the price is unknown.
        from_cache: Whether DSPy's cache answered, so that there was no call.
        refusal: The refusal that the model wrote in place of an answer, where the provider tells it apart; else None.
        has_format: Whether the client requested a JSON format, where only the client knows; else None.
    """

    text: str
    finish_reason: str | None
    usage: TokenUsage | None
    cost: float | None
    from_cache: bool = False
    refusal: str | None = None
    has_format: bool | None = None

    @property
    def spend(self) -> Spend:
        """What the call cost; nothing for an answer from DSPy's cache."""
        return Spend() if self.from_cache else Spend(calls=1, usage=self.usage, cost=self.cost)


def completion_from_history(entry: Mapping[str, Any], caches: bool) -> Completion:
    """Make a completion of an entry that DSPy would append to a model's history.

    Args:
        entry: The entry: `response`, `outputs`, `usage` and `cost`.
        caches: Whether the model's DSPy cache is on. DSPy reports no usage for an answer from its cache.
    """
    response: Any = entry.get("response")
    outputs: Any = entry.get("outputs") or [None]
    output: Any = outputs[0]
    text: Any = output.get("text") if isinstance(output, Mapping) else output
    usage = usage_from_mapping(entry.get("usage"))
    return Completion(
        text=_raw_text(response) or (text if isinstance(text, str) else ""),
        finish_reason=finish_reason_of(response),
        usage=usage,
        cost=entry.get("cost"),
        from_cache=caches and usage is None,
        refusal=refusal_of(response),
        has_format=_provider_data(response).get(HAS_FORMAT),
    )


def refusal_of(response: Any) -> str | None:
    """Return the refusal in a response of DSPy or of an SDK; None if there is none."""
    if isinstance(response, lm15.Response):
        parts = response.message.parts
        return "".join(part.text for part in parts if isinstance(part, lm15.RefusalPart)) or None
    choices: Any = getattr(response, "choices", None)
    refusal: object = getattr(getattr(choices[0], "message", None), "refusal", None) if choices else None
    return refusal if isinstance(refusal, str) and refusal else None


def usage_from_mapping(usage: Mapping[str, Any] | None) -> TokenUsage | None:
    """Read a usage object in OpenAI's form; None where it reports no tokens."""
    if not usage or (usage.get("prompt_tokens") is None and usage.get("completion_tokens") is None):
        return None
    details: Mapping[str, Any] = usage.get("prompt_tokens_details") or {}
    return TokenUsage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
    )


def finish_reason_of(response: Any) -> str | None:
    """Return why a reply ended; None where nothing reports it.

    DSPy calls a reply `stop` whose end it does not know. What the provider sent is looked at first: nothing there means
    that the end is unknown, and a name that DSPy does not know stays as it is.
    """
    reason: object = getattr(response, "finish_reason", None)
    if reason is None:
        choices: Any = getattr(response, "choices", None)
        reason = getattr(choices[0], "finish_reason", None) if choices else None
    if reason == "stop" and (data := _provider_data(response)):
        for path in _FINISH_REASONS:
            try:
                reason = reduce(lambda value, key: value[key], path, cast("Any", data))
            except (LookupError, TypeError):
                continue
            break
        reason = "stop" if reason in NORMAL_ENDS else reason
    return reason if isinstance(reason, str) and reason else None


def _provider_data(response: Any) -> Mapping[str, Any]:
    data: object = getattr(response, "provider_data", None)
    return cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}


def _raw_text(response: Any) -> str | None:
    """The text that a provider sent, where DSPy has parsed it; None where DSPy's own text is the provider's.

    DSPy parses a reply to a JSON schema and hands on the JSON of the parsed value, in which a field that the model gave
    twice is there once: the parser could not refuse it. The provider's own JSON still has both.
    """
    if not isinstance(response, lm15.Response):
        return None
    parsed = [part for part in response.message.parts if isinstance(part, lm15.DataPart)]
    # Probabilities that a provider measured are no text of the model.
    if not parsed or any(part.probabilities is not None for part in parsed):
        return None
    body = cast("Mapping[str, Any]", response.provider_data or {})
    for find in (_openai_chat_text, _openai_responses_text, _anthropic_text, _gemini_text):
        try:
            text = find(body)
        except (LookupError, TypeError, AttributeError):
            continue
        if text:
            return text
    return None


def _openai_chat_text(body: Mapping[str, Any]) -> str:
    return body["choices"][0]["message"]["content"]


def _openai_responses_text(body: Mapping[str, Any]) -> str:
    messages = (item for item in body["output"] if item.get("type") == "message")
    return "".join(part["text"] for message in messages for part in message["content"] if part["type"] == "output_text")


def _anthropic_text(body: Mapping[str, Any]) -> str:
    return "".join(block["text"] for block in body["content"] if block["type"] == "text")


def _gemini_text(body: Mapping[str, Any]) -> str:
    parts = body["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
