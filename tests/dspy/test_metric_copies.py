"""A metric that is pickled or copied: the same settings, empty caches, and its own locks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import dspy
import pytest

from rubric_integrations import Fields, JudgeError, PerCriterionGrader
from rubric_integrations.dspy import RubricMetric
from tests.dspy.programs import DEVSET

ITEMS = [
    {"name": "right", "requirement": "Gives the right product", "check": {"number": 6}},
    {"name": "brief", "requirement": "Brief", "check": {"max_words": 4}},
]
PRED = dspy.Prediction(answer="one two three four five")


class OfflineGrader(PerCriterionGrader):
    """A grader that is constructed again when it is pickled, so that only the metric is tested here."""

    def __reduce__(self) -> Any:
        return OfflineGrader, ("offline",)


async def use_wrong_key(system: str, user: str) -> str:
    raise KeyError("no such key")


class BrokenGrader(PerCriterionGrader):
    """The same for a judge whose configuration is wrong, so that a second failure is an outage."""

    def __reduce__(self) -> Any:
        return BrokenGrader, (use_wrong_key,)


def through_pickle(metric: RubricMetric) -> RubricMetric:
    return pickle.loads(pickle.dumps(metric))


def through_cloudpickle(metric: RubricMetric) -> RubricMetric:
    return cloudpickle.loads(cloudpickle.dumps(metric))


COPIES = [copy.copy, copy.deepcopy, through_pickle, through_cloudpickle]


@pytest.mark.parametrize("duplicate", COPIES)
def test_copy_of_a_used_metric_grades_alike_with_empty_caches(
    duplicate: Callable[[RubricMetric], RubricMetric],
) -> None:
    metric = RubricMetric(ITEMS, grader=OfflineGrader("offline"), criteria_for={"predict": ["brief"]}, cache_size=2)
    score = metric(DEVSET[0], PRED, [], "predict", [])
    other = duplicate(metric)
    assert (other.summary()["gradings"], other.history) == (0, [])
    other_score = other(DEVSET[0], PRED, [], "predict", [])
    assert (float(other_score), other_score.feedback) == (float(score), score.feedback)
    assert (other.summary()["gradings"], other.summary()["cached"]) == (1, 0)
    for number in range(3):
        other(DEVSET[0], dspy.Prediction(answer=f"{number}"))
    assert len(other.history) == 2
    assert metric.summary()["gradings"] == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_cloudpickle])
def test_copy_of_a_metric_with_a_rubric_function_grades_alike(
    duplicate: Callable[[RubricMetric], RubricMetric],
) -> None:
    metric = RubricMetric(
        lambda example: ITEMS, grader=OfflineGrader("offline"), fields=Fields(response=lambda pred: pred.answer)
    )
    assert float(duplicate(metric)(DEVSET[0], PRED)) == float(metric(DEVSET[0], PRED))


def test_copy_of_a_metric_after_a_failure_watches_for_outages_of_its_own() -> None:
    metric = RubricMetric([{"requirement": "Is polite"}], grader=BrokenGrader(use_wrong_key))
    with pytest.raises(JudgeError):
        metric(DEVSET[0], PRED)
    with pytest.raises(JudgeError):
        through_pickle(metric)(DEVSET[0], PRED)
