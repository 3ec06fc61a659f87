"""Conditions on the text of a response: `contains`, `not_contains`, `equals` and `regex`."""

from __future__ import annotations

from typing import cast

from rubric_integrations._util.patterns import compile_pattern
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import Check, Texts
from rubric_integrations.submission.submission import Submission

# A pattern with catastrophic backtracking would block a run: after so many seconds of CPU time, it is a failure.
PATTERN_SECONDS = 0.5


def contains(check: Check, submission: Submission) -> str:
    """Return the reason why not every text of `check.contains` occurs in the response, or an empty string."""
    searched = _folded(submission.response, check)
    missing = [text for text in _as_tuple(check.contains) if _folded(text, check) not in searched]
    return f"does not contain {_quoted(missing)}" if missing else ""


def not_contains(check: Check, submission: Submission) -> str:
    """Return the reason why a text of `check.not_contains` occurs in the response, or an empty string."""
    searched = _folded(submission.response, check)
    present = [text for text in _as_tuple(check.not_contains) if _folded(text, check) in searched]
    return f"contains {_quoted(present)}" if present else ""


def equals(check: Check, submission: Submission) -> str:
    """Return the reason why the response is not `check.equals`, or an empty string; outer white space is ignored."""
    expected = cast("str", check.equals)
    return (
        ""
        if _folded(submission.response, check).strip() == _folded(expected, check).strip()
        else f"is not {expected!r}"
    )


def matches(check: Check, submission: Submission) -> str:
    """Return the reason why the pattern `check.regex` matches nowhere in the response, or an empty string.

    Raises:
        JudgeFailure: Of kind `check`: the search took longer than `PATTERN_SECONDS`.
    """
    is_match = search(
        cast("str", check.regex), submission.response, ignore_case=check.ignore_case, seconds=PATTERN_SECONDS
    )
    return "" if is_match else "has no match of the pattern"


def search(pattern: str, text: str, *, ignore_case: bool = False, seconds: float) -> bool:
    """Return whether a pattern matches somewhere in a text.

    Raises:
        JudgeFailure: Of kind `check`: the search took longer than `seconds`.
        ValueError: The pattern is not a regular expression, or too large.
    """
    compiled = compile_pattern(pattern, ignore_case=ignore_case)
    try:
        return compiled.search(text, timeout=seconds, concurrent=True) is not None
    except TimeoutError:
        raise JudgeFailure(
            "check", f"the pattern {pattern[:80]!r} took longer than {PATTERN_SECONDS:g} s: make it less ambiguous"
        ) from None


def _as_tuple(texts: Texts | None) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts or ()


def _folded(text: str, check: Check) -> str:
    return text.casefold() if check.ignore_case else text


def _quoted(texts: list[str]) -> str:
    return ", ".join(map(repr, texts))
