"""Criteria with an operator: a statement that the submission supports or contradicts, while silence is UNMET."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.dspy import feedback
from rubric_integrations.formats import write_document
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.langchain import annotation_queue_rubric
from tests.fakes import FakeModel

STATEMENT = "The margin is 17.2%"
REPLIES: dict[Any, str] = {
    PerCriterionGrader: '{"explanation": "It does.", "verdict": "MET"}',
    PerCriterionOneShotGrader: '{"judgments": [{"id": 1, "explanation": "It does.", "answer": "MET"}]}',
    RubricAsJudgeGrader: '{"explanation": "It does.", "overall_score": 50}',
}


def rubric_with(**fields: object) -> Rubric:
    return Rubric.from_dict([{"weight": -5, "requirement": STATEMENT, **fields}])


@pytest.mark.parametrize("grader", REPLIES)
def test_judge_reads_what_the_operator_means(grader: Any) -> None:
    model = FakeModel(REPLIES[grader])
    prompts: list[str] = []
    for fields in ({}, {"operator": "supports"}, {"operator": "contradicts"}):
        rubric_with(**fields).grade_sync("It was 8.4%.", grader(model))
        prompts.append(model.prompts[-1][1])
    plain, supports, contradicts = prompts
    assert STATEMENT in plain
    assert "silence" not in plain
    for prompt, words in (
        (supports, "States or implies this (silence about it is not enough): "),
        (contradicts, "Contradicts this (silence about it is no contradiction): "),
    ):
        assert words + STATEMENT in prompt
        assert prompt.replace(words, "") == plain


def test_reports_say_what_the_operator_means() -> None:
    rubric, model = rubric_with(operator="contradicts"), FakeModel(REPLIES[PerCriterionGrader])
    words = f"Contradicts this (silence about it is no contradiction): {STATEMENT}"
    report = rubric.grade_sync("It was 8.4%.", PerCriterionGrader(model))
    assert f"PENALTY (weight -5): {words}: It does." in feedback(report)
    assert annotation_queue_rubric(rubric)[0].get("description") == words
    assert write_document(rubric, "healthbench")[0]["rubrics"][0]["criterion"] == words


def test_offline_judge_takes_no_silence_for_a_contradiction() -> None:
    for operator, verdict in (("supports", "UNMET"), ("contradicts", "CANNOT_ASSESS")):
        report = rubric_with(operator=operator).grade_sync("Fine.", PerCriterionGrader("offline"))
        assert report.criteria[0].verdict == verdict


@pytest.mark.parametrize(
    "fields",
    [
        {"check": {"contains": "x"}},
        {"options": [{"label": "a", "value": 1.0}, {"label": "b", "value": 0.0}]},
        {"scale": {"min": 0, "max": 5}},
        {"per": "occurrence", "cap": 3},
    ],
)
def test_operator_beside_another_kind_of_answer_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"has `{next(iter(fields))}` and an `operator`"):
        rubric_with(operator="supports", **fields)


def test_operator_is_written_and_read() -> None:
    rubric = rubric_with(operator="contradicts")
    assert Rubric.from_yaml(rubric.to_yaml()) == rubric
    assert "operator" not in Criterion(requirement="Is kind").model_dump()
