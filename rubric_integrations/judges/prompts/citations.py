"""Parses the numbers of the steps that a judge cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

_STEP = re.compile(r"\s*(?:steps?\s*)?#?(\d{1,9})\s*", re.IGNORECASE)


def parse_citations(value: object) -> list[int]:
    """Parse the numbers of steps, as models write them: a list, one number, or a text such as `steps 2, 5`.

    That the steps exist is for `judges/validation.py` to check.

    Returns:
        The numbers, as the judge wrote them; empty for None and for an empty text.

    Raises:
        ValueError: An entry is no whole number from 0.

    Example:
        >>> parse_citations(["step 3", 5]), parse_citations("steps 2, 5")
        ([3, 5], [2, 5])
    """
    if value is None:
        return []
    if isinstance(value, str):
        entries: Sequence[object] = [part for part in value.strip("[] \n").split(",") if part.strip()]
    else:
        entries = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    return [_number(entry) for entry in entries]


def _number(entry: object) -> int:
    if isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0:
        return entry
    match = _STEP.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        raise ValueError(f"`evidence` has {entry!r}, which is not the number of a step")
    return int(match[1])
