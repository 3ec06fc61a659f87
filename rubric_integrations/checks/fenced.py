"""The fenced blocks of a response in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)")


class FencedBlock(NamedTuple):
    """A fenced block that is closed.

    Attributes:
        language: The first word after the opening fence, in lower case; empty if there is none.
        first_line: The number of the block's first line of text in the response, from 1.
        lines: Its lines.
    """

    language: str
    first_line: int
    lines: tuple[str, ...]


def fenced_blocks(text: str) -> Iterator[FencedBlock]:
    r"""Yield the fenced blocks of a text; one that is not closed is cut off, and left out.

    Example:
        >>> [block.lines for block in fenced_blocks("Here:\n```python\nx = 1\n```")]
        [('x = 1',)]
    """
    opening: re.Match[str] | None = None
    start = 0
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if opening is None:
            # Three backticks and text with another one in the same line are code within a sentence.
            if fence and not (fence["marks"][0] == "`" and "`" in line[fence.end("marks") :]):
                opening, start = fence, number
        elif fence and fence["marks"].startswith(opening["marks"]) and line.strip() == fence["marks"]:
            yield FencedBlock(opening["language"].lower(), start + 1, tuple(lines[start : number - 1]))
            opening = None
