"""What is graded: one response with the task it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from pydantic import Field, field_validator

from rubric_integrations.record import Record

# About a quarter of a million tokens: no judge reads more, and a cut text would be graded for what was cut.
MAX_CHARS = 1_000_000


class ThinkingOutputDict(TypedDict, total=False):
    """A response in two parts. Only `output` is the answer; either may be left out."""

    thinking: str
    output: str


class Submission(Record):
    """One response, and what belongs to it.

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


ToGradeInput = str | ThinkingOutputDict | Mapping[str, Any] | Submission
"""What can be graded: a text, its thinking and output apart, or a `Submission`."""

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


def normalize_to_grade_input(to_grade: str | ThinkingOutputDict | Mapping[str, Any]) -> ThinkingOutputDict:
    """The thinking and the output of a response, whichever form it is given in.

    A text is taken apart only where it begins with a marker: in the middle of an answer, markers are part of it.

    Raises:
        TypeError: It is neither a text nor a mapping.
        ValueError: It is a mapping with other keys than `thinking` and `output`.
    """
    if isinstance(to_grade, str):
        return parse_thinking_output(to_grade) if _SPLIT.match(to_grade) else {"thinking": "", "output": to_grade}
    if not isinstance(to_grade, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise TypeError(
            f"`to_grade` must be a text, {{'thinking': ..., 'output': ...}} or a Submission, "
            f"got {type(to_grade).__name__}: its repr would have been graded"
        )
    unknown = set(to_grade) - {"thinking", "output"}
    if unknown:
        raise ValueError(f"`to_grade` has the unknown keys {sorted(unknown)!r}: use `thinking` and `output`")
    return {"thinking": to_grade.get("thinking") or "", "output": to_grade.get("output") or ""}


def as_submission(to_grade: ToGradeInput, query: str | None = None, reference: str | None = None) -> Submission:
    """Make a `Submission` of what a caller passes; `query` and `reference` fill what it leaves open.

    Raises:
        TypeError: `to_grade` is none of the accepted kinds.
        ValueError: It is empty, too long, or a mapping with other keys than `thinking` and `output`.

    Example:
        >>> as_submission({"thinking": "hm", "output": "42"}).response
        '42'
    """
    if isinstance(to_grade, Submission):
        given = {"query": query, "reference": reference}
        return to_grade.model_copy(update={key: value for key, value in given.items() if value is not None})
    parts = normalize_to_grade_input(to_grade)
    return Submission(
        response=parts.get("output", ""), thinking=parts.get("thinking") or None, query=query, reference=reference
    )
