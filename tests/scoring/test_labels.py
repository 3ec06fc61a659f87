"""Human judgments, and their selection as few-shot examples."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, Option, Rubric, Submission
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import examples_of_criterion, select_examples

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right"),
        Criterion(requirement="Tone?", options=[Option(label="plain", value=1), Option(label="x", value=0)]),
    ]
)


def label(response: str, verdict: str, criterion: Criterion = RUBRIC.criteria[0]) -> LabelledJudgment:
    return LabelledJudgment(submission=Submission(response=response), criterion=criterion, verdict=verdict)


def test_label_that_does_not_answer_its_criterion_is_refused() -> None:
    with pytest.raises(ValueError, match="no verdict"):
        label("text", "PARTLY")


def test_select_examples_balances_verdicts_and_keeps_the_order() -> None:
    examples = [label(f"met {i}", "MET") for i in range(5)] + [label("unmet", "UNMET")]
    selected = select_examples(examples, "binary", 4, "x")
    assert [example.verdict for example in selected] == ["MET", "MET", "MET", "UNMET"]
    assert [example.verdict for example in select_examples(examples, "binary", 2, "x")] == ["MET", "UNMET"]
    assert select_examples([], "binary", 4, "x") == []


def test_select_examples_leaves_out_other_kinds_and_the_graded_response() -> None:
    examples = [label("graded", "MET"), label("other", "UNMET"), label("text", "plain", RUBRIC.criteria[1])]
    assert select_examples(examples, "binary", 4, " graded ") == [examples[1]]
    assert select_examples(examples, "ordinal", 4, "graded") == [examples[2]]
    assert select_examples(examples, "scaled", 4, "graded") == []


def test_examples_of_criterion_are_those_of_the_rubric_without_the_graded_response() -> None:
    criterion = Criterion.model_validate(
        {
            "requirement": "How good, from 0 to 10?",
            "scale": {"min": 0, "max": 10},
            "examples": [
                {"output": "good", "score": 9.0, "explanation": "So.", "input": "Q"},
                {"output": "graded", "score": 1},
                {"output": " ", "score": 1},
            ],
        }
    )
    (example,) = examples_of_criterion(criterion, " graded")
    assert (example.submission, example.verdict) == (Submission(response="good", query="Q"), "9")
    assert (example.criterion, example.reason) == (criterion, "So.")
