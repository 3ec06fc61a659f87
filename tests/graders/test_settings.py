"""The records of settings: defaults, validation, and that they cannot be changed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders import (
    GRADERS,
    CallLimits,
    Grader,
    OptionDisplay,
    RubricAsJudgeGrader,
    TextLimits,
    Voting,
)
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge
from tests.graders.rubrics import ONE


@pytest.mark.parametrize("record", [Voting(), CallLimits(), TextLimits(), OptionDisplay()])
def test_settings_are_frozen_and_refuse_unknown_names(record: Any) -> None:
    name = next(iter(type(record).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(record, name, None)
    with pytest.raises(ValidationError, match="nonsense"):
        type(record)(nonsense=1)


def test_settings_have_the_documented_defaults() -> None:
    assert Voting().model_dump() == {
        "weights": None, "binary": "majority", "ordinal": "mean", "nominal": "mode", "sequential": False,
    }  # fmt: skip
    assert CallLimits().model_dump() == {
        "max_concurrency": 64, "max_retries": 2, "timeout": 120.0, "max_outage": None,
    }  # fmt: skip
    assert TextLimits().model_dump() == {"step_limit": None, "chunk_size": None}
    assert OptionDisplay().model_dump() == {"shuffle": True, "seed": 0, "may_abstain": True}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weights": [1, 0]}, "greater than 0"),
        ({"weights": [float("inf")]}, "finite"),
        ({"binary": "median"}, "'median'"),
        ({"ordinal": "majority"}, "'majority'"),
        ({"nominal": "mean"}, "'mean'"),
    ],
)
def test_voting_out_of_range_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Voting(**settings)


@pytest.mark.parametrize(
    "settings", [{"max_concurrency": 0}, {"max_concurrency": True}, {"max_concurrency": 2.0}, {"timeout": 0},
                 {"timeout": float("inf")}, {"max_outage": -1}, {"max_outage": float("nan")}, {"max_retries": -1},
                 {"max_retries": True}],
)  # fmt: skip
def test_call_limits_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        CallLimits(**settings)


@pytest.mark.parametrize("settings", [{"step_limit": 0}, {"step_limit": True}, {"chunk_size": 4}])
def test_text_limits_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        TextLimits(**settings)


@pytest.mark.parametrize("grader_type", GRADERS.values())
def test_max_retries_of_a_grader_is_the_one_of_its_call_limits(grader_type: type[Grader]) -> None:
    judge = FakeOverallJudge(85) if grader_type is RubricAsJudgeGrader else FakeBatchJudge()
    grader = grader_type(judge, max_retries=5, limits=CallLimits(timeout=7.0))
    assert grader.call_limiter.limits == CallLimits(timeout=7.0, max_retries=5)


def test_max_retries_beside_the_one_of_call_limits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`max_retries` and `limits\.max_retries` are two names of one setting"):
        PerCriterionGrader("offline", max_retries=2, limits=CallLimits(max_retries=2))


def test_options_have_no_effect_on_a_score_of_the_whole_and_are_refused() -> None:
    with pytest.raises(ValueError, match="`options` are about single criteria"):
        RubricAsJudgeGrader(FakeOverallJudge(85), options=OptionDisplay(seed=3))


@pytest.mark.parametrize(
    ("voting", "verdict"),
    [
        (Voting(), "MET"),
        (Voting(sequential=True), "MET"),
        (Voting(binary="unanimous"), "UNMET"),
        (Voting(binary="any", sequential=True), "MET"),
        (Voting(binary="weighted", weights=(1, 1, 3)), "UNMET"),
        (Voting(binary="weighted", weights=(1, 1, 3), sequential=True), "UNMET"),
        (Voting(binary="worst_case"), "UNMET"),
    ],
)
def test_voting_of_a_grader_decides_the_verdict(voting: Voting, verdict: str) -> None:
    judges = [FakeJudge("MET"), FakeJudge("MET"), FakeJudge("UNMET")]
    report = ONE.grade_sync("text", grader=PerCriterionGrader(judges=judges, voting=voting))
    assert report.criteria[0].verdict == verdict


def test_settings_of_a_grader_that_scores_depend_on_are_recorded_as_json() -> None:
    grader = PerCriterionGrader("offline", voting=Voting(binary="any"), options=OptionDisplay(seed=3))
    settings = grader.settings()
    assert Voting.model_validate(settings["voting"]) == grader.voting
    assert OptionDisplay.model_validate(settings["options"]) == grader.options
