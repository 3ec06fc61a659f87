"""Splits long responses at paragraphs, lines and words, and trajectories between their steps."""

from __future__ import annotations

from collections.abc import Iterator

from rubric_integrations.submission.submission import Submission

# The best boundary first. None of them is looked for in the first half of a part, or the parts would be many.
_BOUNDARIES = ("\n\n", "\n", " ")


def split_response(submission: Submission, chunk_size: int) -> list[str]:
    """Split a response into parts of at most `chunk_size` characters, of which none is blank.

    A response that is the trajectory (`show_trajectory="as_response"`) is split between steps, which keep their
    numbers; a single step that is longer is a part of its own.

    Returns:
        The parts, in order; the response alone if it is short enough.
    """
    response = submission.response
    if len(response) <= chunk_size:
        return [response]
    is_trajectory = submission.show_trajectory == "as_response"
    parts = _split_lines(response, chunk_size) if is_trajectory else _split_text(response, chunk_size)
    return [part for part in parts if part.strip()]


def _split_text(text: str, chunk_size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > chunk_size:
        end = _boundary(text, start, start + chunk_size)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """Return the last position, in the second half of what lies between two, at which a part may end."""
    middle = (start + end) // 2
    for boundary in _BOUNDARIES:
        position = text.rfind(boundary, middle, end)
        if position > -1:
            return position + len(boundary)
    return end


def _split_lines(text: str, chunk_size: int) -> Iterator[str]:
    """Split between lines: JSON escapes the line breaks in a step, so that each step is a line."""
    lines, size = list[str](), 0
    for line in text.split("\n"):
        if lines and size + len(line) > chunk_size:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    yield "\n".join(lines)
