"""DSPy's real optimizers on a small task: what they make of the metric, what they pay, and how an outage ends them.

The student answers better once its instructions say so; every model of the program is scripted, and the judge is a
server. Nothing here is a measure of a real model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.teleprompt import BetterTogether, BootstrapFewShotWithRandomSearch, MIPROv2
from dspy.teleprompt.gepa.gepa import GEPA
from dspy.teleprompt.simba import SIMBA

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from rubric_integrations.dspy.report_cache import ReportCache
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models.from_name import lm_from_fn
from tests.dspy.test_metric import ANSWERS, DEVSET, RUBRIC, Student, judge_script, student_lm
from tests.openai_server import OpenAIServer, Reply

HINT = "Be brief and right."


async def scripted(system: str, user: str) -> str:
    """Every model but the judge: the student, and whoever writes instructions for it."""
    how = user.rsplit("Respond with", 1)[-1]
    number = re.findall(r"Product (\d)\?", user)
    answer = "It is 6." if HINT in system + user else ANSWERS[int(number[-1])] if number else "none"
    fields = {"answer": answer, "module_advice": json.dumps({"predict": HINT}), "reasoning": "So it is."}
    if "a JSON object" in how:
        return json.dumps({name: fields.get(name, HINT) for name in re.findall(r"`(\w+)`", how)})
    asked = re.findall(r"\[\[ ## (\w+) ## \]\]", how)
    return "\n\n".join(f"[[ ## {name} ## ]]\n{fields.get(name, HINT)}" for name in asked)


def task_lm() -> dspy.LM:
    return lm_from_fn(scripted)


def made_for(server: OpenAIServer, **settings: Any) -> RubricMetric:
    return RubricMetric(
        RUBRIC, grader=PerCriterionGrader("openai/mock", api_base=server.url, max_retries=0), **settings
    )


def run_random_search(metric: Any, lm: Any) -> Any:
    search = BootstrapFewShotWithRandomSearch(metric=metric, num_candidate_programs=2, num_threads=2)
    return search.compile(Student(), trainset=DEVSET, valset=DEVSET)


def run_mipro(metric: Any, lm: Any) -> Any:
    optimizer = MIPROv2(metric=metric, prompt_model=lm, task_model=lm, auto=None, num_candidates=2, num_threads=2)
    return optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET, num_trials=3, minibatch=False)


def run_simba(metric: Any, lm: Any) -> Any:
    optimizer = SIMBA(metric=metric, bsize=4, num_candidates=2, max_steps=2, max_demos=2, prompt_model=lm)
    return optimizer.compile(Student(), trainset=DEVSET, seed=1)


def run_gepa(metric: Any, lm: Any) -> Any:
    optimizer = GEPA(metric=metric, max_metric_calls=40, reflection_lm=lm, num_threads=2)
    return optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET)


def run_better_together(metric: Any, lm: Any) -> Any:
    search = BootstrapFewShotWithRandomSearch(metric=metric, num_candidate_programs=1, num_threads=2)
    student = Student()
    student.set_lm(lm)
    return BetterTogether(metric=metric, p=search).compile(student, trainset=DEVSET, valset=DEVSET, strategy="p")


def run_evaluate(metric: Any, lm: Any) -> Any:
    return dspy.Evaluate(devset=DEVSET * 3, metric=metric, num_threads=2, display_progress=False)(Student())


def run_evaluate_many(metric: Any) -> Any:
    devset = [dspy.Example(question=f"Product {i % 4}? ({i})").with_inputs("question") for i in range(20)]
    return dspy.Evaluate(devset=devset, metric=metric, num_threads=4, display_progress=False)(Student())


OPTIMIZERS: list[Callable[[Any, Any], Any]] = [
    run_random_search, run_mipro, run_simba, run_gepa, run_better_together
]  # fmt: skip


@pytest.mark.parametrize("run", OPTIMIZERS)
def test_every_optimizer_keeps_or_betters_the_program_and_pays_once_for_a_text(
    server: OpenAIServer, run: Callable[[Any, Any], Any]
) -> None:
    server.script = judge_script
    metric, lm = made_for(server), task_lm()
    with dspy.context(lm=lm):
        compiled = run(metric, lm)
        during = metric.summary()
        after = dspy.Evaluate(devset=DEVSET, metric=metric, display_progress=False)(compiled).score
    assert round(after, 6) >= 55.0  # what the student gets as it is: 1, 0, 1 and 0.2 of four
    if run in (run_mipro, run_gepa):
        assert after == 100.0  # they write instructions, and found the one that helps
    # Four questions, at most two answers to each: whatever the optimizer asks again is remembered.
    assert 4 <= during["gradings"] <= 8
    assert during["remembered"] > 0
    assert len(server.calls) == 2 * metric.summary()["gradings"]  # the third criterion is a check


def test_feedback_for_gepa_costs_no_call(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = made_for(server)
    asked: list[tuple[str | None, int]] = []

    def spied(example: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        before = len(server.calls)
        score = metric(example, pred, trace, pred_name, pred_trace)
        asked.append((pred_name, len(server.calls) - before))
        return score

    with dspy.context(lm=task_lm()):
        GEPA(metric=spied, max_metric_calls=30, reflection_lm=task_lm(), num_threads=1).compile(
            Student(), trainset=DEVSET, valset=DEVSET
        )
    feedback_calls = [calls for name, calls in asked if name is not None]
    assert feedback_calls
    assert set(feedback_calls) == {0}


def test_bootstrapping_from_a_teacher_that_is_always_wrong_gives_no_demonstration(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("UNMET")
    with dspy.context(lm=student_lm()):
        optimizer = dspy.BootstrapFewShot(metric=made_for(server), max_labeled_demos=0)
        compiled = optimizer.compile(Student(), trainset=DEVSET)
    assert compiled.predict.demos == []


@pytest.mark.parametrize("run", [run_evaluate, run_random_search, run_mipro, run_gepa, run_simba])
def test_an_outage_ends_the_run_with_an_error_and_not_with_a_score(
    server: OpenAIServer, run: Callable[[Any, Any], Any]
) -> None:
    server.script = lambda _call: Reply(status=503)
    metric, lm = made_for(server), task_lm()
    with dspy.context(lm=lm), pytest.raises(JudgeOutage, match=r"5 times in a row, at last with: .*503"):
        run(metric, lm)
    assert metric.summary()["passed"] == 0


def test_an_outage_that_begins_in_the_middle_ends_the_run_too(server: OpenAIServer) -> None:
    server.script = lambda call: judge_script(call) if call.number < 8 else Reply(status=503)
    metric, lm = made_for(server), task_lm()
    with dspy.context(lm=lm), pytest.raises(JudgeOutage):
        run_evaluate_many(metric)


def test_after_an_outage_the_metric_refuses_until_it_is_told_to_resume(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = made_for(server, max_judge_failures=2)
    bought = dspy.Prediction(answer="It is 6.")
    metric(DEVSET[0], bought)
    server.script = lambda _call: Reply(status=503)
    with pytest.raises(JudgeError):
        metric(DEVSET[0], dspy.Prediction(answer="a"))
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="b"))
    calls = len(server.calls)
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="c"))
    server.script = judge_script
    metric.resume()
    assert float(metric(DEVSET[0], bought)) == 1.0
    assert len(server.calls) == calls
    assert float(metric(DEVSET[0], dspy.Prediction(answer="a"))) == 0.2  # a failure was not remembered
    assert metric.summary()["failed"] == 2


def test_failures_that_count_as_abstentions_end_in_an_outage_too(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=503)
    grader = PerCriterionGrader("openai/mock", api_base=server.url, max_retries=0, on_failure="abstain")
    metric = RubricMetric(RUBRIC, grader=grader, max_judge_failures=2)
    metric(DEVSET[0], dspy.Prediction(answer="a"))
    with pytest.raises(JudgeOutage):
        metric(DEVSET[0], dspy.Prediction(answer="b"))


def test_failures_with_successes_between_are_no_outage(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=503 if "odd" in call.prompt else 200)
    metric = made_for(server, max_judge_failures=2)
    for number in range(4):
        metric(DEVSET[0], dspy.Prediction(answer=f"even {number}"))
        with pytest.raises(JudgeError):
            metric(DEVSET[0], dspy.Prediction(answer=f"odd {number}"))
    assert metric.summary()["failed"] == 4


@pytest.mark.parametrize("threads", [1, 16])
def test_the_same_text_at_the_same_time_is_judged_once(server: OpenAIServer, threads: int) -> None:
    server.script = lambda _call: Reply("MET", delay=0.05)
    metric = made_for(server)
    pred = dspy.Prediction(answer="It is 6.")
    runner = dspy.Parallel(num_threads=threads, disable_progress_bar=True)
    scores: Any = runner([(metric, (DEVSET[0], pred)) for _ in range(48)])
    assert {float(score) for score in scores} == {0.5}
    summary = metric.summary()
    assert (len(server.calls), summary["gradings"], summary["remembered"]) == (2, 1, 47)


def test_what_differs_is_judged_apart(server: OpenAIServer) -> None:
    judge = LMJudge(dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=False))
    metric = RubricMetric(
        lambda example: Rubric([Criterion(requirement=example.get("asks", "a"))]), reference="gold",
        grader=PerCriterionGrader(judge),
    )  # fmt: skip

    def calls_for(answer: str = "x", **fields: str) -> int:
        before = len(server.calls)
        metric(dspy.Example(**{"q": "?", "gold": "g", **fields}).with_inputs("q"), dspy.Prediction(answer=answer))
        return len(server.calls) - before

    assert [calls_for(), calls_for()] == [1, 0]
    for other in ({"answer": "y"}, {"q": "other?"}, {"gold": "h"}, {"asks": "b"}):
        assert calls_for(**other) == 1, other
    judge.criterion.demos = [dspy.Example(submission="s", criterion="c", explanation="e", verdict="MET")]
    assert calls_for() == 1  # a compiled judge is another judge


def test_the_memory_is_bounded_and_may_be_none(server: OpenAIServer) -> None:
    for memory, asked, calls in [(0, "aaa", 3), (1, "abab", 4), (2, "abab", 2), (2, "abcba", 4)]:
        metric = RubricMetric(
            Rubric([Criterion(requirement="r")]),
            memory=memory,
            grader=PerCriterionGrader("openai/m", api_base=server.url),
        )
        before = len(server.calls)
        for answer in asked:
            metric(DEVSET[0], dspy.Prediction(answer=answer))
        assert len(server.calls) - before == calls, (memory, asked)


def test_whoever_waits_takes_over_from_an_interrupted_grade() -> None:
    memo, started, report = (
        ReportCache(size=1),
        threading.Event(),
        RUBRIC.grade_sync("x", grader=PerCriterionGrader("offline")),
    )
    released = threading.Event()

    def interrupted() -> Any:
        started.set()
        released.wait(timeout=10)
        raise KeyboardInterrupt

    def leader() -> None:
        with pytest.raises(KeyboardInterrupt):
            memo.once("k", interrupted)

    found: list[bool] = []
    threads = [threading.Thread(target=leader)]
    threads[0].start()
    assert started.wait(timeout=10)
    threads.append(threading.Thread(target=lambda: found.append(memo.once("k", lambda: report).paid)))
    threads[1].start()
    released.set()
    for thread in threads:
        thread.join(timeout=10)
    assert found == [True]


def _in_my_words(report: EvaluationReport) -> str:
    return f"{len(report.criteria)} criteria"


def test_feedback_may_be_your_own_and_speak_of_one_predictors_criteria(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("UNMET")
    pred = dspy.Prediction(answer="one two three four five")
    metric = made_for(server, criteria_for={"predict": ["brief"]})
    whole, part = metric(DEVSET[0], pred), metric(DEVSET[0], pred, [], "predict", [])
    assert "Gives the right product" in whole.feedback
    assert "Gives the right product" not in part.feedback
    assert "Brief: has 5 words" in part.feedback
    assert (float(whole), whole.objective_scores) == (float(part), part.objective_scores)
    assert metric(DEVSET[0], pred, [], "another", []).feedback == whole.feedback
    own = made_for(server, feedback=_in_my_words)
    assert own(DEVSET[0], pred).feedback == "3 criteria"
    with pytest.raises(ValueError, match=r"`criteria_for` maps 'predict' to 'brife'.*'brief'"):
        made_for(server, criteria_for={"predict": ["brife"]})


def test_feedback_ends_with_what_was_expected_where_it_is_known(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = made_for(server, reference="gold")
    example = dspy.Example(question="Product 0?", gold="It is 6, of course.").with_inputs("question")
    assert metric(example, dspy.Prediction(answer="No.")).feedback.endswith(
        "\nAn exemplary answer: It is 6, of course."
    )
    assert "exemplary" not in metric(example, dspy.Prediction(answer="It is 6.")).feedback


@pytest.mark.parametrize("on_abstain", [None, "skip", "zero", "fail"])
def test_a_grade_with_nothing_assessed_is_a_number_and_counted(server: OpenAIServer, on_abstain: Any) -> None:
    server.script = lambda _call: Reply("CANNOT_ASSESS")
    judge = dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=False)
    metric = RubricMetric(Rubric([Criterion(requirement="a")]), judge=judge, on_abstain=on_abstain)
    found = metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (float(found), bool(found), found.coverage) == (0.0, False, 0.0)
    assert metric.summary()["undefined"] == (1 if on_abstain in (None, "skip") else 0)
    assert "CANNOT_ASSESS" in found.feedback


def test_abstentions_count_as_the_policy_says(server: OpenAIServer) -> None:
    server.script = lambda call: Reply("CANNOT_ASSESS" if call.criterion == "b" else "MET")
    rubric = Rubric([Criterion(requirement="a", weight=3), Criterion(requirement="b", weight=1)])
    judge = dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=False)
    scores = {
        policy: float(RubricMetric(rubric, judge=judge, on_abstain=policy)(DEVSET[0], dspy.Prediction(answer="x")))
        for policy in ("skip", "zero", "partial", "fail")
    }
    assert scores == {"skip": 1.0, "zero": 0.75, "partial": 0.875, "fail": 0.75}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"judge": "offline", "max_judge_failures": 0}, "`max_judge_failures` must be at least 1, got 0"),
        ({"judge": "offline", "memory": -1}, "`memory` must be at least 0 reports, got -1"),
        ({"judge": "offline", "on_abstain": "ignore"}, "'ignore'"),
        ({"grader": PerCriterionGrader("offline"), "on_abstain": "skip"}, "goes with `judge`"),
    ],
)
def test_settings_out_of_range_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RubricMetric(RUBRIC, **settings)


@pytest.mark.parametrize("module", [dspy.BestOfN, dspy.Refine])
def test_the_reward_function_picks_the_best_of_several_attempts(server: OpenAIServer, module: Any) -> None:
    server.script = judge_script
    attempts = iter(["No.", "It is 6.", "It is 8, or so I would think."])

    async def answer(system: str, user: str) -> str:
        return (
            f"[[ ## answer ## ]]\n{next(attempts)}" if "`[[ ## answer ## ]]`" in user else await scripted(system, user)
        )

    with dspy.context(lm=lm_from_fn(answer)):
        best = module(module=Student(), N=3, reward_fn=made_for(server).as_reward_fn(), threshold=0.9)
        assert best(question="Product 0?").answer == "It is 6."
    assert len(list(attempts)) == 1  # the second reached the threshold


def test_sixteen_threads_lose_no_token_and_leave_no_memory(
    server: OpenAIServer, recwarn: pytest.WarningsRecorder
) -> None:
    criteria = [Criterion(name=f"k{i}", requirement=f"Requirement {i}") for i in range(10)]
    judge = LMJudge(dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=False))
    metric = RubricMetric(Rubric(criteria), grader=PerCriterionGrader(judge))
    devset = [dspy.Example(question=f"Question {i}?").with_inputs("question") for i in range(200)]

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"Answer to {question}")

    def evaluate(examples: list[dspy.Example]) -> float:
        run = dspy.Evaluate(devset=examples, metric=metric, num_threads=16, display_progress=False)
        return run(Echo()).score

    trace, history = len(dspy.settings.trace), len(GLOBAL_HISTORY)
    assert evaluate(devset) == 100.0
    assert evaluate(devset[-50:]) == 100.0
    summary = metric.summary()
    assert (summary["gradings"], summary["remembered"]) == (200, 50)
    assert summary["calls"] == len(server.calls) == 2000
    replied = len(Reply().content) // 4
    assert summary["tokens"] == sum(len(call.prompt) // 4 + replied for call in server.calls)
    assert not [warning for warning in recwarn if "event loop" in str(warning.message)]
    # What DSPy would keep of every call: 43 MB a 4,000 calls.
    assert (len(dspy.settings.trace), len(GLOBAL_HISTORY), judge.lm.history) == (trace, history, [])
    assert len(metric.history) == 200
