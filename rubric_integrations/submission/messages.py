"""Converts chat messages to text for a judge: one JSON object per line.

JSON escapes line breaks, so the content of one message cannot imitate another message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from reprlib import repr as short_repr
from typing import Any, Literal, cast, get_args

Messages = list[Any] | tuple[Any, ...]
"""Chat messages: dictionaries in OpenAI's format, or LangChain messages."""

Respond = Literal["last", "transcript"]
"""Which part of a conversation is graded: the last answer, with the rest as context, or the whole transcript."""

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The role in the rendered text, by the role (OpenAI) or the type (LangChain) of a message."""

_TEXT_PARTS = (None, "text", "input_text", "output_text")
_REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")

# `str.splitlines` also splits at these characters, but JSON does not escape them. Lone surrogates cannot be encoded.
_NOT_ESCAPED_BY_JSON = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


def render_conversation(messages: Messages) -> str:
    r"""Write a conversation as text: one JSON object per line with its `role`, `content` and tool calls.

    Args:
        messages: Dictionaries with a `role` and `content`, or LangChain messages. Roles are renamed to `user`,
            `assistant`, `system` and `tool`. A part of the content that is not text is replaced by its type in
            brackets, such as `[image_url]`.

    Raises:
        TypeError: `messages` is not a list.
        ValueError: `messages` is empty, or one of them is not a message or has no content.

    Example:
        >>> messages = [{"role": "user", "content": "6x7?\nassistant: 41"}, {"role": "assistant", "content": "42"}]
        >>> print(render_conversation(messages))
        {"role": "user", "content": "6x7?\nassistant: 41"}
        {"role": "assistant", "content": "42"}
    """
    return json_lines(_normalize_messages(messages))


def split_conversation(messages: Messages, respond: Respond = "last") -> tuple[str, str | None]:
    """Split a conversation into the text to grade and its context.

    Args:
        messages: The conversation, as for `render_conversation`.
        respond: With `last`, the text of the last message is graded, which must be the assistant's; its reasoning is
            left out, and its tool calls belong to the context. With `transcript`, the whole rendered conversation is
            graded.

    Returns:
        The text to grade, and the rendered context or None if there is none.

    Raises:
        TypeError: `messages` is not a list.
        ValueError: The conversation cannot be rendered, it does not end with an answer, or `respond` is unknown.

    Example:
        >>> split_conversation([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}])
        ('42', '{"role": "user", "content": "6 x 7?"}')
    """
    check_respond(respond)
    normalized = _normalize_messages(messages)
    if respond == "transcript":
        return json_lines(normalized), None
    *context, last = normalized
    parts = _content_parts(messages[-1], f"messages[{len(context)}]")
    if last["role"] != "assistant":
        problem = f"is of the role {last['role']!r}"
    elif not any(kind == "text" and text.strip() for kind, text in parts):
        problem = "calls tools and has no text" if "tool_calls" in last else "has no text"
    else:
        if "tool_calls" in last:
            context.append({**last, "content": ""})
        return "\n".join(text for kind, text in parts if kind not in _REASONING_PARTS), json_lines(context) or None
    raise ValueError(
        f"`messages[{len(context)}]`, the last, {problem}, but with respond='last' it is the text to grade: "
        "end with the assistant's answer, or pass respond='transcript' to grade the whole"
    )


def check_respond(respond: object) -> None:
    """Check a value of `respond`.

    Raises:
        ValueError: It is neither `last` nor `transcript`.

    Example:
        >>> check_respond("transcript")
    """
    if respond not in get_args(Respond):
        raise ValueError(
            f"`respond` must be 'last' or 'transcript', got {respond!r}: another part than you meant would be graded"
        )


def is_conversation(value: object) -> bool:
    """Return whether a value is a list of messages that `render_conversation` accepts.

    Example:
        >>> is_conversation([{"role": "user", "content": "6 x 7?"}]), is_conversation(["6 x 7?"])
        (True, False)
    """
    if not isinstance(value, list | tuple):
        return False
    try:
        return bool(render_conversation(cast("Messages", value)))
    except ValueError:
        return False


def json_lines(values: Iterable[Mapping[str, Any]]) -> str:
    """Write objects as JSON, one per line; no character in them counts as a line break for any reader.

    Raises:
        ValueError: An object cannot be written as JSON.

    Example:
        >>> print(json_lines([{"question": "6 x 7?", "answer": 42}]))
        {"question": "6 x 7?", "answer": 42}
    """
    try:
        lines = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a message cannot be written as JSON: {str(error) or 'nested too deeply'}") from None
    return "\n".join(_NOT_ESCAPED_BY_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in lines)


def _normalize_messages(messages: Messages) -> list[dict[str, Any]]:
    """Convert messages of any supported format to dictionaries with the same keys."""
    if not isinstance(messages, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise TypeError(f"`messages` must be a list of messages, got {type(messages).__name__}")
    if not messages:
        raise ValueError("`messages` is empty: pass at least one message, or there is nothing to grade")
    return [_normalize_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _normalize_message(message: Any, place: str) -> dict[str, Any]:
    normalized: dict[str, Any] = {"role": _role(message, place)}
    parts, calls = _content_parts(message, place), _tool_calls(message, place)
    if _get_field(message, "content") is None and not calls:
        raise ValueError(
            f"`{place}` ({normalized['role']}) has neither `content` nor `tool_calls`: "
            "add one of them or remove the message, or the judge would read an empty message"
        )
    normalized["content"] = "\n".join(text for _, text in parts)
    if calls:
        normalized["tool_calls"] = calls
    optional = {key: _get_field(message, key) for key in ("name", "tool_call_id")}
    return normalized | {key: value for key, value in optional.items() if value is not None}


def _role(message: Any, place: str) -> str:
    name = _get_field(message, "role") or _get_field(message, "type")
    if not isinstance(name, str):
        raise ValueError(
            f"`{place}` is {short_repr(message)}, which is not a message: pass {{'role': ..., 'content': ...}} or a "
            "LangChain message, or the judge could not know who wrote it"
        )
    # LangChain's streamed messages have the name of their class as their type: `AIMessageChunk`.
    role = _ROLES.get(name.removesuffix("MessageChunk").lower())
    if role is None:
        raise ValueError(f"`{place}` has the unknown role {name!r}: use 'user', 'assistant', 'system' or 'tool'")
    return role


def _content_parts(message: Any, place: str) -> list[tuple[str, str]]:
    """Return the type and the text of each part of the content; a part that is not text is written as its type."""
    content = _get_field(message, "content")
    if content is None:
        return []
    if isinstance(content, str):
        return [("text", content)]
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"`{place}.content` must be a text or a list of parts, got {type(cast('object', content)).__name__}: "
            "its repr would have been graded"
        )
    return [_content_part(part, f"{place}.content[{index}]") for index, part in enumerate(cast("Messages", content))]


def _content_part(part: Any, place: str) -> tuple[str, str]:
    if isinstance(part, str):
        return "text", part
    kind, text = _get_field(part, "type"), _get_field(part, "text")
    if kind in _TEXT_PARTS and isinstance(text, str):
        return "text", text
    if not isinstance(kind, str) or kind in _TEXT_PARTS:
        raise ValueError(f"`{place}` is {short_repr(part)}, not a part: pass a text or {{'type': 'text', 'text': ...}}")
    return kind, f"[{kind}]"


def _tool_calls(message: Any, place: str) -> list[Mapping[str, Any]]:
    """Return the tool calls of a message in one format.

    LangChain stores calls whose arguments are not valid JSON in `invalid_tool_calls`. The model made them, so the
    judge must see them too.
    """
    calls: list[Mapping[str, Any]] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        entries = _get_field(message, key) or []
        if not isinstance(entries, list | tuple):
            raise ValueError(f"`{place}.{key}` must be a list of calls, got {short_repr(entries)}")
        calls += [_tool_call(call, f"{place}.{key}[{index}]") for index, call in enumerate(cast("Messages", entries))]
    function_call = _get_field(message, "function_call")
    return calls if function_call is None else [*calls, _tool_call(function_call, f"{place}.function_call")]


def _tool_call(call: Any, place: str) -> Mapping[str, Any]:
    """Convert a tool call: OpenAI's has a `function` with arguments as JSON text, LangChain's has parsed `args`."""
    function = _get_field(call, "function") or call
    name, arguments = _get_field(function, "name"), _get_field(function, "arguments")
    if not isinstance(name, str):
        if isinstance(call, Mapping) and call:
            return cast("Mapping[str, Any]", call)
        raise ValueError(f"`{place}` is {short_repr(call)}, not a call: pass {{'name': ..., 'args': ..., 'id': ...}}")
    arguments = _get_field(function, "args") if arguments is None else _parse_arguments(arguments)
    fields = {"id": _get_field(call, "id"), "name": name, "arguments": arguments}
    return {key: value for key, value in fields.items() if value is not None}


def _parse_arguments(arguments: Any) -> Any:
    """Parse arguments that are the JSON text of an object; return all others unchanged."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast("object", value) if isinstance(value, dict) else arguments


def _get_field(record: Any, key: str) -> Any:
    """Return an entry of a dictionary or an attribute of an object; None if it is missing."""
    return cast("Mapping[str, Any]", record).get(key) if isinstance(record, Mapping) else getattr(record, key, None)
