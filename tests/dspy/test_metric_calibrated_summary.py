"""The summary of a metric, corrected by people's labels, and its grades as a run for other statistics."""

from __future__ import annotations

import pickle
import random
from typing import Any

import dspy
import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import Question
from rubric_integrations.scoring import Judgment, LabelledJudgment
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.trust import ChosenLabelsError, calibrate, choose_for_labels, compare_runs, gate

RUBRIC = Rubric.from_dict(
    [
        {"name": "kind", "weight": 3, "requirement": "Is kind"},
        {"name": "brief", "weight": 1, "requirement": "Is brief", "check": {"max_words": 9}},
    ]
)
QUESTION = dspy.Example(question="How are you?").with_inputs("question")


class LenientJudge:
    """Answers MET unless a response is "rude 0"; fails on "broken"."""

    async def judge(self, question: Question) -> Judgment:
        response = question.submission.response
        if "broken" in response:
            raise ValueError("no answer")
        met = "rude 0" not in response
        return Judgment(verdict="MET" if met else "UNMET", value=float(met))


def graded_metric(count: int = 200, **settings: Any) -> RubricMetric:
    """Grade texts of which three quarters are kind in truth; the judge finds half of the rude ones."""
    metric = RubricMetric(RUBRIC, judge=LenientJudge(), **settings)
    for number in range(count):
        mood = "kind" if number % 4 else f"rude {number % 8 // 4}"
        metric(QUESTION, dspy.Prediction(answer=f"{mood} text {number}"))
    return metric


def label(metric: RubricMetric, count: int, sampled: Sampled = "random") -> list[LabelledJudgment]:
    """Label what `choose_for_labels` draws, as people who know the truth."""
    return [
        LabelledJudgment(
            submission=item.submission,
            criterion=RUBRIC.criteria[0],
            verdict="MET" if item.submission.response.startswith("kind") else "UNMET",
            id=item.id,
            sampled=sampled,
        )
        for item in choose_for_labels(metric.graded, count)
        if item.submission and item.criterion == "kind"
    ]


def test_summary_with_labels_has_the_corrected_mean_beside_the_judges() -> None:
    metric = graded_metric()
    assert metric.summary()["calibration"] is None
    labels = label(metric, 100)
    summary = metric.summary(labels)
    calibration = summary["calibration"]
    assert calibration is not None
    assert summary["mean_score"] == calibration.judge_score == pytest.approx(0.875 * 0.75 + 0.25)
    truth = 0.75 * 0.75 + 0.25
    _, low, high, _ = calibration.score
    assert low is not None
    assert high is not None
    assert low < truth < high < 0.875 * 0.75 + 0.25
    assert calibration.criteria["kind"].rate is not None
    one_question = metric.summary(labels, cluster="query")["calibration"]
    assert one_question is not None
    assert (one_question.score.value, one_question.score.low) == (calibration.score.value, None)
    # The same figures as anywhere else, and DSPy's score stays the judge's.
    assert calibration == calibrate(metric.graded, labels, rubric=RUBRIC)
    assert float(metric(QUESTION, dspy.Prediction(answer="rude 1 text 4"))) == 1.0


def test_chosen_labels_are_refused_by_the_summary() -> None:
    metric = graded_metric(40)
    with pytest.raises(ChosenLabelsError):
        metric.summary(label(metric, 10, "chosen"))


def test_labels_fit_the_same_texts_in_another_order_and_process() -> None:
    labels = label(graded_metric(80), 60)
    metric: RubricMetric = pickle.loads(pickle.dumps(RubricMetric(RUBRIC, judge=LenientJudge())))
    order = list(range(80))
    random.Random(1).shuffle(order)
    for number in order:
        mood = "kind" if number % 4 else f"rude {number % 8 // 4}"
        metric(QUESTION, dspy.Prediction(answer=f"{mood} text {number}"))
    calibration = metric.summary(labels)["calibration"]
    assert calibration is not None
    assert calibration.score.n == 60


def test_two_programs_are_compared_input_by_input() -> None:
    examples = [dspy.Example(question=f"Number {number}?").with_inputs("question") for number in range(40)]
    before, after = (RubricMetric(RUBRIC, judge=LenientJudge()) for _ in range(2))
    for number, example in enumerate(examples):
        before(example, dspy.Prediction(answer="rude 0" if number % 2 else "kind"))
    for number, example in reversed(list(enumerate(examples))):
        after(example, dspy.Prediction(answer="rude 0 again" if number % 4 == 1 else "kind again"))
    comparison = compare_runs(before.graded, after.graded)
    assert (comparison.inputs, comparison.unmatched, comparison.decision) == (40, 0, "better")
    assert comparison.score.value == pytest.approx(0.25 * 0.75)


def test_repeated_grades_of_a_text_count_once_and_failed_ones_not() -> None:
    grader = PerCriterionGrader(LenientJudge(), max_retries=0, on_failure="abstain")
    metric = RubricMetric(RUBRIC, grader=grader)
    good, bad, broken = (dspy.Prediction(answer=text) for text in ("kind", "rude 0", "broken"))
    for prediction in (good, bad, broken):
        metric(QUESTION, prediction)
    metric.noise([(QUESTION, good)], repeats=5, progress=False)
    assert metric.summary()["gradings"] == 8
    assert len(metric.graded) == 3
    assert metric.summary()["mean_score"] == pytest.approx((1.0 + 0.25) / 2)
    assert gate(metric.graded, 0.5).missing == 1


def test_graded_has_the_latest_texts_up_to_the_size_of_the_cache() -> None:
    texts = [row.submission.response for row in graded_metric(12, cache_size=5).graded if row.submission]
    assert texts == [f"{'kind' if number % 4 else 'rude 0'} text {number}" for number in range(7, 12)]
    assert graded_metric(12, cache_size=0).graded == []
