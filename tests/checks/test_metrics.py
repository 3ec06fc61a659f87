"""Automatic metrics: their values, what makes them fail, and how they are blended with the judge's score."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, RubricError, Submission
from rubric_integrations.checks import register_metric, run_check
from rubric_integrations.checks.metrics import METRICS, run_metric
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.rubric import Check, HybridMetric, Metric
from rubric_integrations.scoring import JudgeFailure
from tests.openai_server import OpenAIServer, Reply


def test_metric_of_a_response_is_high_for_the_reference_and_low_for_another_text() -> None:
    same = Submission(response="the cat sat on the mat", reference="the cat sat on the mat", logprobs=(-0.5, -0.5))
    other = Submission(response="dogs bark", reference="the cat sat on the mat")
    for kind in ("bleu", "rouge", "accuracy"):
        assert run_metric(Metric(type=kind), same) == pytest.approx(1.0)
        assert run_metric(Metric(type=kind), other) < 0.2
        with pytest.raises(JudgeFailure, match="`reference`"):
            run_metric(Metric(type=kind), Submission(response="x"))
    assert run_metric(Metric(type="perplexity"), same) == pytest.approx(math.exp(-0.5))
    with pytest.raises(JudgeFailure, match="`logprobs`"):
        run_metric(Metric(type="perplexity"), other)


@pytest.mark.parametrize("name", ["nobody", "os.system"])
def test_custom_metric_that_is_not_registered_is_a_failure_and_imports_no_code(name: str) -> None:
    with pytest.raises(JudgeFailure, match="not registered"):
        run_metric(Metric(type="custom", config={"metric_function": name}), Submission(response="x"))


@pytest.mark.parametrize(("result", "words"), [(1.5, "not in"), (math.nan, "not in"), (None, "raised TypeError")])
def test_custom_metric_with_a_wrong_value_is_a_failure(result: Any, words: str) -> None:
    @register_metric("wrong")
    def wrong(_submission: Submission) -> float:  # pyright: ignore[reportUnusedFunction]
        return result

    metric = Metric(type="custom", config={"metric_function": "wrong"})
    with pytest.raises(JudgeFailure, match=words) as failure:
        run_check(Check(metric=metric), "x")
    assert failure.value.kind == "check"


def test_metric_type_without_a_function_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METRICS, "accuracy")
    with pytest.raises(JudgeFailure, match="`accuracy` has no function") as failure:
        run_metric(Metric(type="accuracy"), Submission(response="x", reference="x"))
    assert failure.value.kind == "check"


def test_missing_library_of_a_metric_is_a_failure_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(JudgeFailure, match="pip install rapidfuzz rouge-score sacrebleu"):
        run_metric(Metric(type="bleu"), Submission(response="x", reference="x"))


def test_hybrid_metric_is_blended_into_the_score_and_a_failed_one_is_a_failure() -> None:
    metric = HybridMetric(name="same", type="accuracy", weight=0.25)
    rubric = Rubric(
        [Criterion.model_validate({"requirement": "r", "check": {"contains": "x"}})], hybrid_metrics=(metric,)
    )
    grader = PerCriterionGrader("offline")
    report = rubric.grade_sync("x", grader=grader, reference="y")
    assert (report.score, report.raw_score, report.metrics) == (0.75, 10.0, {"same": 0.0})
    with pytest.raises(JudgeError, match="`same` was not computed"):
        rubric.grade_sync("x", grader=grader)
    policies: list[tuple[Any, float]] = [("abstain", 1.0), ("worst_case", 0.75)]
    for policy, score in policies:
        report = rubric.grade_sync("x", grader=PerCriterionGrader("offline", on_failure=policy))
        assert (report.score, report.complete, report.failed_count) == (score, False, 1)


def test_hybrid_metric_is_blended_into_a_holistic_score(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "e", "overall_score": 100}')
    metric = HybridMetric(name="same", type="accuracy", weight=0.25)
    grader = RubricAsJudgeGrader(LMJudge("openai/mock", api_base=server.url))
    for required in (False, True):
        rubric = Rubric([Criterion(requirement="r", required=required)], hybrid_metrics=(metric,))
        report = rubric.grade_sync("x", grader=grader, reference="x")
        assert (report.score, report.passed) == (1.0, not required)


def test_criterion_with_a_metric_has_the_value_of_the_metric() -> None:
    rubric = Rubric.from_yaml("- {requirement: close to the reference, check: {metric: {type: rouge}}}")
    report = rubric.grade_sync("the cat sat", grader=PerCriterionGrader("offline"), reference="the cat ran")
    assert report.score == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "check", ["{metric: {type: rouge}, max_words: 3}", "{metric: {type: rouge, config: {variant: x}}}"]
)
def test_criterion_with_an_invalid_metric_is_refused(check: str) -> None:
    with pytest.raises(RubricError, match="check"):
        Rubric.from_yaml(f"- {{requirement: r, check: {check}}}")
