"""Different judges have different keys in a ledger, equal questions to one judge have equal keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dspy
import pytest
from langchain_openai import ChatOpenAI

from rubric_integrations import PerCriterionGrader, Submission
from rubric_integrations.judges import LMJudge, as_judge, lm_from_fn
from rubric_integrations.judges.protocol import fingerprint_of
from rubric_integrations.judges.store import StoredJudge
from tests.fakes import FakeJudge, FakeModel, FakeStore
from tests.judges.questions import BINARY, MET_REPLY, question_about


def chat(**settings: Any) -> str | None:
    defaults: dict[str, Any] = {"model": "m", "api_key": "k", "base_url": "http://127.0.0.1:9/v1"}
    return fingerprint_of(as_judge(ChatOpenAI(**{**defaults, **settings})))


def lm(**settings: Any) -> str | None:
    return fingerprint_of(LMJudge(dspy.LM("openai/m", **settings)))


@pytest.mark.parametrize(
    "setting",
    [
        {"base_url": "http://127.0.0.1:8/v1"}, {"default_headers": {"x-model": "b"}}, {"extra_body": {"model": "b"}},
        {"default_query": {"model": "b"}}, {"temperature": 0.5}, {"model_kwargs": {"metadata": {"model": "b"}}},
    ],
)  # fmt: skip
def test_chat_models_that_differ_in_a_setting_have_different_fingerprints(setting: dict[str, Any]) -> None:
    assert chat(**setting) != chat()


@pytest.mark.parametrize(
    "setting",
    [
        {"api_base": "http://127.0.0.1:8/v1"}, {"extra_headers": {"x-model": "b"}}, {"headers": {"x-model": "b"}},
        {"extra_body": {"a": {"model": "b"}}}, {"extra_query": {"model": "b"}}, {"metadata": {"model": "b"}},
        {"api_base": "http://127.0.0.1:9/v1?model=b"}, {"api_version": "2"},
    ],
)  # fmt: skip
def test_models_that_differ_in_a_setting_have_different_fingerprints(setting: dict[str, Any]) -> None:
    plain = {"api_base": "http://127.0.0.1:9/v1", "api_key": "k"}
    assert lm(**(plain | setting)) != lm(**plain)


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_base_url_of_the_environment_is_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    fingerprints = {LMJudge("openai/m").fingerprint(), chat(base_url=None)}
    for port in ("8", "9"):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}/v1")
        fingerprints |= {LMJudge("openai/m").fingerprint(), chat(base_url=None)}
    assert len(fingerprints) == 6


def test_lms_of_the_users_own_that_differ_in_a_text_have_different_fingerprints() -> None:
    class OwnLM(dspy.BaseLM):
        def __init__(self, url: str):
            super().__init__("m")
            self.url = url

    assert LMJudge(OwnLM("a")).fingerprint() == LMJudge(OwnLM("a")).fingerprint()
    assert LMJudge(OwnLM("a")).fingerprint() != LMJudge(OwnLM("b")).fingerprint()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"api_base": "http://h/v1"}, {"api_base": "http://h/v1/"}),
        ({"api_base": "http://h/v1"}, {"api_base": "HTTP://H:80/v1"}),
        ({"api_base": "http://h/v1"}, {"base_url": "http://me:password@h/v1?api_key=secret"}),
        ({}, {"seed": None, "api_base": None}),
        ({}, {"timeout": 5, "service_tier": "flex"}),
        ({"extra_body": {"top_k": 1}}, {"extra_body": {"top_k": 1.0, "seed": None}}),
        ({"headers": {"X-Model": "b", "Authorization": "a"}}, {"headers": {"x-model": "b", "authorization": "c"}}),
    ],
)
def test_equal_settings_in_another_form_have_equal_fingerprints(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert lm(**first) == lm(**second)


async def test_absent_and_empty_texts_are_the_same_question() -> None:
    judge = FakeJudge(fingerprint="f")
    stored = StoredJudge(judge, FakeStore())
    for query in (None, ""):
        for reference in (None, ""):
            for thinking in (None, ""):
                submission = Submission(response="a", query=query, reference=reference, thinking=thinking)
                await stored.judge(question_about(BINARY)._replace(submission=submission))
    assert len(judge.questions) == 1


async def reply_a(system: str, user: str, model: str = "a") -> str:
    return MET_REPLY


async def reply_b(system: str, user: str) -> str:
    return MET_REPLY


def closure(model: str) -> Any:
    async def reply(system: str, user: str) -> str:
        return model

    return reply


class Client:
    async def reply(self, system: str, user: str) -> str:
        return MET_REPLY


class Identified(FakeModel):
    def fingerprint(self) -> str:
        return "gateway-7"


UNIDENTIFIED: dict[str, Callable[[str, str], Any]] = {
    "lambda": lambda system, user: reply_a(system, user),  # noqa: PLW0108 -- a lambda is what this tests
    "closure": closure("a"),
    "partial": partial(reply_a, model="b"),
    "object": FakeModel(MET_REPLY),
    "method": Client().reply,
}


@pytest.mark.parametrize("name", UNIDENTIFIED)
def test_function_that_cannot_be_identified_is_refused_by_a_store(name: str) -> None:
    function: Any = UNIDENTIFIED[name]
    for grader in (PerCriterionGrader(function), PerCriterionGrader(generate_fn=function)):
        with pytest.raises(TypeError, match=r"cannot be identified.*lm_from_fn\(function, fingerprint="):
            grader.with_store(FakeStore())
    PerCriterionGrader(lm_from_fn(function, fingerprint="f")).with_store(FakeStore())


def test_engine_of_the_users_own_without_a_fingerprint_is_refused_by_a_store() -> None:
    class Engine:
        def complete(self, request: object) -> object:
            raise NotImplementedError

    with pytest.raises(TypeError, match="cannot be identified"):
        PerCriterionGrader(dspy.LM("m/m", engine=Engine(), cache=False)).with_store(FakeStore())


def test_functions_are_identified_by_their_names_or_their_fingerprints() -> None:
    named = [lm_from_fn(reply_a, fingerprint=name) for name in ("1", "2")]
    models = [reply_a, reply_b, Identified(MET_REPLY), *named]
    fingerprints = [LMJudge(model).fingerprint() for model in models]
    graders = [PerCriterionGrader(generate_fn=function) for function in (reply_a, reply_b, Identified(MET_REPLY))]
    fingerprints += [fingerprint for grader in graders for fingerprint in grader.fingerprints()]
    assert None not in fingerprints
    assert len(set(fingerprints)) == 8
