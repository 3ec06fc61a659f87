"""Conditions on the length of a response, in words separated by white space: `min_words` and `max_words`."""

from __future__ import annotations

from typing import cast

from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission


def has_min_words(check: Check, submission: Submission) -> str:
    """Return the reason why the response has fewer words than `check.min_words`, or an empty string."""
    words, least = len(submission.response.split()), cast("int", check.min_words)
    return f"has {words} words, fewer than {least}" if words < least else ""


def has_max_words(check: Check, submission: Submission) -> str:
    """Return the reason why the response has more words than `check.max_words`, or an empty string."""
    words, most = len(submission.response.split()), cast("int", check.max_words)
    return f"has {words} words, more than {most}" if words > most else ""
