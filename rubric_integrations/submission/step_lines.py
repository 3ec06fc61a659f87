"""The numbered lines of a step: its author, its content, and each call with its arguments and its result.

Lines of more than 400 characters are split. Therefore, every character of a trajectory has a line by which it can be
read, searched and copied.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from rubric_integrations.submission.selection import LineRange
from rubric_integrations.submission.steps import Step, ToolCall

LINE_CHARS = 400
"""The most characters of a line. The rest of a longer line is on the following lines."""

# Lines that are searched together. Together with the tail of the lines before, they are one text.
_LINES_AT_ONCE = 512
_BLOCK_CHARS = 65_536
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CUT_ESCAPE = re.compile(r"(\\+)(?:u[0-9a-fA-F]{0,3})?\Z")


class StepField(NamedTuple):
    """A text of a step.

    Attributes:
        name: `author`, `content`, `call` (the name of a tool with its arguments) or `result`.
        call: The position of the call in the step, from 0. -1 for the author and the content.
        text: The text.
    """

    name: str
    call: int
    text: str


def step_fields(step: Step) -> Iterator[StepField]:
    """Yield the texts of a step in the order of its lines.

    Example:
        >>> [field.name for field in step_fields(Step(role="user", text="Hello"))]
        ['content']
    """
    if step.name:
        yield StepField("author", -1, step.name)
    if step.text or not step.calls:
        yield StepField("content", -1, step.text)
    for number, call in enumerate(step.calls):
        arguments = call.arguments
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        yield StepField("call", number, f"{call.name} {arguments or ''}".rstrip())
        if call.result is not None:
            yield StepField("result", number, call.result)


def count_characters(step: Step) -> int:
    """Return the number of characters of a step that can be read."""
    return sum(len(field.text) for field in step_fields(step))


def line_spans(text: str) -> Iterator[tuple[int, int]]:
    r"""Yield the position of each line of a text, without its line break. Long lines are split.

    Example:
        >>> list(line_spans("one\ntwo"))
        [(0, 3), (4, 7)]
    """
    start = 0
    while True:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        for position in range(start, max(end, start + 1), LINE_CHARS):
            yield position, min(position + LINE_CHARS, end)
        if end == len(text):
            return
        start = end + 1


def count_lines(step: Step) -> int:
    """Return the number of lines of a step."""
    return sum(1 for field in step_fields(step) for _ in line_spans(field.text))


class StepLine(NamedTuple):
    """One line of a step: its number, its field and the text."""

    number: int
    field: StepField
    text: str


def step_lines(step: Step, first: int = 1) -> Iterator[StepLine]:
    """Yield the lines of a step, from the line with the number `first` on."""
    number = 0
    for field in step_fields(step):
        for start, end in line_spans(field.text):
            number += 1
            if number >= first:
                yield StepLine(number, field, field.text[start:end])


class _Stream:
    """The folded text of consecutive lines, in which matches are looked up by line.

    Line breaks and other white space are one space. The parts of a long line are joined without a space. Different
    fields are separated by a line break, which no search contains.
    """

    def __init__(self, keep: int):
        self._keep = keep
        self._parts: list[str] = []
        self._starts: list[int] = []
        self._numbers: list[int] = []
        self._length = 0
        self._ends_in_space = True

    def add(self, number: int, text: str, separator: str) -> None:
        """Append a line."""
        folded = " ".join(text.split()).casefold()
        if separator == "" and not self._ends_in_space and text[:1].isspace():
            separator = " "
        elif separator == " " and self._ends_in_space:
            separator = ""
        self._starts.append(self._length + len(separator))
        self._numbers.append(number)
        part = separator + folded
        if text and text[-1:].isspace() and folded:
            part += " "
        self._ends_in_space = (not part and self._ends_in_space) or part.endswith((" ", "\n"))
        self._parts.append(part)
        self._length += len(part)

    @property
    def size(self) -> int:
        """The number of lines."""
        return len(self._numbers)

    def matches(self, wanted: str) -> Iterator[int]:
        """Yield the number of the line in which each match begins, and forget all but the last characters."""
        text = "".join(self._parts)
        position = text.find(wanted)
        while position >= 0:
            index = max(bisect_right(self._starts, position) - 1, 0)
            yield self._numbers[index]
            # One match for each line: a line of one repeated character would have hundreds.
            following = self._starts[index + 1] if index + 1 < len(self._starts) else len(text)
            position = text.find(wanted, max(position + 1, following))
        # A match that begins before this position has ended in this text.
        kept = max(len(text) - self._keep, 0)
        index = max(bisect_right(self._starts, kept) - 1, 0)
        self._numbers = self._numbers[index:]
        self._starts = [max(start - kept, 0) for start in self._starts[index:]]
        self._parts, self._length = [text[kept:]], len(text) - kept


def fold_search(text: str) -> str:
    """Return a text in the form in which it is searched: in lower case and with single spaces.

    Example:
        >>> fold_search("  Exit  CODE 1 ")
        'exit code 1'
    """
    return " ".join(text.split()).casefold()


def matching_lines(step: Step, wanted: str) -> list[int]:
    r"""Return the numbers of the lines of a step in which a text begins, without regard to case and white space.

    The arguments of calls and many results are JSON, in which a quotation mark and a line break are escaped. Therefore,
    a text is found both as it is written and without these escapes.

    Args:
        step: The step.
        wanted: The text, from `fold_search`. It is searched literally, in one pass.

    Example:
        >>> matching_lines(Step(role="tool", text="Exit\ncode 1"), "exit code")
        [1]
    """
    if not _may_match(step, wanted):
        return []
    numbers = set(_matches(step, wanted, is_unescaped=False))
    if any("\\" in field.text for field in step_fields(step)):
        numbers.update(_matches(step, wanted, is_unescaped=True))
    return sorted(numbers)


def _matches(step: Step, wanted: str, *, is_unescaped: bool) -> Iterator[int]:
    """Yield the numbers of the lines in which a text begins, as written or without the escapes of JSON."""
    stream, number = _Stream(len(wanted) - 1), 0
    for field in step_fields(step):
        last_end, rest = 0, ""
        for start, end in line_spans(field.text):
            number += 1
            text = rest + field.text[start:end]
            if is_unescaped:
                text, rest = _unescape(text, is_cut=field.text[end : end + 1] not in ("", "\n"))
            stream.add(number, text, "\n" if start == 0 else " " if start > last_end else "")
            last_end = end
            if stream.size >= _LINES_AT_ONCE:
                yield from stream.matches(wanted)
    yield from stream.matches(wanted)


def _unescape(text: str, *, is_cut: bool) -> tuple[str, str]:
    r"""Return a text without the escapes of JSON, and the beginning of an escape at its end if the text is cut there.

    Example:
        >>> _unescape('say \\"hi\\"\\u00', is_cut=True)
        ('say "hi"', '\\u00')
    """
    end = len(text)
    if is_cut and (match := _CUT_ESCAPE.search(text)) is not None and len(match[1]) % 2:
        end = match.end(1) - 1
    return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1]) or chr(int(escape[1][1:], 16)), text[:end]), text[end:]


def _may_match(step: Step, wanted: str) -> bool:
    """Whether a step contains a text. Without the numbers of lines, long texts are searched ten times as fast."""
    written, unescaped = _Stream(len(wanted) - 1), _Stream(len(wanted) - 1)
    for field in step_fields(step):
        has_escapes, rest = "\\" in field.text, ""
        for start in range(0, max(len(field.text), 1), _BLOCK_CHARS):
            block, separator = field.text[start : start + _BLOCK_CHARS], "" if start else "\n"
            written.add(0, block, separator)
            if next(written.matches(wanted), None) is not None:
                return True
            if has_escapes:
                block, rest = _unescape(rest + block, is_cut=start + _BLOCK_CHARS < len(field.text))
                unescaped.add(0, block, separator)
                if next(unescaped.matches(wanted), None) is not None:
                    return True
    return False


def merge_ranges(ranges: Sequence[LineRange]) -> list[LineRange]:
    """Sort ranges of lines, and join those that overlap or touch."""
    merged: list[LineRange] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def with_commands(step: Step, ranges: list[LineRange]) -> list[LineRange]:
    """Add the line of each short call with a chosen line of its result. A result alone does not say what was called."""
    number, command, added = 1, (0, 0), list[LineRange]()
    for field in step_fields(step):
        last = number + sum(1 for _ in line_spans(field.text)) - 1
        if field.name == "call":
            command = (number, last)
        elif field.name == "result" and command[0] == command[1]:
            added += [command] if any(begin <= last and end >= number for begin, end in ranges) else []
        number = last + 1
    return merge_ranges([*ranges, *added])


def _contains(ranges: Sequence[LineRange], number: int) -> bool:
    index = bisect_right(ranges, (number, cast("int", float("inf")))) - 1
    return index >= 0 and ranges[index][0] <= number <= ranges[index][1]


def count_chosen(step: Step, ranges: Sequence[LineRange]) -> int:
    """Return the number of characters of a step in some ranges of lines."""
    return sum(len(line.text) for line in step_lines(step) if _contains(ranges, line.number))


def cut_step(step: Step, ranges: Sequence[LineRange]) -> Step:
    r"""Return a step with only some of its lines. A note such as `[lines 1 to 99 not shown]` stands for the others.

    Args:
        step: The complete step.
        ranges: The first and the last line of each range, in order.

    Example:
        >>> print(cut_step(Step(role="user", text="one\ntwo\nthree"), [(2, 2)]).text)
        [line 1 not shown]
        two
        [line 3 not shown]
    """
    number, texts = 1, dict[tuple[str, int], _CutText]()
    for field in step_fields(step):
        texts[field.name, field.call] = cut = _cut(field.text, number, ranges)
        number += cut.lines
    calls: list[ToolCall] = []
    for position, call in enumerate(step.calls):
        command, result = texts["call", position], texts.get(("result", position))
        if not command.is_shown and not (result and result.is_shown):
            continue
        changes: dict[str, Any] = {"name": call.name[:LINE_CHARS]}
        if command.omitted:
            changes["arguments"] = command.text
        if result is not None and result.omitted:
            changes |= {"result": result.text, "omitted": call.omitted + result.omitted}
        calls.append(call.model_copy(update=changes))
    content = texts.get(("content", -1))
    text = step.text if content is None or not content.omitted else content.text
    if left_out := len(step.calls) - len(calls):
        text = "\n".join(filter(None, (text, f"[{left_out} {'call' if left_out == 1 else 'calls'} not shown]")))
    name = step.name and step.name[:LINE_CHARS]
    return step.model_copy(update={"text": text, "name": name, "calls": tuple(calls)})


class _CutText(NamedTuple):
    """The chosen lines of a text with notes.

    Attributes:
        text: The chosen lines, and a note for each range of lines between them.
        omitted: The number of characters that are left out.
        lines: The number of all lines.
        is_shown: Whether any line is chosen.
    """

    text: str
    omitted: int
    lines: int
    is_shown: bool


def _cut(text: str, first: int, ranges: Sequence[LineRange]) -> _CutText:
    """Copy the chosen lines of a text.

    Args:
        text: The text.
        first: The number of its first line in its step.
        ranges: The chosen ranges of lines of the step.
    """
    pieces: list[str] = []
    number, omitted, begin, end, gap = first, 0, -1, 0, 0
    is_shown = False
    for start, stop in line_spans(text):
        if _contains(ranges, number):
            if gap:
                pieces.append(_gap_note(gap, number - 1))
            begin, gap, is_shown = (start if begin < 0 else begin), 0, True
            end = stop
        else:
            if begin >= 0:
                pieces.append(text[begin:end])
            begin, gap = -1, gap or number
            omitted += stop - start
        number += 1
    if begin >= 0:
        pieces.append(text[begin:end])
    if gap:
        pieces.append(_gap_note(gap, number - 1))
    return _CutText("\n".join(pieces), omitted, number - first, is_shown)


def _gap_note(first: int, last: int) -> str:
    return f"[line {first} not shown]" if first == last else f"[lines {first} to {last} not shown]"
