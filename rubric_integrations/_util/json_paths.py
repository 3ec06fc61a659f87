"""Dotted paths into JSON data, such as `items.0.name`."""

from __future__ import annotations

import re
import reprlib
from typing import Any, cast

_POSITION = re.compile(r"\[(\d{1,9})\]")


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into keys and positions in lists, from 0; `years.0` and `years[0]` are the same.

    A key that contains a dot cannot be named.

    Example:
        >>> split_path("items[0].name")
        ('items', '0', 'name')
    """
    return tuple(_POSITION.sub(r".\1", path).split("."))


def value_at(data: object, keys: tuple[str, ...]) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: There is none; the message says which part of the path is missing.

    Example:
        >>> value_at({"filters": {"years": [2023, 2024]}}, split_path("filters.years.1"))
        2024
    """
    for key in keys:
        if isinstance(data, dict):
            if key not in data:
                raise LookupError(f"no key {key!r}")
            data = cast("dict[str, Any]", data)[key]
        elif isinstance(data, list | tuple):
            items = cast("list[Any]", data)
            # A position of many digits is beyond every list, and Python would refuse to read it.
            if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(items)):
                raise LookupError(f"no item {key!r} in a list of {len(items)}")
            data = items[int(key)]
        else:
            raise LookupError(f"no {key!r} in {reprlib.repr(data)}")
    return data
