"""Reads dates, numbers and URLs in ordinary text, formats counts, escapes text for logs, and caches functions of texts.

Numbers may be written as `1,234.5`, `-3`, `17.2%`, `$40` or `12 ms`. An ambiguous date is an error. Parts of URLs that
may contain secrets are removed. The cache keeps no long texts in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from functools import lru_cache, wraps
from typing import NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlsplit

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[t ][\d:.,+z-]{1,40})?", re.ASCII)
_DAY_FIRST = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})", re.ASCII)
_SLASHES = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})", re.ASCII)
_DAY_AND_NAME = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?[ .-]{1,2}([a-z]{3,9})\.?,?[ -](\d{4})", re.ASCII)
_NAME_AND_DAY = re.compile(r"([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})", re.ASCII)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Example:
        >>> counted(1, "row"), counted(2000, "row"), counted(0, "criterion", "criteria")
        ('1 row', '2,000 rows', '0 criteria')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def percent(share: float) -> str:
    """Return a share, such as the level of an interval, as a percentage with all its digits.

    Example:
        >>> percent(0.95), percent(0.975), percent(1 - 0.001)
        ('95%', '97.5%', '99.9%')
    """
    return f"{100 * share:.6g}%"


def decimal(value: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with so many digits after the point. A number that rounds to 0 has no minus sign.

    Example:
        >>> decimal(-0.0025, 2), decimal(-0.0025, 2, signed=True), decimal(-0.0025, 3)
        ('0.00', '+0.00', '-0.003')
    """
    return f"{value:{'+' if signed else ''}z.{digits}f}"


def read_date(text: str) -> date:
    """Read a date such as `2024-12-31`, `31.12.2024`, `12/31/2024`, `31 Dec 2024` or `December 31, 2024`.

    A time after an ISO date is ignored, including its time zone. Names of months must be English.

    Raises:
        ValueError: The text is not a date in one of these forms, or it is ambiguous, such as `03/04/2024`. The message
            is a predicate of the text.

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
    """Return the year, the month and the day of a date in one of the known forms."""
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


_NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>(?<![\d)])[-+\u2212])?(?P<currency>[$€£¥])?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?P<fraction>\.\d+)?(?P<exponent>[eE][-+]?\d{1,3})?"
    r"(?P<percent>\s?%)?(?!\w|[.,]\d)"
)


class Quantity(NamedTuple):
    """A number in a text, with its unit.

    Attributes:
        value: The number as it is written: 17.2 for `17.2%`, not 0.172.
        unit: `"%"`, a currency sign, or `""` if there is neither.
    """

    value: float
    unit: str


def read_quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text, in order.

    Digits inside a word (`Q4`, `v2`) are not numbers. A minus after a digit is the dash of a range (`3-4`), not a sign.

    Example:
        >>> list(read_quantities("about 17.2% of 1,234.5"))
        [Quantity(value=17.2, unit='%'), Quantity(value=1234.5, unit='')]
    """
    for match in _NUMBER.finditer(text):
        sign, currency, digits, fraction, exponent, percent = match.groups("")
        if fraction or exponent or "," in digits:
            digits = digits.replace(",", "") + fraction + exponent
        value = float(digits)
        yield Quantity(-value if sign and sign != "+" else value, "%" if percent else currency)


P = ParamSpec("P")
T = TypeVar("T")

# Longer texts are not cached, because a few hundred of them would fill the memory.
MAX_CACHED_CHARS = 50_000

_MAX_ENTRIES = 512


class _TooLongError(Exception):
    """Raised when the texts are too long to be cached."""


def cache_by_text(function: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function whose arguments are texts or None. Results for long texts are not cached.

    All questions about one submission share its texts. With the cache, each text is rendered and searched only once,
    not for every criterion. Results for more than 50,000 characters in total are not cached. The cache keeps 512
    results. The attribute `cached_function` is the `functools.lru_cache` object.

    Example:
        >>> cache_by_text(str.upper)("a")
        'A'
    """

    @lru_cache(maxsize=_MAX_ENTRIES)
    def cached(*texts: P.args, **no_keywords: P.kwargs) -> T:
        if sum(map(len, filter(None, texts))) > MAX_CACHED_CHARS:  # pyright: ignore[reportArgumentType]
            raise _TooLongError
        return function(*texts)  # pyright: ignore[reportCallIssue]

    @wraps(function)
    def call(*texts: P.args, **no_keywords: P.kwargs) -> T:
        try:
            return cached(*texts)
        except _TooLongError:
            # An exception is not cached. The length of texts that are in the cache is not computed again.
            return function(*texts)  # pyright: ignore[reportCallIssue]

    call.__dict__["cached_function"] = cached
    return call


def one_line(text: str) -> str:
    r"""Replace line breaks, control characters and other characters that are not printable by their escapes.

    Otherwise, text from outside could move the cursor, or begin a line with a command for the CI system, such as
    `::error::` in the log of a build.

    Example:
        >>> one_line("a\n::error::b\x1b[2J")
        'a\\n::error::b\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def url_without_secrets(url: str) -> str:
    """Return a URL without its user, password, query and fragment.

    Example:
        >>> url_without_secrets("https://me:password@host/v1?key=secret")
        'https://host/v1'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # such as an unclosed bracket
        return "URL"
    if not parts.netloc:
        return parts.path.rpartition("@")[2]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
