"""Dotted paths into JSON data, such as `filters.years.0`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

MISSING: Final = object()
"""What `value_at` returns if there is no value."""

_POSITION = re.compile(r"\[(\d{1,9})\]")


def value_at(data: object, path: str) -> object:
    """Return the value at a dotted path of keys and of positions in lists, from 0; `MISSING` if there is none.

    `years.0` and `years[0]` are the same. A key that contains a dot cannot be named.

    Example:
        >>> value_at({"filters": {"years": [2023, 2024]}}, "filters.years.1")
        2024
        >>> value_at({"filters": {}}, "filters.years") is MISSING
        True
    """
    for key in _POSITION.sub(r".\1", path).split("."):
        if isinstance(data, Mapping):
            data = cast("Mapping[str, Any]", data).get(key, MISSING)
        elif isinstance(data, list | tuple) and key.isdecimal():
            items = cast("Sequence[Any]", data)
            # A position of many digits is beyond every list, and Python would refuse to read it.
            data = items[int(key)] if len(key) < 10 and int(key) < len(items) else MISSING
        else:
            return MISSING
    return data
