"""Reads the blocks of messages that several dialects share: texts, reasoning, files, tool calls and results.

A block is a text or a dictionary with a `type`. Blocks of OpenAI, Anthropic and LangChain have similar forms, and each
occurs in messages of the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import groupby
from reprlib import repr as short_repr
from typing import Any, Literal, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations._util.json import json_lines, parse_json
from rubric_integrations._util.records import encodable
from rubric_integrations.submission.attachments import Attachment

NO_NAME = "(no name)"
"""The name of a call without a name, such as a call whose arguments a provider could not parse."""

# Not every JSON library can write deeper values. As text they are kept completely.
_MAX_DEPTH = 100


class Text(NamedTuple):
    """A text of a message.

    Attributes:
        text: The text, or a placeholder.
        kind: `text` for an ordinary text. `attachment` for the placeholder of a file. `note` for a block that is not
            graded: the text is then the type of the block in brackets, such as `[reasoning]`. Also for a text before
            calls that no answer follows.
    """

    text: str
    kind: Literal["text", "attachment", "note"] = "text"


class Call(NamedTuple):
    """A tool call, with its name, arguments and id. The id is None if the dialect has no ids for calls."""

    name: str
    arguments: dict[str, Any] | str | None = None
    id: str | None = None


class Result(NamedTuple):
    """The result of a tool call.

    The result belongs to the call with the same id. Without an id, the name of the tool and the order of the calls
    decide.

    Attributes:
        text: The text that the tool returned.
        id: The id of the call. None if the dialect has no ids.
        name: The name of the tool. None if the trace does not record the name.
        is_error: Whether the tool failed. None if the trace does not record this.
    """

    text: str
    id: str | None = None
    name: str | None = None
    is_error: bool | None = None


Part = Text | Call | Result


class Message(NamedTuple):
    """One message of a conversation, in a common form for all dialects.

    Attributes:
        role: `user`, `assistant`, `system` or `tool`.
        parts: The texts, calls and results of the message, in order.
        place: The place of the message, such as `messages[0]`, for errors.
        name: The name of the author.
        tokens: The number of tokens of the message, sent and received. None if the trace does not record the number.
        cost: The cost of the message in US dollars. None if the trace does not record the cost.
        milliseconds: The duration of the message in milliseconds. None if the trace does not record the duration.
    """

    role: Literal["user", "assistant", "system", "tool"]
    parts: list[Part]
    place: str
    name: str | None = None
    tokens: int | None = None
    cost: float | None = None
    milliseconds: float | None = None

    def answer(self) -> str:
        """Return the message's texts and the placeholders of its attachments as one text, without the reasoning.

        The result is empty if all texts are blank.
        """
        texts = [part for part in self.parts if isinstance(part, Text) and part.kind != "note"]
        has_text = any(part.kind == "attachment" or part.text.strip() for part in texts)
        return "\n".join(part.text for part in texts) if has_text else ""


class UnknownBlockError(ValueError):
    """Raised if a part of a message cannot be read.

    Without this error, a judge would grade the conversation without this part.
    """

    def __init__(self, place: str, problem: str, remedy: str = "convert it to a text or remove it"):
        super().__init__(f"`{place}` {problem}: {remedy}, or evidence would be missing from what is graded")
        self._arguments = place, problem, remedy

    def __reduce__(self) -> Any:
        return type(self), self._arguments


def get_field(record: Any, key: str) -> Any:
    """Return an entry of a dictionary or an attribute of an object, or None if it is missing.

    Example:
        >>> get_field({"role": "user"}, "role"), get_field({}, "role")
        ('user', None)
    """
    return cast("Mapping[str, Any]", record).get(key) if isinstance(record, Mapping) else getattr(record, key, None)


def first_field(record: Any, *keys: str) -> Any:
    """Return the value of the first field that is present and not None, or None if there is no such field.

    Example:
        >>> first_field({"args": {"year": 2024}}, "arguments", "args")
        {'year': 2024}
    """
    return next((value for key in keys if (value := get_field(record, key)) is not None), None)


def all_fields(record: Any) -> dict[str, Any]:
    """Return the entries of a dictionary or the attributes of an object, without private ones."""
    if isinstance(record, Mapping):
        return {str(key): value for key, value in cast("Mapping[object, Any]", record).items()}
    return {key: value for key, value in getattr(record, "__dict__", {}).items() if not key.startswith("_")}


def text_field(record: Any, *keys: str) -> str | None:
    """Return the first of several fields that is not empty, or None if all are empty. A whole number becomes a text.

    Raises:
        ValueError: The field is neither a text nor a whole number, or the record is not an object.

    Example:
        >>> text_field({"call_id": "", "id": 7}, "call_id", "id")
        '7'
    """
    for key in keys:
        value = _field(record, key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, bool | float | list | tuple | Mapping):
            raise _wrong_type(record, key, "a text")
        if isinstance(value, str) and value:
            return value
    return None


def object_field(record: Any, key: str) -> Any:
    """Return a field that must be an object, or None if it is missing.

    Raises:
        ValueError: The field is not an object, or the record is not an object.
    """
    value = _field(record, key)
    if isinstance(value, _NO_OBJECTS):
        raise _wrong_type(record, key, "an object")
    return value


def flag_field(record: Any, key: str) -> bool | None:
    """Return a field that must be true, false, 1 or 0 as a Boolean, or None if the field is missing.

    Raises:
        ValueError: The field is not one of these values, or the record is not an object.
    """
    value = _field(record, key)
    if value is None or (isinstance(value, int) and value in (0, 1)):
        return None if value is None else bool(value)
    raise _wrong_type(record, key, "true or false")


def code_field(record: Any, key: str) -> int | None:
    """Return a field that must be a whole number, such as the exit code of a command, or None if it is missing.

    Raises:
        ValueError: The field is not a whole number, or the record is not an object.
    """
    value = _field(record, key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _wrong_type(record, key, "a whole number")
    return value


_NO_OBJECTS = (str, bytes, int, float, list, tuple)


def _field(record: Any, key: str) -> Any:
    if isinstance(record, _NO_OBJECTS):
        raise ValueError(
            f"`messages` has {short_repr(record)} in place of an object with `{key}`: correct it or remove it, or "
            "evidence would be missing from what is graded"
        )
    return get_field(record, key)


def _wrong_type(record: Any, key: str, kind: str) -> ValueError:
    return ValueError(
        f"`{key}` must be {kind}, got {short_repr(get_field(record, key))} in {short_repr(record)}: correct it or "
        "remove it, or evidence would be missing from what is graded"
    )


def list_field(record: Any, key: str, place: str) -> list[Any]:
    """Return a field that must be a list. The list is empty if the field is missing, or an empty text or object.

    Raises:
        ValueError: The field is not a list, or the record is not an object.
    """
    value = _field(record, key)
    if value is None or (isinstance(value, str | Mapping) and not value):
        return []
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{place}.{key}` must be a list, got {type(value).__name__}: write one entry per item")
    return list(cast("list[Any]", value))


def count_field(record: Any, *keys: str) -> int | None:
    """Return the sum of the fields that are whole numbers of at least 0, or None if there are none."""
    values = [get_field(record, key) for key in keys]
    counts = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    return sum(counts) if counts else None


def number_field(record: Any, key: str) -> float | None:
    """Return a field if it is a finite number of at least 0. Otherwise return None."""
    value = get_field(record, key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < float("inf") else None


def read_arguments(arguments: Any) -> dict[str, Any] | str | None:
    """Return the arguments of a call as an object, or as text if they are not the JSON of an object.

    Raises:
        ValueError: The arguments cannot be written as JSON.

    Example:
        >>> read_arguments('{"year": 2024}'), read_arguments('{"year": ')
        ({'year': 2024}, '{"year": ')
    """
    if arguments is None:
        return None
    text = arguments if isinstance(arguments, str) else data_text(arguments)
    try:
        value = parse_json(text)
        return _encodable(value, _MAX_DEPTH) if isinstance(value, dict) else text
    except ValueError:
        return text


def data_text(value: Any) -> str:
    """Return a value as JSON. Parts that JSON cannot represent are written as text.

    Raises:
        ValueError: The value contains itself or bytes, is nested too deeply, or has keys that are not texts.

    Example:
        >>> data_text({"margin": 17.2})
        '{"margin": 17.2}'
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=lambda part: str(refuse_bytes(part)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a message cannot be written as JSON: {str(error) or 'nested too deeply'}") from None


def refuse_bytes(value: object) -> object:
    """Return a value unchanged unless it is `bytes`, a `bytearray` or a `memoryview`.

    Raises:
        ValueError: The value is bytes.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(
            f"a value of type `{type(value).__name__}` is not a text: decode it, as in `bytes(value).decode()`, or "
            "pass a file in `attachments`; a judge would see its repr instead of its content"
        )
    return value


def _encodable(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not JSON")
    if isinstance(value, list):
        return [_encodable(item, depth - 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {encodable(key): _encodable(item, depth - 1) for key, item in entries.items()}
    return value


MEDIA = (
    "image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "input_video",
    "file", "input_file", "document", "media", "computer_screenshot", "blob", "uri", "inlineData", "fileData",
)  # fmt: skip
"""The types of blocks that contain a file."""

# A block contains its file directly, in a field with one of these names, or in a field with the name of its type.
_HOLDERS = ("source", "file", "image_url", "input_audio", "audio_url", "video_url")
_DATA = ("data", "base64", "file_data", "content")
_ADDRESSES = ("url", "uri", "file_url", "fileUri", "file_uri", "image_url", "image", "audio", "video", "document",
              "source", "path")  # fmt: skip
_MIME_TYPES = ("mime_type", "media_type", "mimeType", "mediaType")
_NAMES = ("filename", "file_name", "displayName", "display_name", "name", "title")
_AUDIO_FORMATS = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_DETAILS = ("auto", "low", "high")
# Converts URL-safe base64, which Google's client writes, to ordinary base64.
_FROM_URL_ALPHABET = str.maketrans("-_", "+/", " \t\r\n")


class AttachmentList:
    """Collects the files of a conversation and numbers them. A repeated file keeps its number.

    Args:
        earlier: The attachments that the submission already has.

    Example:
        >>> attachments = AttachmentList()
        >>> attachments.add({"type": "image", "base64": "R0lGODlh", "mime_type": "image/gif"}, "image", "content[0]")
        Text(text='[attachment 1]', kind='attachment')
    """

    def __init__(self, earlier: tuple[Attachment, ...] = ()):
        self.items = list(earlier)
        self._numbers = {attachment: number for number, attachment in enumerate(self.items, start=1)}

    def add(self, block: Any, kind: str, place: str) -> Text:
        """Add the file of a block and return the placeholder that replaces it in a text.

        Raises:
            UnknownBlockError: The block has neither bytes nor an address, or its bytes are not base64 or are too large.
        """
        attachment = read_media(block, kind, place)
        number = self._numbers.setdefault(attachment, len(self.items) + 1)
        if number > len(self.items):
            self.items.append(attachment)
        return Text(f"[attachment {number}]", "attachment")


class FilesAsPlaceholders(AttachmentList):
    """Ignores files, for conversations that become texts without attachments.

    Each file is replaced by the type of its block in brackets.

    Example:
        >>> FilesAsPlaceholders().add({"type": "image_url"}, "image_url", "content[0]").text
        '[image_url]'
    """

    def add(self, block: Any, kind: str, place: str) -> Text:
        """Return the placeholder of a file, which is the type of its block in brackets."""
        return Text(f"[{kind}]", "attachment")


def read_media(block: Any, kind: str, place: str) -> Attachment:
    """Return the file of a block as an attachment with its bytes, or with its http or https address.

    No file is opened and nothing is requested.

    Args:
        block: The block.
        kind: The type of the block, such as `image_url`.
        place: The place of the block, for errors.

    Raises:
        UnknownBlockError: The block has neither bytes nor an address. For example, it has only the id that a provider
            gave to the file. Or the bytes of the block are not base64 or are too large.
    """
    holders = [block, *(get_field(block, name) for name in (*_HOLDERS, kind))]
    layers = [layer for layer in holders if layer is not None and not isinstance(layer, str | bytes)]
    data, url = _first(layers, *_DATA), _first(layers, *_ADDRESSES)
    if isinstance(data, str) and data.startswith(("data:", "http://", "https://")):
        data, url = None, data
    mime_type = _first(layers, *_MIME_TYPES)
    if mime_type is None:
        mime_type = _AUDIO_FORMATS.get(_first(layers, "format") or "")
    if isinstance(url, str) and url.startswith("data:"):
        header, _, data = url.removeprefix("data:").partition(",")
        mime_type, url = header.partition(";")[0] or mime_type, None
        if not header.endswith(";base64"):
            raise UnknownBlockError(place, "has a `data:` address whose content is not base64")
    if data is not None:
        url = None
    if data is None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise UnknownBlockError(
            place,
            f"({kind!r}) has neither the bytes of the file nor an http(s) address, and its provider's ids and local "
            "paths are never opened",
        )
    name, detail = _first(layers, *_NAMES), _first(layers, "detail")
    fields = {
        "data": data.translate(_FROM_URL_ALPHABET) if isinstance(data, str) else data,
        "url": url,
        "mime_type": mime_type,
        "name": name,
        "detail": detail if detail in _DETAILS else None,
    }
    try:
        return _attachment(fields, kind, get_field(block, "modality"))
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"])) or "file"
        raise UnknownBlockError(
            place, f"({kind!r}) is no attachment, since its {field} {problem['msg'].removeprefix('Value error, ')}"
        ) from None


def _attachment(fields: dict[str, Any], kind: str, modality: Any) -> Attachment:
    try:
        return Attachment.model_validate(fields)
    except ValidationError:
        # If an address has no suffix, the type of the block gives the type of the file.
        family = kind.removeprefix("input_").removesuffix("_url")
        family = modality if isinstance(modality, str) else "image" if family == "computer_screenshot" else family
        if fields["url"] is None or fields["mime_type"] is not None or family not in ("image", "audio", "video"):
            raise
        return Attachment.model_validate({**fields, "mime_type": f"{family}/unknown"})


def _first(layers: list[Any], *keys: str) -> Any:
    """Return the first text or bytes under one of several names, in the block or in a field of the block."""
    for key in keys:
        for layer in layers:
            value = get_field(layer, key)
            if isinstance(value, str | bytes) and value:
                return value
    return None


_TEXT = (None, "text", "input_text", "output_text", "summary_text", "text-plain")
_NOTES = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "compaction", "mcp_list_tools",
          "function_call_signature")  # fmt: skip
"""Types of blocks that are only shown as their type: reasoning is not graded, and the other blocks have no content."""
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "server_tool_call", "invalid_tool_call",
          "tool_call_chunk", "server_tool_call_chunk", "function_call", "custom_tool_call", "mcp_call")  # fmt: skip
HOSTED_CALLS = ("web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "local_shell_call",
                "shell_call", "apply_patch_call", "tool_search_call", "image_generation_call")  # fmt: skip
"""The types of calls of tools that OpenAI defines. The type gives the tool's name, and the fields are the arguments."""
RESULTS = ("function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
           "shell_call_output", "apply_patch_call_output", "tool_search_output")  # fmt: skip
"""The types of results that do not end with `tool_result`."""
_NOT_ARGUMENTS = ("type", "id", "call_id", "status", "index", "extras", "role")
_HOSTED_RESULTS = ("result", "results", "output", "outputs")
_IDS = ("tool_use_id", "tool_call_id", "call_id")


def read_content(content: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Return the parts of a message's content: its texts, calls and results. Empty if the content is None.

    Raises:
        ValueError: The content is neither a text nor a list of blocks, or a block in it cannot be read.
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
    parts = [part for index, block in enumerate(blocks) for part in read_block(block, f"{place}[{index}]", attachments)]
    # The `citations` of a document are a setting: an object.
    is_cited = any(isinstance(value := get_field(block, "citations"), list) and value for block in blocks)
    return _join_texts(parts) if is_cited else parts


def _join_texts(parts: list[Part]) -> list[Part]:
    """Join adjacent texts into one, because Anthropic's citations divide a sentence into blocks."""
    joined: list[Part] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, Text) and part.kind == "text"):
        several = list(group)
        joined += [Text("".join(part.text for part in several if isinstance(part, Text)))] if is_text else several
    return joined


_CITATION_KEYS = ("cited_text", "title", "document_title", "source", "url", "filename", "file_id")


def citation_text(citation: Any) -> str:
    r"""Return a citation as one line of JSON in brackets. The caller appends this line to the text with the citation.

    Example:
        >>> citation_text({"type": "url_citation", "url": "https://example.com", "title": "Report\n2024"})
        ' [citation {"title": "Report\\n2024", "url": "https://example.com"}]'
    """
    holder = first_field(citation, "url_citation", "file_citation", "container_file_citation", "file_path", "value")
    # Perplexity writes a citation as a text, which is the address.
    fields = all_fields({"source": citation} if isinstance(citation, str) else citation if holder is None else holder)
    known = {key: fields[key] for key in _CITATION_KEYS if isinstance(fields.get(key), str) and fields[key]}
    return f" [citation {json_lines([known])}]" if known else " [citation]"


def citation_texts(record: Any) -> str:
    """Return the citations of a block or a message as text: Anthropic's `citations` or OpenAI's `annotations`.

    The text is empty if there are no citations.
    """
    # The `annotations` of MCP are an object: hints for the reader of a block.
    lists = [value for key in ("citations", "annotations") if isinstance(value := get_field(record, key), list)]
    return "".join(citation_text(citation) for several in lists for citation in cast("list[Any]", several))


def read_block(block: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Return the parts of one block: its texts, calls and results.

    A call with its result in the same block, such as `mcp_call`, has two parts.

    Raises:
        UnknownBlockError: The type of the block is unknown, or the block is a file without bytes and without an
            address.
        ValueError: The value is not a block.
    """
    if isinstance(block, str):
        return [Text(block)]
    kind = get_field(block, "type")
    text = get_field(block, "refusal" if kind == "refusal" else "text")
    if (kind in _TEXT or kind == "refusal") and isinstance(text, str):
        return [Text(text + citation_texts(block))]
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

    A call of OpenAI has a `function` with arguments as JSON text. A call of LangChain has parsed `args`, and a call of
    Anthropic has an `input`.

    Raises:
        ValueError: The value is not a call.

    Example:
        >>> read_call({"id": "c1", "function": {"name": "look", "arguments": '{"year": 2024}'}}, "tool_calls[0]")
        Call(name='look', arguments={'year': 2024}, id='c1')
    """
    if isinstance(call, _NO_OBJECTS):
        raise ValueError(f"`{place}` is {short_repr(call)}, not a call: pass {{'name': ..., 'args': ..., 'id': ...}}")
    function = first_field(call, "function", "custom")
    # Inspect writes the name of the function instead of an object.
    name = function if isinstance(function, str) else text_field(call if function is None else function, "name")
    holder = call if function is None or isinstance(function, str) else function
    arguments = first_field(holder, "arguments", "args", "input")
    # Inspect always writes the arguments, too.
    if arguments is None and (name is None or isinstance(function, str)):
        raise ValueError(f"`{place}` is {short_repr(call)}, not a call: pass {{'name': ..., 'args': ..., 'id': ...}}")
    return Call(name or NO_NAME, read_arguments(arguments), text_field(call, "call_id", "id"))


def result_text(output: Any, place: str, attachments: AttachmentList) -> str:
    """Return a tool's result as text.

    Texts are returned unchanged. A file is added to `attachments`, and its placeholder is returned. Other data become
    JSON.
    """
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
    # Anthropic encrypts the content of web pages. Only its own models can read it.
    fields = {key: value for key, value in all_fields(output).items() if not key.startswith("encrypted_")}
    return data_text(fields or output)


def _read_result(block: Any, place: str, attachments: AttachmentList) -> Result:
    output = first_field(block, "content", "output", "tools")
    if get_field(block, "type") in RESULTS:
        is_error = None  # OpenAI's items do not record it.
    else:
        has_failed = flag_field(block, "is_error") or text_field(block, "status") == "error"
        is_error = bool(has_failed or str(get_field(output, "type")).endswith("_tool_result_error"))
    return Result(result_text(output, place, attachments), text_field(block, *_IDS), None, is_error)


def _read_call_block(block: Any, kind: str, place: str, attachments: AttachmentList) -> list[Part]:
    """Read a call. OpenAI's `mcp_call` and Inspect's `tool_use` also contain their result."""
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
    """Return the texts of an Anthropic document whose source is text. Empty for any other document."""
    source = get_field(block, "source")
    if not isinstance(source, Mapping):
        return []
    kind, data = get_field(source, "type"), get_field(source, "data")
    if kind == "text" and isinstance(data, str):
        return [Text(data)]
    return (
        read_content(get_field(source, "content"), f"{place}.source.content", attachments) if kind == "content" else []
    )
