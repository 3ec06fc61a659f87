"""`resolve_grader` and `resolve_rubric`: the common arguments of all adapters."""

from __future__ import annotations

import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.langchain import RubricEvaluator
from rubric_integrations.langchain.resolve import resolve_grader, resolve_rubric
from tests.langchain.helpers import NUMBER_RUBRIC


def test_grader_is_made_once_or_returned_as_passed() -> None:
    get_grader = resolve_grader("offline", None, "RubricEvaluator")
    assert get_grader() is get_grader()
    grader = PerCriterionGrader("offline")
    assert resolve_grader(None, grader, "RubricEvaluator")() is grader


def test_neither_or_both_of_judge_and_grader_raise() -> None:
    with pytest.raises(ValueError, match=r"`RubricEvaluator` needs either `judge`.* but got neither"):
        RubricEvaluator(NUMBER_RUBRIC)
    with pytest.raises(ValueError, match="but got both"):
        RubricEvaluator(NUMBER_RUBRIC, judge="offline", grader=PerCriterionGrader("offline"))


def test_rubric_function_is_called_with_the_source() -> None:
    assert resolve_rubric(NUMBER_RUBRIC, "x") is NUMBER_RUBRIC
    assert resolve_rubric({"x": NUMBER_RUBRIC}.__getitem__, "x") is NUMBER_RUBRIC
