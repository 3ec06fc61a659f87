"""The grade in LangSmith: evaluation runs without a network, feedback by criterion, comparisons, people and pytest."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langsmith import Client, aevaluate, evaluate
from langsmith.run_helpers import tracing_context
from langsmith.schemas import Example, Feedback, Run
from pydantic import SecretStr

from rubric_integrations import Criterion, JudgeError, Option, PerCriterionGrader, Rubric, Scale
from rubric_integrations.langchain import (
    RubricEvaluator,
    annotation_queue_rubric,
    assert_rubric,
    compare_by_rubric,
    labels_from_feedback,
    offline_client,
)
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric(
    [
        Criterion(name="right", weight=6, requirement="Gives the right product"),
        Criterion(name="sourced", weight=4, requirement="Names its source"),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)


def judge_script(call: Call) -> Reply:
    """Right for even numbers, sourced for every third, which it cannot tell for every fifth; never rude."""
    number = int(call.prompt.split("answer number ")[1].split()[0])
    if call.criterion == "Gives the right product":
        return Reply("UNMET" if number % 2 else "MET")
    if call.criterion == "Names its source":
        return Reply("CANNOT_ASSESS" if number % 5 == 0 else "UNMET" if number % 3 else "MET")
    return Reply("UNMET")


def by_hand(number: int) -> float:
    if number % 5 == 0:
        return 0.0 if number % 2 else 1.0
    return (0 if number % 2 else 6) / 10 + (0 if number % 3 else 4) / 10


def examples(count: int) -> list[Example]:
    return [Example(id=uuid.uuid4(), inputs={"number": i}, outputs={"answer": f"it is {i}"}) for i in range(count)]


def target(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"output": f"answer number {inputs['number']} "}


async def atarget(inputs: dict[str, Any]) -> dict[str, Any]:
    return target(inputs)


def share_passed(runs: list[Run], examples: list[Example]) -> dict[str, Any]:
    return {"key": "answered", "score": sum(run.error is None for run in runs) / len(examples)}


def chat_model(server: OpenAIServer, **settings: Any) -> Any:
    return ChatOpenAI(model="mock", base_url=server.url, api_key=SecretStr("none"), max_retries=0, **settings)


class Attempts:
    """Where connections were attempted to, other than to the judge's server."""

    def __init__(self) -> None:
        self.allowed: set[int] = set()
        self.elsewhere: list[Any] = []


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> Attempts:
    """Sockets blocked, and every attempt at HTTP counted, but for the judge's own server."""
    seen = Attempts()
    seen.allowed.add(int(server.url.split(":")[2].split("/")[0]))
    connect, request = socket.socket.connect, http.client.HTTPConnection.request

    def guarded(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[1] not in seen.allowed:
            seen.elsewhere.append(address)
            raise ConnectionRefusedError("blocked")
        connect(self, address)

    def counted(self: http.client.HTTPConnection, *args: Any, **settings: Any) -> None:
        if self.port not in seen.allowed:
            seen.elsewhere.append((self.host, self.port))
        request(self, *args, **settings)

    def looked_up(host: Any, port: Any, *args: Any, **settings: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            seen.elsewhere.append((host, port))
            raise socket.gaierror("blocked")
        return resolve(host, port, *args, **settings)

    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(http.client.HTTPConnection, "request", counted)
    for name in ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "LANGSMITH_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANGSMITH_TRACING", "true")  # the worst case: the user traces everything else
    return seen


@pytest.mark.parametrize("mode", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("judge", ["model name", "chat model"])
def test_a_whole_evaluation_run_offline_is_right_and_sends_nothing(
    server: OpenAIServer, attempts: Attempts, mode: str, judge: str
) -> None:
    server.script = judge_script
    grader = PerCriterionGrader(
        chat_model(server) if judge == "chat model" else "openai/mock",
        api_base=None if judge == "chat model" else server.url,
    )
    evaluator, data = RubricEvaluator(RUBRIC, grader=grader), examples(50)
    settings: dict[str, Any] = {
        "data": data, "evaluators": [evaluator], "summary_evaluators": [share_passed], "upload_results": False,
        "client": offline_client(), "max_concurrency": 4,
    }  # fmt: skip

    async def in_async() -> list[Any]:
        return [row async for row in await aevaluate(atarget, **settings)]

    rows: list[Any] = list(evaluate(target, **settings)) if mode == "evaluate" else asyncio.run(in_async())
    found = {row["example"].inputs["number"]: row["evaluation_results"]["results"] for row in rows}
    assert sorted(found) == list(range(50))
    scores = {number: results[0].score for number, results in found.items()}
    assert sum(scores.values()) / 50 == pytest.approx(sum(map(by_hand, range(50))) / 50)
    for number, results in found.items():
        assert [result.key for result in results] == ["rubric", "rubric.right", "rubric.sourced", "rubric.rude"]
        sourced = results[2]
        if number % 5 == 0:
            assert (sourced.score, sourced.value) == (None, "CANNOT_ASSESS")
        else:
            assert (sourced.score, sourced.value) == (0.0 if number % 3 else 1.0, None)
        assert results[0].evaluator_info["calls"] == 3
    assert attempts.elsewhere == []
    assert len(server.calls) == 150


def test_an_ordinary_client_would_have_sent_what_was_graded(server: OpenAIServer, attempts: Attempts) -> None:
    """That the check above can fail: the same run with LangSmith's own client."""
    server.script = judge_script
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server))
    client = Client(api_key="none", api_url="http://langsmith.invalid", auto_batch_tracing=False)

    async def run() -> None:
        results = await aevaluate(
            atarget, data=examples(1), evaluators=[evaluator], upload_results=False, client=client
        )
        assert [row async for row in results]

    asyncio.run(run())
    assert attempts.elsewhere


def test_the_judge_stays_quiet_in_local_mode_whoever_the_client_is(server: OpenAIServer, attempts: Attempts) -> None:
    server.script = judge_script
    client = Client(api_key="none", api_url="http://langsmith.invalid", auto_batch_tracing=False, info={})
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server))
    rows = evaluate(target, data=examples(2), evaluators=[evaluator], upload_results=False, client=client)
    assert len(list(rows)) == 2
    assert attempts.elsewhere == []


def run_of(outputs: Any, error: str | None = None) -> Run:
    return Run(
        id=uuid.uuid4(), name="target", start_time=datetime.now(UTC), run_type="chain", trace_id=uuid.uuid4(),
        inputs={"question": "q"}, outputs=outputs, error=error,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "error", "said"),
    [({"output": None}, None, "gave nothing"), (None, "Boom", "failed: Boom"), ({"output": " "}, None, "gave nothing")],
)
def test_a_failed_target_gets_no_score(server: OpenAIServer, outputs: Any, error: str | None, said: str) -> None:
    results = RubricEvaluator(RUBRIC, judge=chat_model(server)).evaluate_run(run_of(outputs, error)).get("results", [])
    assert [(result.key, result.score) for result in results] == [("rubric", None)]
    assert said in str(results[0].comment)
    assert server.calls == []


def test_a_judge_that_fails_is_an_error_row_and_no_zero(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=500) if "source" in call.criterion else Reply("MET")
    grader = PerCriterionGrader(chat_model(server), max_retries=0)
    data = examples(1)
    rows: Any = list(
        evaluate(target, data=data, evaluators=[RubricEvaluator(RUBRIC, grader=grader)], upload_results=False,
                 client=offline_client())
    )  # fmt: skip
    results = {result.key: result for result in rows[0]["evaluation_results"]["results"]}
    assert all(result.score is None for key, result in results.items() if key in ("rubric", "rubric.sourced"))
    assert results["rubric"].extra == results["rubric.sourced"].extra == {"error": True}
    assert "not graded" in results["rubric"].comment


def test_an_evaluator_of_openevals_is_swapped_for_ours(server: OpenAIServer) -> None:
    """What an openevals user has: a function of keywords that returns a dict, used alone and in an evaluation run."""
    server.script = judge_script
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server))

    outputs = "answer number 6 "
    result = evaluator(inputs={"question": "2 x 3?"}, outputs=outputs, reference_outputs="6")
    assert (result["key"], result["score"]) == ("rubric", 1.0)
    assert "passed" in result["comment"]
    assert [row["key"] for row in result["metadata"]["criteria"]] == ["rubric.right", "rubric.sourced", "rubric.rude"]

    def wrapped(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return evaluator(inputs=inputs, outputs=outputs, reference_outputs=reference_outputs)

    rows: Any = list(
        evaluate(target, data=examples(2), evaluators=[wrapped], upload_results=False, client=offline_client())
    )
    scores = {row["example"].inputs["number"]: row["evaluation_results"]["results"][0].score for row in rows}
    assert scores == {0: 1.0, 1: 0.0}
    with pytest.raises(ValueError, match="nothing to grade"):
        evaluator(outputs={})
    server.script = lambda _call: Reply(status=401)
    with pytest.raises(JudgeError):
        evaluator(outputs=outputs)


async def test_inside_a_running_loop_and_with_a_rubric_for_each_example(server: OpenAIServer) -> None:
    server.script = judge_script
    evaluator = RubricEvaluator(lambda inputs: RUBRIC, judge=chat_model(server), key_prefix="grade")
    assert evaluator.feedback_keys == ["grade"]
    assert RubricEvaluator(RUBRIC, judge="offline").feedback_keys == [
        "rubric", "rubric.right", "rubric.sourced", "rubric.rude"
    ]  # fmt: skip
    assert evaluator(inputs={}, outputs={"answer": "answer number 6 "})["score"] == 1.0
    assert (await evaluator.acall(outputs="answer number 6 "))["metadata"]["criteria"][0]["key"] == "grade.right"


def deep_text(outputs: Any) -> str:
    return outputs["deep"]["text"]


@pytest.mark.parametrize(
    ("settings", "outputs", "graded"),
    [
        ({}, {"output": "a", "other": "b"}, "a"),
        ({}, {"only": "a"}, "a"),
        ({"output_key": "other"}, {"output": "a", "other": "b"}, "b"),
        ({"output_key": deep_text}, {"deep": {"text": "c"}}, "c"),
        ({}, {"output": {"n": 1}}, '{"n": 1}'),
        ({}, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "final"}]}, "final"),
        ({}, {"output": AIMessage("said")}, "said"),
    ],
)
def test_what_is_graded_can_be_said(settings: Any, outputs: Any, graded: str) -> None:
    seen: list[str] = []

    async def judge(_system: str, user: str) -> str:
        seen.append(user)
        return '{"explanation": "so", "verdict": "MET"}'

    RubricEvaluator(Rubric([RUBRIC.criteria[0]]), judge=judge, **settings)(inputs={"a": "x", "b": "y"}, outputs=outputs)
    assert f"\n{graded}\n</data" in seen[0]


def test_a_conversation_that_begins_with_the_inputs_is_shown_once(server: OpenAIServer) -> None:
    question = {"role": "user", "content": "Which number?"}
    answer = {"role": "assistant", "content": "answer number 6 "}
    server.script = judge_script
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server))
    assert evaluator(inputs={"messages": [question]}, outputs={"messages": [question, answer]})["score"] == 1.0
    assert server.calls[0].prompt.count("Which number?") == 1


def test_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`output_key` is 'text', but there are only \['output'\]"):
        RubricEvaluator(RUBRIC, judge="offline", output_key="text")(outputs={"output": "a"})
    with pytest.raises(ValueError, match=r"the outputs are \['a', 'b'\]: say with `output_key`"):
        RubricEvaluator(RUBRIC, judge="offline")(outputs={"a": "1", "b": "2"})
    with pytest.raises(ValueError, match="either `judge`"):
        RubricEvaluator(RUBRIC)


def test_of_two_runs_the_better_wins_and_near_ones_share(server: OpenAIServer) -> None:
    server.script = judge_script
    compare = compare_by_rubric(RUBRIC, judge=chat_model(server), tie_margin=0.1)
    runs = [run_of({"output": f"answer number {number} "}) for number in (6, 1, 12)]
    scores = compare(runs, None)["scores"]
    assert [scores[run.id] for run in runs] == [0.5, 0.0, 0.5]
    lost = [runs[0], run_of(None, "Boom")]
    assert list(compare(lost, None)["scores"].values()) == [None, None]
    with pytest.raises(ValueError, match="`tie_margin`"):
        compare_by_rubric(RUBRIC, judge="offline", tie_margin=1.0)


def test_langsmiths_own_comparison_takes_it(server: OpenAIServer) -> None:
    from langsmith.evaluation.evaluator import comparison_evaluator

    server.script = judge_script
    compare: Any = comparison_evaluator(compare_by_rubric(RUBRIC, judge=chat_model(server)))
    runs = [run_of({"output": f"answer number {number} "}) for number in (6, 1)]
    with tracing_context(enabled=False):
        result = compare.compare_runs(runs, examples(1)[0])
    assert list(result.scores.values()) == [1.0, 0.0]


PEOPLE = Rubric(
    [
        Criterion(name="kind", requirement="Is kind", required=True),
        Criterion(name="rude", weight=-1, requirement="Is rude"),
        Criterion(
            name="tone", requirement="tone", options=[Option(label="cold", value=0), Option(label="warm", value=1)]
        ),
        Criterion(name="depth", requirement="depth", scale=Scale(min=0, max=10)),
    ]
)


def test_people_answer_under_the_judges_keys_and_their_answers_become_labels() -> None:
    items = annotation_queue_rubric(PEOPLE)
    assert [item.get("feedback_key") for item in items] == RubricEvaluator(PEOPLE, judge="offline").feedback_keys[1:]
    assert items[0].get("is_required")
    assert items[1].get("score_descriptions") == {"1": "MET: the error was committed", "0": "UNMET: it was not"}
    assert items[2].get("score_descriptions") == {"0": "cold", "1": "warm"}

    run = run_of({"output": "Hello."})
    now = datetime.now(UTC)

    def feedback(key: str, run_id: uuid.UUID = run.id, **said: Any) -> Feedback:
        return Feedback(
            id=uuid.uuid4(), created_at=now, modified_at=now, run_id=run_id, trace_id=run_id, key=key, **said
        )

    answers = [
        feedback("rubric.kind", score=1, comment="friendly"), feedback("rubric.rude", score=0),
        feedback("rubric.tone", score=1.0), feedback("rubric.depth", score=0.7),
        feedback("rubric.kind", value="CANNOT_ASSESS"),
        feedback("rubric", score=1), feedback("other", score=1), feedback("rubric.kind", uuid.uuid4(), score=1),
        feedback("rubric.kind"),
    ]  # fmt: skip
    labels = labels_from_feedback(answers, [run], PEOPLE)
    assert [label.verdict for label in labels] == ["MET", "UNMET", "warm", "7", "CANNOT_ASSESS"]
    assert labels[0].reason == "friendly"
    assert labels[0].submission.query == "q"
    for key, score in [("rubric.kind", 0.5), ("rubric.tone", 0.5), ("rubric.kind", 3)]:
        with pytest.raises(ValueError, match=f"the feedback `{key}` has the score"):
            labels_from_feedback([feedback(key, score=score)], [run], PEOPLE)


def test_a_failed_assertion_shows_the_unmet_criteria(server: OpenAIServer) -> None:
    server.script = judge_script
    grader = PerCriterionGrader(chat_model(server))
    assert assert_rubric("answer number 6 ", RUBRIC, grader=grader).passed
    with pytest.raises(AssertionError) as failed:
        assert_rubric("answer number 7 ", RUBRIC, grader=grader)
    assert str(failed.value).splitlines() == [
        "scored 0.000, not passed (pass mark 0.8)",
        "- right (weight 6) UNMET: Gives the right product: as scripted",
        "- sourced (weight 4) UNMET: Names its source: as scripted",
    ]
    report = RUBRIC.grade_sync("answer number 4 ", grader=grader)
    assert assert_rubric(report, RUBRIC, min_score=0.6) is report
    with pytest.raises(AssertionError, match=r"scored 0.600, below 0.7"):
        assert_rubric(report, RUBRIC, min_score=0.7)


def test_in_a_marked_test_every_criterion_is_logged(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> None:
    from langsmith import testing

    logged: list[dict[str, Any]] = []

    def log(**said: Any) -> None:
        logged.append(said)

    monkeypatch.setattr(testing, "log_feedback", log)
    server.script = judge_script
    assert_rubric("answer number 30 ", RUBRIC, judge=chat_model(server))
    assert [(said["key"], said.get("score"), said.get("value")) for said in logged] == [
        ("rubric", 1.0, None), ("rubric.right", 1.0, None), ("rubric.sourced", None, "CANNOT_ASSESS"),
        ("rubric.rude", 0.0, None),
    ]  # fmt: skip


def test_importing_loads_neither_dspy_nor_langchain_and_an_evaluator_no_dspy() -> None:
    code = """
import sys
import rubric_integrations.langchain
assert not {"dspy", "langchain_core", "langsmith"} & set(sys.modules), "at import"
from rubric_integrations import Rubric
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable
rubric = Rubric.from_dict([{"weight": 1, "requirement": "a", "check": {"contains": "a"}}])
evaluator, runnable = RubricEvaluator(rubric, judge="openai/m"), RubricRunnable(rubric, judge="openai/m")
assert "dspy" not in sys.modules, "before a judge is made"
assert RubricEvaluator(rubric, judge="offline")(outputs="a")["score"] == 1.0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "package", "extra"), [
    ("RubricMiddleware", "langchain", "langchain"),
    ("RubricStringEvaluator", "langchain_classic", "langchain-classic"),
])  # fmt: skip
def test_a_missing_extra_names_itself(name: str, package: str, extra: str) -> None:
    code = f"""
import sys
sys.modules["{package}"] = None
try:
    from rubric_integrations.langchain import {name}
except ModuleNotFoundError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert f"pip install 'rubric-integrations[{extra}]'" in said


def test_a_fake_chat_model_without_structured_output_judges_in_prose() -> None:
    reply = AIMessage('{"explanation": "so", "verdict": "MET"}', usage_metadata={
        "input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "input_token_details": {"cache_read": 4}
    })  # fmt: skip
    model = FakeMessagesListChatModel(responses=[reply])
    report = Rubric([RUBRIC.criteria[0]]).grade_sync("a", grader=PerCriterionGrader(model))
    assert report.score == 1.0
    assert (report.token_usage.prompt_tokens, report.token_usage.completion_tokens) == (9, 2)
    assert report.token_usage.cached_tokens == 4
