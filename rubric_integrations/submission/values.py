"""The text of a value that a program or a framework returned, as a judge should read it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel, RootModel

from rubric_integrations.submission.messages import is_conversation, render_conversation

Simplify = Callable[[object], object | None]
"""Returns the text or the fields of a value that a framework defines, such as `dspy.Code`; None for any other value."""

_DATA_URI = re.compile(r"\s*data:(\w+)/[^,\s]*;base64,[\w+/=\s%-]*")
_MEDIA = ("image", "audio", "video")


def _no_special_type(_value: object) -> None:
    return None


def value_text(value: object, simplify: Simplify = _no_special_type) -> str:
    """Return the text of a value: text unchanged, a conversation rendered, data as JSON. None is the empty text.

    The value is converted as by `plain_value`.

    Args:
        value: The value.
        simplify: Simplifies the values of a framework; called first, also for nested values.

    Example:
        >>> value_text({"answer": 42}), value_text(None)
        ('{"answer": 42}', '')
    """
    if simplify(value) is None and is_conversation(value):
        return render_conversation(cast("list[Any]", value), files_as_placeholders=True)
    plain = plain_value(value, simplify)
    if plain is None or isinstance(plain, str):
        return plain or ""
    return json.dumps(plain, ensure_ascii=False, default=str) if isinstance(plain, dict | list | bool) else str(plain)


def plain_value(value: object, simplify: Simplify = _no_special_type) -> Any:
    """Convert a value, and all values in it, to what JSON can represent.

    The Python repr of an object is never what its author wants to be graded: pydantic models and dataclasses become
    dictionaries, enums their values, sets sorted lists, and keys texts. Binary values and base64 become placeholders
    such as `[image]`: a judge reads text, and base64 would fill its prompt. Values such as dates remain.

    Example:
        >>> plain_value({(1, 2): {b"x"}})
        {'(1, 2)': ['[binary]']}
    """
    simple = simplify(value)
    if simple is not None:
        return simple if isinstance(simple, str) else plain_value(simple, simplify)
    if isinstance(value, Enum):
        return plain_value(value.value, simplify)
    if isinstance(value, str):
        data_uri = _DATA_URI.fullmatch(value)
        return value if data_uri is None else f"[{data_uri[1] if data_uri[1] in _MEDIA else 'file'}]"
    if isinstance(value, bytes | bytearray | memoryview):
        return "[binary]"
    if type(value).__module__.partition(".")[0] == "PIL":
        return "[image]"
    if isinstance(value, RootModel):
        return plain_value(cast("RootModel[object]", value).root, simplify)
    fields = _fields(value)
    if fields is not None:
        return {
            str(name.value if isinstance(name, Enum) else name): plain_value(item, simplify)
            for name, item in fields.items()
        }
    if isinstance(value, set | frozenset):
        return sorted((plain_value(item, simplify) for item in cast("set[object]", value)), key=str)
    if isinstance(value, list | tuple):
        return [plain_value(item, simplify) for item in cast("list[object]", value)]
    return value


def _fields(value: object) -> Mapping[Any, object] | None:
    """Return the fields of a model, a dataclass or a mapping; None for any other value."""
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return cast("Mapping[Any, object]", value) if isinstance(value, Mapping) else None
