"""Conditions on the text of a response: `contains`, `equals`, `reference`, `regex`, `number`, word limits."""

from __future__ import annotations

from typing import cast

from rubric_integrations._util.patterns import compile_pattern
from rubric_integrations._util.text import read_quantities
from rubric_integrations.checks.registry import decides
from rubric_integrations.rubric.check import Check, NumberCheck, Texts
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.submission import Submission


@decides("min_words")
def has_min_words(check: Check, submission: Submission) -> str:
    """Return a message if the response has fewer words than `check.min_words`, otherwise an empty string."""
    words, least = len(submission.response.split()), cast("int", check.min_words)
    return f"has {words} words, fewer than {least}" if words < least else ""


@decides("max_words")
def has_max_words(check: Check, submission: Submission) -> str:
    """Return a message if the response has more words than `check.max_words`, otherwise an empty string."""
    words, most = len(submission.response.split()), cast("int", check.max_words)
    return f"has {words} words, more than {most}" if words > most else ""


@decides("number")
def states_number(check: Check, submission: Submission) -> str:
    """Return a message if the response does not state `check.number`, otherwise an empty string.

    A number in the response counts if its difference from the value is within the tolerance. If the check has a unit,
    the number must also have this unit.
    """
    expected = cast("NumberCheck", check.number)
    margin = expected.tolerance + 1e-12 * abs(expected.value)  # 0.1 + 0.2 and 0.3 are the same number
    for quantity in read_quantities(submission.response):
        if (not expected.unit or quantity.unit == expected.unit) and abs(quantity.value - expected.value) <= margin:
            return ""
    within = f" within {expected.tolerance:g}" if expected.tolerance else ""
    return f"does not state the number {expected.value:g}{expected.unit if expected.unit == '%' else ''}{within}"


# The longest search of a pattern in seconds. A longer search is a failure, because a pattern with catastrophic
# backtracking would block a run.
PATTERN_SECONDS = 0.5


@decides("contains")
def contains(check: Check, submission: Submission) -> str:
    """Return a message if not every text of `check.contains` occurs in the response, otherwise an empty string."""
    searched = _folded(submission.response, check)
    missing = [text for text in _as_tuple(check.contains) if _folded(text, check) not in searched]
    return f"does not contain {_quoted(missing)}" if missing else ""


@decides("not_contains")
def not_contains(check: Check, submission: Submission) -> str:
    """Return a message if a text of `check.not_contains` occurs in the response, otherwise an empty string."""
    searched = _folded(submission.response, check)
    present = [text for text in _as_tuple(check.not_contains) if _folded(text, check) in searched]
    return f"contains {_quoted(present)}" if present else ""


@decides("equals")
def equals(check: Check, submission: Submission) -> str:
    """Return a message if the response is not `check.equals`, otherwise an empty string.

    Outer white space is ignored.
    """
    expected = cast("str", check.equals)
    return (
        ""
        if _folded(submission.response, check).strip() == _folded(expected, check).strip()
        else f"is not {expected!r}"
    )


@decides("reference")
def compares_with_reference(check: Check, submission: Submission) -> str:
    """Return a message if the response does not equal, differ from or contain the reference, otherwise an empty string.

    White space is compared, too.

    Raises:
        JudgeFailure: Of kind `check`, if the submission has no reference.
    """
    if not submission.reference:
        raise JudgeFailure("check", "the condition `reference` needs the submission's `reference`, which is missing")
    response, reference = _folded(submission.response, check), _folded(submission.reference, check)
    match check.reference:
        case "contains":
            return "" if reference in response else "does not contain the reference"
        case "differs":
            return "" if reference != response else "is the reference"
        case _:
            return "" if reference == response else "is not the reference"


@decides("regex")
def matches(check: Check, submission: Submission) -> str:
    """Return a message if the pattern `check.regex` matches nowhere in the response, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if the search takes longer than `PATTERN_SECONDS`.
    """
    is_match = search(
        cast("str", check.regex), submission.response, ignore_case=check.ignore_case, seconds=PATTERN_SECONDS
    )
    return "" if is_match else "has no match of the pattern"


def search(pattern: str, text: str, *, ignore_case: bool = False, seconds: float) -> bool:
    """Return whether a pattern matches somewhere in a text.

    Raises:
        JudgeFailure: Of kind `check`, if the search takes longer than `seconds`.
        ValueError: The pattern is not a regular expression, or it is too large.
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
