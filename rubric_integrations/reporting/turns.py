"""The turns of conversations and agents' runs in reports: the steps that the text of a submission consists of.

A judge reads a conversation as JSON, one object per line. People read turns instead. This module finds the turns in the
texts of a submission, and makes the line that a table shows of them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubric_integrations._util.json import parse_json
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.submission.steps import Step, ToolCall, render_steps
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory


class TextTurns(NamedTuple):
    """A text that ends with steps, as `render_steps` writes them.

    Attributes:
        before: The text before the steps, without the empty line between them. Empty if there is none.
        steps: The steps, at least one.
        is_numbered: Whether the text has the numbers of the steps.
    """

    before: str
    steps: tuple[Step, ...]
    is_numbered: bool


def read_turns(text: str) -> TextTurns | None:
    r"""Find the steps at the end of a text. None if the text does not end with steps.

    Only text that `render_steps` would write in the same way is read. Therefore, the turns show everything that is in
    the text.

    Example:
        >>> read_turns('What now?\n\n{"role": "user", "content": "6 x 7?"}').before
        'What now?'
        >>> read_turns('{"role": "user", "age": 7}')
    """
    if not text.endswith("}") or ('{"role": "' not in text and '{"step": ' not in text):
        return None
    lines, steps = text.split("\n"), list[Step]()
    while lines and (step := _read_step(lines[-1])):
        steps.append(step)
        lines.pop()
    # The steps follow the text after an empty line.
    if not steps or (lines and lines[-1]):
        return None
    before = "\n".join(lines[:-1])
    rest = text[len(before) + 2 :] if lines else text
    steps.reverse()
    for is_numbered in (False, True):
        if render_steps(steps, numbered=is_numbered) == rest:
            return TextTurns(before, tuple(steps), is_numbered)
    return None


def _read_step(line: str) -> Step | None:
    """Return the step that a line of JSON describes. None if it describes none."""
    if not line.startswith(('{"role": "', '{"step": ')):
        return None
    try:
        fields = parse_json(line)
        calls = [
            ToolCall(
                name=call["name"], arguments=call.get("arguments"), result=call.get("result"),
                is_error=call.get("is_error"), omitted=call.get("omitted_characters", 0),
            )
            for call in fields.get("tool_calls", [])
        ]  # fmt: skip
        return Step(role=fields["role"], text=fields["content"], name=fields.get("name"), calls=tuple(calls))
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def is_of_steps(submission: Submission) -> bool:
    """Whether the response that was graded is the text of the submission's trajectory."""
    trajectory = submission.trajectory if submission.show_trajectory == "as_response" else None
    return trajectory is not None and submission.response == trajectory.text()


def shown_trajectory_text(row: GradedRow) -> str | None:
    """Return the text of the trajectory as the judge of a row read it: with its long results shortened.

    None if the row has no trajectory.
    """
    trajectory = row.submission.trajectory if row.submission else None
    return None if trajectory is None else _shortened(row, trajectory).text()


def _shortened(row: GradedRow, trajectory: Trajectory) -> Trajectory:
    grader = (row.scoring or {}).get("grader")
    limits = grader.get("text_limits") if isinstance(grader, dict) else None
    limit = limits.get("step_limit") if isinstance(limits, dict) else None
    return trajectory.shortened(limit) if isinstance(limit, int) and limit > 0 else trajectory


def first_lines(submission: Submission, length: int) -> tuple[str, str]:
    """Return the task and the response of a submission as one line each, as a table shows them.

    Of a conversation, the first line of the task is the message of its user, and the one of the response is the last
    text of the agent. The marks of Markdown are left out.

    Args:
        submission: The submission.
        length: The most characters of a line.

    Example:
        >>> chat = [{"role": "user", "content": "**6 x 7?**"}, {"role": "assistant", "content": "It is `42`."}]
        >>> first_lines(Submission.from_messages(chat, respond="trajectory"), 80)
        ('6 x 7?', 'It is 42.')
    """
    response, query = submission.response, submission.query or ""
    steps: tuple[Step, ...] = ()
    if is_of_steps(submission) and submission.trajectory is not None:
        steps = submission.trajectory.steps
    elif turns := read_turns(response):
        steps = turns.steps
    if steps:
        response = _last_words(steps)
        query = query or _first_words(steps)
    if turns := read_turns(query):
        query = turns.before or _first_words(turns.steps)
    return as_line(query, length), as_line(response, length)


def _first_words(steps: tuple[Step, ...]) -> str:
    texts = [step.text for step in steps if step.role == "user" and step.text]
    return next(iter([*texts, *(step.text for step in steps if step.text)]), "")


def _last_words(steps: tuple[Step, ...]) -> str:
    """Return the last text of the agent, or the names of the calls with which its run ends."""
    texts = [step.text for step in steps if step.role == "assistant" and step.text]
    names = ", ".join(call.name for call in steps[-1].calls)
    return texts[-1] if texts else f"calls {names}" if names else steps[-1].text


# The marks of Markdown, each with texts of which it has one: patterns are slow, and most texts need few of them. Each
# pattern is bounded, because the text may be hostile.
_MARKS = (
    (
        "#>-+*.)",
        re.compile(r"^[ \t]{0,8}(?:#{1,6}[ \t]+|(?:>[ \t]?){1,8}|(?:[-+*]|\d{1,3}[.)])[ \t]+)", re.MULTILINE),
        "",
    ),
    (("```", "~~~"), re.compile(r"^[ \t]{0,8}(?:```|~~~)\w{0,20}[ \t]*$", re.MULTILINE), ""),
    (("---", "|-", "|:", "| -"), re.compile(r"^[ \t|:-]{3,400}$", re.MULTILINE), ""),
    (("](",), re.compile(r"!?\[([^\]\[\n]{1,200})\]\([^()\s]{0,300}\)"), r"\1"),
    (("**", "~~"), re.compile(r"(\*{2,3}|~~)(?=[^\s*~])([^\n*~]{1,300})(?<=\S)\1"), r"\2"),
    ("*_", re.compile(r"(?<![\w*])(\*|__?)(?=[^\s*_])([^\n*_]{1,300})(?<=\S)\1(?![\w*])"), r"\2"),
    ("`", re.compile(r"`{1,3}([^`\n]{1,300})`{1,3}"), r"\1"),
)


def as_line(text: str | None, length: int) -> str:
    r"""Return the beginning of a text as one line, without the marks of Markdown.

    Args:
        text: The text. None is the empty line.
        length: The most characters of the line.

    Example:
        >>> as_line("# Margin\n\n- It **rose** to `8.4%`, see [page 3](http://a.b/c), as snake_case 2*3*4.", 80)
        'Margin It rose to 8.4%, see page 3, as snake_case 2*3*4.'
    """
    beginning = (text or "")[: 2 * length]
    for marks, pattern, replacement in _MARKS:
        if any(mark in beginning for mark in marks):
            beginning = pattern.sub(replacement, beginning)
    return " ".join(beginning.split())[:length]


def arguments_text(arguments: dict[str, Any] | str | None) -> str | None:
    """Return the arguments of a call as text. None if the trace does not contain them."""
    if arguments is None or isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)
