"""A judge that is down ends a DSPy run with an error, and never with a score of 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from rubric_integrations.dspy.outage import OutageGuard
from rubric_integrations.results import EvaluationReport
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
    metric, lm = metric_at(server, max_outage=0), task_lm()
    message = r"failed for \d s without a complete grade, at last with: .*503"
    with dspy.context(lm=lm), pytest.raises(JudgeOutage, match=message):
        run(metric, lm)
    assert metric.summary()["passed"] == 0


def test_outage_that_begins_in_the_middle_of_a_run_ends_it(server: OpenAIServer) -> None:
    server.script = lambda call: judge_script(call) if call.number < 8 else Reply(status=503)
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(20)]
    metric = metric_at(server, max_outage=0)
    evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=4, display_progress=False)
    with dspy.context(lm=task_lm()), pytest.raises(JudgeOutage):
        evaluate(Student())


def test_metric_after_an_outage_refuses_until_resume_is_called(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = metric_at(server)
    graded = dspy.Prediction(answer="It is 6.")
    metric(DEVSET[0], graded)
    server.script = lambda _call: Reply(status=401)
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
    server.script = lambda _call: Reply(status=401)
    grader = PerCriterionGrader(judge_at(server), max_retries=0, on_failure="abstain")
    metric = RubricMetric(RUBRIC, grader=grader)
    metric(DEVSET[0], dspy.Prediction(answer="a"))
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="b"))


def test_failures_with_successes_between_them_are_no_outage(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=401 if "odd" in call.prompt else 200)
    metric = metric_at(server)
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


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


ONE_CRITERION = Rubric([Criterion(requirement="a")])


def failed_report(error: str) -> EvaluationReport:
    """The report of a grade of ONE_CRITERION whose judge failed with an exception."""

    async def fail(system: str, user: str) -> str:
        if error == "transport":
            raise ConnectionError("no server")
        if error == "config":
            raise KeyError("key")
        return "I would rather not."

    return ONE_CRITERION.grade_sync("x", grader=PerCriterionGrader(fail, max_retries=0, on_failure="abstain"))


def test_guard_after_any_number_of_transport_failures_in_a_short_time_sees_no_outage() -> None:
    clock, report = Clock(), failed_report("transport")
    guard = OutageGuard(max_outage=300, clock=clock)
    for _ in range(150):
        clock.now += 2.5 / 150
        guard.record_failure(ONE_CRITERION, report, started_at=clock.now - 1)
    guard.check()


def test_guard_after_transport_failures_for_the_whole_time_sees_an_outage() -> None:
    clock, report = Clock(), failed_report("transport")
    guard = OutageGuard(max_outage=300, clock=clock)
    guard.record_success()
    clock.now += 3600  # the metric was not used for an hour, which is no outage
    for _ in range(30):
        started_at, clock.now = clock.now, clock.now + 9.9
        guard.record_failure(ONE_CRITERION, report, started_at)
    clock.now += 9.9
    with pytest.raises(JudgeOutage, match=r"failed for 307 s without a complete grade, at last with: .*no server"):
        guard.record_failure(ONE_CRITERION, report, clock.now)
    with pytest.raises(JudgeOutage):
        guard.start()


def test_guard_after_one_grade_that_failed_after_minutes_of_retries_sees_an_outage() -> None:
    clock, report = Clock(), failed_report("transport")
    guard = OutageGuard(max_outage=180, clock=clock)
    started_at = guard.start()
    clock.now += 300
    with pytest.raises(JudgeOutage, match="300 s without a complete grade"):
        guard.record_failure(ONE_CRITERION, report, started_at)


def test_guard_after_a_grade_that_failed_for_minutes_beside_complete_ones_sees_no_outage() -> None:
    clock, report = Clock(), failed_report("transport")
    guard = OutageGuard(max_outage=180, clock=clock)
    started_at = guard.start()
    clock.now += 150
    guard.record_success()
    clock.now += 150
    guard.record_failure(ONE_CRITERION, report, started_at)
    guard.check()


@pytest.mark.parametrize(
    ("error", "limit", "message"),
    [("config", 2, "2 grades in a row, because of its model, key or setting"), ("parse", 20, "20 replies in a row")],
)
def test_guard_counts_failures_that_no_waiting_changes(error: str, limit: int, message: str) -> None:
    report, success_first = failed_report(error), OutageGuard(max_outage=180)
    guard = OutageGuard(max_outage=180)
    for _ in range(limit - 1):
        guard.record_failure(ONE_CRITERION, report, guard.start())
        success_first.record_failure(ONE_CRITERION, report, success_first.start())
    success_first.record_success()
    success_first.record_failure(ONE_CRITERION, report, success_first.start())
    with pytest.raises(JudgeOutage, match=message):
        guard.record_failure(ONE_CRITERION, report, guard.start())


def test_guard_after_a_reply_that_can_be_read_counts_from_zero() -> None:
    async def answer(system: str, user: str) -> str:
        return '{"explanation": "e", "verdict": "MET"}' if "readable" in user else "I would rather not."

    rubric = Rubric([Criterion(requirement="readable"), Criterion(requirement="b")])
    grader = PerCriterionGrader(answer, max_retries=0, on_failure="abstain")
    partly, guard = rubric.grade_sync("x", grader=grader), OutageGuard(max_outage=180)
    assert partly.failed_count == 1
    for _ in range(50):
        guard.record_failure(rubric, partly, guard.start())
    guard.check()


def test_guard_after_five_checks_that_cannot_be_computed_sees_an_outage() -> None:
    rubric = Rubric.from_dict(
        {
            "criteria": [{"requirement": "a", "check": {"max_words": 4}}],
            "hybrid_metrics": [{"name": "m", "type": "custom", "weight": 0.5, "config": {"metric_function": "none"}}],
        }
    )
    metric = RubricMetric(rubric, judge="offline")
    for number in range(4):
        with pytest.raises(JudgeError):
            metric(DEVSET[0], dspy.Prediction(answer=f"a {number}"))
    with pytest.raises(JudgeOutage, match=r"5 grades in a row, because a check could not be computed.*not registered"):
        metric(DEVSET[0], dspy.Prediction(answer="a"))


@pytest.mark.parametrize("reply", [Reply(status=401), Reply(text="I would rather not.")])
def test_judge_that_cannot_be_used_ends_an_evaluation_after_few_calls(server: OpenAIServer, reply: Reply) -> None:
    server.script = lambda _call: reply
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(300)]
    metric = metric_at(server, ONE_CRITERION)
    evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=4, display_progress=False, max_errors=300)

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"Answer to {question}")

    with pytest.raises(JudgeOutage):
        evaluate(Echo())
    assert len(server.calls) <= 24  # 20, and the calls of the other threads


def test_guard_after_a_reset_counts_from_the_beginning() -> None:
    clock, report = Clock(), failed_report("config")
    guard = OutageGuard(max_outage=180, clock=clock)
    guard.record_failure(ONE_CRITERION, report, guard.start())
    guard.reset()
    guard.record_failure(ONE_CRITERION, report, guard.start())
    guard.check()


def test_outage_of_a_moment_with_sixteen_threads_does_not_end_an_evaluation(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=503 if call.number < 60 else 200)
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(100)]
    metric = metric_at(server, ONE_CRITERION)
    evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=16, display_progress=False, max_errors=300)

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"Answer to {question}")

    evaluate(Echo())
    assert metric.summary()["passed"] == 40
