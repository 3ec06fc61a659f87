"""`RubricMiddleware`: an agent's answer is graded, revised and reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

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


def test_middleware_failing_judge_raises(server: OpenAIServer) -> None:
    model = chat_model(server, lambda _call: Reply(status=401))
    with pytest.raises(JudgeError):
        run_agent(RubricMiddleware(lambda state: SOURCE_RUBRIC, judge=model), "Hm.")


def test_middleware_negative_max_revisions_raises() -> None:
    with pytest.raises(ValueError, match="`max_revisions`"):
        RubricMiddleware(SOURCE_RUBRIC, judge="offline", max_revisions=-1)
