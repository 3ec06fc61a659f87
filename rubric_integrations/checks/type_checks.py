"""The condition `type_checks`: the Python code of the response has no type errors. The code is never executed."""

from __future__ import annotations

import re
from typing import cast

from rubric_integrations.checks.fenced import fenced_blocks
from rubric_integrations.checks.type_checkers import run_type_checker
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.answer_checks import TypeCheck
from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission

# About 3,000 lines, which a type checker reads in seconds.
MAX_CHARS = 100_000
_MAX_ERRORS = 3
_MAX_ERROR = 200

_LANGUAGES = ("python", "py", "python3")
# What makes a type checker look away. It may stand in a text, too, which then counts as well.
_SUPPRESSION = re.compile(r"#\s*(?:type:\s*ignore|(?:based)?pyright:|mypy:)|\bno_type_check\b", re.IGNORECASE)


def has_no_type_errors(check: Check, submission: Submission) -> str:
    """Return the first type errors of the code in the response, or an empty string.

    The code is in the fenced blocks of Python or, if there are none, in those without a language. Several blocks are
    one program, in their order. The numbers of lines are those of the response.

    Raises:
        JudgeFailure: Of kind `check`: the type checker is not installed, crashed or took too long, or the code has
            more than 100,000 characters.
    """
    code = _code_of(submission.response)
    if not code.strip():
        return "has no fenced block of Python code that is closed"
    if len(code) > MAX_CHARS:
        raise JudgeFailure(
            "check",
            f"the condition `type_checks` is for code of at most {MAX_CHARS:,} characters, and this has {len(code):,}: "
            "ask for shorter code",
        )
    for number, line in enumerate(code.split("\n"), start=1):
        if suppression := _SUPPRESSION.search(line):
            return f"turns type checking off in line {number} with {suppression[0]!r}"
    errors = run_type_checker(cast("TypeCheck", check.type_checks).tool, code)
    if not errors:
        return ""
    first = "; ".join(f"line {error.line}: {error.message}"[:_MAX_ERROR] for error in errors[:_MAX_ERRORS])
    more = f", and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return f"has {len(errors)} type errors: {first}{more}" if len(errors) > 1 else f"has a type error in {first}"


def _code_of(text: str) -> str:
    """Return the code of a response, each line at its own number: all other lines are empty."""
    blocks = list(fenced_blocks(text))
    blocks = [block for block in blocks if block.language in _LANGUAGES] or [b for b in blocks if not b.language]
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.first_line - 1 - len(lines))
        lines += block.lines
    return "\n".join(lines)
