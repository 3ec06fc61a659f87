"""Parses numbers in ordinary text: `1,234.5`, `-3`, `17.2%`, `$40`, `12 ms`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>(?<![\d)])[-+\u2212])?(?P<currency>[$€£¥])?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?P<fraction>\.\d+)?(?P<exponent>[eE][-+]?\d{1,3})?"
    r"(?P<percent>\s?%)?(?!\w|[.,]\d)"
)


class Quantity(NamedTuple):
    """A number in a text, with its unit.

    Attributes:
        value: The number as written; 17.2 for `17.2%`, not 0.172.
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
