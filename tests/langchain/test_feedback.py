"""`feedback_config`: how LangSmith displays the feedback of each kind of criterion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Check, Criterion, Option, PerCriterionGrader, Rubric, Scale
from rubric_integrations.dspy.feedback_text import feedback, objective_scores
from rubric_integrations.langchain import RubricStringEvaluator, assert_rubric
from rubric_integrations.langchain.feedback import feedback_config, to_feedback
from rubric_integrations.submission import Submission

CONTINUOUS = {"type": "continuous", "min": 0.0, "max": 1.0}


def make_options(*values: float) -> list[Option]:
    return [Option(label=f"option {number}", value=value) for number, value in enumerate(values)]


def make_categories(**labels: float) -> dict[str, Any]:
    categories = [{"value": value, "label": label.replace("_", " ")} for label, value in labels.items()]
    return {"type": "categorical", "categories": categories}


@pytest.mark.parametrize(
    ("criterion", "config"),
    [
        (Criterion(requirement="a"), make_categories(MET=1.0, UNMET=0.0)),
        (
            Criterion(requirement="a", weight=-1),
            {
                "type": "categorical",
                "categories": [
                    {"value": 0.0, "label": "MET: the error was committed"},
                    {"value": 1.0, "label": "UNMET: it was not"},
                ],
            },
        ),
        (Criterion(requirement="a", options=make_options(0, 0.5)), make_categories(option_0=0.0, option_1=0.5)),
        (
            Criterion(requirement="a", weight=-1, options=make_options(0, 0.25)),
            make_categories(option_0=1.0, option_1=0.75),
        ),
        (Criterion(requirement="a", options=make_options(0, 0.5, 0.5)), CONTINUOUS),
        (Criterion(requirement="a", scale=Scale(min=1, max=5)), CONTINUOUS),
    ],
    ids=["binary", "penalty", "options", "penalty with options", "options of equal value", "scale"],
)
def test_feedback_config_shows_categories_where_values_differ(criterion: Criterion, config: dict[str, Any]) -> None:
    assert feedback_config(criterion) == config


@pytest.mark.parametrize("verdict", ["MET", "UNMET"])
async def test_feedback_of_a_penalty_is_higher_if_better_as_in_dspy(verdict: str) -> None:
    async def judge(_system: str, user: str) -> str:
        return json.dumps({"explanation": "so", "verdict": verdict})

    rubric = Rubric([Criterion(name="kind", requirement="a"), Criterion(name="rude", requirement="b", weight=-1)])
    report = await PerCriterionGrader(generate_fn=judge).grade(rubric, Submission(response="x"))
    scores = {row.key: row.score for row in to_feedback(rubric, report, "rubric")[1:]}
    assert scores == {f"rubric.{name}": score for name, score in objective_scores(report).items()}
    assert scores["rubric.rude"] == (0.0 if verdict == "MET" else 1.0)


def test_feedback_of_a_criterion_that_does_not_apply_is_a_comment_without_a_value() -> None:
    rubric = Rubric([Criterion(requirement="Names the sum", applies_when=Check(contains="never there"))])
    report = rubric.grade_sync("text", PerCriterionGrader("offline"))
    row = to_feedback(rubric, report, "rubric")[1]
    assert (row.score, row.value, row.extra) == (None, None, None)
    assert (row.comment or "").startswith("does not apply: ")


def test_criteria_that_were_not_asked_have_no_feedback_and_no_line() -> None:
    rubric = Rubric(
        [
            Criterion(name="kind", requirement="Is kind", required=True, check=Check(contains="please")),
            Criterion(name="open", requirement="Is clear"),
        ]
    )
    report = rubric.grade_sync("text", PerCriterionGrader("offline", stop_when_decided=True))
    assert report.not_asked == ("open",)
    total, *rows = to_feedback(rubric, report, "rubric")
    assert ([row.key for row in rows], total.evaluator_info["not_asked"]) == (["rubric.kind"], ["open"])
    assert "Is clear" not in feedback(report)
    with pytest.raises(AssertionError) as raised:
        assert_rubric(report, rubric)
    assert "Is clear" not in str(raised.value)
    result = RubricStringEvaluator(
        rubric, grader=PerCriterionGrader("offline", stop_when_decided=True)
    ).evaluate_strings(prediction="text", input="q")
    assert result["reasoning"] == "kind: UNMET: does not contain 'please'"


def test_feedback_has_a_row_for_each_tag_with_a_score() -> None:
    rubric = Rubric(
        [
            Criterion(name="right", requirement='Says "42"', tags=("facts", "all")),
            Criterion(
                name="rude", requirement="Insults", check=Check(contains="fool"), weight=-5, tags=("style", "all")
            ),
        ]
    )
    report = rubric.grade_sync("It is 42, fool.", PerCriterionGrader("offline"))
    rows = to_feedback(rubric, report, "quality")
    scores = {row.key: row.score for row in rows}
    assert scores == {
        "quality": 0.5,
        "quality.tag.facts": 1.0,
        "quality.tag.all": 0.5,
        "quality.tag.style": 0.0,
        "quality.right": 1.0,
        "quality.rude": 0.0,
    }
    assert all(row.feedback_config == CONTINUOUS for row in rows if ".tag." in row.key)
    undefined = report.model_copy(update={"tags": {"facts": None}})
    assert [row.key for row in to_feedback(rubric, undefined, "quality")] == [
        "quality",
        "quality.right",
        "quality.rude",
    ]
