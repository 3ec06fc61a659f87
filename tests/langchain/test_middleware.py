"""`RubricMiddleware`: an agent's answer is graded, revised and reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from rubric_integrations import EvaluationReport, JudgeError
from rubric_integrations.langchain import RubricMiddleware
from tests.langchain.helpers import SOURCE_RUBRIC, AgentModel, chat_model, source_script
from tests.openai_server import OpenAIServer, Reply


def run_agent(middleware: RubricMiddleware, *answers: str, method: str = "invoke") -> dict[str, Any]:
    """Run an agent that gives these answers one after the other, and return its final state."""
    model = AgentModel(responses=[AIMessage(text) for text in answers])
    agent: Any = create_agent(model, middleware=[middleware])
    inputs = {"messages": [HumanMessage("When was it?")]}
    return agent.invoke(inputs) if method == "invoke" else asyncio.run(agent.ainvoke(inputs))


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_middleware_unmet_criterion_is_sent_back_and_the_revision_passes(server: OpenAIServer, method: str) -> None:
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    state = run_agent(middleware, "In 1912.", "In 1912, source: the log.", method=method)
    report = state["rubric_report"]
    assert isinstance(report, EvaluationReport)
    assert (report.score, report.passed, state["rubric_revisions"]) == (1.0, True, 1)
    assert [message.type for message in state["messages"]] == ["human", "ai", "human", "ai"]
    request = state["messages"][2]
    assert request.name == "rubric"
    assert request.text.splitlines() == [
        "Your answer does not pass yet. Answer again in full, and fix this:",
        "- Missing: Names a source (as scripted)",
    ]
    # The judge sees the task, but not the request for a revision, which quotes the rubric.
    assert "When was it?" in server.calls[-1].prompt
    assert not any("fix this" in call.prompt for call in server.calls)


@pytest.mark.parametrize(("max_revisions", "grades"), [(0, 1), (2, 3)])
def test_middleware_at_max_revisions_stops_with_the_last_report(
    server: OpenAIServer, max_revisions: int, grades: int
) -> None:
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script), max_revisions=max_revisions)
    state = run_agent(middleware, "No idea.", "Still none.", "None at all.")
    assert (state["rubric_report"].passed, state["rubric_revisions"]) == (False, max_revisions)
    assert len(server.calls) == 3 * grades


def test_middleware_several_unmet_criteria_are_listed_by_weight(server: OpenAIServer) -> None:
    model = chat_model(server, lambda call: Reply("MET" if call.criterion == "Is rude" else "UNMET"))
    state = run_agent(RubricMiddleware(SOURCE_RUBRIC, judge=model, max_revisions=1), "Go away.", "No.")
    assert state["messages"][2].text.splitlines()[1:] == [
        "- Missing: Names a source (as scripted)",
        "- Avoid: Is rude (as scripted)",
        "- Missing: Is brief (as scripted)",
    ]


def test_middleware_abstention_is_not_sent_back(server: OpenAIServer) -> None:
    model = chat_model(server, lambda _call: Reply("CANNOT_ASSESS"))
    state = run_agent(RubricMiddleware(SOURCE_RUBRIC, judge=model), "Hm.")
    assert (state["rubric_report"].score, state["rubric_revisions"]) == (None, 0)


def test_middleware_empty_answer_is_not_graded(server: OpenAIServer) -> None:
    state = run_agent(RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server)), " ")
    assert state["rubric_report"] is None
    assert server.calls == []


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_middleware_every_turn_of_a_thread_has_its_own_revisions(server: OpenAIServer, method: str) -> None:
    answers = ["In 1912.", "Still 1912.", "In 1913.", "In 1913, source: the log."]
    model = AgentModel(responses=[AIMessage(text) for text in answers])
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script), max_revisions=1)
    agent: Any = create_agent(model, middleware=[middleware], checkpointer=InMemorySaver())
    states: list[dict[str, Any]] = []

    async def ask() -> None:
        for question in ("When was it?", "And the other?"):
            inputs, config = {"messages": [HumanMessage(question)]}, {"configurable": {"thread_id": "1"}}
            states.append(agent.invoke(inputs, config) if method == "invoke" else await agent.ainvoke(inputs, config))

    asyncio.run(ask())
    assert [(state["rubric_report"].passed, state["rubric_revisions"]) for state in states] == [(False, 1), (True, 1)]
    # The second turn is graded with the first as context, without the requests for revisions.
    assert "When was it?" in server.calls[-1].prompt
    assert not any("fix this" in call.prompt for call in server.calls)


def test_middleware_report_of_an_earlier_turn_is_not_left_in_the_state(server: OpenAIServer) -> None:
    model = AgentModel(responses=[AIMessage("source: a"), AIMessage(" ")])
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    agent: Any = create_agent(model, middleware=[middleware], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    assert agent.invoke({"messages": [HumanMessage("q")]}, config)["rubric_report"].passed
    assert agent.invoke({"messages": [HumanMessage("q")]}, config)["rubric_report"] is None


class Answer(BaseModel):
    text: str


def structured_answer(number: int, text: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "Answer", "args": {"text": text}, "id": f"c{number}"}])


@pytest.mark.parametrize("as_json", [False, True])
def test_middleware_structured_response_is_graded_and_revised(server: OpenAIServer, as_json: bool) -> None:
    texts = ["In 1912.", "source: the log"]
    responses: list[Any]
    if as_json:
        responses = [AIMessage(Answer(text=text).model_dump_json()) for text in texts]
    else:
        responses = [structured_answer(number, text) for number, text in enumerate(texts)]
    strategy: Any = ProviderStrategy(Answer) if as_json else ToolStrategy(Answer)
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    agent: Any = create_agent(AgentModel(responses=responses), response_format=strategy, middleware=[middleware])
    state = agent.invoke({"messages": [HumanMessage("When was it?")]})
    assert state["structured_response"] == Answer(text="source: the log")
    assert (state["rubric_report"].score, state["rubric_revisions"]) == (1.0, 1)
    # The judge reads the JSON of the answer, and the task; the graded answer is not repeated in the task.
    assert '\n{"text": "source: the log"}\n</data' in server.calls[-1].prompt
    assert server.calls[-1].prompt.count("source: the log") == 1
    assert "When was it?" in server.calls[-1].prompt


def test_middleware_failing_judge_raises(server: OpenAIServer) -> None:
    model = chat_model(server, lambda _call: Reply(status=401))
    with pytest.raises(JudgeError):
        run_agent(RubricMiddleware(lambda state: SOURCE_RUBRIC, judge=model), "Hm.")


def test_middleware_negative_max_revisions_raises() -> None:
    with pytest.raises(ValueError, match="`max_revisions`"):
        RubricMiddleware(SOURCE_RUBRIC, judge="offline", max_revisions=-1)
