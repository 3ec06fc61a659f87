"""Reads chat messages: OpenAI (chat and Responses), Anthropic, Gemini, LangChain and OpenTelemetry.

- Anthropic's calls and results are blocks of the content, and results are in the user's messages. A `tool_result`
  without `is_error` did not fail.
- Gemini's `contents` have parts. Each part has one key for its text, call, result or file, in camel case or in snake
  case. Results often have no id and refer to their call by its name. A failed result has an `error` in its `response`.
- LangChain's messages are objects, their dictionaries, serialized `lc` messages, or pairs of role and content. Calls
  have parsed `args`. The content of a message repeats its calls as blocks. Results have a `status`.
- OpenAI's chat messages have calls in `tool_calls` with arguments as JSON text, and results in messages with the role
  `tool`. This reader reads every list of messages that no other dialect accepts.
- The items of OpenAI's Responses API have no role for calls, results and reasoning. Reasoning, a message and the calls
  after it are one step, as in the other dialects.
- OpenTelemetry's GenAI messages are lists of `parts`, each with a `type`. The convention does not record whether a tool
  failed.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping
from reprlib import repr as short_repr
from typing import Any, Literal, cast

from rubric_integrations.submission.dialects.blocks import (
    HOSTED_CALLS,
    RESULTS,
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    all_fields,
    citation_texts,
    count_field,
    data_text,
    first_field,
    flag_field,
    get_field,
    list_field,
    read_arguments,
    read_block,
    read_call,
    read_content,
    result_text,
    text_field,
)

Role = Literal["user", "assistant", "system", "tool"]

ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The role of a step, by the role (OpenAI) or the type (LangChain) of a message."""


FAILED = {"error": True, "success": False}
"""Whether a tool failed, by the status of its result. Any other status does not show whether the tool failed."""


def read_chat(messages: list[Any], attachments: AttachmentList) -> list[Message]:
    """Read a list of chat messages."""
    return [read_message(message, f"messages[{index}]", attachments) for index, message in enumerate(messages)]


def read_message(message: Any, place: str, attachments: AttachmentList) -> Message:
    """Read one chat message: a dictionary, an object such as a LangChain message, or a pair of role and content.

    Raises:
        ValueError: The value is not a message, or a block of its content cannot be read.
    """
    record = to_record(message)
    role = read_role(record, place)
    content, name = get_field(record, "content"), text_field(record, "name")
    # Other fields of a user, such as `action`, are not the agent's calls.
    is_user = role == "user"
    fields = {key: get_field(record, key) for key in ("toolInvocations", "toolCalls")} if is_user else record
    refuse_unread_calls(fields, place)
    calls = _tool_calls(record, place)
    spoken = _spoken_texts(record) if role == "assistant" else []
    if content is None and not calls and not spoken:
        raise ValueError(
            f"`{place}` ({role}) has neither `content` nor `tool_calls`: "
            "add one of them or remove the message, or the judge would read an empty message"
        )
    if role == "tool":
        status, text = text_field(record, "status"), result_text(content, f"{place}.content", attachments)
        # Only LangChain's messages have a status. OpenAI's messages do not record whether the tool failed.
        is_error = FAILED.get(status or "")
        if error := get_field(record, "error"):
            is_error, text = True, text or result_text(error, f"{place}.error", attachments)
        return Message(role, [Result(text, _result_id(record, place), name, is_error)], place)
    parts = read_content(content, f"{place}.content", attachments)
    if spoken:
        parts = [*(part for part in parts if part != Text("")), *spoken]
    if role == "assistant" and (citations := citation_texts(record)):
        parts.append(Text(citations.lstrip()))
    usage = get_field(record, "usage_metadata")
    tokens = count_field(usage, "total_tokens")
    if tokens is None:
        tokens = count_field(usage, "input_tokens", "output_tokens")
    return Message(role, _merge_calls(parts, calls), place, name, tokens)


def _spoken_texts(message: Any) -> list[Part]:
    """Return the texts that OpenAI writes outside of the content: a refusal, and the transcript of an audio answer."""
    # LangChain has them in `additional_kwargs`.
    extra = get_field(message, "additional_kwargs")
    texts = [text_field(message, "refusal") or text_field(extra, "refusal")]
    texts += [text_field(get_field(holder, "audio"), "transcript") for holder in (message, extra)]
    content = get_field(message, "content")
    return [Text(text) for text in dict.fromkeys(texts) if text is not None and text != content]


def _result_id(message: Any, place: str) -> str | None:
    ids = list_field(message, "tool_call_ids", place)
    if len(ids) > 1:
        raise ValueError(
            f"`{place}.tool_call_ids` has {len(ids)} ids, but one result belongs to one call: write a message for each"
        )
    return text_field(message, "tool_call_id") or text_field({"tool_call_ids": (ids or [None])[0]}, "tool_call_ids")


_WORDS = re.compile(r"[A-Z]?[a-z]+")
_CALL_WORDS = frozenset({"tool", "tools", "function", "functions", "action", "actions", "observation", "observations"})
_NO_CALLS = frozenset({
    "tool_calls", "invalid_tool_calls", "tool_call_chunks", "tool_call_id", "tool_call_ids", "function_call",
    "function", "tools", "functions", "tool_choice", "tool_config", "tool_resources", "tool_definitions",
    "available_tools",
})  # fmt: skip


def refuse_unread_calls(message: Any, place: str, known: Container[str] = _NO_CALLS) -> None:
    """Refuse a message with calls or results in a field that no reader reads, such as `toolInvocations`.

    If the message were accepted, these calls would be lost. The check `tool_forbidden` could then pass although the
    agent called the tool.

    Args:
        message: The message.
        place: The place of the message, for the error.
        known: The fields that the reader reads, or that contain no calls.

    Raises:
        UnknownBlockError: The message has calls or results in a field that no reader reads.
    """
    for key, value in cast("Mapping[Any, Any]", message).items() if isinstance(message, Mapping) else ():
        is_content = isinstance(value, list | dict) or key in ("action", "observation")
        if value and is_content and isinstance(key, str) and key not in known:
            words = {word.lower() for word in _WORDS.findall(key)}
            if words & _CALL_WORDS:
                raise UnknownBlockError(f"{place}.{key}", "may have calls or results, and no reader knows this field")


def read_role(record: Any, place: str) -> Role:
    """Return the role of a message.

    Raises:
        ValueError: The message has no role, or an unknown role.
    """
    name = get_field(record, "role") or get_field(record, "type")
    if not isinstance(name, str):
        raise ValueError(
            f"`{place}` is {short_repr(record)}, which is not a message: pass {{'role': ..., 'content': ...}} or a "
            "LangChain message, or the judge could not know who wrote it"
        )
    # LangChain's streamed messages have the name of their class as their type: `AIMessageChunk`.
    role = ROLES.get(name.removesuffix("MessageChunk").lower())
    if role is None:
        raise ValueError(f"`{place}` has the unknown role {name!r}: use 'user', 'assistant', 'system' or 'tool'")
    return role


def to_record(message: Any) -> Any:
    """Convert a pair of role and content, or a serialized LangChain message, to a dictionary of its fields.

    Any other value is returned unchanged.
    """
    if isinstance(message, list | tuple):
        pair = cast("list[Any]", message)
        if len(pair) == 2 and isinstance(pair[0], str) and pair[0] in ROLES and isinstance(pair[1], str | list):
            return {"role": pair[0], "content": cast("object", pair[1])}
    if isinstance(message, Mapping):
        record = cast("Mapping[str, Any]", message)
        path, fields = record.get("id"), record.get("kwargs")
        if record.get("lc") == 1 and isinstance(path, list) and path and isinstance(fields, Mapping):
            class_name = str(cast("object", path[-1])).removesuffix("Chunk").removesuffix("Message")
            return {"type": class_name.lower(), **cast("Mapping[str, Any]", fields)}
        # As `messages_to_dict` writes it.
        data = record.get("data")
        if "type" in record and "role" not in record and isinstance(data, Mapping) and "content" in data:
            return {**cast("Mapping[str, Any]", data), "type": record["type"]}
    return cast("object", message)


def _tool_calls(message: Any, place: str) -> list[Call]:
    """Return the tool calls of a message, except those in its content.

    LangChain stores calls whose arguments are not valid JSON in `invalid_tool_calls`. The model made these calls.
    Therefore the judge must see them, too.
    """
    calls: list[Call] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        entries = enumerate(list_field(message, key, place))
        calls += [read_call(call, f"{place}.{key}[{index}]") for index, call in entries]
    # Early versions of LangChain have the calls only in `additional_kwargs`, in OpenAI's form.
    extra = None if calls else get_field(message, "additional_kwargs")
    calls += [read_call(call, f"{place}.additional_kwargs") for call in list_field(extra, "tool_calls", place)]
    function_call = first_field(message, "function_call") or (None if calls else get_field(extra, "function_call"))
    return calls if function_call is None else [*calls, read_call(function_call, f"{place}.function_call")]


def _merge_calls(parts: list[Part], calls: list[Call]) -> list[Part]:
    """Return the parts with the calls. LangChain writes a call twice: in the content and, parsed, in `tool_calls`."""
    parsed: defaultdict[str | None, deque[Call]] = defaultdict(deque)
    for call in calls:
        parsed[call.id].append(call)
    in_content: set[str] = set()
    merged: list[Part] = []
    for part in parts:
        if not isinstance(part, Call) or part.id is None:
            merged.append(part)
        elif parsed[part.id]:
            merged.append(parsed[part.id].popleft())
            in_content |= {repr(part), repr(merged[-1])}
        elif repr(part) not in in_content:
            merged.append(part)
            in_content.add(repr(part))
    return merged + [call for waiting in parsed.values() for call in waiting]


_OWN_BLOCKS = ("tool_use", "tool_result", "server_tool_use", "thinking", "redacted_thinking")


def matches_anthropic(conversation: Any) -> bool:
    """Return whether a value is a list of Anthropic's messages: at least one has a block that only Anthropic writes."""
    if not isinstance(conversation, list | tuple):
        return False
    contents = [get_field(message, "content") for message in conversation if get_field(message, "role") is not None]
    blocks = [block for content in contents if isinstance(content, list | tuple) for block in content]
    return any(get_field(block, "type") in _OWN_BLOCKS for block in blocks)


def read_anthropic(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read Anthropic's messages, whose content has blocks."""
    return read_chat(list(conversation), attachments)


_ROLES: dict[str | None, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "system": "system",
    None: "user",
}
_CODE = "code_execution"
_PART_KEYS = ("text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData",
              "inline_data", "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult",
              "code_execution_result")  # fmt: skip


def matches_gemini(conversation: Any) -> bool:
    """Return whether a value is a request to Gemini, which has `contents`, or a list of Gemini's contents.

    Unlike the parts of other dialects, the parts of Gemini's contents have no `type`.
    """
    if isinstance(conversation, Mapping):
        return isinstance(conversation.get("contents"), list)
    if not isinstance(conversation, list | tuple):
        return False
    parts = [get_field(content, "parts") for content in conversation]
    entries = [part for several in parts if isinstance(several, list | tuple) for part in several]
    is_untyped = all(get_field(part, "type") is None for part in entries)
    return is_untyped and any(first_field(part, *_PART_KEYS) is not None for part in entries)


def read_gemini(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read Gemini's contents. For a request, the system instruction is also read."""
    if not isinstance(conversation, Mapping):
        return _read_contents(conversation, "contents", attachments)
    system = first_field(conversation, "systemInstruction", "system_instruction")
    instruction = [] if system is None else [{"parts": get_field(system, "parts"), "role": "system"}]
    if isinstance(system, str):
        instruction = [{"parts": [{"text": system}], "role": "system"}]
    return [
        *_read_contents(instruction, "system_instruction", attachments),
        *_read_contents(conversation["contents"], "contents", attachments),
    ]


def _read_contents(contents: Any, name: str, attachments: AttachmentList) -> list[Message]:
    """Read the contents of Gemini. Each of them is one message."""
    messages: list[Message] = []
    for index, content in enumerate(contents):
        place, role = f"{name}[{index}]", get_field(content, "role")
        refuse_unread_calls(content, place, ())
        if get_field(content, "parts") is None:
            raise ValueError(f"`{place}` has no `parts`: write all messages as Gemini's contents, or none")
        if role is not None and (not isinstance(role, str) or role not in _ROLES):
            raise ValueError(f"`{place}` has the unknown role {role!r}: use 'user' or 'model'")
        parts = [
            part
            for number, entry in enumerate(list_field(content, "parts", place))
            for part in _read_gemini_part(entry, f"{place}.parts[{number}]", attachments)
        ]
        has_calls = any(isinstance(part, Call) for part in parts)
        messages.append(Message("assistant" if role is None and has_calls else _ROLES[role], parts, place))
    return messages


def _read_gemini_part(part: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read one part of Gemini: a text, a call, a result or a file."""
    text = get_field(part, "text")
    if isinstance(text, str):
        return [Text("[reasoning]", "note") if flag_field(part, "thought") else Text(text)]
    if (call := first_field(part, "functionCall", "function_call")) is not None:
        name = text_field(call, "name")
        if name is None:
            raise UnknownBlockError(place, "is a call without a name")
        return [Call(name, read_arguments(get_field(call, "args")), text_field(call, "id"))]
    if (response := first_field(part, "functionResponse", "function_response")) is not None:
        return [_read_response(response, place, attachments)]
    if (code := first_field(part, "executableCode", "executable_code")) is not None:
        return [Call(_CODE, read_arguments(all_fields(code)), text_field(code, "id"))]
    if (outcome := first_field(part, "codeExecutionResult", "code_execution_result")) is not None:
        is_error = text_field(outcome, "outcome") not in (None, "OUTCOME_OK")
        output = text_field(outcome, "output") or ""
        return [Result(output, text_field(outcome, "id"), _CODE, is_error)]
    for keys in (("inlineData", "inline_data"), ("fileData", "file_data")):
        if (media := first_field(part, *keys)) is not None:
            return [attachments.add(media, keys[0], place)]
    raise UnknownBlockError(place, f"is a part with the keys {sorted(all_fields(part))!r}, which no reader knows")


def _read_response(response: Any, place: str, attachments: AttachmentList) -> Result:
    """Read a result. By Gemini's convention, it is in `output` or `error`. Gemini's client also writes `result`."""
    output = get_field(response, "response")
    fields = all_fields(output) if isinstance(output, Mapping) else {}
    whole = next((fields[key] for key in ("output", "result", "error") if list(fields) == [key]), output)
    text = whole if isinstance(whole, str) else data_text(whole)
    media = list_field(response, "parts", place)
    files = [result_text({"type": "media", **all_fields(part)}, place, attachments) for part in media]
    is_error = True if fields.get("error") is not None else False if "output" in fields else None
    name, call_id = text_field(response, "name"), text_field(response, "id")
    return Result("\n".join([text, *files]), call_id, name, is_error)


_TYPES = ("human", "ai", "system", "tool", "function", "chat")


def matches_langchain(conversation: Any) -> bool:
    """Return whether a value is a list with at least one message in a form of LangChain.

    Such a message has a LangChain type, or is a pair of role and content.
    """
    if not isinstance(conversation, list | tuple):
        return False
    if any(get_field(message, "sessionId") is not None for message in conversation):  # lines of Claude Code
        return False
    return any(isinstance(message, list | tuple) or _is_own(to_record(message)) for message in conversation)


def read_langchain(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read LangChain's messages. Some of the messages may have OpenAI's format."""
    return read_chat(list(conversation), attachments)


def _is_own(message: Any) -> bool:
    kind = get_field(message, "type")
    is_typed = isinstance(kind, str) and kind.removesuffix("MessageChunk").lower() in _TYPES
    return is_typed and (not isinstance(message, Mapping) or "content" in message)


def matches_openai_chat(conversation: Any) -> bool:
    """Return whether a value is a list. A list that no other dialect matches is read as OpenAI's chat messages."""
    return isinstance(conversation, list | tuple)


def read_openai_chat(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read OpenAI's chat messages."""
    return read_chat(list(conversation), attachments)


_ITEMS = (
    "function_call",
    "custom_tool_call",
    "mcp_call",
    "mcp_list_tools",
    "reasoning",
    "compaction",
    *HOSTED_CALLS,
    *RESULTS,
)


def is_item(message: Any) -> bool:
    """Return whether a value is an item of OpenAI's Responses API without a role: a call, a result or reasoning.

    Calls of another format, such as LangChain's, are not items. A list that contains only such calls is read as data
    and not as a conversation.

    Example:
        >>> is_item({"type": "function_call_output", "call_id": "c1", "output": "42"})
        True
    """
    return get_field(message, "role") is None and get_field(message, "type") in _ITEMS


def matches_openai_responses(conversation: Any) -> bool:
    """Return whether a value is a list of items of OpenAI's Responses API: at least one item has no role."""
    return isinstance(conversation, list | tuple) and any(is_item(message) for message in conversation)


def read_openai_responses(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the items of OpenAI's Responses API. Some of the items may be messages."""
    return read_items(((f"messages[{index}]", item) for index, item in enumerate(conversation)), attachments)


def read_items(items: Iterable[tuple[str, Any]], attachments: AttachmentList) -> list[Message]:
    """Read items of OpenAI's Responses API, each with its place for errors.

    Raises:
        ValueError: An item is neither a message nor a call, a result or reasoning.
    """
    messages: list[Message] = []
    # Whether the next call belongs to the last message: it is the assistant's, and has no result yet.
    is_open = False
    for place, item in items:
        if not is_item(item):
            message = read_message(item, place, attachments)
            is_open = message.role == "assistant" and not _has_result(message.parts)
            # The reasoning item before a message belongs to it.
            if message.role == "assistant" and messages and _is_reasoning(messages[-1]):
                message = message._replace(parts=[*messages.pop().parts, *message.parts])
            messages.append(message)
            continue
        parts = read_block(item, place, attachments)
        is_result = bool(parts) and isinstance(parts[0], Result)
        if is_open and any(isinstance(part, Call) for part in parts):
            messages[-1].parts.extend(parts)
            messages[-1] = messages[-1]._replace(place=place)
        else:
            messages.append(Message("tool" if is_result else "assistant", parts, place))
        is_open = not is_result and not _has_result(parts)
    return messages


def _has_result(parts: list[Part]) -> bool:
    return any(isinstance(part, Result) for part in parts)


def _is_reasoning(message: Message) -> bool:
    return message.role == "assistant" and bool(message.parts) and all(_is_note(part) for part in message.parts)


def _is_note(part: Part) -> bool:
    return not isinstance(part, Call | Result) and part.kind == "note"


_NOTES = ("reasoning", "thinking", "compaction")
_CALLS = ("tool_call", "server_tool_call")
_RESULTS = ("tool_call_response", "server_tool_call_response")
_FILES = ("blob", "uri", "file")


_VERCEL_PARTS = ("tool-", "dynamic-tool", "step-start", "source-", "data-")


def is_vercel_part(part: Any) -> bool:
    """Return whether a part belongs to a UI message of the Vercel AI SDK.

    Such a part is a text or reasoning with the content in `text`, or has a `type` that only this SDK uses.

    Example:
        >>> is_vercel_part({"type": "text", "text": "x"}), is_vercel_part({"type": "text", "content": "x"})
        (True, False)
    """
    kind = get_field(part, "type")
    is_text = kind in ("text", "reasoning") and get_field(part, "content") is None
    has_text = is_text and isinstance(get_field(part, "text"), str)
    return isinstance(kind, str) and (has_text or kind.startswith(_VERCEL_PARTS))


def matches_opentelemetry(conversation: Any) -> bool:
    """Return whether a value is a list of OpenTelemetry's GenAI messages: messages whose `parts` have a `type`."""
    if not isinstance(conversation, list | tuple):
        return False
    parts = [get_field(message, "parts") for message in conversation]
    entries = [part for several in parts if isinstance(several, list | tuple) for part in several]
    is_typed = all(isinstance(get_field(part, "type"), str) for part in entries)
    return bool(entries) and is_typed and not any(map(is_vercel_part, entries))


def read_opentelemetry(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read OpenTelemetry's GenAI messages."""
    messages: list[Message] = []
    for index, message in enumerate(conversation):
        place = f"messages[{index}]"
        if get_field(message, "parts") is None:
            messages.append(read_message(message, place, attachments))
            continue
        role, name = read_role(message, place), text_field(message, "name")
        entries = list_field(message, "parts", place)
        parts = [
            _read_opentelemetry_part(part, f"{place}.parts[{number}]", attachments)
            for number, part in enumerate(entries)
        ]
        messages.append(Message(role, parts, place, name))
    return messages


def _read_opentelemetry_part(part: Any, place: str, attachments: AttachmentList) -> Part:
    kind, content = get_field(part, "type"), get_field(part, "content")
    if kind == "text" and isinstance(content, str):
        return Text(content)
    if kind in _NOTES:
        return Text(f"[{kind}]", "note")
    if kind in _CALLS and (name := text_field(part, "name")):
        return Call(name, read_arguments(first_field(part, "arguments", kind)), text_field(part, "id"))
    if kind in _RESULTS:
        response = first_field(part, "response", "result", kind)
        return Result(result_text(response, place, attachments), text_field(part, "id"), text_field(part, "name"))
    if kind in _FILES:
        return attachments.add(part, kind, place)
    raise UnknownBlockError(place, f"is a part of the type {kind!r}, which no reader knows")
