"""The text of a field of a DSPy example or prediction, as a judge should read it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import dspy

from rubric_integrations._util.json_lines import json_lines
from rubric_integrations.dspy.attached_values import AttachedValues
from rubric_integrations.submission.values import plain_value, value_text

# The kinds of content parts that are not text, and the name that stands for them in a judge's prompt.
_BINARY_PARTS = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "document",
}  # fmt: skip


def field_text(value: object, files: AttachedValues | None = None) -> str:
    """Return the text of a field's value: text unchanged, `dspy.Code` as its code, data as JSON, never a Python repr.

    An image is written as `[image]`, and other binary values as `[audio]`, `[video]`, `[file]` or `[document]`, also
    inside lists, dictionaries and pydantic models: base64 would fill a judge's prompt.

    Args:
        value: The value.
        files: Collects the values of `dspy.Image`, `dspy.Audio` and `dspy.File`, and gives each its `[attachment 1]`.

    Example:
        >>> field_text(dspy.Code(code="print(42)")), field_text({"chart": dspy.Image("data:image/png;base64,AAAA")})
        ('print(42)', '{"chart": "[image]"}')
    """
    simplify = partial(_simplify, files)
    if isinstance(value, dspy.History):
        return json_lines([plain_value(message, simplify) for message in value.messages])
    return value_text(value, simplify)


def _simplify(files: AttachedValues | None, value: object) -> object | None:
    """The text or the fields of a value of DSPy's types; None for any other."""
    if isinstance(value, dspy.Example):
        return dict(value.items())
    if not isinstance(value, dspy.Type):
        return None
    return (files and files.add(value)) or _type_text(value)


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
