"""Reads the blocks of OpenAI, Anthropic and LangChain, which share their form and occur in one another's messages.

A block is a text or a dictionary with a `type`: a text, reasoning, a file, a call of a tool, or its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, cast

from rubric_integrations.submission.dialects.media import MEDIA, AttachmentList
from rubric_integrations.submission.dialects.parts import (
    NO_NAME,
    Call,
    Part,
    Result,
    Text,
    UnknownBlockError,
    all_fields,
    data_text,
    first_field,
    get_field,
    read_arguments,
    text_field,
)

_TEXT = (None, "text", "input_text", "output_text", "summary_text", "text-plain")
_NOTES = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "compaction", "mcp_list_tools",
          "function_call_signature")  # fmt: skip
"""Types of which only the type is shown: what models think is not graded, and the others hold nothing to read."""
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "server_tool_call", "invalid_tool_call",
          "tool_call_chunk", "server_tool_call_chunk", "function_call", "custom_tool_call", "mcp_call")  # fmt: skip
HOSTED_CALLS = ("web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "local_shell_call",
                "shell_call", "apply_patch_call", "tool_search_call", "image_generation_call")  # fmt: skip
"""Calls of tools that OpenAI defines: their type is the tool's name, and their fields are the arguments."""
RESULTS = ("function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
           "shell_call_output", "apply_patch_call_output", "tool_search_output")  # fmt: skip
"""The types of results that do not end with `tool_result`."""
_NOT_ARGUMENTS = ("type", "id", "call_id", "status", "index", "extras", "role")
_HOSTED_RESULTS = ("result", "results", "output", "outputs")
_IDS = ("tool_use_id", "tool_call_id", "call_id")


def read_content(content: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Return the parts of a message's content; none if the content is None.

    Raises:
        ValueError: The content is neither a text nor a list of blocks, or a block cannot be read.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"`{place}` must be a text or a list of parts, got {type(cast('object', content)).__name__}: "
            "its repr would have been graded"
        )
    blocks = cast("list[Any]", content)
    return [part for index, block in enumerate(blocks) for part in read_block(block, f"{place}[{index}]", attachments)]


def read_block(block: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Return the parts of one block. A call whose block contains its result, as `mcp_call`, has two.

    Raises:
        UnknownBlockError: No reader knows its type, or it is a file without bytes and without an address.
        ValueError: It is not a block.
    """
    if isinstance(block, str):
        return [Text(block)]
    kind = get_field(block, "type")
    text = get_field(block, "refusal" if kind == "refusal" else "text")
    if (kind in _TEXT or kind == "refusal") and isinstance(text, str):
        return [Text(text)]
    if not isinstance(kind, str) or kind in _TEXT:
        raise ValueError(
            f"`{place}` is {short_repr(block)}, not a part: pass a text or {{'type': 'text', 'text': ...}}"
        )
    if kind == "non_standard" and isinstance(get_field(get_field(block, "value"), "type"), str):
        return read_block(get_field(block, "value"), f"{place}.value", attachments)
    if kind in _NOTES:
        return [Text(f"[{kind}]", "note")]
    if kind in RESULTS or kind.endswith("tool_result"):
        return [_read_result(block, place, attachments)]
    if kind in HOSTED_CALLS:
        return _read_hosted_call(block, kind, place, attachments)
    if kind in _CALLS and isinstance(get_field(block, "name"), str):
        return _read_call_block(block, kind, place, attachments)
    if kind == "document" and (parts := _read_document(block, place, attachments)):
        return parts
    if kind == "search_result":
        return [Text(data_text({key: value for key, value in all_fields(block).items() if key != "type"}))]
    if kind in MEDIA:
        return [attachments.add(block, kind, place)]
    raise UnknownBlockError(place, f"is a block of the type {kind!r}, which no reader knows")


def read_call(call: Any, place: str) -> Call:
    """Return a tool call of any format.

    OpenAI's call has a `function` with arguments as JSON text, LangChain's has parsed `args`, Anthropic's an `input`.

    Raises:
        ValueError: It is not a call.

    Example:
        >>> read_call({"id": "c1", "function": {"name": "look", "arguments": '{"year": 2024}'}}, "tool_calls[0]")
        Call(name='look', arguments={'year': 2024}, id='c1')
    """
    function = first_field(call, "function", "custom")
    # Inspect writes the name in place of an object.
    name = function if isinstance(function, str) else text_field(call if function is None else function, "name")
    holder = call if function is None or isinstance(function, str) else function
    arguments = first_field(holder, "arguments", "args", "input")
    if name is None and arguments is None:
        raise ValueError(f"`{place}` is {short_repr(call)}, not a call: pass {{'name': ..., 'args': ..., 'id': ...}}")
    return Call(name or NO_NAME, read_arguments(arguments), text_field(call, "call_id", "id"))


def result_text(output: Any, place: str, attachments: AttachmentList) -> str:
    """Return a tool's result as text: texts unchanged, files as attachments, other data as JSON."""
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, list | tuple):
        items = enumerate(cast("list[Any]", output))
        return "\n".join(result_text(item, f"{place}[{index}]", attachments) for index, item in items)
    kind, text = get_field(output, "type"), get_field(output, "text")
    if kind in _TEXT and isinstance(text, str):
        return text
    if isinstance(kind, str) and kind in MEDIA:
        parts = read_block(output, place, attachments)
        return "\n".join(part.text for part in parts if isinstance(part, Text))
    # Anthropic encrypts the content of web pages; only its own models can read it.
    fields = {key: value for key, value in all_fields(output).items() if not key.startswith("encrypted_")}
    return data_text(fields or output)


def _read_result(block: Any, place: str, attachments: AttachmentList) -> Result:
    output, status = first_field(block, "content", "output", "tools"), get_field(block, "status")
    if get_field(block, "type") in RESULTS:
        is_error = None  # OpenAI's items do not tell it.
    else:
        has_failed = get_field(block, "is_error") or status == "error"
        is_error = bool(has_failed or str(get_field(output, "type")).endswith("_tool_result_error"))
    return Result(result_text(output, place, attachments), text_field(block, *_IDS), None, is_error)


def _read_call_block(block: Any, kind: str, place: str, attachments: AttachmentList) -> list[Part]:
    """Read a call. OpenAI's `mcp_call` and Inspect's `tool_use` contain their result, too."""
    call = read_call(block, place)
    key = {"mcp_call": "output", "tool_use": "result"}.get(kind, "")
    output, error = get_field(block, key), get_field(block, "error") if key else None
    if output is None and error is None:
        return [call]
    text = result_text(output, f"{place}.{key}", attachments)
    if error is not None and text in ("", error):
        text = result_text(error, f"{place}.error", attachments)
    elif error is not None:
        text = f"{text}\n{result_text(error, f'{place}.error', attachments)}"
    return [call, Result(text, call.id, call.name, error is not None)]


def _read_hosted_call(block: Any, kind: str, place: str, attachments: AttachmentList) -> list[Part]:
    fields = {key: value for key, value in all_fields(block).items() if value is not None}
    results = [value for key, value in fields.items() if key in _HOSTED_RESULTS]
    arguments = {key: value for key, value in fields.items() if key not in (*_NOT_ARGUMENTS, *_HOSTED_RESULTS)}
    call = Call(kind.removesuffix("_call"), read_arguments(arguments), text_field(block, "call_id", "id"))
    if not results:
        return [call]
    if kind == "image_generation_call":
        image = {"data": fields.get("result"), "mime_type": f"image/{fields.get('output_format') or 'png'}"}
        text = attachments.add(image, "image", place).text
    else:
        text = result_text(results, place, attachments)
    return [call, Result(text, call.id, call.name)]


def _read_document(block: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Return the texts of a document that Anthropic's users wrote as text; none of any other document."""
    source = get_field(block, "source")
    if not isinstance(source, Mapping):
        return []
    kind, data = get_field(source, "type"), get_field(source, "data")
    if kind == "text" and isinstance(data, str):
        return [Text(data)]
    return (
        read_content(get_field(source, "content"), f"{place}.source.content", attachments) if kind == "content" else []
    )
