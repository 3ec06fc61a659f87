"""DSPy's real optimizers with the rubric metric on a small task, and GEPA over a judge.

The student answers better once its instructions contain a hint; every model of the program is scripted, and the judge
is a local server. Nothing here measures a real model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations import Criterion, Submission
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import LMJudge, as_example, lm_from_fn
from rubric_integrations.scoring import LabelledJudgment
from tests.dspy.programs import (
    DEVSET,
    EXPECTED_SCORES,
    Student,
    judge_script,
    metric_at,
    run_better_together,
    run_gepa,
    run_mipro,
    run_random_search,
    run_simba,
    student_lm,
    task_lm,
)
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.optimizers


@pytest.mark.parametrize("run", [run_random_search, run_mipro, run_simba, run_gepa, run_better_together])
def test_every_optimizer_does_not_worsen_the_program_and_grades_each_text_once(
    server: OpenAIServer, run: Callable[[Any, Any], Any]
) -> None:
    server.script = judge_script
    metric, lm = metric_at(server), task_lm()
    with dspy.context(lm=lm):
        compiled = run(metric, lm)
        summary = metric.summary()
        score = dspy.Evaluate(devset=DEVSET, metric=metric, display_progress=False)(compiled).score
    assert score >= 55.0  # the mean of EXPECTED_SCORES in percent
    if run in (run_mipro, run_gepa):
        assert score == 100.0  # these two optimize instructions, and the hint is among the proposals
    # Four questions with at most two answers each: the optimizer's other calls are answered from the cache.
    assert 4 <= summary["gradings"] <= 8
    assert summary["cached"] > 0
    assert len(server.calls) == 2 * metric.summary()["gradings"]  # the third criterion is a check


@pytest.mark.parametrize("run", [run_random_search, run_gepa])
def test_text_that_the_judge_refuses_is_asked_about_once(server: OpenAIServer, run: Callable[[Any, Any], Any]) -> None:
    refused = "It is 8, or so I would think."
    prose = Reply(text="I would rather not judge this.")
    server.script = lambda call: prose if refused in call.prompt else judge_script(call)
    metric, lm = metric_at(server), task_lm()
    with dspy.context(lm=lm):
        run(metric, lm)
    assert metric.summary()["failed"] > 1
    assert len([call for call in server.calls if refused in call.prompt]) <= 2


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_bootstrap_makes_demonstrations_of_passed_answers_only(metric: RubricMetric, threshold: float | None) -> None:
    optimizer = dspy.BootstrapFewShot(metric=metric, metric_threshold=threshold, max_labeled_demos=0)
    with dspy.context(lm=student_lm()):
        compiled = optimizer.compile(Student(), trainset=DEVSET)
    assert sorted(demo["answer"] for demo in compiled.predict.demos) == ["It is 12.", "It is 6."]


def test_bootstrap_from_a_teacher_that_is_always_wrong_makes_no_demonstration(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("UNMET")
    with dspy.context(lm=student_lm()):
        optimizer = dspy.BootstrapFewShot(metric=metric_at(server), max_labeled_demos=0)
        compiled = optimizer.compile(Student(), trainset=DEVSET)
    assert compiled.predict.demos == []


def test_simba_receives_the_number_and_the_feedback(metric: RubricMetric) -> None:
    from dspy.teleprompt.simba_utils import wrap_program  # the part of SIMBA that reads a metric

    with dspy.context(lm=student_lm()):
        output: Any = wrap_program(Student(), metric)(DEVSET[3])
    assert (type(output["score"]), output["score"]) == (float, 0.2)
    assert "Gives the right product" in output["output_metadata"]["feedback"]


def test_gepa_feedback_costs_no_call(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = metric_at(server)
    calls_by_predictor: list[tuple[str | None, int]] = []

    def counting(example: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        before = len(server.calls)
        score = metric(example, pred, trace, pred_name, pred_trace)
        calls_by_predictor.append((pred_name, len(server.calls) - before))
        return score

    with dspy.context(lm=task_lm()):
        GEPA(metric=counting, max_metric_calls=30, reflection_lm=task_lm(), num_threads=1).compile(
            Student(), trainset=DEVSET, valset=DEVSET
        )
    feedback_calls = [calls for name, calls in calls_by_predictor if name is not None]
    assert feedback_calls
    assert set(feedback_calls) == {0}


@pytest.mark.parametrize("frontier", ["instance", "objective", "hybrid", "cartesian"])
def test_gepa_with_any_frontier_records_the_criteria_as_objectives(metric: RubricMetric, frontier: str) -> None:
    reflection_lm = dspy.utils.DummyLM([{"new_instruction": "Try."}] * 50)
    optimizer = GEPA(
        metric=metric, max_metric_calls=12, reflection_lm=reflection_lm, gepa_kwargs={"frontier_type": frontier},
        track_stats=True, num_threads=2,
    )  # fmt: skip
    with dspy.context(lm=student_lm()):
        compiled: Any = optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET)
    results = compiled.detailed_results
    assert results.val_aggregate_scores[0] == pytest.approx(sum(EXPECTED_SCORES) / 4)
    # By hand: two of four answers are right, all but the long one are brief, none is rude.
    assert results.val_aggregate_subscores[0] == pytest.approx({"right": 0.5, "brief": 0.75, "rude": 1.0})


async def lenient_reply(system: str, user: str) -> str:
    return '{"explanation": "as scripted", "verdict": "MET"}'


def agrees(label: Any, answer: Any, trace: object = None, *_more: object) -> dspy.Prediction:
    return dspy.Prediction(score=float(label.verdict == answer.verdict), feedback=f"people say {label.verdict}")


def test_gepa_over_a_judge_reflects_in_every_iteration_only_if_all_components_are_selected() -> None:
    """A judge has five predictors, and labels of binary criteria run only the first.

    By default GEPA takes the predictors in turn. For the other four there is nothing to reflect on, so that four of
    five iterations judge a minibatch and propose nothing.
    """
    criterion = Criterion(requirement="Praises the product")
    labels = [
        LabelledJudgment(submission=Submission(response=text), criterion=criterion, verdict=verdict)
        for text, verdict in [("Good.", "MET"), ("Not good.", "UNMET"), ("Bad.", "UNMET")]
    ]
    trainset = [as_example(label) for label in labels]
    proposals = {"round_robin": 0, "all": 0}
    for selector in proposals:

        async def propose(system: str, user: str, selector: str = selector) -> str:
            proposals[selector] += 1
            return '{"new_instruction": "Try harder."}'

        judge = LMJudge(lm_from_fn(lenient_reply))
        GEPA(
            metric=agrees, max_metric_calls=60, reflection_lm=lm_from_fn(propose), num_threads=1,
            component_selector=selector,
        ).compile(judge, trainset=trainset, valset=trainset)  # fmt: skip
    assert proposals["all"] >= 2 * proposals["round_robin"] > 0
