"""`calls` is the number of requests that the server has received, whatever becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import dspy
import pytest

from rubric_integrations import (
    JudgeError,
    PerCriterionGrader,
    Rubric,
    grade_many,
)
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import CallLimits, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Cascade, LMJudge
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric.from_dict([{"requirement": f"Requirement {number}"} for number in range(5)])
LIMITS = CallLimits(max_retries=1, timeout=5, max_outage=0.2)
_ANSWER = {"explanation": "as scripted", "verdict": "MET"}
_BATCH = {"judgments": [{"id": number, **_ANSWER} for number in range(1, 6)]}


def answer(call: Call) -> Reply:
    """Reply in the form that the request asks for."""
    if "judgments" in call.prompt:
        return Reply(text=json.dumps(_BATCH))
    if "percent" in call.prompt or "overall" in call.prompt.lower():
        return Reply(text=json.dumps({"explanation": "as scripted", "score": 80}))
    return Reply()


FAULTS: dict[str, Callable[[Call], Reply]] = {
    "none": answer,
    "refused text": lambda call: (
        Reply(finish_reason="content_filter") if call.number % 7 == 3 else _late(answer(call), call)
    ),
    "errors": lambda call: Reply(status=500) if call.number % 3 == 0 else answer(call),
    "lost": lambda call: Reply(drop=True) if call.number % 4 == 1 else answer(call),
}


def _late(reply: Reply, call: Call) -> Reply:
    return Reply(text=reply.text, delay=0.02 * (call.number % 4))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def judge(server: OpenAIServer, name: str = "gpt-4.1-mini") -> LMJudge:
    return LMJudge(f"openai/{name}", api_base=server.url, api_key="x")


def grader_of(kind: str, server: OpenAIServer) -> Any:
    judges = [judge(server), judge(server, "gpt-4.1")]
    makers: dict[str, Callable[[], Any]] = {
        "single": lambda: PerCriterionGrader(judges[0], limits=LIMITS),
        "panel": lambda: PerCriterionGrader(judges=judges, limits=LIMITS),
        "cascade": lambda: PerCriterionGrader(Cascade(*judges, escalate_below=0), limits=LIMITS),
        "one shot": lambda: PerCriterionOneShotGrader(judges=judges, limits=LIMITS),
        "holistic": lambda: RubricAsJudgeGrader(judges=judges, limits=LIMITS),
    }
    return makers[kind]()


@pytest.mark.parametrize("kind", ["single", "panel", "cascade", "one shot", "holistic"])
@pytest.mark.parametrize("fault", FAULTS)
def test_calls_of_a_run_and_of_its_reports_are_the_requests_of_the_server(
    server: OpenAIServer, kind: str, fault: str
) -> None:
    server.script = FAULTS[fault]
    for max_calls in (None, 23):
        server.calls.clear()
        run = grade_many([f"text {n}" for n in range(8)], RUBRIC, grader_of(kind, server), max_calls=max_calls)
        reports = [graded.report for graded in run if graded.report]
        assert run.summary.spend.calls == len(server.calls)
        if run.summary.stopped is None:
            assert sum(report.spend.calls for report in reports) == len(server.calls)
        if fault == "none":
            assert not run.summary.spend.is_lower_bound
        assert run.summary.spend.cost is not None


@pytest.mark.parametrize("fault", FAULTS)
def test_summary_of_a_metric_counts_the_requests_of_the_server(server: OpenAIServer, fault: str) -> None:
    server.script = FAULTS[fault]
    metric = RubricMetric(RUBRIC, grader=grader_of("single", server))
    for number in range(6):
        example = dspy.Example(question="q").with_inputs("question")
        try:
            metric(example, dspy.Prediction(answer=f"text {number}"))
        except (JudgeError, RuntimeError):
            continue
    summary = metric.summary()
    assert summary["calls"] == len(server.calls)
    assert summary["cost"] is not None
