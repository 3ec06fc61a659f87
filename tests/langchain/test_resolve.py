"""The common arguments of all adapters: `rubric`, `judge` and `grader`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langsmith.schemas import Example

from rubric_integrations import PerCriterionGrader, RubricError
from rubric_integrations.langchain import (
    RubricEvaluator,
    RubricMiddleware,
    RubricPairwiseStringEvaluator,
    RubricRunnable,
    RubricStringEvaluator,
    annotation_queue_rubric,
    assert_rubric,
    compare_by_rubric,
    labels_from_feedback,
)
from tests.langchain.helpers import NUMBER_RUBRIC, make_run
from tests.langchain.test_annotation import make_feedback

ROWS = [{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}]
RUN = make_run({"output": "It is 42."})


def grade_by_middleware(rubric: Any) -> Any:
    middleware = RubricMiddleware(rubric, judge="offline")
    state: Any = {"messages": [AIMessage("It is 42.")]}
    return middleware.after_agent(state | middleware.after_model(state, None), None)["rubric_report"].score


def grade_by_runnable(rubric: Any) -> Any:
    return RubricRunnable(rubric, judge="offline").invoke("It is 42.").score


def grade_by_strings(rubric: Any) -> Any:
    return RubricStringEvaluator(rubric, judge="offline").evaluate_strings(prediction="It is 42.")["score"]


def grade_by_assertion(rubric: Any) -> Any:
    return assert_rubric("It is 42.", rubric, judge="offline").score


def compare_one(rubric: Any) -> Any:
    return compare_by_rubric(rubric, judge="offline")([RUN], None)["scores"][RUN.id]


def compare_strings(rubric: Any) -> Any:
    evaluator = RubricPairwiseStringEvaluator(rubric, judge="offline")
    return evaluator.evaluate_string_pairs(prediction="It is 42.", prediction_b="No.")["score"]


def read_label(rubric: Any) -> Any:
    (label,) = labels_from_feedback([make_feedback("rubric.c1", RUN.id, score=1)], [RUN], rubric)
    return float(label.verdict == "MET")


ENTRANCES: dict[str, Callable[[Any], Any]] = {
    "evaluator": lambda rubric: RubricEvaluator(rubric, judge="offline")(outputs="It is 42.")["score"],
    "runnable": grade_by_runnable,
    "middleware": grade_by_middleware,
    "strings": grade_by_strings,
    "pairs": compare_strings,
    "compare": compare_one,
    "assert": grade_by_assertion,
    "queue": lambda rubric: float(annotation_queue_rubric(rubric)[0].get("feedback_key") == "rubric.c1"),
    "labels": read_label,
}


@pytest.mark.parametrize("form", ["list", "dict", "path", "text path"])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_rubric_is_accepted_in_any_form(entrance: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("- weight: 1\n  requirement: Says 42\n  check: {number: 42}\n")
    rubric: Any = {"list": ROWS, "dict": {"rubric": ROWS}, "path": path, "text path": str(path)}[form]
    assert ENTRANCES[entrance](rubric) == 1.0


@pytest.mark.parametrize("entrance", ["evaluator", "runnable", "middleware", "compare"])
def test_rubric_function_may_return_any_form(entrance: str) -> None:
    def choose_rubric(_source: Any) -> Any:
        return ROWS

    assert ENTRANCES[entrance](choose_rubric) == 1.0


MAKERS: list[Callable[[Any], Any]] = [
    lambda rubric: RubricEvaluator(rubric, judge="offline"),
    lambda rubric: RubricRunnable(rubric, judge="offline"),
    lambda rubric: RubricMiddleware(rubric, judge="offline"),
    lambda rubric: RubricStringEvaluator(rubric, judge="offline"),
    lambda rubric: RubricPairwiseStringEvaluator(rubric, judge="offline"),
    lambda rubric: compare_by_rubric(rubric, judge="offline"),
    lambda rubric: assert_rubric("It is 42.", rubric, judge="offline"),
    annotation_queue_rubric,
    lambda rubric: labels_from_feedback([], [], rubric),
]


@pytest.mark.parametrize("rubric", [3, {"criteria": "none"}, [], "missing.yaml"])
@pytest.mark.parametrize("make", MAKERS)
def test_anything_else_than_a_rubric_is_refused_at_construction(make: Callable[[Any], Any], rubric: Any) -> None:
    with pytest.raises((TypeError, RubricError)):
        make(rubric)


def test_rubric_function_that_returns_no_rubric_raises() -> None:
    wrong: Any = {"x": None}.get
    with pytest.raises(ValueError, match="the example has no rubric: the function of the row failed with TypeError"):
        RubricEvaluator(wrong, judge="offline")(inputs="x", outputs="It is 42.")


def test_neither_or_both_of_judge_and_grader_raise() -> None:
    with pytest.raises(ValueError, match=r"`RubricEvaluator` needs either `judge`.* but got neither"):
        RubricEvaluator(NUMBER_RUBRIC)
    with pytest.raises(ValueError, match="but got both"):
        RubricEvaluator(NUMBER_RUBRIC, judge="offline", grader=PerCriterionGrader("offline"))


def test_example_with_a_rubric_of_its_own_is_graded_by_both_and_the_judge_does_not_see_it() -> None:
    own = [{"name": "own", "requirement": "Says 41", "check": {"number": 41}}]
    shared, alone = RubricEvaluator(ROWS, judge="offline"), RubricEvaluator(judge="offline", library={"own": own})
    case: dict[str, Any] = {"inputs": {"question": "?"}, "outputs": {"answer": "It is 42."}}
    assert shared(**case)["score"] == 1.0
    both = shared(**case, reference_outputs={"rubric": own})
    assert [row["key"] for row in both["metadata"]["criteria"]] == ["rubric.c1", "rubric.own"]
    assert alone(**case, reference_outputs={"answer": "41", "rubric": "own"})["score"] == 0.0
    assert alone(inputs={"question": "?", "rubric": ROWS}, outputs="It is 42.")["score"] == 1.0
    with pytest.raises(ValueError, match="the example has no `rubric`"):
        alone(**case)


def test_example_of_a_dataset_brings_its_rubric_in_its_outputs_or_its_metadata() -> None:
    for place in ("outputs", "metadata"):
        fields = {"id": uuid.uuid4(), "inputs": {"question": "?"}, place: {"rubric": ROWS}}
        example = Example.model_validate(fields)
        results = RubricEvaluator(judge="offline").evaluate_run(RUN, example).get("results", [])
        assert [row.score for row in results] == [1.0, 1.0]


def test_rubric_of_an_input_is_used_only_where_there_is_no_other() -> None:
    wrong = [{"requirement": "Says 41", "check": {"number": 41}}]
    value: dict[str, Any] = {"output": "It is 42.", "rubric": wrong, "level": "hard"}
    assert RubricRunnable(judge="offline").invoke(value).score == 0.0
    assert RubricRunnable(ROWS, judge="offline").invoke(value).score == 1.0
    by_level = RubricRunnable(lambda parsed: {"hard": ROWS}[parsed.fields["level"]], judge="offline")
    assert by_level.invoke(value).score == 1.0
    with pytest.raises(ValueError, match="the input has no `rubric`"):
        RubricRunnable(judge="offline").invoke("It is 42.")
