"""Traces of `RubricEvaluator` in LangSmith: one run for each evaluation, with the judge's calls below it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from langsmith import Client, aevaluate, evaluate
from langsmith.run_helpers import traceable, tracing_context
from langsmith.schemas import TracerSession

from rubric_integrations import Fields, PerCriterionGrader
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.langchain import RubricEvaluator, RubricStringEvaluator, assert_rubric
from tests.langchain.helpers import (
    NUMBER_RUBRIC,
    async_number_target,
    chat_model,
    make_examples,
    make_run,
    number_script,
    number_target,
    number_text,
)
from tests.langchain.test_runnable import any_strategy_script
from tests.openai_server import OpenAIServer, Reply

COUNT = 8


class RecordingClient(Client):
    """A client that stores the runs and the feedback instead of sending them."""

    def __init__(self) -> None:
        super().__init__(api_key="none", api_url="http://langsmith.invalid", info={}, auto_batch_tracing=False)
        self.traced: dict[str, dict[str, Any]] = {}
        self.logged: list[dict[str, Any]] = []
        self.lock = threading.Condition()

    def create_run(self, name: str, inputs: Any, run_type: Any, **fields: Any) -> None:  # type: ignore[override]
        with self.lock:
            self.traced[str(fields["id"])] = {"name": name, "inputs": inputs, "run_type": run_type, **fields}

    def update_run(self, run_id: Any, **fields: Any) -> None:  # type: ignore[override]
        with self.lock:
            self.traced[str(run_id)] |= {key: value for key, value in fields.items() if value is not None}

    def create_feedback(self, *args: Any, **fields: Any) -> Any:  # type: ignore[override]
        with self.lock:
            self.logged.append(fields)
            self.lock.notify_all()

    def wait_for_feedback(self, count: int) -> list[dict[str, Any]]:
        """Return the feedback once there is so much of it: `aevaluate` ends before its threads have logged all."""
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.logged) >= count, timeout=60), f"{len(self.logged)} of {count}"
            return list(self.logged)

    def roots(self) -> list[dict[str, Any]]:
        return [run for run in self.traced.values() if run.get("parent_run_id") is None]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [run for run in self.traced.values() if run["name"] == name]

    def root_of(self, run: dict[str, Any]) -> dict[str, Any]:
        parent = run.get("parent_run_id")
        return run if parent is None else self.root_of(self.traced[str(parent)])

    def create_project(self, project_name: str, **_fields: Any) -> Any:  # type: ignore[override]
        now = datetime.now(UTC)
        return TracerSession(
            id=uuid.uuid4(),
            name=project_name,
            start_time=now,
            tenant_id=uuid.uuid4(),
            reference_dataset_id=uuid.uuid4(),
        )

    def update_project(self, *args: Any, **_fields: Any) -> Any:  # type: ignore[override]
        return None


def run_experiment(client: Client, evaluator: RubricEvaluator, function: str, **settings: Any) -> list[Any]:
    """Evaluate the number target with uploads to the client, and return the rows."""
    settings |= {"data": make_examples(COUNT), "evaluators": [evaluator], "client": client, "max_concurrency": 4}

    async def run_async() -> list[Any]:
        return [row async for row in await aevaluate(async_number_target, **settings)]

    return asyncio.run(run_async()) if function == "aevaluate" else list(evaluate(number_target, **settings))


@pytest.mark.parametrize("function", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("strategy", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_evaluation_is_one_trace_with_the_judges_calls_below_it(
    server: OpenAIServer, function: str, strategy: Any
) -> None:
    client = RecordingClient()
    grader = strategy(chat_model(server, any_strategy_script, max_retries=3))
    rows = run_experiment(client, RubricEvaluator(NUMBER_RUBRIC, grader=grader), function)
    evaluations = [run for run in client.roots() if run["name"] == "RubricEvaluator"]
    assert len(evaluations) == len(rows) == COUNT
    assert len(client.roots()) == 2 * COUNT  # the runs of the target and those of the evaluator
    calls = client.named("ChatOpenAI")
    assert len(calls) == COUNT * (3 if strategy is PerCriterionGrader else 1)
    # Nothing else is traced: LangChain's chain for structured replies would be eight runs a call.
    assert len(client.traced) == 2 * COUNT + len(calls)
    for call in calls:
        text = client.root_of(call)["inputs"]["outputs"]["output"]
        assert text in str(call["inputs"]), "the call is below the evaluation of another example"
    for evaluation in evaluations:
        assert evaluation["session_name"] == "evaluators"
        assert evaluation["outputs"]["rubric"] is not None
        assert evaluation["extra"]["metadata"]["target_run_id"] in client.traced


@pytest.mark.parametrize("function", ["evaluate", "aevaluate"])
def test_feedback_is_linked_to_the_run_of_its_evaluation(server: OpenAIServer, function: str) -> None:
    client = RecordingClient()
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script, max_retries=3))
    rows = run_experiment(client, evaluator, function)
    logged = client.wait_for_feedback(4 * COUNT)
    assert len(logged) == 4 * COUNT
    for feedback in logged:
        evaluation = client.traced[str(feedback["source_run_id"])]
        assert evaluation["name"] == "RubricEvaluator"
        assert evaluation["extra"]["metadata"]["target_run_id"] == str(feedback["run_id"])
    for row in rows:
        assert all(result.source_run_id for result in row["evaluation_results"]["results"])


def test_failed_evaluation_is_a_run_with_an_error(server: OpenAIServer) -> None:
    client = RecordingClient()
    model = chat_model(server, lambda _call: Reply(status=401))
    run_experiment(client, RubricEvaluator(NUMBER_RUBRIC, judge=model), "evaluate")
    run_experiment(client, RubricEvaluator(NUMBER_RUBRIC, judge=model, fields=Fields(response="missing")), "evaluate")
    evaluations = [run for run in client.roots() if run["name"] == "RubricEvaluator"]
    assert len(evaluations) == 2 * COUNT
    assert all(run["error"] for run in evaluations)
    assert all(str(feedback["source_run_id"]) in client.traced for feedback in client.logged)


def test_evaluator_without_tracing_makes_no_run_and_without_an_id_its_own(server: OpenAIServer) -> None:
    client = RecordingClient()
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))
    run = make_run({"output": number_text(6)})
    with tracing_context(enabled=False, client=client):
        results = evaluator.evaluate_run(run).get("results", [])
    assert (client.traced, [result.source_run_id for result in results]) == ({}, [None] * 4)
    with tracing_context(enabled=True, client=client):
        results = evaluator.evaluate_run(run).get("results", [])
    (root,) = client.roots()
    assert {str(result.source_run_id) for result in results} == {str(root["id"])}


@pytest.mark.parametrize("inside", [False, True])
def test_evaluator_called_with_keywords_makes_one_run_below_its_caller(server: OpenAIServer, inside: bool) -> None:
    client = RecordingClient()
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))

    def grade() -> Any:
        return evaluator(inputs={}, outputs={"output": number_text(6)})

    with tracing_context(enabled=True, client=client):
        assert (traceable(name="caller")(grade) if inside else grade)()["score"] == 1.0
    (root,) = client.roots()
    evaluation = client.named("RubricEvaluator")[0]
    assert evaluation["outputs"]["score"] == 1.0
    assert len(client.named("ChatOpenAI")) == 3
    assert root["name"] == ("caller" if inside else "RubricEvaluator")
    assert (evaluation is root) is not inside


def test_string_evaluator_and_assertion_make_one_trace(server: OpenAIServer) -> None:
    client, model = RecordingClient(), chat_model(server, number_script)
    with tracing_context(enabled=True, client=client):
        RubricStringEvaluator(NUMBER_RUBRIC, judge=model).evaluate_strings(prediction=number_text(6))
        assert_rubric(number_text(6), NUMBER_RUBRIC, judge=model)
    assert [run["name"] for run in client.roots()] == ["rubric", "assert_rubric"]
    assert len(client.named("ChatOpenAI")) == 6
