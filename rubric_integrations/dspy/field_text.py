"""The text of a field of a DSPy example or prediction, as a judge should read it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

import dspy
from pydantic import BaseModel, RootModel

from rubric_integrations.submission.messages import is_conversation, json_lines
from rubric_integrations.submission.values import value_text

# The kinds of content parts that are not text, and the name that stands for them in a judge's prompt.
_BINARY_PARTS = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "document",
}  # fmt: skip

_DATA_URI = re.compile(r"\s*data:(\w+)/[^,\s]*;base64,[\w+/=\s%-]*")


def field_text(value: object) -> str:
    """Return the text of a field's value: text unchanged, `dspy.Code` as its code, data as JSON, never a Python repr.

    An image is written as `[image]`, and other binary values as `[audio]`, `[video]`, `[file]` or `[document]`, also
    inside lists, dictionaries and pydantic models: a judge reads text, and base64 would fill its prompt.

    Example:
        >>> field_text(dspy.Code(code="print(42)")), field_text({"chart": dspy.Image("data:image/png;base64,AAAA")})
        ('print(42)', '{"chart": "[image]"}')
    """
    if isinstance(value, dspy.History):
        return json_lines([_plain_fields(message) for message in value.messages])
    # Messages are rendered with their roles; as a list of plain dictionaries they would lose those of LangChain.
    return value_text(value if is_conversation(value) else _plain(value))


def _plain(value: object) -> object:
    """Convert a value, and all values in it, to what JSON can represent."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, str):
        data_uri = _DATA_URI.fullmatch(value)
        return f"[{_BINARY_PARTS.get(data_uri[1], 'file')}]" if data_uri else value
    if isinstance(value, bytes | bytearray | memoryview):
        return "[binary]"
    if type(value).__module__.partition(".")[0] == "PIL":
        return "[image]"
    if isinstance(value, dspy.Type) and (text := _type_text(value)) is not None:
        return text
    if isinstance(value, RootModel):
        return _plain(cast("RootModel[object]", value).root)
    if isinstance(value, BaseModel):
        return _plain_fields(dict(value))
    if isinstance(value, dspy.Example):
        return _plain_fields(dict(value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return _plain_fields(cast("Mapping[object, object]", value))
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, cast("set[object]", value)), key=str)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    return value


def _plain_fields(fields: Mapping[Any, object]) -> dict[str, object]:
    return {str(name.value if isinstance(name, Enum) else name): _plain(value) for name, value in fields.items()}


def _type_text(value: dspy.Type) -> str | None:
    """The text of a value of DSPy's types, or of a user's subclass; None for one that holds data, such as citations."""
    if isinstance(value, dspy.Image):
        return "[image]"
    if isinstance(value, dspy.Audio):
        return "[audio]"
    try:
        content = cast("object", value.format())
    except (NotImplementedError, ValueError):  # Types that hold data do not implement it.
        return None
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [_part_text(part) for part in cast("list[object]", content)]
    return "\n".join(text for text in texts if text is not None) if texts and None not in texts else None


def _part_text(part: object) -> str | None:
    """The text of a content part that DSPy would send; None for a part that is neither text nor binary."""
    if not isinstance(part, Mapping):
        return None
    content = cast("Mapping[str, Any]", part)
    kind, source = content.get("type"), content.get("source")
    if kind == "text":
        return str(content.get("text", ""))
    # The source of a document may be text, which its fields hold too, with the title.
    is_text = isinstance(source, Mapping) and cast("Mapping[str, Any]", source).get("type") == "text"
    return f"[{_BINARY_PARTS[kind]}]" if kind in _BINARY_PARTS and not is_text else None
