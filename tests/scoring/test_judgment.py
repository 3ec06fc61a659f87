"""Verdicts in the forms in which models write them, and failures that are copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from rubric_integrations.scoring import JudgeFailure, Spend
from rubric_integrations.scoring.judgment import parse_verdict


def through_pickle(failure: JudgeFailure) -> JudgeFailure:
    return pickle.loads(pickle.dumps(failure))


@pytest.mark.parametrize("text", ["MET", "met", " Met. ", "**MET**", '"MET"', "`met`"])
def test_parse_verdict_ignores_case_and_punctuation(text: str) -> None:
    assert parse_verdict(text) == "MET"


@pytest.mark.parametrize("text", ["NOT MET", "PARTIAL", "", "MET or UNMET", "yes", "1"])
def test_parse_verdict_of_other_words_is_none(text: str) -> None:
    assert parse_verdict(text) is None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_copy_of_a_failure_has_all_that_it_says(duplicate: Callable[[JudgeFailure], JudgeFailure]) -> None:
    failure = JudgeFailure(
        "transport", "busy", retryable=True, retry_after=3.0, rate_limited=True, spend=Spend(calls=2, cost=0.5)
    )
    other = duplicate(failure)
    assert (str(other), vars(other)) == ("transport: busy", vars(failure))
