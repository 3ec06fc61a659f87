"""The inputs that can be graded, and their conversion to a `Submission`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from pydantic import ValidationError

from rubric_integrations.submission.messages import Messages, Respond, split_conversation
from rubric_integrations.submission.submission import Submission, error_line, render_if_messages


class ThinkingOutputDict(TypedDict, total=False):
    """A response whose reasoning is separate from its answer; both keys are optional, only `output` is graded."""

    thinking: str
    output: str


ToGradeInput = str | ThinkingOutputDict | Mapping[str, Any] | Messages | Submission
"""The types that can be graded: text, `{"thinking": ..., "output": ...}`, chat messages, or a `Submission`."""

_THINKING = re.compile(r"<thinking>(.*?)</thinking>", re.IGNORECASE | re.DOTALL)
_OUTPUT = re.compile(r"<output>(.*?)</output>", re.IGNORECASE | re.DOTALL)
_STARTS_WITH_MARKER = re.compile(r"\s*<(?:thinking|output)>", re.IGNORECASE)


def parse_thinking_output(text: str) -> ThinkingOutputDict:
    """Split a text at its `<thinking>` and `<output>` markers.

    The thinking is the content of the first `<thinking>`. The output is the content of the first `<output>`, or the
    rest of the text if there is none.

    Example:
        >>> parse_thinking_output("<thinking>hm</thinking>42")
        {'thinking': 'hm', 'output': '42'}
    """
    thinking, output = _THINKING.search(text), _OUTPUT.search(text)
    rest = output[1].strip() if output else _THINKING.sub("", text).strip() if thinking else text
    return {"thinking": thinking[1].strip() if thinking else "", "output": rest}


def normalize_to_grade_input(to_grade: str | ThinkingOutputDict | Mapping[str, Any] | Messages) -> ThinkingOutputDict:
    """Convert a response in any accepted form to its thinking and its output.

    A text is split at its markers only if it begins with one; elsewhere in an answer, markers are part of the answer.
    The output of chat messages is the last answer, or the whole conversation for
    `{"messages": [...], "respond": "transcript"}`.

    Raises:
        TypeError: `to_grade` is neither a text nor a mapping nor a list.
        ValueError: It is a mapping with other keys than `thinking` and `output`, or a list that is not a conversation.

    Example:
        >>> normalize_to_grade_input("42 <thinking>is it?</thinking>")
        {'thinking': '', 'output': '42 <thinking>is it?</thinking>'}
    """
    if isinstance(to_grade, str):
        if _STARTS_WITH_MARKER.match(to_grade):
            return parse_thinking_output(to_grade)
        return {"thinking": "", "output": to_grade}
    if conversation := _find_conversation(to_grade):
        return {"thinking": "", "output": split_conversation(*conversation)[0]}
    if not isinstance(to_grade, Mapping):
        raise TypeError(
            f"`to_grade` must be a text, {{'thinking': ..., 'output': ...}}, a list of messages or a Submission, "
            f"got {type(to_grade).__name__}: its repr would have been graded"
        )
    unknown = set(to_grade) - {"thinking", "output"}
    if unknown:
        raise ValueError(
            f"`to_grade` has the unknown keys {sorted(unknown)!r}: use `thinking` and `output`, "
            "or `messages` and `respond`"
        )
    return {"thinking": to_grade.get("thinking") or "", "output": to_grade.get("output") or ""}


def as_submission(
    to_grade: ToGradeInput, query: str | Messages | None = None, reference: str | Messages | None = None
) -> Submission:
    """Convert any accepted input to a `Submission`.

    Args:
        to_grade: The response, in any form of `ToGradeInput`.
        query: The task; replaces that of a `Submission`.
        reference: An exemplary response; replaces that of a `Submission`.

    Raises:
        TypeError: `to_grade` is none of the accepted types.
        ValueError: It is empty, too long, a mapping with unknown keys, or a list that is not a conversation.

    Example:
        >>> as_submission({"thinking": "hm", "output": "42"}).response
        '42'
    """
    context = {
        "query": render_if_messages(query, "query"),
        "reference": render_if_messages(reference, "reference"),
    }
    try:
        return _to_submission(to_grade, context)
    except ValidationError as error:
        raise ValueError(error_line(error)) from None


def _to_submission(to_grade: ToGradeInput, context: dict[str, Any]) -> Submission:
    if isinstance(to_grade, Submission):
        return to_grade.model_copy(update={key: value for key, value in context.items() if value is not None})
    if conversation := _find_conversation(to_grade):
        return Submission.from_messages(*conversation, **context)
    parts = normalize_to_grade_input(to_grade)
    return Submission(response=parts.get("output", ""), thinking=parts.get("thinking") or None, **context)


def _find_conversation(to_grade: object) -> tuple[Messages, Respond] | None:
    """Return the messages of an input and its `respond`; None if it is not a conversation."""
    if isinstance(to_grade, list | tuple):
        return cast("Messages", to_grade), "last"
    if isinstance(to_grade, Mapping) and "messages" in to_grade and set(to_grade) <= {"messages", "respond"}:
        fields = cast("Mapping[str, Any]", to_grade)
        respond = fields.get("respond")
        return fields["messages"], "last" if respond is None else respond
    return None
