"""Reads the replies of model providers (`PROVIDERS`), as their APIs and their SDKs return them, and their requests.

A reply is a dictionary or an object of an SDK. It contains the message of the model next to ids, token usage and finish
reasons, which must not be graded. A reply is recognized by several keys with the right types. Therefore a user's own
JSON with `choices` or `candidates` is not mistaken for a reply.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject
from rubric_integrations.submission.dialects.bedrock import read_bedrock
from rubric_integrations.submission.dialects.blocks import AttachmentList, Message, first_field, get_field
from rubric_integrations.submission.dialects.chat import read_chat, read_gemini, read_openai_responses


class ProviderFormat(NamedTuple):
    """The replies of one API.

    Attributes:
        keys: Keys of which each reply has at least one.
        matches: Returns whether a dictionary or an object is such a reply. It never raises an error.
        messages: Returns the messages of a reply, as this API writes them. Raises a `ValueError` for a reply that has
            no single answer.
        read: Reads a list of these messages.
    """

    keys: frozenset[str]
    matches: Callable[[Any], bool]
    messages: Callable[[JsonObject], list[Any]]
    read: Callable[[Any, AttachmentList], list[Message]]


_ERROR = "error"
# The names of these reasons in the APIs of all providers, in lower case.
_CUT_OFF = frozenset({
    "length", "max_tokens", "max_output_tokens", "model_context_window_exceeded", "content_filter", "content_filtered",
    "guardrail_intervened", "safety", "recitation", "incomplete",
})  # fmt: skip


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _has_role(message: Any) -> bool:
    return isinstance(first_field(message, "role", "type"), str)


def _finished(messages: list[Any], reason: object) -> list[Any]:
    """Return the messages of a reply, and warn if the model did not finish it."""
    if str(reason).lower() in _CUT_OFF:
        # Without the row's id, so that Python prints it once for a run.
        warnings.warn(
            f"a reply ended by {reason!r}: it is graded as it is, although the model did not finish it", stacklevel=2
        )
    return messages


def _no_answer(place: str, reason: object) -> ValueError:
    return ValueError(f"`{place}` has neither a text nor calls: the reply ended by {reason!r}, and there is no answer")


def _is_completion(reply: Any) -> bool:
    choices = _items(get_field(reply, "choices"))
    if not choices or not all(_is_choice(choice) for choice in choices):
        # A reply without choices is recognized by its type, to be refused as what it is.
        return get_field(reply, "object") in ("chat.completion", "text_completion")
    return True


def _is_choice(choice: Any) -> bool:
    is_text = isinstance(get_field(choice, "text"), str) and first_field(choice, "index", "finish_reason") is not None
    is_text = is_text and (get_field(choice, "finish_reason") is not None or _has(choice, "logprobs"))
    message = get_field(choice, "message")
    return is_text or (_has_role(message) and (_has(message, "content") or _has(message, "tool_calls")))


def _has(record: Any, key: str) -> bool:
    return key in record if isinstance(record, Mapping) else hasattr(record, key)


def _completion_messages(reply: JsonObject) -> list[Any]:
    choices = _items(reply.get("choices"))
    if len(choices) != 1:
        raise ValueError(f"`choices` has {len(choices)} choices, and one is graded: pass the reply with one of them")
    choice, reason = choices[0], get_field(choices[0], "finish_reason")
    message = get_field(choice, "message")
    if message is None:
        return _finished([{"role": "assistant", "content": get_field(choice, "text")}], reason)
    texts = first_field(message, "tool_calls", "function_call", "refusal", "audio") or get_field(message, "content")
    if not texts:
        raise _no_answer("choices[0].message", reason)
    return _finished([message], reason)


def _is_response(reply: Any) -> bool:
    return get_field(reply, "object") == "response" and isinstance(get_field(reply, "output"), list)


def _response_messages(reply: JsonObject) -> list[Any]:
    status, error = reply.get("status"), reply.get("error")
    if error or status in ("failed", "cancelled", "queued", "in_progress"):
        raise ValueError(f"the reply has the status {status!r} ({_reason(error)}): there is no answer to grade")
    reason = get_field(reply.get("incomplete_details"), "reason") or status
    if not reply["output"]:
        raise _no_answer("output", reason)
    return _finished(list(reply["output"]), reason)


def _is_gemini(reply: Any) -> bool:
    candidates = _items(get_field(reply, "candidates"))
    if not candidates:
        return _block_reason(reply) is not None
    return all(
        isinstance(get_field(get_field(candidate, "content"), "parts"), list)
        or first_field(candidate, "finishReason", "finish_reason") is not None
        for candidate in candidates
    )


def _block_reason(reply: Any) -> Any:
    feedback = first_field(reply, "promptFeedback", "prompt_feedback")
    return _plain(first_field(feedback, "blockReason", "block_reason"))


def _plain(reason: Any) -> Any:
    """Return the value of a reason, which is an enum in the objects of Gemini's SDK."""
    return getattr(reason, "value", reason)


def _gemini_messages(reply: JsonObject) -> list[Any]:
    if not _items(reply.get("candidates")):
        raise _no_answer("candidates", _block_reason(reply))
    history = first_field(reply, "automaticFunctionCallingHistory", "automatic_function_calling_history")
    candidate, *others = reply["candidates"]
    reason = _plain(first_field(candidate, "finishReason", "finish_reason"))
    if others:
        raise ValueError(f"`candidates` has {len(others) + 1} candidates, and one is graded: pass the reply with one")
    if not get_field(get_field(candidate, "content"), "parts"):
        raise _no_answer("candidates[0]", reason)
    content = {**candidate["content"], "role": candidate["content"].get("role") or "model"}
    return _finished([*(history or []), content], reason)


def _is_bedrock(reply: Any) -> bool:
    message = get_field(get_field(reply, "output"), "message")
    is_message = _has_role(message) and isinstance(get_field(message, "content"), list)
    return is_message and first_field(reply, "stopReason", "usage", "metrics") is not None


def _bedrock_messages(reply: JsonObject) -> list[Any]:
    message = reply["output"]["message"]
    if not message["content"]:
        raise _no_answer("output.message.content", reply.get("stopReason"))
    return _finished([message], reply.get("stopReason"))


def _is_anthropic(reply: Any) -> bool:
    is_message = get_field(reply, "type") == "message" and get_field(reply, "role") == "assistant"
    return is_message and isinstance(get_field(reply, "content"), list) and _has(reply, "stop_reason")


def _anthropic_messages(reply: JsonObject) -> list[Any]:
    if not reply["content"]:
        raise _no_answer("content", reply["stop_reason"])
    return _finished([{"role": "assistant", "content": reply["content"]}], reply["stop_reason"])


def _is_ollama(reply: Any) -> bool:
    is_end = get_field(reply, "done") is True and isinstance(get_field(reply, "model"), str)
    return is_end and _has_role(get_field(reply, "message"))


def _ollama_messages(reply: JsonObject) -> list[Any]:
    message, reason = reply["message"], reply.get("done_reason")
    if not (get_field(message, "content") or get_field(message, "tool_calls")):
        raise _no_answer("message", reason)
    return _finished([message], reason)


def _is_error(reply: Any) -> bool:
    """Return whether a dictionary is the body of a failed request: an `error` with a `message`, and nothing else."""
    if not isinstance(reply, Mapping) or not cast("JsonObject", reply).keys() <= {"error", "type", "request_id"}:
        return False
    error = cast("JsonObject", reply).get("error")
    return isinstance(get_field(error, "message"), str) and first_field(error, "type", "code", "status") is not None


def _error_messages(reply: JsonObject) -> list[Any]:
    raise ValueError(f"is the error of a request ({_reason(reply['error'])}): there is no answer to grade")


def _reason(error: Any) -> str:
    # The messages of some providers contain a web page.
    return " ".join(str(get_field(error, "message") or error or "no error is recorded").split())[:300]


PROVIDERS: dict[str, ProviderFormat] = {
    "OpenAI (chat completion)": ProviderFormat(
        frozenset({"choices", "object"}), _is_completion, _completion_messages, read_chat
    ),
    "OpenAI (Responses API)": ProviderFormat(
        frozenset({"object"}), _is_response, _response_messages, read_openai_responses
    ),
    "Gemini": ProviderFormat(
        frozenset({"candidates", "promptFeedback", "prompt_feedback"}), _is_gemini, _gemini_messages, read_gemini
    ),
    "Bedrock (Converse)": ProviderFormat(frozenset({"output"}), _is_bedrock, _bedrock_messages, read_bedrock),
    "Anthropic": ProviderFormat(frozenset({"stop_reason"}), _is_anthropic, _anthropic_messages, read_chat),
    "Ollama": ProviderFormat(frozenset({"done"}), _is_ollama, _ollama_messages, read_chat),
    _ERROR: ProviderFormat(frozenset({"error"}), _is_error, _error_messages, read_chat),
}
"""The providers whose replies are read, by name. OpenAI's forms are also written by most other providers.

The last entry is the body of a failed request, which is always refused.
"""

_KEYS = frozenset[str]().union(*(provider.keys for provider in PROVIDERS.values()))


def provider_of(value: Any) -> str | None:
    """Return the name of the provider whose reply a value is, or None for any other value.

    Example:
        >>> provider_of({"model": "m", "message": {"role": "assistant", "content": "42"}, "done": True})
        'Ollama'
    """
    # Most rows have none of the keys, and a run reads many rows.
    if type(value) is dict and _KEYS.isdisjoint(cast("JsonObject", value)):
        return None
    if not isinstance(value, Mapping) and not hasattr(type(value), "model_dump"):
        return None
    return next((name for name, provider in PROVIDERS.items() if provider.matches(value)), None)


def matches_reply(value: Any) -> bool:
    """Return whether a value is the reply of a provider: a dictionary, or an object of the provider's SDK."""
    return provider_of(value) is not None


def reply_messages(value: Any) -> list[Any]:
    """Return the messages of a reply, as its provider writes them.

    Raises:
        ValueError: The reply has several answers or none.

    Example:
        >>> reply_messages({"output": {"message": {"role": "assistant", "content": [{"text": "42"}]}}, "usage": {}})
        [{'role': 'assistant', 'content': [{'text': '42'}]}]
    """
    name = cast("str", provider_of(value))
    try:
        fields = value if isinstance(value, Mapping) else value.model_dump(warnings=False)
        return PROVIDERS[name].messages(cast("JsonObject", fields))
    except (LookupError, TypeError, AttributeError):
        raise ValueError(f"is a damaged reply of {name}: pass the text of the answer") from None


def read_reply(reply: Any, attachments: AttachmentList) -> list[Message]:
    """Read the messages of a provider's reply."""
    return PROVIDERS[cast("str", provider_of(reply))].read(reply_messages(reply), attachments)


def request_messages(request: Any) -> list[Any]:
    """Return the messages of a request to a provider, or of its `body`. The list is empty for any other value.

    Example:
        >>> request_messages({"model": "m", "input": "6 x 7?", "instructions": "Be brief."})
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '6 x 7?'}]
    """
    if isinstance(request, list) and all(isinstance(item, Mapping) for item in cast("list[Any]", request)):
        return cast("list[Any]", request)
    if not isinstance(request, Mapping):
        return []
    fields = cast("JsonObject", request)
    if isinstance(fields.get("body"), Mapping):
        return request_messages(fields["body"])
    contents = fields.get("contents")
    if isinstance(contents, list | str):
        system = first_field(fields, "systemInstruction", "system_instruction")
        parts = [{"text": system}] if isinstance(system, str) else get_field(system, "parts")
        own = [{"role": "user", "parts": [{"text": contents}]}] if isinstance(contents, str) else contents
        return [*([{"role": "system", "parts": parts}] if parts else []), *cast("list[Any]", own)]
    task = first_field(fields, "messages", "input", "prompt")
    messages: Any = [{"role": "user", "content": task}] if isinstance(task, str) else task
    system = first_field(fields, "system", "instructions")
    if not isinstance(messages, list):
        return []
    return [*([{"role": "system", "content": system}] if system else []), *cast("list[Any]", messages)]
