"""Reads dates in the usual forms, without guessing which number of an ambiguous one is the day."""

from __future__ import annotations

import re
from datetime import date

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[t ][\d:.,+z-]{1,40})?", re.ASCII)
_DAY_FIRST = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})", re.ASCII)
_SLASHES = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})", re.ASCII)
_DAY_AND_NAME = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?[ .-]{1,2}([a-z]{3,9})\.?,?[ -](\d{4})", re.ASCII)
_NAME_AND_DAY = re.compile(r"([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})", re.ASCII)


def read_date(text: str) -> date:
    """Read a date such as `2024-12-31`, `31.12.2024`, `12/31/2024`, `31 Dec 2024` or `December 31, 2024`.

    A time after an ISO date is ignored, with its time zone: the date is the one that is written. Names of months are
    English.

    Raises:
        ValueError: The text is no date in one of these forms, or its day and month can be exchanged, as in
            `03/04/2024`. The message continues a sentence about the text.

    Example:
        >>> read_date("Dec 31, 2024")
        datetime.date(2024, 12, 31)
    """
    year, month, day = _parts(text.strip().lower())
    try:
        return date(year, month, day)
    except ValueError:
        raise ValueError("is not a date of the calendar") from None


def _parts(text: str) -> tuple[int, int, int]:
    if match := _ISO.fullmatch(text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := _DAY_FIRST.fullmatch(text):
        return int(match[3]), int(match[2]), int(match[1])
    if match := _DAY_AND_NAME.fullmatch(text):
        return int(match[3]), _month(match[2]), int(match[1])
    if match := _NAME_AND_DAY.fullmatch(text):
        return int(match[3]), _month(match[1]), int(match[2])
    if match := _SLASHES.fullmatch(text):
        first, second, year = int(match[1]), int(match[2]), int(match[3])
        if first != second and first <= 12 and second <= 12:
            raise ValueError("is ambiguous: either number can be the month")
        return (year, second, first) if first > 12 else (year, first, second)
    raise ValueError("is not a date in a form that is read, such as 2024-12-31 or Dec 31, 2024")


def _month(name: str) -> int:
    for number, full_name in enumerate(_MONTHS, start=1):
        if full_name.startswith(name):
            return number
    raise ValueError(f"has no English name of a month, but {name!r}")
