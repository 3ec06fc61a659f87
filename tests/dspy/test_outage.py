"""A judge that is down ends a DSPy run with an error, and never with a score of 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
import pytest

from rubric_integrations import JudgeError, PerCriterionGrader
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from tests.dspy.programs import (
    DEVSET,
    RUBRIC,
    Student,
    judge_at,
    judge_script,
    metric_at,
    run_evaluate,
    run_gepa,
    run_mipro,
    run_random_search,
    run_simba,
    task_lm,
)
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.parametrize("run", [run_evaluate, run_random_search, run_mipro, run_gepa, run_simba])
def test_outage_during_a_run_ends_it_with_an_error(server: OpenAIServer, run: Callable[[Any, Any], Any]) -> None:
    server.script = lambda _call: Reply(status=503)
    metric, lm = metric_at(server), task_lm()
    with dspy.context(lm=lm), pytest.raises(JudgeOutage, match=r"5 times in a row, at last with: .*503"):
        run(metric, lm)
    assert metric.summary()["passed"] == 0


def test_outage_that_begins_in_the_middle_of_a_run_ends_it(server: OpenAIServer) -> None:
    server.script = lambda call: judge_script(call) if call.number < 8 else Reply(status=503)
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(20)]
    evaluate = dspy.Evaluate(devset=devset, metric=metric_at(server), num_threads=4, display_progress=False)
    with dspy.context(lm=task_lm()), pytest.raises(JudgeOutage):
        evaluate(Student())


def test_metric_after_an_outage_refuses_until_resume_is_called(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = metric_at(server, max_judge_failures=2)
    graded = dspy.Prediction(answer="It is 6.")
    metric(DEVSET[0], graded)
    server.script = lambda _call: Reply(status=503)
    with pytest.raises(JudgeError):
        metric(DEVSET[0], dspy.Prediction(answer="a"))
    with pytest.raises(JudgeOutage, match=r"Fix the judge, call the metric's `resume\(\)`"):
        metric(DEVSET[0], dspy.Prediction(answer="b"))
    calls = len(server.calls)
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="c"))
    server.script = judge_script
    metric.resume()
    assert float(metric(DEVSET[0], graded)) == 1.0
    assert len(server.calls) == calls
    assert float(metric(DEVSET[0], dspy.Prediction(answer="a"))) == 0.2  # a failed grade is not cached
    assert metric.summary()["failed"] == 2


def test_failures_that_count_as_abstentions_end_in_an_outage(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=503)
    grader = PerCriterionGrader(judge_at(server), max_retries=0, on_failure="abstain")
    metric = RubricMetric(RUBRIC, grader=grader, max_judge_failures=2)
    metric(DEVSET[0], dspy.Prediction(answer="a"))
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="b"))


def test_failures_with_successes_between_them_are_no_outage(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=503 if "odd" in call.prompt else 200)
    metric = metric_at(server, max_judge_failures=2)
    for number in range(4):
        metric(DEVSET[0], dspy.Prediction(answer=f"even {number}"))
        with pytest.raises(JudgeError):
            metric(DEVSET[0], dspy.Prediction(answer=f"odd {number}"))
    assert metric.summary()["failed"] == 4


def test_program_that_raises_does_not_count_as_a_failed_judge(metric: RubricMetric) -> None:
    class BrokenProgram(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            raise RuntimeError("a bug of the program")

    evaluate = dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)
    assert evaluate(BrokenProgram()).score == 0.0
    assert metric.summary()["failed"] == 0
