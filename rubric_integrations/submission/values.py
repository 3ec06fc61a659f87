"""The text of a value that a program or a framework returned, as a judge should read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel

from rubric_integrations.submission.messages import is_conversation, render_conversation

ToText = Callable[[object], str | None]
"""The text of a value that a framework defines, such as `dspy.Code`; None for any other value."""


_DATA: tuple[type, ...] = (BaseModel, Mapping, list, tuple, set, frozenset, bool)


def _no_special_type(_value: object) -> None:
    return None


def value_text(value: object, to_text: ToText = _no_special_type) -> str:
    """Return the text of a value: text unchanged, a conversation rendered, data as JSON.

    The Python repr of an object is never what its author wants to be graded: pydantic models and dataclasses become
    JSON objects, also inside lists and dictionaries. None is the empty text.

    Args:
        value: The value.
        to_text: Gives the text of values that a framework defines; called first, also for nested values.

    Example:
        >>> value_text({"answer": 42}), value_text(None)
        ('{"answer": 42}', '')
    """
    special = to_text(value)
    if special is not None:
        return special
    if value is None or isinstance(value, str):
        return value or ""
    if is_conversation(value):
        return render_conversation(cast("list[Any]", value))
    if isinstance(value, BaseModel | Mapping | list | tuple | set | frozenset | bool) or dataclasses.is_dataclass(
        value
    ):

        def plain(nested: object) -> object:
            nested_text = to_text(nested)
            return _plain(nested) if nested_text is None else nested_text

        return json.dumps(_plain(value), ensure_ascii=False, default=plain)
    return str(value)


def _plain(value: object) -> object:
    """Return the fields or items of one value; its nested values are converted in turn."""
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): item for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("set[object]", value)))
    if isinstance(value, list | tuple | bool):
        return cast("object", value)
    return str(value)
