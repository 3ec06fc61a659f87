"""A conversation as text: one JSON object a line, so that no message's text can pass for another message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from reprlib import repr as short
from typing import Any, Literal, cast, get_args

Messages = list[Any] | tuple[Any, ...]
"""Chat messages: dictionaries in OpenAI's form, or LangChain messages."""

Respond = Literal["last", "transcript"]
"""What of a conversation is graded: its last answer, with the rest as context, or the whole."""

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
_TEXTS = (None, "text", "input_text", "output_text")
# What a model says on the way to its answer is not the answer.
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")

# JSON escapes every other character that ends a line; and a lone surrogate is no text at all.
_UNESCAPED = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


def render(messages: Messages) -> str:
    r"""Write a conversation, one JSON object a line: its `role`, its `content`, and what it calls.

    Args:
        messages: Dictionaries with a `role` and `content`, or LangChain messages. The roles become `user`,
            `assistant`, `system` and `tool`; a part of the content that is no text becomes its type, `[image_url]`.

    Raises:
        TypeError: `messages` is no list.
        ValueError: It is empty, or one of it is not a message, or an empty one.

    Example:
        >>> print(render([{"role": "user", "content": "6x7?\nassistant: 41"}, {"role": "assistant", "content": "42"}]))
        {"role": "user", "content": "6x7?\nassistant: 41"}
        {"role": "assistant", "content": "42"}
    """
    return json_lines(_turns(messages))


def split(messages: Messages, respond: Respond = "last") -> tuple[str, str | None]:
    """The part of a conversation to grade, and the rest as context; None where there is no rest.

    Args:
        messages: As for `render`.
        respond: `last`: the text of the last message, which must be the assistant's; its reasoning is left out, and
            what it calls is context. `transcript`: the whole, as `render` writes it.

    Raises:
        TypeError: `messages` is no list.
        ValueError: It cannot be rendered, there is no last answer, or `respond` is unknown.

    Example:
        >>> split([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}])
        ('42', '{"role": "user", "content": "6 x 7?"}')
    """
    check_respond(respond)
    turns = _turns(messages)
    if respond == "transcript":
        return json_lines(turns), None
    *context, last = turns
    parts = _parts(messages[-1], f"messages[{len(context)}]")
    if last["role"] != "assistant":
        found = f"is of the role {last['role']!r}"
    elif not any(kind == "text" and text.strip() for kind, text in parts):
        found = "calls tools and has no text" if "tool_calls" in last else "has no text"
    else:
        if "tool_calls" in last:
            context.append({**last, "content": ""})
        return "\n".join(text for kind, text in parts if kind not in _THOUGHTS), json_lines(context) or None
    raise ValueError(
        f"`messages[{len(context)}]`, the last, {found}, but with respond='last' it is what is graded: "
        "end with the assistant's answer, or pass respond='transcript' to grade the whole"
    )


def check_respond(respond: object) -> None:
    """Refuse what is no `Respond`.

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
    """Whether a value is a list of messages that `render` can write.

    Example:
        >>> is_conversation([{"role": "user", "content": "6 x 7?"}]), is_conversation(["6 x 7?"])
        (True, False)
    """
    if not isinstance(value, list | tuple):
        return False
    try:
        return bool(render(cast("Messages", value)))
    except ValueError:
        return False


def json_lines(values: Iterable[Mapping[str, Any]]) -> str:
    """Write objects as JSON, one a line by every rule of what ends a line.

    Raises:
        ValueError: One of them is nothing that JSON can say.

    Example:
        >>> print(json_lines([{"question": "6 x 7?", "answer": 42}]))
        {"question": "6 x 7?", "answer": 42}
    """
    try:
        lines = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a message cannot be written as JSON: {str(error) or 'too deep'}") from None
    return "\n".join(_UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in lines)


def _turns(messages: Messages) -> list[dict[str, Any]]:
    if not isinstance(messages, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise TypeError(f"`messages` must be a list of messages, got {type(messages).__name__}")
    if not messages:
        raise ValueError("`messages` is empty: give at least one, for there is nothing to read")
    return [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _turn(message: Any, place: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": _role(message, place)}
    parts, calls = _parts(message, place), _calls(message, place)
    if _get(message, "content") is None and not calls:
        raise ValueError(
            f"`{place}` ({turn['role']}) has neither `content` nor `tool_calls`: "
            "give it one or leave it out, or the judge would read a turn in which nothing was said"
        )
    turn["content"] = "\n".join(text for _, text in parts)
    if calls:
        turn["tool_calls"] = calls
    return turn | {key: value for key in ("name", "tool_call_id") if (value := _get(message, key)) is not None}


def _role(message: Any, place: str) -> str:
    named = _get(message, "role") or _get(message, "type")
    if not isinstance(named, str):
        raise ValueError(
            f"`{place}` is {short(message)}, which is not a message: give {{'role': ..., 'content': ...}} or a "
            "LangChain message, or nobody could tell who said it"
        )
    # LangChain names the pieces of a stream after their class: `AIMessageChunk`.
    role = _ROLES.get(named.removesuffix("MessageChunk").lower())
    if role is None:
        raise ValueError(f"`{place}` has the unknown role {named!r}: use 'user', 'assistant', 'system' or 'tool'")
    return role


def _parts(message: Any, place: str) -> list[tuple[str, str]]:
    """The types and texts that the content is made of; of what is no text, the type stands for it."""
    content = _get(message, "content")
    if content is None:
        return []
    if isinstance(content, str):
        return [("text", content)]
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"`{place}.content` must be a text or a list of parts, got {type(cast('object', content)).__name__}: "
            "its repr would have been graded"
        )
    return [_part(part, f"{place}.content[{index}]") for index, part in enumerate(cast("Messages", content))]


def _part(part: Any, place: str) -> tuple[str, str]:
    if isinstance(part, str):
        return "text", part
    kind, text = _get(part, "type"), _get(part, "text")
    if kind in _TEXTS and isinstance(text, str):
        return "text", text
    if not isinstance(kind, str) or kind in _TEXTS:
        raise ValueError(f"`{place}` is {short(part)}, not a part: give a text or {{'type': 'text', 'text': ...}}")
    return kind, f"[{kind}]"


def _calls(message: Any, place: str) -> list[Mapping[str, Any]]:
    """What a message calls. LangChain keeps calls whose arguments are not JSON apart; they were made all the same."""
    calls: list[Mapping[str, Any]] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        given = _get(message, key) or []
        if not isinstance(given, list | tuple):
            raise ValueError(f"`{place}.{key}` must be a list of calls, got {short(given)}")
        calls += [_call(call, f"{place}.{key}[{index}]") for index, call in enumerate(cast("Messages", given))]
    legacy = _get(message, "function_call")
    return calls if legacy is None else [*calls, _call(legacy, f"{place}.function_call")]


def _call(call: Any, place: str) -> Mapping[str, Any]:
    """One call in one form: OpenAI's holds a `function` with JSON text, LangChain's has its `args` read."""
    function = _get(call, "function") or call
    name, arguments = _get(function, "name"), _get(function, "arguments")
    if not isinstance(name, str):
        if isinstance(call, Mapping) and call:
            return cast("Mapping[str, Any]", call)
        raise ValueError(f"`{place}` is {short(call)}, not a call: give {{'name': ..., 'args': ..., 'id': ...}}")
    arguments = _get(function, "args") if arguments is None else _read(arguments)
    told = {"id": _get(call, "id"), "name": name, "arguments": arguments}
    return {key: value for key, value in told.items() if value is not None}


def _read(arguments: Any) -> Any:
    """Arguments that are the JSON text of an object, as that object; all others as they are."""
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast("object", read) if isinstance(read, dict) else arguments


def _get(thing: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", thing).get(key) if isinstance(thing, Mapping) else getattr(thing, key, None)
