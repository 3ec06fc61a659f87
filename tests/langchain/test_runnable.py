"""`RubricRunnable`: the Runnable interface, traces, retries and the concurrency limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, TypedDict, cast

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.langchain import RubricInput, RubricRunnable
from tests.fakes import FakeJudge
from tests.langchain.helpers import SOURCE_RUBRIC, AgentModel, chat_model, source_script
from tests.openai_server import Call, OpenAIServer, Reply

INPUTS: list[Any] = [{"output": "source: a"}, "none", RubricInput(output="source: b", input="q", reference="r")]
SCORES = [1.0, 0.4, 1.0]


class RunRecorder(BaseCallbackHandler):
    """Records every run that callbacks report: its kind, name, parent and tags."""

    def __init__(self) -> None:
        self.runs: dict[Any, tuple[str, str, Any, list[str]]] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None,
                       tags: Any = None, name: Any = None, **kwargs: Any) -> None:  # fmt: skip
        self.runs[run_id] = ("chain", str(name), parent_run_id, list(tags or []))

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any, parent_run_id: Any = None,
                            tags: Any = None, name: Any = None, **kwargs: Any) -> None:  # fmt: skip
        self.runs[run_id] = ("model", str(name), parent_run_id, list(tags or []))

    def select(self, kind: str, prefix: str = "") -> list[tuple[str, str, Any, list[str]]]:
        return [run for run in self.runs.values() if run[0] == kind and run[1].startswith(prefix)]

    def ancestors(self, parent: Any) -> list[Any]:
        return [self.runs[parent], *self.ancestors(self.runs[parent][2])] if parent in self.runs else []


def any_strategy_script(call: Call) -> Reply:
    """Answer the prompts of all three graders: everything is met, nothing is rude."""
    if "judgments" in call.prompt:
        answers = enumerate(["MET", "MET", "UNMET"], start=1)
        rows = [{"id": number, "explanation": "", "answer": answer} for number, answer in answers]
        return Reply(text=json.dumps({"judgments": rows}))
    if "overall_score" in call.prompt:
        return Reply(text='{"explanation": "", "overall_score": 100}')
    return Reply("UNMET" if call.criterion == "Is rude" else "MET")


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
@pytest.mark.parametrize(
    ("grader", "names"),
    [
        (PerCriterionGrader, ["judge:brief", "judge:rude", "judge:sourced"]),
        (PerCriterionOneShotGrader, ["judge:criteria"]),
        (RubricAsJudgeGrader, ["judge:whole"]),
    ],
)
def test_runnable_question_is_a_child_run_and_callbacks_reach_the_model(
    server: OpenAIServer, method: str, grader: Any, names: list[str]
) -> None:
    model = chat_model(server, any_strategy_script)
    runnable, recorder = RubricRunnable(SOURCE_RUBRIC, grader=grader(model), name="quality"), RunRecorder()
    config: Any = {"callbacks": [recorder], "tags": ["mine"]}
    if method == "invoke":
        report = runnable.invoke({"output": "a"}, config)
    else:
        report = asyncio.run(runnable.ainvoke({"output": "a"}, config))
    assert report.score == 1.0
    children = recorder.select("chain", "judge:")
    assert sorted(name for _, name, _, _ in children) == names
    (root,) = [run_id for run_id, run in recorder.runs.items() if run[1] == "quality"]
    assert all(parent == root for _, _, parent, _ in children)
    models = recorder.select("model")
    assert len(models) == len(names)
    for _, _, parent, tags in models:
        assert "mine" in tags
        assert any(run[1].startswith("judge:") for run in recorder.ancestors(parent))


def test_runnable_batch_methods_return_a_report_for_each_input(server: OpenAIServer) -> None:
    # OpenAI's client keeps connections of the event loop of the first call and needs a retry in the next loop.
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script, max_retries=3))
    assert [report.score for report in runnable.batch(INPUTS)] == SCORES
    assert [report.score for report in asyncio.run(runnable.abatch(INPUTS))] == SCORES
    completed = cast("Iterable[tuple[int, EvaluationReport]]", runnable.batch_as_completed(INPUTS))
    assert [report.score for _, report in sorted(completed, key=lambda pair: pair[0])] == SCORES


def test_runnable_composed_with_others_returns_the_report(server: OpenAIServer) -> None:
    def get_score(report: EvaluationReport) -> float | None:
        return report.score

    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    assert [report.score for report in runnable.stream(INPUTS[0])] == [1.0]
    chain: Any = runnable | RunnableLambda(get_score)
    assert chain.invoke("none") == 0.4
    assert runnable.with_config(tags=["a"]).invoke("source: a").passed
    assert "score" in runnable.get_output_jsonschema()["properties"]
    assert runnable.get_name() == "rubric"


@pytest.mark.filterwarnings("ignore:This API is in beta")
def test_runnable_as_tool_takes_the_fields_of_the_input(server: OpenAIServer) -> None:
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    tool = runnable.as_tool(name="grade", description="Grade a text.")
    assert tool.invoke({"output": "source: a"}).score == 1.0
    assert set(tool.args) == {"output", "input", "reference", "context"}
    schema = cast("type[BaseModel]", tool.args_schema).model_json_schema()
    assert set(schema["properties"]) == {"output", "input", "reference", "context"}


_STEPS = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "found"},
    {"role": "assistant", "content": "source: a"},
]
_GIF = {"data": b"GIF89a", "mime_type": "image/gif"}


@pytest.mark.parametrize(
    "value",
    [
        {"output": "a", "thinking": "hm"},
        {"Answer": "a", "question": "q", "Thinking": "hm", "attachments": [_GIF], "trajectory": _STEPS},
        {"output": "a", "attachments": "https://example.com/a.png"},
        {"output": "a", "attachments": json.dumps([{"url": "https://example.com/a.png"}])},
        {"output": "a", "trajectory": json.dumps(_STEPS)},
        {"output": _STEPS, "attachments": [_GIF], "thinking": "hm"},
        {"output": {"answer": "a", "thinking": "inner", "attachments": [_GIF]}, "thinking": "outer"},
        {"messages": _STEPS, "attachments": [_GIF]},
        {"output": "a", "attachments": [{"path": "a.png"}]},
        {"output": "a", "thinking": 5},
        {"output": "a", "trajectory": "no steps"},
    ],
)
def test_runnable_grades_the_evidence_in_a_mapping_as_rubric_grade_does(value: Any) -> None:
    rubric, results = Rubric([Criterion(requirement="Is right")]), list[Any]()
    for is_runnable in (False, True):
        judge = FakeJudge("MET")
        grader = PerCriterionGrader(judge)
        try:
            if is_runnable:
                RubricRunnable(rubric, grader=grader).invoke(value)
            else:
                rubric.grade_sync(value, grader)
            results.append(judge.questions[0].submission)
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_runnable_messages_as_output_are_graded(server: OpenAIServer) -> None:
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    conversation = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "source: a"}]
    assert runnable.invoke({"output": conversation}).score == 1.0
    assert runnable.invoke({"output": [HumanMessage("q"), AIMessage("source: a")]}).score == 1.0


@pytest.mark.parametrize(
    "value",
    [
        AIMessage("source: a"),
        AIMessageChunk(content="source: a"),
        {"role": "assistant", "content": "source: a"},
        {"output": AIMessage("source: a")},
        RubricInput(output=AIMessage("source: a"), input=HumanMessage("q"), reference=AIMessage("r")),
        [("user", "q"), ("assistant", "source: a")],
        (HumanMessage("q"), AIMessage("source: a")),
        {"output": [("user", "q"), ("ai", "source: a")], "question": "other keys of the chain are ignored"},
        ChatPromptTemplate([("user", "q"), ("ai", "source: a")]).invoke({}),
        {"messages": [HumanMessage("q"), AIMessage("source: a")], "rubric_revisions": 1},
        {"output": {"messages": [("user", "q"), ("ai", "source: a")]}},
    ],
)
def test_runnable_messages_in_any_form_are_graded_by_their_text(server: OpenAIServer, value: Any) -> None:
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    assert runnable.invoke(value).score == 1.0
    for call in server.calls:
        assert "\nsource: a\n</data" in call.prompt


def test_runnable_after_a_model_or_an_agent_grades_its_answer(server: OpenAIServer) -> None:
    model = AgentModel(responses=[AIMessage("source: a"), AIMessage("none")])
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    assert [report.score for report in (model | runnable).batch(["q", "q"], {"max_concurrency": 1})] == [1.0, 0.4]
    agent: Any = create_agent(AgentModel(responses=[AIMessage("source: a")]))
    assert (agent | runnable).invoke({"messages": [("user", "Where?")]}).score == 1.0
    assert '{"role": "user", "content": "Where?"}' in server.calls[-1].prompt


def test_runnable_typed_output_is_graded_as_json(server: OpenAIServer) -> None:
    class Answer(BaseModel):
        text: str

    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    assert runnable.invoke(Answer(text="source: a")).score == 1.0
    assert '\n{"text": "source: a"}\n</data' in server.calls[0].prompt
    assert runnable.invoke({"output": Answer(text="source: a")}).score == 1.0


def test_runnable_dict_without_output_raises_with_its_keys() -> None:
    with pytest.raises(ValueError, match=r"has no `output` \(its keys are \['input', 'ouput'\]\)"):
        RubricRunnable(SOURCE_RUBRIC, judge="offline").invoke({"ouput": "source: a", "input": "Where?"})


def test_runnable_rubric_function_receives_the_input(server: OpenAIServer) -> None:
    def choose_rubric(graded: RubricInput) -> Rubric:
        return Rubric([SOURCE_RUBRIC.criteria[0 if graded.input == "Where?" else 1]])

    runnable = RubricRunnable(choose_rubric, judge=chat_model(server, source_script))
    assert runnable.invoke({"output": "none", "input": "Where?"}).score == 0.0
    assert runnable.invoke({"output": "none", "input": "When?"}).score == 1.0


class GraphState(TypedDict, total=False):
    messages: list[Any]
    score: str
    report: EvaluationReport


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_runnable_as_a_node_writes_the_field_of_its_output_key_alone(server: OpenAIServer, method: str) -> None:
    runnable = RubricRunnable(SOURCE_RUBRIC, judge=chat_model(server, source_script), output_key="report")
    assert "additionalProperties" in runnable.get_output_jsonschema()
    graph: Any = StateGraph(GraphState)
    graph.add_node("grade", runnable)
    graph.add_edge(START, "grade")
    agent = graph.compile()
    inputs = {"messages": [HumanMessage("q"), AIMessage("source: a")], "score": "mine"}
    state = agent.invoke(inputs) if method == "invoke" else asyncio.run(agent.ainvoke(inputs))
    assert (state["score"], state["report"].score, len(state)) == ("mine", 1.0, 3)


def test_runnable_empty_output_raises() -> None:
    with pytest.raises(ValueError, match="nothing to grade"):
        RubricRunnable(SOURCE_RUBRIC, judge="offline").invoke(" ")


def test_runnable_with_retry_grades_again_after_a_failure(server: OpenAIServer) -> None:
    def make_runnable(failing_call: int) -> RubricRunnable:
        def script(call: Call) -> Reply:
            return Reply(status=500) if call.number == failing_call else source_script(call)

        return RubricRunnable(SOURCE_RUBRIC, grader=PerCriterionGrader(chat_model(server, script), max_retries=0))

    with pytest.raises(JudgeError):
        make_runnable(failing_call=0).invoke("source: a")
    retrying = make_runnable(failing_call=3).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    assert retrying.invoke("source: a").score == 1.0


@pytest.mark.parametrize("method", ["batch", "abatch"])
def test_runnable_nested_batches_share_one_concurrency_limit(
    server: OpenAIServer, method: str, record_property: Any
) -> None:
    model = chat_model(server, lambda call: Reply(source_script(call).verdict, delay=0.02))
    runnable = RubricRunnable(SOURCE_RUBRIC, grader=PerCriterionGrader(model, limits=CallLimits(max_concurrency=8)))
    inputs: list[Any] = [f"source: {number}" for number in range(16)]
    if method == "batch":
        reports = runnable.batch(inputs, {"max_concurrency": 16})
    else:
        reports = asyncio.run(runnable.abatch(inputs))
    assert [report.score for report in reports] == [1.0] * 16
    assert len(server.calls) == 48
    record_property(
        "shown", f"{method} of 16 inputs x 3 criteria, limit 8: at most {server.peak} concurrent requests at the server"
    )
    assert 1 < server.peak <= 8
