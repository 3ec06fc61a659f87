"""The sources of models: each kind of object is recognized, and refuses options that would have no effect."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import dspy
import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from rubric_integrations import PerCriterionGrader
from rubric_integrations.judges import LMJudge, ModelSettings
from rubric_integrations.judges.models.names import MODEL_SOURCES, to_lm
from tests.fakes import FakeModel
from tests.judges.questions import MET_REPLY, judge_one

# One object of each source, which answers MET; a new source needs one here.
MODELS: dict[str, Any] = {
    "dspy": dspy.utils.DummyLM([{"explanation": "e", "verdict": "MET"}], adapter=dspy.JSONAdapter()),
    "langchain": FakeMessagesListChatModel(responses=[AIMessage(MET_REPLY)]),
    "function": FakeModel(MET_REPLY),
}
OPTIONS = {"api_base": "http://127.0.0.1/v1", "api_key": "k", "temperature": 0.0, "max_tokens": 9, "seed": 0,
           "reasoning_effort": "low", "service_tier": "flex", "headers": {"X-Team": "evals"}}  # fmt: skip


@pytest.mark.parametrize("source", MODEL_SOURCES)
def test_model_of_each_source_answers_a_question(source: str) -> None:
    assert next(name for name, kind in MODEL_SOURCES.items() if kind.matches(MODELS[source])) == source
    assert judge_one(LMJudge(MODELS[source])).verdict == "MET"


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("source", MODEL_SOURCES)
def test_option_with_a_model_that_is_configured_already_is_refused(source: str, option: str) -> None:
    settings: dict[str, Any] = {option: OPTIONS[option]}
    assert [field.name for field in fields(ModelSettings)] == list(OPTIONS)
    with pytest.raises(ValueError, match=rf"`{option}` goes with a model name, and has no effect on"):
        LMJudge(MODELS[source], settings=ModelSettings(**settings))


@pytest.mark.parametrize("name", ["api_base", "api_key", "temperature"])
def test_setting_that_is_passed_twice_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: OPTIONS[name]}
    with pytest.raises(ValueError, match=rf"`{name}` and `settings.{name}` are two names of one setting"):
        LMJudge("openai/mock", settings=ModelSettings(**settings), **settings)


class AsyncProgram(dspy.Module):
    """A program that is called as a function of two texts."""

    async def forward(self, system_prompt: str, user_prompt: str) -> str:
        return MET_REPLY


class AwaitedProgram(dspy.Module):
    """A program with a call of its own."""

    async def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, system_prompt: str, user_prompt: str
    ) -> str:
        return MET_REPLY


def test_dspy_program_that_is_no_judge_is_refused_when_the_judge_is_made() -> None:
    for program in (dspy.Predict("question -> answer"), dspy.ChainOfThought("submission -> verdict")):
        with pytest.raises(TypeError, match="a DSPy program is a judge with an async method `judge`"):
            PerCriterionGrader(judge=program)  # pyright: ignore[reportArgumentType]
    awaited: tuple[Any, ...] = (AsyncProgram(), AwaitedProgram())
    for program in awaited:
        assert judge_one(LMJudge(program)).verdict == "MET"


def test_object_of_no_source_is_refused_with_the_kinds_that_there_are() -> None:
    with pytest.raises(TypeError, match="got int") as error:
        to_lm(3)  # pyright: ignore[reportArgumentType]
    for source in MODEL_SOURCES.values():
        assert source.description in str(error.value)
