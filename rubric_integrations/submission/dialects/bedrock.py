"""Reads the messages of Amazon Bedrock's Converse API.

A block has no field for its type. Instead, it has one key, whose name is the type, such as `toolUse`. Results are in
the user's messages. A `toolResult` without a `status` does not show whether the tool failed.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    NO_NAME,
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    citation_text,
    data_text,
    get_field,
    list_field,
    read_arguments,
    text_field,
)
from rubric_integrations.submission.dialects.chat import FAILED, read_role, refuse_unread_calls

_FILES = ("image", "document", "video", "audio")
_KEYS = (*_FILES, "text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "cachePoint",
         "guardContent", "searchResult")  # fmt: skip


def matches_bedrock(conversation: Any) -> bool:
    """Return whether a value is a list of Bedrock's messages.

    The blocks of such messages have no `type`, and have the keys of Bedrock's API.
    """
    if not isinstance(conversation, list | tuple) or not conversation:
        return False
    blocks: list[Any] = []
    for message in cast("list[Any]", conversation):
        content = message.get("content") if isinstance(message, Mapping) and "role" in message else None
        if not isinstance(content, list):
            return False
        blocks += cast("list[Any]", content)
    is_untyped = all(isinstance(block, Mapping) and "type" not in block for block in blocks)
    return is_untyped and any(key in block for block in blocks for key in _KEYS)


def read_bedrock(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the messages of Bedrock's Converse API."""
    messages: list[Message] = []
    for index, message in enumerate(conversation):
        place = f"messages[{index}]"
        refuse_unread_calls(message, place, ())
        blocks = enumerate(message["content"])
        parts = [
            part for number, block in blocks for part in _read_block(block, f"{place}.content[{number}]", attachments)
        ]
        messages.append(Message(read_role(message, place), parts, place))
    return messages


def _read_block(block: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read one content block of Bedrock."""
    if not isinstance(block, Mapping) or len(cast("Mapping[str, Any]", block)) != 1:
        raise UnknownBlockError(place, f"is {short_repr(block)}, and a block of Bedrock has one key")
    ((kind, value),) = cast("Mapping[str, Any]", block).items()
    if kind == "text" and isinstance(value, str):
        return [Text(value)]
    if kind == "toolUse":
        call_id = text_field(value, "toolUseId")
        return [Call(text_field(value, "name") or NO_NAME, read_arguments(get_field(value, "input")), call_id)]
    if kind == "toolResult":
        return [_read_result(value, place, attachments)]
    if kind == "reasoningContent":
        return [Text("[reasoning]", "note")]
    if kind == "cachePoint":
        return []
    if kind == "citationsContent":
        texts = [text_field(part, "text") or "" for part in list_field(value, "content", place)]
        citations = "".join(_citation(citation, place) for citation in list_field(value, "citations", place))
        return [Text("".join(texts) + citations)]
    if kind in _FILES:
        source = get_field(value, "source")
        mime_type, _ = mimetypes.guess_type(f"file.{get_field(value, 'format')}")
        return [attachments.add({"data": get_field(source, "bytes"), "mime_type": mime_type}, kind, place)]
    raise UnknownBlockError(place, f"is a block with the key {kind!r}, which no reader knows")


def _citation(citation: Any, place: str) -> str:
    texts = [text_field(part, "text") or "" for part in list_field(citation, "sourceContent", place)]
    web = get_field(get_field(citation, "location"), "web")
    fields = {"cited_text": "".join(texts), "title": get_field(citation, "title"),
              "source": get_field(citation, "source"), "url": get_field(web, "url")}  # fmt: skip
    return citation_text(fields)


def _read_result(result: Any, place: str, attachments: AttachmentList) -> Result:
    texts: list[str] = []
    for number, block in enumerate(list_field(result, "content", place)):
        value = get_field(block, "json")
        if value is not None:
            texts.append(value if isinstance(value, str) else data_text(value))
            continue
        parts = _read_block(block, f"{place}.toolResult.content[{number}]", attachments)
        texts += [part.text for part in parts if isinstance(part, Text)]
    is_error = FAILED.get(text_field(result, "status") or "")
    return Result("\n".join(texts), text_field(result, "toolUseId"), is_error=is_error)
