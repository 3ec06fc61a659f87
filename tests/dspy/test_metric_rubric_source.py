"""A metric's rubric: a rubric, a path, a list or a dictionary, or a function of the example that returns one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.dspy import RubricFunctionError, RubricMetric
from tests.dspy.programs import DEVSET, Student, run_evaluate, run_gepa, run_mipro, run_simba, student_lm, task_lm

ITEMS = [{"requirement": "right", "check": {"number": 6}}]
PRED = dspy.Prediction(answer="It is 6.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rubric.yaml"
    file.write_text(Rubric.from_dict(ITEMS).to_yaml(), encoding="utf-8")
    return file


def test_rubric_as_path_list_or_dictionary_is_accepted(path: Path) -> None:
    for rubric in (Rubric.from_dict(ITEMS), ITEMS, tuple(ITEMS), {"criteria": ITEMS}, path, str(path)):
        metric = RubricMetric(rubric, judge="offline")
        assert metric.rubrics.shared is not None
        assert float(metric(DEVSET[0], PRED)) == 1.0


def test_rubric_function_may_return_a_rubric_path_list_or_dictionary(path: Path) -> None:
    for rubric in (Rubric.from_dict(ITEMS), ITEMS, {"criteria": ITEMS}, path, str(path)):
        example = dspy.Example(question="?", rubric=rubric).with_inputs("question")
        assert float(RubricMetric(lambda example: example.rubric, judge="offline")(example, PRED)) == 1.0


@pytest.mark.parametrize("rubric", [42, b"rubric.yaml", {"a"}])
def test_rubric_of_another_type_is_refused_at_construction(rubric: Any) -> None:
    with pytest.raises(TypeError, match="`rubric` must be a Rubric, "):
        RubricMetric(rubric, judge="offline")


@pytest.mark.parametrize("rubric", ["no-such-file.yaml", [], [{"requirement": ""}], {"criteria": [{"wieght": 1}]}])
def test_rubric_that_is_wrong_is_refused_at_construction(rubric: Any) -> None:
    with pytest.raises(RubricError):
        RubricMetric(rubric, judge="offline")


def _missing_field(example: Any) -> Any:
    return example.rubrik


def _missing_key(example: Any) -> Any:
    return example["rubrik"]


def _nothing(example: Any) -> Any:
    return None


def _misspelt_key(example: Any) -> Any:
    return [{"requirment": "right"}]


def _missing_file(example: Any) -> Any:
    return "no-such-file.yaml"


FAILING = [
    (_missing_field, r"AttributeError: 'Example' object has no attribute 'rubrik'.*\['answer', 'question'\]"),
    (_missing_key, r"KeyError: 'rubrik'.*\['answer', 'question'\]"),
    (_nothing, r"got NoneType"),
    (_misspelt_key, r"requirment"),
    (_missing_file, r"no-such-file.yaml"),
]


@pytest.mark.parametrize(("function", "message"), FAILING)
def test_rubric_function_that_returns_no_rubric_ends_an_evaluation(
    function: Callable[[Any], Any], message: str
) -> None:
    metric = RubricMetric(function, judge="offline")
    with dspy.context(lm=student_lm()), pytest.raises(RubricFunctionError, match=message):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(Student())


@pytest.mark.parametrize("run", [run_evaluate, run_mipro, run_gepa, run_simba])
def test_rubric_function_that_fails_ends_every_optimizer(run: Callable[[Any, Any], Any]) -> None:
    lm = task_lm()
    with dspy.context(lm=lm), pytest.raises(RubricFunctionError, match="rubrik"):
        run(RubricMetric(_missing_field, judge="offline"), lm)


def test_example_is_graded_by_its_own_rubric() -> None:
    metric = RubricMetric(judge="offline", library={"six": ITEMS})
    for rubric in (Rubric.from_dict(ITEMS), ITEMS, "six"):
        example = dspy.Example(question="?", rubric=rubric).with_inputs("question")
        assert float(metric(example, PRED)) == 1.0
    with pytest.raises(RubricFunctionError, match="an example has no `rubric`"):
        metric(dspy.Example(question="?").with_inputs("question"), PRED)


def test_shared_rubric_and_that_of_the_example_are_joined_unless_it_is_an_input() -> None:
    shared = [{"name": "shared", "requirement": "says seven", "check": {"number": 7}}]
    example = dspy.Example(question="?", rubric=ITEMS)
    metric = RubricMetric(shared, judge="offline")
    assert float(metric(example.with_inputs("question"), PRED)) == 0.5
    assert float(metric(dspy.Example(question="?", rubric="a text for the program").with_inputs("rubric"), PRED)) == 0.0
    # A rubric is never shown to the judge as a part of the task.
    report = RubricMetric(judge="offline", feedback=lambda report: str(report.criteria[0].name))
    assert float(report(example.with_inputs("question", "rubric"), PRED)) == 1.0
