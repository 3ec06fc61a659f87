"""Verdicts in the forms in which models write them."""

from __future__ import annotations

import pytest

from rubric_integrations.results.judgment import parse_verdict


@pytest.mark.parametrize("text", ["MET", "met", " Met. ", "**MET**", '"MET"', "`met`"])
def test_parse_verdict_ignores_case_and_punctuation(text: str) -> None:
    assert parse_verdict(text) == "MET"


@pytest.mark.parametrize("text", ["NOT MET", "PARTIAL", "", "MET or UNMET", "yes", "1"])
def test_parse_verdict_of_other_words_is_none(text: str) -> None:
    assert parse_verdict(text) is None
