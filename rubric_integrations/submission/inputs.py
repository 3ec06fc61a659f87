"""The inputs that can be graded, and their conversion to a `Submission`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from pydantic import ValidationError

from rubric_integrations.submission.dialects.registry import dialect_of
from rubric_integrations.submission.messages import Messages, Respond, split_conversation
from rubric_integrations.submission.submission import Submission, error_line
from rubric_integrations.submission.thinking import output_block, split_parts, split_thinking, thinking_blocks


class ThinkingOutputDict(TypedDict, total=False):
    """A response whose reasoning is separate from its answer; both keys are optional, only `output` is graded."""

    thinking: str
    output: str


ToGradeInput = str | ThinkingOutputDict | Mapping[str, Any] | Messages | Submission
"""The types that can be graded: text, `{"thinking": ..., "output": ...}`, messages of any dialect, a `Submission`."""


def parse_thinking_output(text: str) -> ThinkingOutputDict:
    """Split a text at its markers wherever they are, as the `rubric` package does.

    The thinking is the content of the first `<thinking>` or `<think>`. The output is the content of the first
    `<output>`, or the text without its thinking if there is none; text outside `<output>` is lost. Grading therefore
    uses `split_thinking`, which splits only at the beginning of a text and loses nothing.

    Example:
        >>> parse_thinking_output("<thinking>hm</thinking>42")
        {'thinking': 'hm', 'output': '42'}
    """
    markers = list(thinking_blocks(text))
    thinking = text[markers[0].end() : markers[1].start()].strip() if markers else ""
    output = output_block(text)
    if output is None and markers:
        begins = [0, *(marker.end() for marker in markers[1::2])]
        ends = [*(marker.start() for marker in markers[::2]), len(text)]
        output = "".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))
    return {"thinking": thinking, "output": text if output is None else output.strip()}


def normalize_to_grade_input(to_grade: str | ThinkingOutputDict | Mapping[str, Any] | Messages) -> ThinkingOutputDict:
    """Convert a response in any accepted form to its thinking and its output.

    A text is split by `split_thinking`: only at markers that it begins with. The output of chat messages is the last
    answer, or the whole conversation for `{"messages": [...], "respond": "transcript"}` or `"trajectory"`. The output
    is empty if a thinking block has no end.

    Raises:
        TypeError: `to_grade` is neither a text nor a mapping nor a list.
        ValueError: It is a mapping with other keys than `thinking` and `output`, or a list that is not a conversation.

    Example:
        >>> normalize_to_grade_input("42 <thinking>is it?</thinking>")
        {'thinking': '', 'output': '42 <thinking>is it?</thinking>'}
    """
    if conversation := _find_conversation(to_grade):
        parts = split_thinking(split_conversation(*conversation)[0])
    elif isinstance(to_grade, str):
        parts = split_thinking(to_grade)
    elif isinstance(to_grade, Mapping):
        parts = split_parts(cast("Mapping[str, Any]", to_grade))
    else:
        raise _wrong_type(to_grade)
    return {"thinking": parts.thinking, "output": parts.output}


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
    try:
        return _to_submission(to_grade, {"query": query, "reference": reference})
    except ValidationError as error:
        raise ValueError(error_line(error)) from None


def _to_submission(to_grade: ToGradeInput, context: dict[str, Any]) -> Submission:
    if isinstance(to_grade, Submission):
        replaced = {name: text for name, text in context.items() if text is not None}
        # Only these are validated: the response was split when it was, and is not split again.
        own = {"response": "-", "attachments": to_grade.attachments}
        valid = Submission.model_validate({**own, **replaced}) if replaced else to_grade
        return to_grade.model_copy(update={name: getattr(valid, name) for name in (*replaced, "attachments")})
    if conversation := _find_conversation(to_grade):
        return Submission.from_messages(*conversation, **context)
    if not isinstance(to_grade, str | Mapping):
        raise _wrong_type(to_grade)
    return Submission.model_validate({"response": to_grade, **context})


def _wrong_type(to_grade: object) -> TypeError:
    return TypeError(
        f"`to_grade` must be a text, {{'thinking': ..., 'output': ...}}, a list of messages or a Submission, "
        f"got {type(to_grade).__name__}: its repr would have been graded"
    )


def _find_conversation(to_grade: object) -> tuple[Any, Respond] | None:
    """Return the messages of an input and its `respond`; None if it is not a conversation."""
    if isinstance(to_grade, Mapping) and "messages" in to_grade and set(to_grade) <= {"messages", "respond"}:
        fields = cast("Mapping[str, Any]", to_grade)
        respond = fields.get("respond")
        return fields["messages"], "last" if respond is None else respond
    return None if dialect_of(to_grade) is None else (to_grade, "last")
