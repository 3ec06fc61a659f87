"""Reads the content of one message: texts, tool calls, results of tools, reasoning, and media.

Providers write tool calls and results as blocks of different structure: Anthropic's `tool_use` and `tool_result`,
LangChain's `tool_call` and `server_tool_result`, the items `function_call` and `function_call_output` of OpenAI's
Responses API. All become the same parts, so that a judge reads the same text for the same conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, Literal, NamedTuple, cast

Blocks = list[Any] | tuple[Any, ...]

_TEXT = (None, "text", "input_text", "output_text")
_REASONING = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "server_tool_call", "invalid_tool_call",
          "function_call", "custom_tool_call", "mcp_call")  # fmt: skip
_HOSTED_CALLS = ("web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "local_shell_call")
"""Calls of tools that OpenAI runs: their type is the tool's name, and their fields are the arguments."""
_RESULTS = ("function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output")
"""The types of results that do not end with `tool_result`."""

_ITEMS = (
    "function_call",
    "custom_tool_call",
    "mcp_call",
    *_HOSTED_CALLS,
    *_RESULTS,
    "image_generation_call",
    "reasoning",
)
"""The items of OpenAI's Responses API that stand beside messages. A list of other calls is data, not a conversation."""
_NOT_ARGUMENTS = ("type", "id", "call_id", "status", "index", "extras")
_MEDIA = ("image", "image_url", "input_image", "audio", "input_audio", "video", "file", "input_file", "document",
          "computer_screenshot")  # fmt: skip


class Part(NamedTuple):
    """One part of a message's content.

    Attributes:
        kind: What it is. `media` is anything that a judge cannot read as text.
        text: Its text; that of reasoning and media is their type in brackets, that of a call is empty.
        fields: The `id`, `name` and `arguments` of a call; the `name`, `tool_call_id` and `is_error` of a result.
    """

    kind: Literal["text", "reasoning", "media", "call", "result"]
    text: str = ""
    fields: Mapping[str, Any] = {}


class Message(NamedTuple):
    """One message: its role, the parts of its content, and the lines that render it."""

    role: str
    parts: list[Part]
    lines: list[dict[str, Any]]

    def text(self) -> str:
        """Return what the judge grades of it: texts and placeholders of media; empty without a text."""
        if not any(part.kind == "text" and part.text.strip() for part in self.parts):
            return ""
        return "\n".join(part.text for part in self.parts if part.kind in ("text", "media"))


def is_item(message: Any) -> bool:
    """Return whether a message is a call, a result or reasoning, which have no role in OpenAI's Responses API.

    Example:
        >>> is_item({"type": "function_call_output", "call_id": "c1", "output": "42"})
        True
    """
    return get_field(message, "role") is None and get_field(message, "type") in _ITEMS


def read_content(content: Any, place: str) -> list[Part]:
    """Return the parts of a message's content; none if the content is None.

    Raises:
        ValueError: The content is neither a text nor a list of blocks.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [Part("text", content)]
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"`{place}` must be a text or a list of parts, got {type(cast('object', content)).__name__}: "
            "its repr would have been graded"
        )
    blocks = cast("Blocks", content)
    return [part for index, block in enumerate(blocks) for part in read_block(block, f"{place}[{index}]")]


def read_block(block: Any, place: str) -> list[Part]:
    """Return the parts of one block. Only a call whose block contains its result, as `mcp_call`, has two.

    Raises:
        ValueError: It is not a block.
    """
    if isinstance(block, str):
        return [Part("text", block)]
    kind = get_field(block, "type")
    text = get_field(block, "refusal" if kind == "refusal" else "text")
    if (kind in _TEXT or kind == "refusal") and isinstance(text, str):
        return [Part("text", text)]
    if not isinstance(kind, str) or kind in _TEXT:
        raise ValueError(
            f"`{place}` is {short_repr(block)}, not a part: pass a text or {{'type': 'text', 'text': ...}}"
        )
    value = get_field(block, "value")
    if kind == "non_standard" and isinstance(get_field(value, "type"), str):
        return read_block(value, f"{place}.value")
    if kind in _REASONING:
        return [Part("reasoning", f"[{kind}]")]
    if kind in _RESULTS or kind.endswith("tool_result"):
        return [_read_result(block)]
    if kind in _HOSTED_CALLS:
        arguments = {name: value for name, value in _items(block) if name not in _NOT_ARGUMENTS and value is not None}
        call = {"id": _call_id(block), "name": kind.removesuffix("_call"), "arguments": arguments}
        return [Part("call", fields=_without_none(call))]
    if kind in _CALLS and isinstance(get_field(block, "name"), str):
        call = read_call(block, place)
        output = get_field(block, "output") if kind == "mcp_call" else None
        result = {"name": get_field(block, "name"), "tool_call_id": _call_id(block)}
        results = [] if output is None else [Part("result", _result_text(output), _without_none(result))]
        return [Part("call", fields=call), *results]
    return [Part("media", f"[{kind}]")]


def read_call(call: Any, place: str) -> Mapping[str, Any]:
    """Return the `id`, `name` and `arguments` of a tool call in any format.

    OpenAI's call has a `function` with arguments as JSON text, LangChain's has parsed `args`, Anthropic's an `input`.

    Raises:
        ValueError: It is not a call.

    Example:
        >>> read_call({"id": "c1", "function": {"name": "look", "arguments": '{"year": 2024}'}}, "tool_calls[0]")
        {'id': 'c1', 'name': 'look', 'arguments': {'year': 2024}}
    """
    function = get_field(call, "function") or call
    name = get_field(function, "name")
    if not isinstance(name, str):
        if isinstance(call, Mapping) and call:
            return cast("Mapping[str, Any]", call)
        raise ValueError(f"`{place}` is {short_repr(call)}, not a call: pass {{'name': ..., 'args': ..., 'id': ...}}")
    values = (get_field(function, key) for key in ("arguments", "args", "input"))
    arguments = next((value for value in values if value is not None), None)
    return _without_none({"id": _call_id(call), "name": name, "arguments": _parse_arguments(arguments)})


def message_lines(
    role: str, parts: list[Part], calls: list[Mapping[str, Any]], names: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the lines of a message: one for each result of a tool, and one for the rest before, between and after."""
    lines: list[dict[str, Any]] = []
    texts: list[str] = []
    line_calls: list[Mapping[str, Any]] = []
    ids = [part.fields.get("id") for part in parts if part.kind == "call"]

    def end_line() -> None:
        if texts or line_calls or not lines:
            call_field = {"tool_calls": list(line_calls)} if line_calls else {}
            lines.append({"role": role, "content": "\n".join(texts), **call_field, **names})
        texts.clear()
        line_calls.clear()

    for part in parts:
        if part.kind == "call":
            # LangChain and its providers write a call into the content and, completely parsed, into `tool_calls`.
            call_id = part.fields.get("id")
            parsed = [call for call in calls if call_id is not None and call.get("id") == call_id]
            line_calls.append(parsed[0] if parsed else part.fields)
        elif part.kind == "result":
            if texts or line_calls:
                end_line()
            lines.append({"role": "tool", "content": part.text, **part.fields})
        else:
            texts.append(part.text)
    line_calls += [call for call in calls if call.get("id") is None or call.get("id") not in ids]
    end_line()
    return lines


def get_field(record: Any, key: str) -> Any:
    """Return an entry of a dictionary or an attribute of an object; None if it is missing.

    Example:
        >>> get_field({"role": "user"}, "role"), get_field({}, "role")
        ('user', None)
    """
    return cast("Mapping[str, Any]", record).get(key) if isinstance(record, Mapping) else getattr(record, key, None)


def _read_result(block: Any) -> Part:
    outputs = (get_field(block, key) for key in ("content", "output"))
    text = _result_text(next((output for output in outputs if output is not None), None))
    call_id = get_field(block, "tool_use_id") or get_field(block, "tool_call_id") or get_field(block, "call_id")
    is_error = get_field(block, "is_error") or get_field(block, "status") == "error" or None
    return Part("result", text, _without_none({"tool_call_id": call_id, "is_error": is_error}))


def _result_text(output: Any) -> str:
    """Return a tool's result as text: nested texts unchanged, media as their type in brackets, other data as JSON."""
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, list | tuple):
        return "\n".join(_result_text(item) for item in cast("Blocks", output))
    kind, text = get_field(output, "type"), get_field(output, "text")
    if kind in _TEXT and isinstance(text, str):
        return text
    if kind in _MEDIA:
        return f"[{kind}]"
    # Anthropic encrypts the content of web pages; only its own models can read it.
    fields = {key: value for key, value in _items(output) if not key.startswith("encrypted_")}
    return json.dumps(fields if fields else output, ensure_ascii=False, default=str)


def _items(record: Any) -> list[tuple[str, Any]]:
    """Return the entries of a dictionary or the attributes of an object, without private ones."""
    if isinstance(record, Mapping):
        return [(str(key), value) for key, value in cast("Mapping[object, Any]", record).items()]
    return [(key, value) for key, value in getattr(record, "__dict__", {}).items() if not key.startswith("_")]


def _call_id(call: Any) -> Any:
    """Return the id by which a result refers to the call; OpenAI's items have another `id` of their own."""
    return get_field(call, "call_id") or get_field(call, "id")


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
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
