"""The stream of an agent or a graph to its user has no token of a judge, and callbacks and traces see the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langsmith.run_helpers import tracing_context

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.langchain import RubricMiddleware, RubricRunnable
from tests.langchain.helpers import chat_model
from tests.langchain.test_evaluator_tracing import RecordingClient
from tests.langchain.test_runnable import RunRecorder
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric.from_dict([{"name": "sourced", "weight": 1, "requirement": "Names a source"}])
ANSWERS = ["In 1912.", "In 1912, source: the log."]
INPUTS: dict[str, Any] = {"messages": [("user", "When?")]}


def script(call: Call) -> Reply:
    if call.criterion:
        return Reply("MET" if "source:" in call.prompt else "UNMET")
    return Reply(text=ANSWERS["fix this" in call.prompt])


def function_judge(server: OpenAIServer) -> Any:
    """Make a judge that calls a chat model, which is not known to be a judge's."""
    model = chat_model(server)

    async def judge(system: str, user: str) -> str:
        return (await model.ainvoke([("system", system), ("user", user)], {"tags": ["mine"]})).text

    return judge


JUDGES: dict[str, Callable[[OpenAIServer], Any]] = {
    "model": chat_model,
    "streaming model": lambda server: chat_model(server, streaming=True),
    "bound model": lambda server: chat_model(server).bind(temperature=0.5).with_config(tags=["mine"]),
    "function": function_judge,
}


class State(TypedDict, total=False):
    output: str
    score: float


def make_agent(server: OpenAIServer, judge: Any) -> Any:
    return create_agent(chat_model(server), middleware=[RubricMiddleware(RUBRIC, judge=judge)])


def make_graph(server: OpenAIServer, grade: Callable[[str], Any]) -> Any:
    """Make a graph with a node that answers, and a node that grades the answer."""
    graph: Any = StateGraph(State)

    def answer(_state: State) -> State:
        return {"output": chat_model(server).invoke("When?").text}

    def score(state: State) -> State:
        return {"score": grade(state.get("output", "")).score}

    graph.add_node("model", answer)
    graph.add_node("grade", score)
    graph.add_edge(START, "model")
    graph.add_edge("model", "grade")
    graph.add_edge("grade", END)
    return graph.compile()


def stream_of(runnable: Any, method: str, mode: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [part async for part in runnable.astream(INPUTS, stream_mode=mode)]

    return list(runnable.stream(INPUTS, stream_mode=mode)) if method == "stream" else asyncio.run(collect())


def answer_of(messages: list[Any]) -> str:
    """Join the texts of all messages, after a check that each is a token of the agent's model."""
    assert {metadata["langgraph_node"] for _, metadata in messages} == {"model"}
    assert all(isinstance(message, AIMessage) for message, _ in messages)
    return "".join(message.text for message, _ in messages)


@pytest.mark.parametrize("method", ["stream", "astream"])
@pytest.mark.parametrize("judge", JUDGES)
def test_agent_stream_has_no_token_of_the_judge(server: OpenAIServer, judge: str, method: str) -> None:
    server.script = script
    parts = stream_of(make_agent(server, JUDGES[judge](server)), method, ["messages", "updates"])
    assert answer_of([part for mode, part in parts if mode == "messages"]) == "".join(ANSWERS)
    reports = [part for mode, part in parts if mode == "updates" and "RubricMiddleware.after_agent" in part]
    assert [part["RubricMiddleware.after_agent"]["rubric_report"].score for part in reports] == [0.0, 1.0]


@pytest.mark.parametrize("method", ["stream", "astream"])
@pytest.mark.parametrize("judge", ["model", "function"])
def test_graph_stream_has_no_token_of_a_runnable_that_grades(server: OpenAIServer, judge: str, method: str) -> None:
    server.script = script
    runnable = RubricRunnable(RUBRIC, judge=JUDGES[judge](server))
    parts = stream_of(make_graph(server, runnable.invoke), method, "messages")
    assert answer_of(parts) == ANSWERS[0]


@pytest.mark.parametrize("method", ["stream", "astream"])
def test_graph_stream_has_no_token_of_a_grader(server: OpenAIServer, method: str) -> None:
    server.script = script
    grader = PerCriterionGrader(chat_model(server))
    graph = make_graph(server, lambda text: RUBRIC.grade_sync(text, grader=grader))
    assert answer_of(stream_of(graph, method, "messages")) == ANSWERS[0]


@pytest.mark.filterwarnings("ignore:.*v3")
def test_agent_event_streams_have_no_token_of_the_judge(server: OpenAIServer) -> None:
    server.script = script

    async def collect(**filters: Any) -> list[Any]:
        agent = make_agent(server, chat_model(server))
        return [event async for event in agent.astream_events(INPUTS, version="v2", **filters)]

    events = asyncio.run(collect())
    tokens = [event for event in events if event["event"] == "on_chat_model_stream"]
    assert answer_of([(event["data"]["chunk"], event["metadata"]) for event in tokens]) == "".join(ANSWERS)
    # The events of whole calls are a trace, which the judge is part of.
    ends = [event["metadata"]["langgraph_node"] for event in events if event["event"] == "on_chat_model_end"]
    assert ends == ["model", "RubricMiddleware.after_agent"] * 2
    untagged = asyncio.run(collect(exclude_tags=["nostream"]))
    assert [e["metadata"]["langgraph_node"] for e in untagged if e["event"] == "on_chat_model_end"] == ["model"] * 2
    run = make_agent(server, chat_model(server)).stream_events(INPUTS, version="v3")
    assert [str(message.text) for message in run.messages] == ANSWERS


@pytest.mark.parametrize("method", ["stream", "astream"])
def test_callbacks_and_traces_see_the_judge(server: OpenAIServer, method: str) -> None:
    server.script = script
    of_agent, of_model, of_binding, client = RunRecorder(), RunRecorder(), RunRecorder(), RecordingClient()
    judge = chat_model(server, callbacks=[of_model]).with_config(callbacks=[of_binding], metadata={"team": "a"})
    agent = make_agent(server, judge).with_config(callbacks=[of_agent])
    with tracing_context(enabled=True, client=client):
        stream_of(agent, method, "messages")
    assert len(of_model.select("model")) == len(of_binding.select("model")) == 2
    assert len(of_agent.select("model")) == len(client.named("ChatOpenAI")) == 4
    judges = [run for run in client.named("ChatOpenAI") if run["extra"]["metadata"].get("team") == "a"]
    assert len(judges) == 2
    assert len(client.roots()) == 1
    for run in judges:
        parent = client.traced[str(run["parent_run_id"])]
        assert (parent["name"], client.root_of(run)["name"]) == ("rubric", "LangGraph")


def test_answer_of_an_agent_with_the_name_of_the_sender_is_graded(server: OpenAIServer) -> None:
    server.script = script
    middleware = RubricMiddleware(RUBRIC, judge=chat_model(server), max_revisions=1)
    agent: Any = create_agent(chat_model(server), middleware=[middleware], name="rubric")
    state = agent.invoke({"messages": [HumanMessage("When?")]})
    assert (state["rubric_report"].score, state["rubric_revisions"]) == (1.0, 1)
