"""The condition `similarity`: how alike the response and a text are."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rubric_integrations import Check, Submission
from rubric_integrations.checks import run_check
from rubric_integrations.scoring import JudgeFailure


def similar(response: str, reference: str | None = None, ignore_case: bool = False, **settings: Any) -> Any:
    check = Check.model_validate({"similarity": settings, "ignore_case": ignore_case})
    return run_check(check, Submission(response=response, reference=reference))


def test_similarity_is_the_share_of_letters_that_stay_and_a_floor_makes_it_a_verdict() -> None:
    pytest.importorskip("rapidfuzz", reason="rapidfuzz is not installed (extra `metrics`)")
    assert similar("kitten", to="sitting").value == pytest.approx(1 - 3 / 7)
    assert similar(" Bolt\n", "Bolt").value == 1.0
    assert similar("Bolt", "bolt").value == 0.75
    assert similar("Bolt", "bolt", ignore_case=True).reason == "similarity to the reference"
    assert similar("Bolt", "bolt", min_ratio=0.75).verdict == "MET"
    judgment = similar("Bolt", "bolt", min_ratio=0.8)
    assert (judgment.verdict, judgment.reason) == ("UNMET", "has a similarity of 0.750, below 0.8")
    check = Check.model_validate({"similarity": {"to": "ab", "min_ratio": 0.5}, "max_words": 1})
    assert run_check(check, "a c").reason == "has a similarity of 0.333, below 0.5; has 2 words, more than 1"


def test_similarity_that_cannot_be_computed_is_a_failure_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JudgeFailure, match="needs a text: write `to`, or pass the submission's `reference`"):
        similar("x")
    with pytest.raises(JudgeFailure, match="at most 50,000 characters, and one has 300,000"):
        similar("x", "\ufb03" * 100_000, ignore_case=True)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(JudgeFailure, match=r"`rapidfuzz.distance` is not installed: pip install rapidfuzz"):
        similar("x", "y")
