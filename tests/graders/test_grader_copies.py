"""Graders that are copied or pickled: the same settings and judges, and nothing of what they did."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Submission
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import CallLimits, Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, as_example
from rubric_integrations.scoring import LabelledJudgment
from tests.dspy.programs import DEVSET
from tests.graders.rubrics import ONE
from tests.openai_server import OpenAIServer


def through_pickle(grader: Any) -> Any:
    return pickle.loads(pickle.dumps(grader))


def through_cloudpickle(grader: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(grader))


async def answer_met(system: str, user: str) -> str:
    return '{"explanation": "so", "verdict": "MET"}'


COPIES = [copy.copy, copy.deepcopy, through_pickle, through_cloudpickle]


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("grader_type", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_copy_of_a_grader_has_its_settings_and_its_judges(
    duplicate: Callable[[Any], Any], grader_type: type[Grader]
) -> None:
    judges = [
        "openai/gpt-4.1",
        LMJudge(dspy.LM("openai/gpt-4.1", temperature=0.5), system_prompt="Be strict."),
        answer_met,
    ]
    grader = grader_type(judges=judges, max_retries=5, on_failure="abstain", limits=CallLimits(timeout=7.0))
    other = duplicate(grader)
    assert other.fingerprints() == grader.fingerprints()
    assert other.configuration() == grader.configuration()
    assert other.call_limiter.limits == CallLimits(timeout=7.0, max_retries=5)


@pytest.mark.parametrize("duplicate", COPIES)
def test_copy_of_a_grader_that_has_graded_grades(duplicate: Callable[[Any], Any], server: OpenAIServer) -> None:
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url))
    assert ONE.grade_sync("text", grader=grader).score == 1.0
    assert ONE.grade_sync("text", grader=duplicate(grader)).score == 1.0
    assert server.calls[0].body == server.calls[1].body


@pytest.mark.parametrize("duplicate", COPIES)
def test_copy_of_a_metric_with_a_model_grades(duplicate: Callable[[Any], Any], server: OpenAIServer) -> None:
    metric = RubricMetric(ONE, judge=LMJudge("openai/m", api_base=server.url))
    prediction = dspy.Prediction(answer="text")
    assert float(metric(DEVSET[0], prediction)) == float(duplicate(metric)(DEVSET[0], prediction)) == 1.0
    assert len(server.calls) == 2


@pytest.mark.parametrize("confidence", [False, True])
def test_pickled_judge_keeps_its_optimized_prompts(confidence: bool) -> None:
    judge = LMJudge("openai/m", confidence=confidence)
    label = LabelledJudgment(
        submission=Submission(response="Please."),
        criterion=Criterion(requirement="Is kind"),
        verdict="MET",
        reason="polite",
    )
    judge.criterion.demos = [as_example(label)]
    predictor: Any = judge.criterion
    predictor.signature = predictor.signature.with_instructions("Be strict.")
    other = through_pickle(judge)
    assert other.fingerprint() == judge.fingerprint()
    assert other.criterion.signature.instructions == "Be strict."
    assert [demo.toDict() for demo in other.criterion.demos] == [as_example(label).toDict()]
