"""The tools with which an explorer reads a long trajectory: `list`, `read`, `search` and `submit`.

A step is read as numbered lines (`submission/step_lines.py`), which can be read, searched and submitted.

The result of a tool is a JSON object. JSON escapes line breaks, so the text of a step cannot imitate the result of a
tool. The steps that judges see are copied from the trajectory by the submitted numbers. The explorer's model writes no
text that judges see, except the searches that found nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import Field, StrictInt, StrictStr, ValidationError

from rubric_integrations._util.records import Record, encodable
from rubric_integrations.submission.selection import LineRange, ShownStep, StepSelection
from rubric_integrations.submission.step_lines import (
    StepField,
    count_characters,
    count_chosen,
    count_lines,
    cut_step,
    fold_search,
    matching_lines,
    merge_ranges,
    step_fields,
    step_lines,
    with_commands,
)
from rubric_integrations.submission.steps import Step
from rubric_integrations.submission.trajectory import Trajectory

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
TOOLS_VERSION = 2
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
        self._places: dict[int, list[LineRange] | None] = {}
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
        for line in step_lines(step, first):
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
            ranges = with_commands(step, merge_ranges([*ranges, (first, last)]))
            is_complete = ranges == [(1, count)]
            self._add(number, None if is_complete else ranges, count_chosen(step, ranges))

    def _add(self, number: int, ranges: list[LineRange] | None, characters: int) -> None:
        """Set the shown lines of a step, if they fit."""
        before = 0
        if number in self._places:
            earlier, step = self._places[number], self._trajectory.steps[number - 1]
            before = count_characters(step) if earlier is None else count_chosen(step, earlier)
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
    for line in step_lines(step, lines[0]):
        if line.number == following:
            yield {"step": number, "line": line.number, "text": encodable(line.text)}
            following = next(wanted, None)
            if following is None:
                return
