"""The grade in LangChain: as a Runnable, with LangChain's models as judges, in agents, and for langchain_classic."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import as_judge
from rubric_integrations.langchain import (
    RubricInput,
    RubricMiddleware,
    RubricPairwiseStringEvaluator,
    RubricRunnable,
    RubricStringEvaluator,
)
from tests.openai_server import Call, OpenAIServer, Reply, Script

RUBRIC = Rubric(
    [
        Criterion(name="sourced", weight=6, requirement="Names a source"),
        Criterion(name="brief", weight=4, requirement="Is brief"),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)


def judge_script(call: Call) -> Reply:
    """Sourced where a source is named, brief always, never rude."""
    if call.criterion == "Names a source":
        return Reply("MET" if "source:" in call.prompt else "UNMET")
    return Reply("MET" if call.criterion == "Is brief" else "UNMET")


def chat_model(server: OpenAIServer, script: Script = judge_script, **settings: Any) -> Any:
    server.script = script
    settings = {"max_retries": 0, **settings}
    return ChatOpenAI(model="mock", base_url=server.url, api_key=SecretStr("none"), **settings)


class Seen(BaseCallbackHandler):
    """Every run that callbacks hear of: its kind, name, parent and tags."""

    def __init__(self) -> None:
        self.runs: dict[Any, tuple[str, str, Any, list[str]]] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None,
                       tags: Any = None, name: Any = None, **kwargs: Any) -> None:  # fmt: skip
        self.runs[run_id] = ("chain", str(name), parent_run_id, list(tags or []))

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any, parent_run_id: Any = None,
                            tags: Any = None, name: Any = None, **kwargs: Any) -> None:  # fmt: skip
        self.runs[run_id] = ("model", str(name), parent_run_id, list(tags or []))

    def of(self, kind: str, name: str = "") -> list[tuple[str, str, Any, list[str]]]:
        return [run for run in self.runs.values() if run[0] == kind and run[1].startswith(name)]


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("kind", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_each_question_is_a_traced_child_and_callbacks_reach_the_judges_model(
    server: OpenAIServer, mode: str, kind: Any
) -> None:
    def script(call: Call) -> Reply:
        if "judgments" in call.prompt:
            given = enumerate(["MET", "MET", "UNMET"], start=1)
            return Reply(text=json.dumps({"judgments": [{"id": i, "explanation": "", "answer": a} for i, a in given]}))
        if "overall_score" in call.prompt:
            return Reply(text='{"explanation": "", "overall_score": 100}')
        return Reply("UNMET" if call.criterion == "Is rude" else "MET")

    runnable, seen = RubricRunnable(RUBRIC, grader=kind(chat_model(server, script=script)), name="quality"), Seen()
    config: Any = {"callbacks": [seen], "tags": ["mine"]}
    report = (
        runnable.invoke({"output": "a"}, config)
        if mode == "invoke"
        else asyncio.run(runnable.ainvoke({"output": "a"}, config))
    )
    assert report.score == 1.0
    children = seen.of("chain", "judge:")
    expected = {PerCriterionGrader: ["judge:brief", "judge:rude", "judge:sourced"],
                PerCriterionOneShotGrader: ["judge:criteria"], RubricAsJudgeGrader: ["judge:whole"]}[kind]  # fmt: skip
    assert sorted(name for _, name, _, _ in children) == expected
    (root,) = [run_id for run_id, run in seen.runs.items() if run[1] == "quality"]
    assert all(parent == root for _, _, parent, _ in children)
    models = seen.of("model")
    assert len(models) == len(expected)
    for _, _, parent, tags in models:
        assert "mine" in tags
        assert any(run[1].startswith("judge:") for run in above(seen.runs, parent))


def scored(report: EvaluationReport) -> float | None:
    return report.score


def scores_of(finished: Iterable[tuple[int, EvaluationReport]]) -> list[float | None]:
    return [report.score for _, report in sorted(finished)]


def above(runs: dict[Any, Any], parent: Any) -> list[Any]:
    return [runs[parent], *above(runs, runs[parent][2])] if parent in runs else []


def test_every_way_to_run_a_runnable(server: OpenAIServer) -> None:
    # Several event loops one after the other: OpenAI's client must be allowed to drop the connections of a closed one.
    runnable = RubricRunnable(RUBRIC, judge=chat_model(server, max_retries=3))
    inputs: list[Any] = [{"output": "source: a"}, "none", RubricInput(output="source: b", input="q", reference="r")]
    assert [report.score for report in runnable.batch(inputs)] == [1.0, 0.4, 1.0]
    assert [report.score for report in asyncio.run(runnable.abatch(inputs))] == [1.0, 0.4, 1.0]
    assert scores_of(cast("Any", runnable.batch_as_completed(inputs))) == [1.0, 0.4, 1.0]
    assert [report.score for report in runnable.stream(inputs[0])] == [1.0]
    chain: Any = runnable | RunnableLambda(scored)
    assert chain.invoke("none") == 0.4
    assert runnable.with_config(tags=["a"]).invoke("source: a").passed
    tool = runnable.as_tool(name="grade", description="Grade a text.")
    assert tool.invoke({"output": "source: a"}).score == 1.0
    assert set(tool.args) == {"output", "input", "reference"}
    assert "score" in runnable.get_output_jsonschema()["properties"]
    assert runnable.get_name() == "rubric"
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "source: a"}]
    assert runnable.invoke({"output": chat}).score == 1.0
    assert runnable.invoke({"output": [HumanMessage("q"), AIMessage("source: a")]}).score == 1.0
    with pytest.raises(ValueError, match="nothing to grade"):
        runnable.invoke(" ")


def test_with_retry_asks_again_after_a_failure(server: OpenAIServer) -> None:
    flaky = chat_model(server, script=lambda call: Reply(status=500) if call.number == 0 else judge_script(call))
    runnable = RubricRunnable(RUBRIC, grader=PerCriterionGrader(flaky, max_retries=0))
    with pytest.raises(JudgeError):
        runnable.invoke("source: a")
    flaky = chat_model(server, script=lambda call: Reply(status=500) if call.number == 3 else judge_script(call))
    patient = RubricRunnable(RUBRIC, grader=PerCriterionGrader(flaky, max_retries=0)).with_retry(
        stop_after_attempt=3, wait_exponential_jitter=False
    )
    assert patient.invoke("source: a").score == 1.0


@pytest.mark.parametrize("mode", ["batch", "abatch"])
def test_one_cap_holds_however_batches_are_nested(server: OpenAIServer, mode: str, record_property: Any) -> None:
    model = chat_model(server, script=lambda call: Reply(judge_script(call).verdict, delay=0.02))
    runnable = RubricRunnable(RUBRIC, grader=PerCriterionGrader(model, max_concurrency=8))
    inputs: list[Any] = [f"source: {i}" for i in range(32)]
    if mode == "batch":
        reports = runnable.batch(inputs, {"max_concurrency": 16})
    else:
        reports = asyncio.run(runnable.abatch(inputs))
    assert [report.score for report in reports] == [1.0] * 32
    assert len(server.calls) == 96
    record_property("shown", f"{mode} of 32 inputs x 3 criteria, cap 8: at most {server.peak} under way at the server")
    assert 1 < server.peak <= 8


def test_a_chat_models_failures_are_sorted_for_retries(server: OpenAIServer) -> None:
    answers = [Reply(status=429, retry_after=0.01), Reply(status=500), Reply(text="What a nice text."), Reply("MET")]
    model = chat_model(server, script=lambda call: answers[min(call.number, 3)])
    one = Rubric([Criterion(requirement="a")])
    assert one.grade_sync("text", grader=PerCriterionGrader(model, max_retries=3)).score == 1.0
    assert len(server.calls) == 4
    for reply, said in [(Reply(status=401), "config"), (Reply(text='{"verdict": "MAYBE"}'), "parse")]:
        model = chat_model(server, script=lambda _call, reply=reply: reply)
        with pytest.raises(JudgeError, match=said):
            one.grade_sync("text", grader=PerCriterionGrader(model, max_retries=0))


def test_a_chat_models_reply_is_asked_for_by_schema_and_its_usage_counted(server: OpenAIServer) -> None:
    report = RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(chat_model(server)))
    schema = server.calls[0].body["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"explanation", "verdict"}
    assert report.spend.calls == len(server.calls) == 3
    replied = len(Reply("UNMET").content) // 4
    assert report.token_usage.prompt_tokens == sum(len(call.prompt) // 4 for call in server.calls)
    assert 0 < report.token_usage.completion_tokens <= 3 * replied


def test_a_chat_models_rate_limiter_is_kept_to(server: OpenAIServer) -> None:
    limiter = InMemoryRateLimiter(requests_per_second=50, check_every_n_seconds=0.005, max_bucket_size=1)
    start = time.monotonic()
    report = RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(chat_model(server, rate_limiter=limiter)))
    assert report.score == 1.0
    assert time.monotonic() - start >= 2 / 50  # the limiter's own promise: three calls, at 50 a second


def test_two_models_of_one_name_are_two_judges(server: OpenAIServer) -> None:
    cold, warm = (as_judge(chat_model(server, temperature=t)) for t in (0.0, 0.7))
    same = as_judge(chat_model(server, temperature=0.0))
    assert cold.fingerprint() == same.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]
    assert cold.fingerprint() != warm.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]
    assert "none" not in cold.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]


class Agent(FakeMessagesListChatModel):
    """A fake model that `create_agent` accepts."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


def answered(middleware: RubricMiddleware, *answers: str, mode: str = "invoke") -> dict[str, Any]:
    agent: Any = create_agent(Agent(responses=[AIMessage(text) for text in answers]), middleware=[middleware])
    given = {"messages": [HumanMessage("When was it?")]}
    return agent.invoke(given) if mode == "invoke" else asyncio.run(agent.ainvoke(given))


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
def test_an_agent_revises_once_and_then_passes(server: OpenAIServer, mode: str) -> None:
    middleware = RubricMiddleware(RUBRIC, judge=chat_model(server))
    state = answered(middleware, "In 1912.", "In 1912, source: the log.", mode=mode)
    report = state["rubric_report"]
    assert isinstance(report, EvaluationReport)
    assert (report.score, report.passed, state["rubric_revisions"]) == (1.0, True, 1)
    assert [message.type for message in state["messages"]] == ["human", "ai", "human", "ai"]
    demand = state["messages"][2]
    assert demand.name == "rubric"
    assert demand.text.splitlines()[1:] == ["- Missing: Names a source (as scripted)"]
    # The judge saw the task, and neither the demand nor anything that the agent was told of the rubric.
    assert "When was it?" in server.calls[-1].prompt
    assert not any("mend this" in call.prompt for call in server.calls)


@pytest.mark.parametrize(("allowed", "calls"), [(0, 1), (2, 3)])
def test_revisions_are_bounded_and_the_last_report_stays(server: OpenAIServer, allowed: int, calls: int) -> None:
    middleware = RubricMiddleware(RUBRIC, judge=chat_model(server), max_revisions=allowed)
    state = answered(middleware, "No idea.", "Still none.", "None at all.")
    assert (state["rubric_report"].passed, state["rubric_revisions"]) == (False, allowed)
    assert len(server.calls) == 3 * calls


def test_what_cannot_be_assessed_or_graded_is_not_sent_back(server: OpenAIServer) -> None:
    model = chat_model(server, script=lambda _call: Reply("CANNOT_ASSESS"))
    state = answered(RubricMiddleware(RUBRIC, judge=model), "Hm.")
    assert (state["rubric_report"].score, state["rubric_revisions"]) == (None, 0)
    assert answered(RubricMiddleware(RUBRIC, judge=model), " ")["rubric_report"] is None
    with pytest.raises(ValueError, match="`max_revisions`"):
        RubricMiddleware(RUBRIC, judge="offline", max_revisions=-1)
    failing = chat_model(server, script=lambda _call: Reply(status=401))
    with pytest.raises(JudgeError):
        answered(RubricMiddleware(lambda state: RUBRIC, judge=failing), "Hm.")


def test_langchain_classics_string_evaluator(server: OpenAIServer) -> None:
    evaluator = RubricStringEvaluator(RUBRIC, judge=chat_model(server))
    assert (evaluator.evaluation_name, evaluator.requires_input, evaluator.requires_reference) == (
        "rubric",
        False,
        False,
    )
    result = evaluator.evaluate_strings(prediction="none", input="q", reference="r")
    assert (result["score"], result["value"]) == (0.4, "not passed")
    assert "sourced: UNMET: as scripted" in result["reasoning"]
    assert asyncio.run(evaluator.aevaluate_strings(prediction="source: a"))["value"] == "passed"
    with pytest.raises(ValueError, match="nothing to grade"):
        evaluator.evaluate_strings(prediction=" ")


@pytest.mark.parametrize(
    ("first", "second", "margin", "score", "value"),
    [("source: a", "b", 0.0, 1.0, "A"), ("a", "source: b", 0.0, 0.0, "B"), ("a", "b", 0.0, 0.5, None),
     ("source: a", "b", 0.6, 0.5, None)],
)  # fmt: skip
def test_langchain_classics_pairwise_evaluator(
    server: OpenAIServer, first: str, second: str, margin: float, score: float, value: str | None
) -> None:
    evaluator = RubricPairwiseStringEvaluator(RUBRIC, judge=chat_model(server), tie_margin=margin)
    result = evaluator.evaluate_string_pairs(prediction=first, prediction_b=second, input="q")
    assert (result["score"], result["value"]) == (score, value)
    swapped = asyncio.run(evaluator.aevaluate_string_pairs(prediction=second, prediction_b=first, input="q"))
    assert swapped["score"] == 1 - score
