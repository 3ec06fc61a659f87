"""A judge that is down ends a DSPy run with an error, and never with a score of 0."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges.store import Lease, StoreError
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
    message = r"the judge has not replied for \d s: .*503.* The run ends here, because DSPy would score its programs 0"
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
    for number in range(19):
        with pytest.raises(JudgeError):
            metric(DEVSET[0], dspy.Prediction(answer=f"a {number}"))
    with pytest.raises(JudgeOutage, match=r"Fix the judge, call the metric's `resume\(\)`"):
        metric(DEVSET[0], dspy.Prediction(answer="b"))
    calls = len(server.calls)
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="c"))
    server.script = judge_script
    metric.resume()
    assert float(metric(DEVSET[0], graded)) == 1.0
    assert len(server.calls) <= calls
    assert float(metric(DEVSET[0], dspy.Prediction(answer="b"))) == 0.2  # a failed grade is not cached
    assert metric.summary()["failed"] == 20


def test_failures_that_count_as_abstentions_end_in_an_outage(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    grader = PerCriterionGrader(judge_at(server), max_retries=0, on_failure="abstain")
    metric = RubricMetric(RUBRIC, grader=grader)
    # The refusal of one submission may be about its text.
    assert metric(DEVSET[0], dspy.Prediction(answer="a")).coverage < 0.2
    with pytest.raises(JudgeOutage, match=r"the judge cannot be used: .*401") as outage:
        metric(DEVSET[0], dspy.Prediction(answer="b"))
    # The traceback that Python prints has only this error.
    assert outage.value.__cause__ is None
    assert outage.value.__suppress_context__
    assert ".." not in str(outage.value)
    assert len(server.calls) == 3


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


ONE_CRITERION = Rubric([Criterion(requirement="a")])


def test_checks_that_cannot_be_computed_end_a_run_after_twenty_grades() -> None:
    rubric = Rubric.from_dict(
        {
            "criteria": [{"requirement": "a", "check": {"max_words": 4}}],
            "hybrid_metrics": [{"name": "m", "type": "custom", "weight": 0.5, "config": {"metric_function": "none"}}],
        }
    )
    metric = RubricMetric(rubric, judge="offline")
    for number in range(19):
        with pytest.raises(JudgeError):
            metric(DEVSET[0], dspy.Prediction(answer=f"a {number}"))
    with pytest.raises(JudgeOutage, match=r"the last 20 submissions failed: .*not registered"):
        metric(DEVSET[0], dspy.Prediction(answer="a"))


@pytest.mark.parametrize(("reply", "calls"), [(Reply(status=401), 2), (Reply(text="I would rather not."), 20 + 3)])
def test_judge_that_cannot_be_used_ends_an_evaluation_after_few_calls(
    server: OpenAIServer, reply: Reply, calls: int
) -> None:
    server.script = lambda _call: reply
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(300)]
    metric = metric_at(server, ONE_CRITERION)
    evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=4, display_progress=False, max_errors=300)

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"Answer to {question}")

    with pytest.raises(JudgeOutage):
        evaluate(Echo())
    assert len(server.calls) <= calls


def test_copy_of_a_metric_after_an_outage_grades(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    metric = metric_at(server, ONE_CRITERION)
    for expected in (JudgeError, JudgeOutage):
        with pytest.raises(expected):
            metric(DEVSET[0], dspy.Prediction(answer="a"))
    server.script = lambda _call: Reply()
    assert float(copy.deepcopy(metric)(DEVSET[0], dspy.Prediction(answer="a"))) == 1.0


def test_judge_that_refuses_one_text_does_not_end_a_run(server: OpenAIServer) -> None:
    refusal = b'{"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "refusal": "I cannot."}}]}'
    server.script = lambda call: Reply(raw=refusal) if "harmful" in call.prompt else Reply()
    rubric = Rubric([Criterion(requirement=f"r{number}") for number in range(12)])
    metric = RubricMetric(rubric, grader=PerCriterionGrader(judge_at(server), on_failure="abstain"))
    for number in range(2):
        assert metric(DEVSET[0], dspy.Prediction(answer=f"harmful {number}")).coverage == 0.0
    assert float(metric(DEVSET[0], dspy.Prediction(answer="kind"))) == 1.0


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


class FullDisk:
    """A store that cannot be written."""

    def lease(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Lease]:
        raise StoreError("the disk is full")


def test_store_that_cannot_be_written_ends_a_run(server: OpenAIServer) -> None:
    metric = metric_at(server, ONE_CRITERION, ledger=FullDisk())
    with pytest.raises(JudgeOutage, match="the disk is full"):
        metric(DEVSET[0], dspy.Prediction(answer="a"))


def test_failed_row_is_in_dspys_average_which_a_warning_and_the_summary_say(caplog: pytest.LogCaptureFixture) -> None:
    async def judge(system: str, user: str) -> str:
        return "Hm." if "lost" in user else '{"explanation": "so", "verdict": "MET"}'

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"It is {question}.")

    questions = [*(f"right {number}" for number in range(8)), "lost 1", "lost 2"]
    devset = [dspy.Example(question=question).with_inputs("question") for question in questions]
    metric = RubricMetric([{"requirement": "Is right"}], judge, limits=CallLimits(max_outage=0))
    result = dspy.Evaluate(devset=devset, metric=metric, num_threads=4, display_progress=False)(Echo())
    summary = metric.summary()
    assert (result.score, summary["failed"], summary["mean_score"]) == (80.0, 2, 1.0)
    [warning] = [r.getMessage() for r in caplog.records if r.name == "rubric_integrations.dspy.metric"]
    for words in ("`failure_score`", "`max_errors` (10)", "`summary()`", "Hm."):
        assert words in warning
