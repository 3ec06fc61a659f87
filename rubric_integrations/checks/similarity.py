"""The condition `similarity`: the response resembles a text, letter by letter."""

from __future__ import annotations

from typing import cast

from rubric_integrations.checks.metrics import import_library
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.answer_checks import SimilarityCheck
from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission

# Two such texts are compared in a quarter of a second.
MAX_CHARS = 50_000


def is_similar(check: Check, submission: Submission) -> str:
    """Return the reason why the response is less similar than `check.similarity.min_ratio`, or an empty string."""
    ratio, _ = similarity_ratio(check, submission)
    least = cast("SimilarityCheck", check.similarity).min_ratio or 0.0
    return "" if ratio >= least else f"has a similarity of {ratio:.3f}, below {least:g}"


def similarity_ratio(check: Check, submission: Submission) -> tuple[float, str]:
    """Return the similarity of the response to the text of `check.similarity`, and what it was compared with.

    It is 1 minus the Levenshtein distance divided by the length of the longer text. Outer white space is ignored.

    Raises:
        JudgeFailure: Of kind `check`: there is no text to compare with, a text has more than 50,000 characters, or
            `rapidfuzz` is not installed.
    """
    expected = cast("SimilarityCheck", check.similarity).to
    name = "the text" if expected else "the reference"
    expected = expected or submission.reference
    if not expected:
        raise JudgeFailure(
            "check", "the condition `similarity` needs a text: write `to`, or pass the submission's `reference`"
        )
    texts = [text.strip().casefold() if check.ignore_case else text.strip() for text in (submission.response, expected)]
    if (length := max(map(len, texts))) > MAX_CHARS:
        raise JudgeFailure(
            "check",
            f"the condition `similarity` is for texts of at most {MAX_CHARS:,} characters, and one has {length:,}: "
            "shorten it, or use another check",
        )
    levenshtein = import_library("rapidfuzz.distance").Levenshtein
    return float(levenshtein.normalized_similarity(*texts)), f"similarity to {name}"
