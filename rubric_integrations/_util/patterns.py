"""Compiles and searches regular expressions from rubric files, with limits on memory and time.

Patterns are compiled and searched with the library `regex`, because it supports Python's syntax and a
time limit. Engines without backtracking need no limit, but do not support the lookarounds and back-references that
rubrics use.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import regex

MAX_PATTERN_CHARS = 20_000
"""The largest length of a pattern in characters."""

MAX_PATTERN_SIZE = 100_000
"""The largest size of a pattern in characters, if its repetitions are written out."""

# An escape, a character class, a repetition, a bracket of a group, or any other character.
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\{(?P<least>\d+)(?:,\d*)?\}|(?P<bracket>[()])|.", re.DOTALL
)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile a pattern.

    Raises:
        ValueError: The pattern is not a regular expression, or it is too large, possibly because of its repetitions.

    Example:
        >>> compile_pattern("a{50000000}")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: is a pattern of 50,000,000 characters with its repetitions written out, more than 100,000: ...
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"is a pattern of {len(pattern):,} characters, more than {MAX_PATTERN_CHARS:,}: shorten it")
    if (size := _size_of(pattern)) > MAX_PATTERN_SIZE:
        raise ValueError(
            f"is a pattern of {size:,} characters with its repetitions written out, more than {MAX_PATTERN_SIZE:,}: "
            "use smaller numbers in braces, or it would fill the memory"
        )
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, ValueError) as error:
        raise ValueError(f"is not a regular expression: {error} in {pattern[:80]!r}") from None


def _size_of(pattern: str) -> int:
    """Return the length of a pattern in characters if each repetition is written out with its minimum count.

    The library expands repetitions in this way. Therefore, a pattern of nine characters could fill the memory.
    """
    sizes, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        if token["bracket"] == "(":
            sizes.append(0)
            last = 0
        elif token["bracket"] == ")" and len(sizes) > 1:
            last = 1 + sizes.pop()
            sizes[-1] += last
        elif token["least"]:
            repeated = last * max(1, int(token["least"][:10]))
            sizes[-1] += repeated - last
            last = repeated
        else:
            last = 1
            sizes[-1] += 1
    return sum(sizes)
