"""A judge does not read the response caches of DSPy and LangChain, unless its user asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement="Names the river")])


@pytest.fixture(autouse=True)
def _empty_caches() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    dspy.cache.reset_memory_cache()
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    set_llm_cache(InMemoryCache())
    yield
    set_llm_cache(None)


def cached_lm(server: OpenAIServer) -> dspy.LM:
    return dspy.LM("openai/mock", api_base=server.url, api_key="k", cache=True, num_retries=0)


def cached_chat_model(server: OpenAIServer) -> ChatOpenAI:
    return ChatOpenAI(model="mock", base_url=server.url, api_key=SecretStr("k"), max_retries=0)


MODELS = [cached_lm, cached_chat_model]


@pytest.mark.parametrize("make_model", MODELS)
def test_reply_in_prose_is_requested_again_not_repeated_from_the_cache(server: OpenAIServer, make_model: Any) -> None:
    server.script = lambda call: Reply(text="I think it does.") if call.number == 0 else Reply(verdict="MET")
    report = RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(make_model(server)))
    assert report.score == 1.0
    assert len(server.calls) == 2


@pytest.mark.parametrize("make_model", MODELS)
def test_second_server_under_the_same_model_name_gives_its_own_verdict(server: OpenAIServer, make_model: Any) -> None:
    with OpenAIServer(lambda _call: Reply(verdict="UNMET")) as other:
        assert RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(make_model(server))).score == 1.0
        assert RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(make_model(other))).score == 0.0


@pytest.mark.parametrize("make_model", MODELS)
def test_panel_of_one_model_requests_every_vote(server: OpenAIServer, make_model: Any) -> None:
    def script(call: Call) -> Reply:
        return Reply(verdict="MET" if call.number else "UNMET")

    server.script = script
    model = make_model(server)
    report = RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(judges=[model, model, model]))
    assert len(server.calls) == 3
    assert report.mean_agreement == pytest.approx(2 / 3)


@pytest.mark.parametrize("make_model", MODELS)
def test_framework_cache_is_read_where_the_user_asks_for_it(server: OpenAIServer, make_model: Any) -> None:
    judge = LMJudge(make_model(server), framework_cache=True)
    for _ in range(2):
        assert RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(judge)).score == 1.0
    assert len(server.calls) == 1
    RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(judge).without_cache())
    assert len(server.calls) == 2


def test_judge_leaves_the_users_model_unchanged(server: OpenAIServer) -> None:
    lm, chat_model = cached_lm(server), cached_chat_model(server)
    PerCriterionGrader(judges=[lm, chat_model])
    assert lm.cache is True
    assert chat_model.cache is None
