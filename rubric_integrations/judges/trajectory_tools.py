"""The tools with which an explorer reads a long trajectory: `list`, `read`, `search` and `submit`.

A step is read as numbered lines: its content, and each call with its arguments and its result. Longer lines are split
after 400 characters. Therefore, every character of a trajectory has a line that can be read, searched and submitted.

The result of a tool is a JSON object. JSON escapes line breaks, so the text of a step cannot imitate the result of a
tool. The steps that judges see are copied from the trajectory by the submitted numbers. The explorer's model writes no
text that judges see, except the searches that found nothing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import Field, StrictInt, StrictStr, ValidationError

from rubric_integrations._util.records import Record, encodable
from rubric_integrations.submission.selection import ShownStep, StepSelection
from rubric_integrations.submission.steps import Step, ToolCall
from rubric_integrations.submission.trajectory import Trajectory

LINE_CHARS = 400
"""The most characters of a line. The rest of a longer line is on the following lines."""

# Lines that are searched together. Together with the tail of the lines before, they are one text.
_LINES_AT_ONCE = 512
_BLOCK_CHARS = 65_536
_LONGEST_SEARCH = 200
# The most calls of one reply that get a result each.
_MOST_RESULTS = 20
_LONGEST_VALUE = 80
_PLACE = re.compile(r"\s*(\d{1,9})\s*:\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", re.ASCII)


class ExplorerLimits(Record):
    """The limits of one exploration.

    Attributes:
        max_requests: The most requests to the explorer's model, at least 1. Default 8. The last one may only submit.
        max_tool_calls: The most calls of the tools `list`, `read` and `search`, at least 1. Default 16. Further calls
            are not executed. `submit` is not counted.
        max_observation_chars: The most characters of the result of one tool call, at least 4,000. Default 8,000.
        max_shown_chars: The most characters of the steps that the explorer may choose in all, at least 1,000. Default
            50,000. Steps that exceed it are not added to the selection, and the explorer gets an error as the result.

    Example:
        >>> ExplorerLimits(max_requests=4).max_tool_calls
        16
    """

    max_requests: int = Field(default=8, ge=1, strict=True)
    max_tool_calls: int = Field(default=16, ge=1, strict=True)
    max_observation_chars: int = Field(default=8_000, ge=4_000, strict=True)
    max_shown_chars: int = Field(default=50_000, ge=1_000, strict=True)


class ToolRequest(NamedTuple):
    """A call of a tool that a model has written. Neither the name nor the arguments are checked yet."""

    name: str
    arguments: Mapping[str, Any]


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


class _Line(NamedTuple):
    """One line of a step: its number, its field and the text."""

    number: int
    field: StepField
    text: str


def _lines(step: Step, first: int = 1) -> Iterator[_Line]:
    """Yield the lines of a step, from the line with the number `first` on."""
    number = 0
    for field in step_fields(step):
        for start, end in line_spans(field.text):
            number += 1
            if number >= first:
                yield _Line(number, field, field.text[start:end])


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

    Args:
        step: The step.
        wanted: The text, from `fold_search`. It is searched literally, in one pass.

    Example:
        >>> matching_lines(Step(role="tool", text="Exit\ncode 1"), "exit code")
        [1]
    """
    if not _may_match(step, wanted):
        return []
    stream, numbers, number = _Stream(len(wanted) - 1), dict[int, None](), 0
    for field in step_fields(step):
        separator, last_end = "\n", 0
        for start, end in line_spans(field.text):
            number += 1
            stream.add(number, field.text[start:end], separator if start == 0 else " " if start > last_end else "")
            last_end = end
            if stream.size >= _LINES_AT_ONCE:
                numbers.update(dict.fromkeys(stream.matches(wanted)))
    numbers.update(dict.fromkeys(stream.matches(wanted)))
    return list(numbers)


def _may_match(step: Step, wanted: str) -> bool:
    """Whether a step contains a text. Without the numbers of lines, long texts are searched ten times as fast."""
    stream = _Stream(len(wanted) - 1)
    for field in step_fields(step):
        for start in range(0, max(len(field.text), 1), _BLOCK_CHARS):
            stream.add(0, field.text[start : start + _BLOCK_CHARS], "" if start else "\n")
            if next(stream.matches(wanted), None) is not None:
                return True
    return False


class ListArguments(Record):
    """Arguments of `list`."""

    first_step: int = Field(default=1, ge=1, strict=True)


class ReadArguments(Record):
    """Arguments of `read`."""

    step: int = Field(ge=1, strict=True)
    first_line: int = Field(default=1, ge=1, strict=True)
    last_line: int | None = Field(default=None, ge=1, strict=True)


class SearchArguments(Record):
    """Arguments of `search`."""

    text: str = Field(min_length=1, max_length=_LONGEST_SEARCH, strict=True)
    first_step: int = Field(default=1, ge=1, strict=True)


class SubmitArguments(Record):
    """Arguments of `submit`."""

    steps: list[StrictInt] = Field(default=[], max_length=500, strict=True)
    lines: list[StrictStr] = Field(default=[], max_length=500, strict=True)
    absent: list[StrictStr] = Field(default=[], max_length=20, strict=True)
    more: bool = Field(default=False, strict=True)


class ToolSpec(NamedTuple):
    """A tool: its name, the description that the model reads, and the type of its arguments."""

    name: str
    description: str
    arguments: type[Record]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of each argument."""
        return self.arguments.model_json_schema()["properties"]


TOOLS = (
    ToolSpec(
        "list",
        "List the steps from `first_step` on: number, role, tools, number of lines and characters, and the first words."
        " Call it again with a larger `first_step` for the next page.",
        ListArguments,
    ),
    ToolSpec(
        "read",
        "Read the numbered lines of one step from `first_line` on, at most to `last_line` (null for the end), as many "
        "as fit.",
        ReadArguments,
    ),
    ToolSpec(
        "search",
        "Find a text literally in all steps from `first_step` on, without regard to case and white space. No patterns.",
        SearchArguments,
    ),
    ToolSpec(
        "submit",
        "Choose what the judges see: `steps` are the numbers of complete steps, `lines` are ranges of lines of long "
        'steps such as "12:100-140" (step 12, lines 100 to 140), and `absent` are texts that you searched for in all '
        "steps without a match. With `more` true you may submit more later; otherwise the exploration ends.",
        SubmitArguments,
    ),
)
"""The tools, in the order in which a model sees them."""

_SPECS = {spec.name: spec for spec in TOOLS}
TOOLS_VERSION = 1
"""A part of every fingerprint of an explorer. Raise it if the results of the tools change."""


class _ToolError(ValueError):
    """A mistake of the model in a call. Its message is the result of the call."""


AnyArguments = TypeVar("AnyArguments", bound=Record)


class TrajectoryTools:
    """The tools over one trajectory, and the part of it that was submitted.

    The results depend only on the trajectory, the limits and the calls.

    Args:
        trajectory: The complete trajectory.
        limits: The limits of the exploration.

    Attributes:
        is_finished: Whether the explorer has submitted its complete selection.
        has_submission: Whether anything was submitted.
        calls: The number of executed calls, without `submit`.

    Example:
        >>> steps = tuple(Step(role="user", text=f"Message {number}") for number in range(1, 100))
        >>> tools = TrajectoryTools(Trajectory(steps=steps), ExplorerLimits())
        >>> tools.run([ToolRequest("search", {"text": "MESSAGE 42"})], is_last=False)
        [{'matches': [{'step': 42, 'line': 1, 'text': 'Message 42'}], 'matching_lines': 1}]
        >>> tools.run([ToolRequest("submit", {"steps": [42]})], is_last=False)
        [{'kept': '1 step, 10 characters'}]
        >>> print(tools.selected().text())
        [steps 1 to 41 not shown]
        {"step": 42, "role": "user", "content": "Message 42"}
        [steps 43 to 99 not shown]
    """

    def __init__(self, trajectory: Trajectory, limits: ExplorerLimits):
        self._trajectory, self._limits = trajectory, limits
        self.is_finished, self.has_submission, self.calls = False, False, 0
        # The shown ranges of lines by the number of the step. None for a complete step.
        self._places: dict[int, list[tuple[int, int]] | None] = {}
        self._absent: dict[str, None] = {}
        self._without_match: dict[str, str] = {}
        self._characters = 0
        self._line_counts: dict[int, int] = {}

    def run(self, calls: Sequence[ToolRequest], *, is_last: bool) -> list[dict[str, Any]]:
        """Execute the calls of one reply in order, and return their results as JSON objects.

        A call that is not valid has an error as its result. It counts as a call.

        Args:
            calls: The calls.
            is_last: Whether no further request follows. Only `submit` is then executed.
        """
        submits = sum(call.name == "submit" for call in calls)
        results: list[dict[str, Any]] = []
        for call in calls[:_MOST_RESULTS]:
            try:
                results.append(self._run(call, is_last=is_last, submits=submits))
            except _ToolError as problem:
                results.append({"error": str(problem)})
        if len(calls) > _MOST_RESULTS:
            left = f"{len(calls) - _MOST_RESULTS:,} further calls of this reply were not executed"
            results.append({"error": f"{left}: make at most {_MOST_RESULTS} calls in one reply"})
        return results

    def _run(self, call: ToolRequest, *, is_last: bool, submits: int) -> dict[str, Any]:
        """Execute one call.

        Raises:
            _ToolError: The call is not valid, or not allowed.
        """
        if call.name == "submit":
            if submits > 1:
                raise _ToolError(f"the reply calls `submit` {submits} times, so none was executed: call it once")
            return self._submit(_arguments(call, SubmitArguments))
        limit = self._limits.max_tool_calls
        if self.calls >= limit:
            raise _ToolError(f"not executed: all {limit} tool calls are used up, so call `submit`")
        self.calls += 1
        if is_last:
            raise _ToolError("not executed: this was the last request, which may only call `submit`")
        match call.name:
            case "list":
                return self._list(_arguments(call, ListArguments))
            case "read":
                return self._read(_arguments(call, ReadArguments))
            case "search":
                return self._search(_arguments(call, SearchArguments))
            case _:
                names = ", ".join(f"`{name}`" for name in _SPECS)
                raise _ToolError(f"there is no tool {_shown(call.name)}: the tools are {names}")

    def _list(self, arguments: ListArguments) -> dict[str, Any]:
        """List the steps from a number on, as many as fit."""
        first = self._existing(arguments.first_step, "first_step")
        total, room = len(self._trajectory.steps), self._limits.max_observation_chars - 200
        outlines: list[dict[str, Any]] = []
        for number in range(first, total + 1):
            outline = self._outline(number)
            room -= _size(outline)
            if room < 0 and outlines:
                break
            outlines.append(outline)
        last = first + len(outlines) - 1
        more = {} if last == total else {"next": f"call `list` with first_step={last + 1}"}
        return {"steps": outlines, "shown": f"{first} to {last} of {total}", **more}

    def _outline(self, number: int) -> dict[str, Any]:
        """Describe one step briefly."""
        step = self._trajectory.steps[number - 1]
        tools = list(dict.fromkeys(call.name[:_LONGEST_VALUE] for call in step.calls))[:5]
        begin = next(step_fields(step)).text[:_LONGEST_VALUE]
        fields = {"step": number, "role": step.role, "lines": self._count_lines(number)}
        more: dict[str, Any] = {"tools": tools} if tools else {}
        return {**fields, "characters": count_characters(step), **more, "begins": encodable(begin)}

    def _read(self, arguments: ReadArguments) -> dict[str, Any]:
        """Read lines of a step, as many as fit."""
        number = self._existing(arguments.step, "step")
        step, count = self._trajectory.steps[number - 1], self._count_lines(number)
        first, last = arguments.first_line, min(arguments.last_line or count, count)
        if not first <= last:
            raise _ToolError(f"step {number} has the lines 1 to {count}, and lines {first} to {last} were requested")
        parts, room, end = list[dict[str, Any]](), self._limits.max_observation_chars - 300, first - 1
        field: StepField | None = None
        for line in _lines(step, first):
            text = f"{line.number}| {encodable(line.text)}"
            room -= _size(text)
            if line.field is not field:
                room -= _size(_part_name(step, line.field)) + 30
            if line.number > last or (room < 0 and end >= first):
                break
            if line.field is not field:
                field = line.field
                parts.append({"part": _part_name(step, field), "lines": []})
            parts[-1]["lines"].append(text)
            end = line.number
        more = {} if end >= last else {"next": f"call `read` with first_line={end + 1}"}
        return {
            "step": number,
            "role": step.role,
            "parts": parts,
            "shown": f"lines {first} to {end} of {count}",
            **more,
        }

    def _search(self, arguments: SearchArguments) -> dict[str, Any]:
        """Find a text in the steps from a number on. Count all lines, and show the first of them."""
        wanted = fold_search(arguments.text)
        if not wanted:
            raise _ToolError("`text` has only white space: search for a word")
        first, room = self._existing(arguments.first_step, "first_step"), self._limits.max_observation_chars - 600
        matches, count, omitted = list[dict[str, Any]](), 0, 0
        for number in range(first, len(self._trajectory.steps) + 1):
            step = self._trajectory.steps[number - 1]
            lines = matching_lines(step, wanted)
            count += len(lines)
            if omitted or not lines:
                continue
            for match in _matches(step, number, lines):
                room -= _size(match)
                if room < 0 and matches:
                    omitted = number
                    break
                matches.append(match)
        if not count and first == 1:
            self._without_match[wanted] = arguments.text
        more = {"next": f"call `search` with first_step={omitted}, or with a rarer text"} if omitted else {}
        return {"matches": matches, "matching_lines": count, **more}

    def _submit(self, arguments: SubmitArguments) -> dict[str, Any]:
        """Add places to the selection. Places that are not valid are named in the result, and the others are kept."""
        problems: list[str] = []
        if not (arguments.steps or arguments.lines or arguments.absent or self.has_submission):
            raise _ToolError("`submit` is empty: name `steps`, `lines` or `absent`, which are all that judges see")
        additions: list[tuple[Callable[[Any], None], Sequence[Any]]] = [
            (self._add_step, arguments.steps),
            (self._add_lines, arguments.lines),
            (self._add_absent, arguments.absent),
        ]
        for add, value in ((add, value) for add, values in additions for value in values):
            try:
                add(value)
                self.has_submission = True
            except _ToolError as problem:
                problems.append(str(problem))
        self.is_finished = not problems and not arguments.more
        count = len(self._places)
        result: dict[str, Any] = {"kept": f"{count} step{'' if count == 1 else 's'}, {self._characters} characters"}
        if problems:
            result["not_kept"] = problems[:_MOST_RESULTS]
            result["next"] = "submit again: what was kept stays, and the exploration ends with a valid `submit`"
        return result

    def _add_step(self, number: int) -> None:
        self._existing(number, "steps")
        self._add(number, None, count_characters(self._trajectory.steps[number - 1]))

    def _add_lines(self, text: str) -> None:
        """Add a range of lines, such as `12:100-140`."""
        match = _PLACE.fullmatch(text)
        if match is None:
            raise _ToolError(f'{_shown(text)} is not a range of lines: write "12:100-140" for step 12')
        number = self._existing(int(match[1]), "lines")
        first, last = int(match[2]), int(match[3] or match[2])
        count = self._count_lines(number)
        if not 1 <= first <= last <= count:
            raise _ToolError(f"{_shown(text)}: step {number} has the lines 1 to {count}")
        ranges = self._places.get(number, [])
        if ranges is not None:
            step = self._trajectory.steps[number - 1]
            ranges = _with_commands(step, _merged([*ranges, (first, last)]))
            is_complete = ranges == [(1, count)]
            self._add(number, None if is_complete else ranges, _count_chosen(step, ranges))

    def _add(self, number: int, ranges: list[tuple[int, int]] | None, characters: int) -> None:
        """Set the shown lines of a step, if they fit."""
        before = 0
        if number in self._places:
            earlier, step = self._places[number], self._trajectory.steps[number - 1]
            before = count_characters(step) if earlier is None else _count_chosen(step, earlier)
        total, limit = self._characters - before + characters, self._limits.max_shown_chars
        if total > limit:
            left = limit - self._characters
            raise _ToolError(
                f"step {number} has {characters} characters there, and only {left} of {limit} are left: submit `lines`"
            )
        self._places[number], self._characters = ranges, total

    def _add_absent(self, text: str) -> None:
        wanted = fold_search(text)
        if wanted not in self._without_match:
            raise _ToolError(f"{_shown(text)} is not a search in all steps that found nothing: `search` for it first")
        self._absent[self._without_match[wanted]] = None

    def _existing(self, number: int, name: str) -> int:
        """Return the number of a step that exists.

        Raises:
            _ToolError: There is no such step.
        """
        if not 1 <= number <= len(self._trajectory.steps):
            raise _ToolError(f"`{name}`: there is no step {number}, only the steps 1 to {len(self._trajectory.steps)}")
        return number

    def _count_lines(self, number: int) -> int:
        if number not in self._line_counts:
            self._line_counts[number] = count_lines(self._trajectory.steps[number - 1])
        return self._line_counts[number]

    @property
    def characters(self) -> int:
        """The number of characters of the submitted steps and lines."""
        return self._characters

    @property
    def absent(self) -> tuple[str, ...]:
        """The submitted searches without a match."""
        return tuple(self._absent)

    def selected(self) -> Trajectory:
        """Return the submitted part of the trajectory. Its texts are copied from the complete trajectory."""
        shown: list[ShownStep] = []
        steps: list[Step] = []
        for number in sorted(self._places):
            ranges, step = self._places[number], self._trajectory.steps[number - 1]
            if ranges is None:
                shown.append(ShownStep(number=number))
                steps.append(step)
            else:
                count = self._count_lines(number)
                shown.append(ShownStep(number=number, lines=tuple(ranges), line_count=count))
                steps.append(cut_step(step, ranges))
        total = len(self._trajectory.steps)
        selection = StepSelection(steps=tuple(shown), total=total, absent=self.absent)
        return Trajectory(steps=tuple(steps), selection=selection)


def _arguments(call: ToolRequest, kind: type[AnyArguments]) -> AnyArguments:
    """Check the arguments of a call strictly.

    Raises:
        _ToolError: An argument is missing, unknown, or of a wrong type or value.
    """
    try:
        return kind.model_validate(dict(call.arguments))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = (
            f"`{'.'.join(map(str, each['loc']))[:_LONGEST_VALUE]}`: {each['msg'].lower()}" for each in details[:3]
        )
        names = ", ".join(f"`{name}`" for name in kind.model_fields)
        message = f"`{call.name}` was not executed ({'; '.join(problems)}): its arguments are {names}"
        raise _ToolError(encodable(message)) from None


def _shown(value: str) -> str:
    text = value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}..."
    return encodable(repr(text))


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False)) + 2


def _part_name(step: Step, field: StepField) -> str:
    """Name a field of a step for the explorer."""
    if field.call < 0:
        return field.name
    call = step.calls[field.call]
    error = ", which failed" if call.is_error and field.name == "result" else ""
    name = encodable(call.name[:_LONGEST_VALUE])
    return f"{'result of ' if field.name == 'result' else ''}call {field.call + 1}{error}: {name}"


def _matches(step: Step, number: int, lines: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the text of each matching line of a step."""
    wanted = iter(lines)
    following = next(wanted, None)
    for line in _lines(step, lines[0]):
        if line.number == following:
            yield {"step": number, "line": line.number, "text": encodable(line.text)}
            following = next(wanted, None)
            if following is None:
                return


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges of lines, and join those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _with_commands(step: Step, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Add the line of each short call with a chosen line of its result. A result alone does not say what was called."""
    number, command, added = 1, (0, 0), list[tuple[int, int]]()
    for field in step_fields(step):
        last = number + sum(1 for _ in line_spans(field.text)) - 1
        if field.name == "call":
            command = (number, last)
        elif field.name == "result" and command[0] == command[1]:
            added += [command] if any(begin <= last and end >= number for begin, end in ranges) else []
        number = last + 1
    return _merged([*ranges, *added])


def _contains(ranges: Sequence[tuple[int, int]], number: int) -> bool:
    index = bisect_right(ranges, (number, cast("int", float("inf")))) - 1
    return index >= 0 and ranges[index][0] <= number <= ranges[index][1]


def _count_chosen(step: Step, ranges: Sequence[tuple[int, int]]) -> int:
    return sum(len(line.text) for line in _lines(step) if _contains(ranges, line.number))


def cut_step(step: Step, ranges: Sequence[tuple[int, int]]) -> Step:
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


def _cut(text: str, first: int, ranges: Sequence[tuple[int, int]]) -> _CutText:
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
