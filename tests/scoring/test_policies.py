"""The settings for abstentions and failures."""

from __future__ import annotations

import math

import pytest

from rubric_integrations import Criterion, Option
from rubric_integrations.scoring import OnFailure
from rubric_integrations.scoring.policies import fallback_judgment, validate_abstention_policy, validate_failure_policy


@pytest.mark.parametrize("policy", ["ignore", None, {"positve": "MET"}, {"positive": "CANNOT_ASSESS"}, 3])
def test_unknown_failure_policy_is_refused(policy: object) -> None:
    with pytest.raises(ValueError, match="on_failure"):
        validate_failure_policy(policy)


@pytest.mark.parametrize(
    ("policy", "words"),
    [("ignore", "'ignore'"), (1.5, "1.5"), (-0.1, "-0.1"), (math.nan, "nan"), (True, "True"), (None, "None")],
)
def test_invalid_abstention_policy_is_refused(policy: object, words: str) -> None:
    with pytest.raises(ValueError, match=f"`cannot_assess` .* got {words}"):
        validate_abstention_policy(policy)


@pytest.mark.parametrize(
    ("weight", "on_failure", "verdict"),
    [
        (1, "raise", None),
        (1, "abstain", None),
        (1, "worst_case", "bad"),
        (-1, "worst_case", "good"),
        (1, {"positive": "MET"}, "good"),
        (-1, {"positive": "MET"}, "bad"),
        (-1, {"negative": "MET"}, "good"),
        (1, {}, "bad"),
        (-1, {"positive": "UNMET", "negative": "MET"}, "good"),
    ],
)
def test_fallback_of_a_failure_follows_the_policy_and_the_sign(
    weight: float, on_failure: OnFailure, verdict: str | None
) -> None:
    validate_failure_policy(on_failure)
    options = (Option(label="bad", value=0.2), Option(label="good", value=0.9), Option(label="?", na=True))
    judgment = fallback_judgment(Criterion(requirement="r", weight=weight, options=options), on_failure)
    assert (judgment.verdict if judgment else None) == verdict


def test_fallback_of_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(AssertionError):
        fallback_judgment(Criterion(requirement="r"), "ignore")  # pyright: ignore[reportArgumentType]
