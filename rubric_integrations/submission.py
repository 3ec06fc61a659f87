"""What is graded: one response with the task it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from pydantic import field_validator

from rubric_integrations.record import Record

# About a quarter of a million tokens: no judge reads more, and a cut text would be graded for what was cut.
MAX_CHARS = 1_000_000


class ThinkingOutput(TypedDict, total=False):
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

    Raises:
        pydantic.ValidationError: (a ValueError) where there is nothing to grade, or too much.
    """

    response: str
    thinking: str | None = None
    query: str | None = None
    reference: str | None = None

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


ToGrade = str | ThinkingOutput | Mapping[str, Any] | Submission


def as_submission(to_grade: ToGrade, query: str | None = None, reference: str | None = None) -> Submission:
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
    if isinstance(to_grade, str):
        return Submission(response=to_grade, query=query, reference=reference)
    if not isinstance(to_grade, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise TypeError(
            f"`to_grade` must be a text, {{'thinking': ..., 'output': ...}} or a Submission, "
            f"got {type(to_grade).__name__}: its repr would have been graded"
        )
    unknown = set(to_grade) - {"thinking", "output"}
    if unknown:
        raise ValueError(f"`to_grade` has the unknown keys {sorted(unknown)!r}: use `thinking` and `output`")
    return Submission(
        response=to_grade.get("output", ""), thinking=to_grade.get("thinking"), query=query, reference=reference
    )
