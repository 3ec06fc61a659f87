"""What is graded: one response with the task it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self, TypedDict, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from rubric_integrations._util.records import Record
from rubric_integrations.submission.messages import Messages, Respond, check_respond, render, split

# About a quarter of a million tokens: no judge reads more, and a cut text would be graded for what was cut.
MAX_CHARS = 1_000_000


class ThinkingOutputDict(TypedDict, total=False):
    """A response in two parts. Only `output` is the answer; either may be left out."""

    thinking: str
    output: str


class Submission(Record):
    """One response, and what belongs to it.

    `response`, `query` and `reference` may be given as lists of chat messages. Of such a response the last answer is
    graded, and the rest follows the query as context; with `respond="transcript"` beside it the whole is graded.

    Attributes:
        response: The text to grade; not blank, at most 1,000,000 characters.
        thinking: The reasoning that led to it, where the model gives it apart.
        query: The task that the response answers.
        reference: An exemplary response.
        logprobs: The natural logarithms of its tokens' probabilities, for the perplexity metric.

    Raises:
        pydantic.ValidationError: (a ValueError) where there is nothing to grade, or too much.
    """

    response: str
    thinking: str | None = None
    query: str | None = None
    reference: str | None = None
    logprobs: tuple[float, ...] | None = Field(default=None, min_length=1)

    @classmethod
    def from_messages(
        cls,
        messages: Messages,
        respond: Respond = "last",
        *,
        query: str | Messages | None = None,
        reference: str | Messages | None = None,
    ) -> Self:
        """Make a submission of a conversation.

        Args:
            messages: Dictionaries with a `role` and `content`, or LangChain messages.
            respond: What is graded: the `last` answer, with the rest as context, or the whole `transcript`.
            query: The task, which the context follows.
            reference: An exemplary response.

        Raises:
            TypeError: `messages` is no list.
            ValueError: It is no conversation, or does not end with an answer.

        Example:
            >>> asked = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}]
            >>> Submission.from_messages(asked).response
            'It is 42.'
        """
        response, context = split(messages, respond)
        asked, exemplary = _as_text(query, "query"), _as_text(reference, "reference")
        return cls(response=response, query=_followed(asked, context), reference=exemplary)

    @model_validator(mode="before")
    @classmethod
    def _read_conversation(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = dict(cast("Mapping[str, Any]", data))
        given |= {name: _as_text(given[name], name) for name in ("query", "reference") if name in given}
        respond = given.pop("respond", None)
        if respond is not None:
            check_respond(respond)
        if isinstance(given.get("response"), list | tuple):
            given["response"], context = split(given["response"], respond or "last")
            given["query"] = _followed(given.get("query"), context)
        return given

    @field_validator("response")
    @classmethod
    def _something_to_grade(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: there is nothing to grade")
        return value

    @field_validator("response", "thinking", "query", "reference")
    @classmethod
    def _not_too_long(cls, value: str | None) -> str | None:
        if value is not None and len(value) > MAX_CHARS:
            raise ValueError(
                f"has {len(value):,} characters, more than {MAX_CHARS:,}: "
                "shorten it, or a judge would be asked about a text that it cannot read whole"
            )
        return value


ToGradeInput = str | ThinkingOutputDict | Mapping[str, Any] | Messages | Submission
"""What can be graded: a text, its thinking and output apart, chat messages, or a `Submission`."""

_THINKING = re.compile(r"<thinking>(.*?)</thinking>", re.IGNORECASE | re.DOTALL)
_OUTPUT = re.compile(r"<output>(.*?)</output>", re.IGNORECASE | re.DOTALL)
_SPLIT = re.compile(r"\s*<(?:thinking|output)>", re.IGNORECASE)


def parse_thinking_output(text: str) -> ThinkingOutputDict:
    """Take a text apart at its `<thinking>` and `<output>` markers.

    The thinking is what the first `<thinking>` encloses; the output what `<output>` encloses, or else the rest.

    Example:
        >>> parse_thinking_output("<thinking>hm</thinking>42")
        {'thinking': 'hm', 'output': '42'}
    """
    thinking, output = _THINKING.search(text), _OUTPUT.search(text)
    rest = output[1].strip() if output else _THINKING.sub("", text).strip() if thinking else text
    return {"thinking": thinking[1].strip() if thinking else "", "output": rest}


def normalize_to_grade_input(to_grade: str | ThinkingOutputDict | Mapping[str, Any] | Messages) -> ThinkingOutputDict:
    """The thinking and the output of a response, whichever form it is given in.

    A text is taken apart only where it begins with a marker: in the middle of an answer, markers are part of it. Of
    chat messages, the output is the last answer, or what `{"messages": [...], "respond": ...}` says.

    Raises:
        TypeError: It is neither a text nor a mapping nor a list.
        ValueError: It is a mapping with other keys than `thinking` and `output`, or a list that is no conversation.
    """
    if isinstance(to_grade, str):
        return parse_thinking_output(to_grade) if _SPLIT.match(to_grade) else {"thinking": "", "output": to_grade}
    if conversation := _conversation(to_grade):
        return {"thinking": "", "output": split(*conversation)[0]}
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
    """Make a `Submission` of what a caller passes; `query` and `reference` fill what it leaves open.

    Raises:
        TypeError: `to_grade` is none of the accepted kinds.
        ValueError: It is empty, too long, a mapping with unknown keys, or a list that is no conversation.

    Example:
        >>> as_submission({"thinking": "hm", "output": "42"}).response
        '42'
    """
    try:
        return _submission(to_grade, {"query": _as_text(query, "query"), "reference": _as_text(reference, "reference")})
    except ValidationError as error:
        raise ValueError(error_line(error)) from None


def _submission(to_grade: ToGradeInput, given: dict[str, Any]) -> Submission:
    if isinstance(to_grade, Submission):
        return to_grade.model_copy(update={key: value for key, value in given.items() if value is not None})
    if conversation := _conversation(to_grade):
        return Submission.from_messages(*conversation, **given)
    parts = normalize_to_grade_input(to_grade)
    return Submission(response=parts.get("output", ""), thinking=parts.get("thinking") or None, **given)


def error_line(error: Exception) -> str:
    """What is wrong with a submission, in a line."""
    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    details = error.errors()[0]
    message = details["msg"].removeprefix("Value error, ")
    # A conversation's faults name their own place.
    where = f"`{'.'.join(map(str, details['loc']))}` " if details["loc"] else ""
    return f"{where}{message[:1].lower()}{message[1:]}"


def _conversation(to_grade: object) -> tuple[Messages, Respond] | None:
    """The messages in what is to be graded, and what of them is; None where it is no conversation."""
    if isinstance(to_grade, list | tuple):
        return cast("Messages", to_grade), "last"
    if isinstance(to_grade, Mapping) and "messages" in to_grade and set(to_grade) <= {"messages", "respond"}:
        given = cast("Mapping[str, Any]", to_grade)
        respond = given.get("respond")
        return given["messages"], "last" if respond is None else respond
    return None


def _as_text(value: Any, name: str) -> Any:
    """A list of messages as text; all else as it is, for pydantic to judge."""
    if not isinstance(value, list | tuple):
        return value
    try:
        return render(cast("Messages", value))
    except ValueError as error:
        raise ValueError(f"of the `{name}`, {error}") from None


def _followed(query: Any, context: str | None) -> Any:
    """The query, and what went before the answer after it."""
    if context is None or not isinstance(query, str | None):
        return query
    return f"{query}\n\n{context}" if query else context
