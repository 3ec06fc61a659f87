"""`RubricMiddleware`: an agent's answer is graded, revised and reported."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ToolCallLimitMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from pydantic import BaseModel

from rubric_integrations import Check, Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import TextLimits
from rubric_integrations.langchain import RubricMiddleware
from rubric_integrations.runs.ledger import Ledger
from tests.fakes import FakeExplorer
from tests.langchain.helpers import SOURCE_RUBRIC, AgentModel, chat_model, source_script
from tests.langchain.test_runnable import RunRecorder
from tests.openai_server import Call, OpenAIServer, Reply


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


@tool
def search(text: str) -> str:
    """Search for a text."""
    return f"found {text}"


def search_call(number: int) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "search", "args": {"text": "a"}, "id": f"s{number}"}])


def run_with(others: list[Any], responses: list[Any], server: OpenAIServer, **settings: Any) -> Any:
    """Return the final state of an agent with further middleware, whose order is reversed if the last one is None."""
    middleware = [RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script)), *others]
    middleware = middleware[-2::-1] if middleware[-1] is None else middleware
    agent: Any = create_agent(AgentModel(responses=responses), tools=[search], middleware=middleware, **settings)
    return agent.invoke({"messages": [HumanMessage("When was it?")]})


ORDERS = pytest.mark.parametrize("order", [[], [None]], ids=["first", "last"])


@ORDERS
def test_middleware_notice_of_the_model_call_limit_is_not_graded(server: OpenAIServer, order: list[Any]) -> None:
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="end")
    state = run_with([limit, *order], [AIMessage("In 1912.")], server)
    assert [message.type for message in state["messages"]] == ["human", "ai", "human", "ai"]
    assert "limits exceeded" in state["messages"][-1].text
    # The report is that of the answer that the model has written.
    assert (state["rubric_report"].score, state["rubric_revisions"], len(server.calls)) == (0.4, 1, 3)


@ORDERS
def test_middleware_notice_without_any_answer_has_no_report(server: OpenAIServer, order: list[Any]) -> None:
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="end")
    state = run_with([limit, *order], [search_call(1)], server)
    assert (state["rubric_report"], state["rubric_revisions"], server.calls) == (None, 0, [])


@ORDERS
def test_middleware_notice_of_the_tool_call_limit_is_not_graded(server: OpenAIServer, order: list[Any]) -> None:
    limit = ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")
    state = run_with([limit, *order], [search_call(1), search_call(2)], server)
    assert "limit" in state["messages"][-1].text
    assert (state["rubric_report"], server.calls) == (None, [])


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_middleware_structured_response_before_a_notice_is_graded_once(server: OpenAIServer, strategy: Any) -> None:
    answer: Any = structured_answer(1, "In 1912.")
    response = answer if strategy is ToolStrategy else AIMessage(Answer(text="In 1912.").model_dump_json())
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="end")
    state = run_with([limit], [response], server, response_format=strategy(Answer))
    assert (state["rubric_report"].score, state["rubric_revisions"], len(server.calls)) == (0.4, 1, 3)


class EditingMiddleware(AgentMiddleware):
    """Names a source in each answer after the model wrote it, or around the call of the model, without an id."""

    def __init__(self, around: bool):
        super().__init__()
        self.around = around

    def after_model(self, state: Any, runtime: Any) -> Any:
        last = state["messages"][-1]
        return None if self.around else {"messages": [last.model_copy(update={"content": "source: a"})]}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        response = handler(request)
        return AIMessage("source: b") if self.around else response


@ORDERS
@pytest.mark.parametrize("around", [False, True])
def test_middleware_answer_that_another_middleware_changed_is_graded(
    server: OpenAIServer, around: bool, order: list[Any]
) -> None:
    state = run_with([EditingMiddleware(around), *order], [AIMessage("In 1912.")], server)
    assert (state["rubric_report"].score, state["messages"][-1].text[:7]) == (1.0, "source:")


class EarlyMiddleware(AgentMiddleware):
    """Ends the agent after each answer of the model, before the hooks of the middleware that comes earlier."""

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return {"jump_to": "end"}


@ORDERS
def test_middleware_answer_after_which_another_middleware_ends_the_agent_is_graded(
    server: OpenAIServer, order: list[Any]
) -> None:
    state = run_with([EarlyMiddleware(), *order], [AIMessage("In 1912."), AIMessage("source: a")], server)
    assert (state["rubric_report"].score, state["rubric_revisions"]) == (1.0, 1)


def test_middleware_messages_without_ids_are_graded(server: OpenAIServer) -> None:
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    state: Any = {"messages": [HumanMessage("When?"), AIMessage("source: a")]}
    assert middleware.after_agent(state | middleware.after_model(state, None), None)["rubric_report"].score == 1.0
    # A message that was added after the model's is not graded.
    state = {"messages": [AIMessage("In 1912.", id="m1")]}
    state |= middleware.before_agent(state, None) | middleware.after_model(state, None)
    state["messages"].append(AIMessage("source: a"))
    assert middleware.after_agent(state, None)["rubric_report"] is None


class ClosedMiddleware(AgentMiddleware):
    """Ends each turn at its start, if it is closed."""

    is_closed = False

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> Any:
        return {"jump_to": "end", "messages": [AIMessage("We are closed.")]} if self.is_closed else None


def test_middleware_turn_that_ends_at_its_start_has_no_report_of_the_turn_before(server: OpenAIServer) -> None:
    closed = ClosedMiddleware()
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    others: list[Any] = [closed, middleware]
    model = AgentModel(responses=[AIMessage("source: a")])
    agent: Any = create_agent(model, middleware=others, checkpointer=InMemorySaver())
    inputs, config = {"messages": [HumanMessage("q")]}, {"configurable": {"thread_id": "1"}}
    assert agent.invoke(inputs, config)["rubric_report"].passed
    closed.is_closed = True
    assert agent.invoke(inputs, config)["rubric_report"] is None
    assert len(server.calls) == 3


@pytest.mark.parametrize("after", [True, False])
def test_middleware_state_survives_a_checkpointer_with_strict_deserialization(
    server: OpenAIServer, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    middleware: Any = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script), max_revisions=1)
    approval: Any = HumanInTheLoopMiddleware(interrupt_on={"search": True})
    responses: list[Any] = [AIMessage("In 1912."), search_call(1), AIMessage("source: the log")]
    agent: Any = create_agent(
        AgentModel(responses=responses),
        tools=[search],
        middleware=[approval, middleware] if after else [middleware, approval],
        checkpointer=saver,
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [HumanMessage("When was it?")]}, config)
    # The agent waits for an approval between its two answers, and the report of the first is in the checkpoint.
    waiting = agent.get_state(config).values
    assert (waiting["rubric_report"].score, waiting["rubric_revisions"]) == (0.4, 1)
    final = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    stored = agent.get_state(config).values["rubric_report"]
    assert isinstance(stored, EvaluationReport)
    assert stored == final["rubric_report"]
    assert (stored.score, final["rubric_revisions"]) == (1.0, 1)
    assert "rubric_message_id" not in final
    # The report of another version of the library does not end the conversation.
    agent.update_state(config, {"rubric_report": {"score": 1.0, "field_of_another_version": 1}})
    assert agent.get_state(config).values["rubric_report"] is None
    assert "Blocked deserialization of rubric_integrations" not in caplog.text


def two_middlewares() -> list[Any]:
    sourced, kind = (
        Rubric([Criterion(name=text, requirement=f"Says {text}", check=Check(contains=text))])
        for text in ("source:", "please")
    )
    return [RubricMiddleware(sourced, "offline"), RubricMiddleware(kind, "offline", max_revisions=1, name="tone")]


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
@pytest.mark.parametrize("reverse", [False, True])
def test_middlewares_with_names_have_reports_revisions_and_traces_of_their_own(method: str, reverse: bool) -> None:
    recorder, middlewares = RunRecorder(), two_middlewares()
    # The last middleware of the list grades first.
    answers = ["In 1912.", "source: a" if reverse else "please", "In 1912, source: a, please"]
    model = AgentModel(responses=[])
    agent: Any = create_agent(
        model,
        middleware=middlewares[::-1] if reverse else middlewares,
        checkpointer=InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)),
    )
    for turn in ("1", "2"):  # without a checkpoint, and after one
        config: Any = {"configurable": {"thread_id": "1"}, "callbacks": [recorder]}
        model.responses, model.i = [AIMessage(text) for text in answers], 0
        inputs = {"messages": [HumanMessage(f"When was it, {turn}?")]}
        state = agent.invoke(inputs, config) if method == "invoke" else asyncio.run(agent.ainvoke(inputs, config))
        assert (state["rubric_report"].score, state["rubric_report_tone"].score) == (1.0, 1.0)
        assert isinstance(state["rubric_report_tone"], EvaluationReport)
        assert [row.name for row in state["rubric_report_tone"].criteria] == ["please"]
        assert (state["rubric_revisions"], state["rubric_revisions_tone"]) == (1, 1)
        assert not {"rubric_message_id", "rubric_message_id_tone"} & set(state)
    assert {name for _, name, _, _ in recorder.select("chain", "rubric")} == {"rubric", "rubric_tone"}
    assert recorder.select("chain", "RubricMiddleware_tone.after_agent")


def test_middlewares_without_names_are_refused_with_the_remedy() -> None:
    one, two = (RubricMiddleware(SOURCE_RUBRIC, judge="offline") for _ in range(2))
    with pytest.raises(ValueError, match=r"name 'RubricMiddleware'.*name=\"tone\""):
        create_agent(AgentModel(responses=[AIMessage("a")]), middleware=[one, two])
    with pytest.raises(AssertionError, match="remove duplicate middleware"):  # LangChain's own message is right here
        create_agent(AgentModel(responses=[AIMessage("a")]), middleware=[one, one])
    named = [RubricMiddleware(SOURCE_RUBRIC, judge="offline", name="a") for _ in range(2)]
    with pytest.raises(ValueError, match="the name 'RubricMiddleware_a'"):
        create_agent(AgentModel(responses=[AIMessage("a")]), middleware=named)


def test_middleware_waits_with_its_name_for_an_approval_and_goes_on() -> None:
    approval: Any = HumanInTheLoopMiddleware(interrupt_on={"search": True})
    responses: list[Any] = [AIMessage("In 1912, source: a"), search_call(1), AIMessage("source: a, please")]
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    agent: Any = create_agent(
        AgentModel(responses=responses), tools=[search], checkpointer=saver,
        middleware=[*two_middlewares(), approval],
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [HumanMessage("When was it?")]}, config)
    waiting = agent.get_state(config).values
    assert (waiting["rubric_report_tone"].score, waiting["rubric_revisions_tone"]) == (0.0, 1)
    final = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (final["rubric_report"].score, final["rubric_report_tone"].score, final["rubric_revisions_tone"]) == (
        1,
        1,
        1,
    )


class Bytes(BaseModel):
    figure: bytes


@pytest.mark.parametrize("behaviour", ["pass_through", "raise"])
def test_middleware_answer_with_bytes_has_a_report_without_a_score(behaviour: Any) -> None:
    answer = AIMessage("", tool_calls=[{"name": "Bytes", "args": {"figure": "42"}, "id": "1"}])
    middleware: Any = RubricMiddleware(SOURCE_RUBRIC, judge="offline", on_judge_failure=behaviour)
    agent: Any = create_agent(
        AgentModel(responses=[answer]), middleware=[middleware], response_format=ToolStrategy(Bytes)
    )
    if behaviour == "raise":
        with pytest.raises(ValueError, match="a value of type `bytes` is not a text"):
            agent.invoke({"messages": [HumanMessage("6 x 7?")]})
    else:
        report = agent.invoke({"messages": [HumanMessage("6 x 7?")]})["rubric_report"]
        assert report.score is None
        assert "a value of type `bytes` is not a text" in report.error


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


def broken(fault: str) -> Callable[[Call], Reply]:
    replies = {
        "prose": Reply(text="I'm sorry, I can't help with that."),
        "empty": Reply(text=""),
        "cut": Reply(text='{"explanation": "so', finish_reason="length"),
        "refused": Reply(text="", finish_reason="content_filter"),
        "lost": Reply(drop=True),
        "down": Reply(status=500),
        "slow": Reply(delay=30),
    }
    return lambda _call: replies[fault]


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
@pytest.mark.parametrize("fault", ["prose", "empty", "cut", "refused", "lost", "down", "slow"])
def test_middleware_failing_judge_returns_the_answer_without_a_score(
    server: OpenAIServer, fault: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    timeout = 0.5 if fault in ("lost", "down", "slow") else 60.0
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, broken(fault)), timeout=timeout)
    begun = time.monotonic()
    state = run_agent(middleware, "In 1912.", method=method)
    assert time.monotonic() - begun < 20
    assert state["messages"][-1].text == "In 1912."
    report = state["rubric_report"]
    assert (report.score, report.passed, report.complete, state["rubric_revisions"]) == (None, False, False, 0)
    assert report.error
    assert report.failed_count > 0
    assert "the agent's answer is returned without a grade" in caplog.text


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_middleware_failing_judge_raises_if_it_should(server: OpenAIServer, method: str) -> None:
    judge = chat_model(server, broken("prose"))
    with pytest.raises(JudgeError):
        run_agent(RubricMiddleware(SOURCE_RUBRIC, judge=judge, on_judge_failure="raise"), "Hm.", method=method)
    judge = chat_model(server, broken("slow"))
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=judge, on_judge_failure="raise", timeout=0.2)
    with pytest.raises(TimeoutError, match=r"not graded the answer within 0\.2 s"):
        run_agent(middleware, "Hm.", method=method)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("mode", ["updates", "values", "messages"])
def test_middleware_failing_judge_does_not_end_a_stream(mode: Any, asynchronous: bool) -> None:
    async def refuse(_system: str, _user: str) -> str:
        return "I'm sorry, I can't help with that."

    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=refuse)
    agent: Any = create_agent(AgentModel(responses=[AIMessage("In 1912.")]), middleware=[middleware])
    inputs = {"messages": [HumanMessage("When was it?")]}

    async def collect() -> list[Any]:
        return [chunk async for chunk in agent.astream(inputs, stream_mode=mode)]

    chunks = asyncio.run(collect()) if asynchronous else list(agent.stream(inputs, stream_mode=mode))
    assert "In 1912." in str(chunks)
    if mode == "updates":
        assert chunks[-1]["RubricMiddleware.after_agent"]["rubric_report"].score is None
    elif mode == "values":
        assert chunks[-1]["rubric_report"].error


def test_middleware_ledger_that_breaks_returns_the_answer_without_a_score(server: OpenAIServer, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script), ledger=ledger)
    assert run_agent(middleware, "source: a")["rubric_report"].passed
    ledger.close()
    report = run_agent(middleware, "source: b")["rubric_report"]
    assert (report.score, report.passed, "ledger" in report.error) == (None, False, True)


def test_middleware_judge_that_works_again_grades_the_next_answer(server: OpenAIServer) -> None:
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, broken("prose")))
    assert run_agent(middleware, "source: a")["rubric_report"].score is None
    server.script = source_script
    assert run_agent(middleware, "source: a")["rubric_report"].score == 1.0


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_middleware_wrong_setting_or_rubric_raises(server: OpenAIServer, method: str) -> None:
    judge = chat_model(server, lambda _call: Reply(status=401))
    with pytest.raises(JudgeError):
        run_agent(RubricMiddleware(lambda state: SOURCE_RUBRIC, judge=judge), "Hm.", method=method)
    with pytest.raises(ValueError, match="has no rubric: the function of the row failed"):
        run_agent(RubricMiddleware(lambda state: state["none"], judge=judge), "Hm.", method=method)
    named = [{"requirement": "Is polite", "judge": "nobody"}]
    with pytest.raises(ValueError, match="has the `judge` 'nobody'"):
        run_agent(RubricMiddleware(named, judge=judge), "Hm.", method=method)


def test_middleware_key_that_is_revoked_later_does_not_end_the_agent(server: OpenAIServer) -> None:
    middleware = RubricMiddleware(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    assert run_agent(middleware, "source: a")["rubric_report"].passed
    server.script = lambda _call: Reply(status=401)
    assert run_agent(middleware, "source: b")["rubric_report"].score is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_judge_failure": "ignore"}, "`on_judge_failure` must be"),
        ({"timeout": 0}, "`timeout` must be above 0"),
        ({"timeout": float("inf")}, "`timeout` must be above 0"),
        ({"timeout": float("nan")}, "`timeout` must be above 0"),
    ],
)
def test_middleware_setting_out_of_range_raises(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RubricMiddleware(SOURCE_RUBRIC, judge="offline", **settings)


@pytest.mark.parametrize("timeout", [60.0, 300.0])
def test_middleware_timeout_that_is_too_short_for_an_explorer_warns(timeout: float) -> None:
    grader = PerCriterionGrader("offline", text_limits=TextLimits(explorer=FakeExplorer()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RubricMiddleware(SOURCE_RUBRIC, grader=grader, timeout=timeout)
    messages = [str(warning.message) for warning in caught]
    assert ["too short for the grader's explorer, which makes up to 8 requests" in text for text in messages] == (
        [True] if timeout == 60 else []
    )


def test_middleware_negative_max_revisions_raises() -> None:
    with pytest.raises(ValueError, match="`max_revisions`"):
        RubricMiddleware(SOURCE_RUBRIC, judge="offline", max_revisions=-1)
