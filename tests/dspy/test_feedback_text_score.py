"""`RubricScore` as a number, a truth value and a string."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.dspy import RubricScore

LOW = RubricScore(score=0.0, passed=False, feedback="f", coverage=1.0)
HIGH = RubricScore(score=0.9, passed=True, feedback="f", coverage=1.0)


def test_truth_is_whether_the_submission_passed() -> None:
    assert not LOW
    assert HIGH


def test_arithmetic_and_comparison_use_the_number() -> None:
    assert sum([LOW, HIGH]) == pytest.approx(0.9)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert (LOW < HIGH, HIGH >= 0.9, max([LOW, HIGH], key=float) is HIGH) == (True, True, True)
    assert (LOW == 0.0, HIGH == 0.9, HIGH != LOW, dspy.Prediction(**dict(HIGH.items())) == HIGH) == (True,) * 4
    assert (HIGH * 100, 2 * HIGH) == (90.0, 1.8)


SCORES = st.floats(0, 1)
NUMBERS = st.one_of(st.floats(-10, 10), st.integers(-10, 10), st.booleans())
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod, operator.pow,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, math.isclose, math.hypot,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [
    operator.neg, operator.pos, abs, round, int, float, complex, math.trunc, math.floor, math.ceil, math.sqrt, hash,
    math.isnan, lambda x: round(x, 2), "{0:.2f} {0:6.1%}".format, "%.3f".__mod__,
]  # fmt: skip
SEVERAL: list[Callable[[Any], Any]] = [
    sum, max, min, sorted, math.fsum, math.prod, statistics.mean, statistics.fmean, statistics.median,
    statistics.pstdev, statistics.pvariance, statistics.median_low,
]  # fmt: skip


def score_of(value: float, passed: bool = False) -> RubricScore:
    return RubricScore(score=value, passed=passed, feedback="f", coverage=1.0)


def outcome(operation: Callable[..., Any], *operands: Any) -> Any:
    try:
        return operation(*operands)
    except ArithmeticError as error:
        return type(error)


@given(SCORES, NUMBERS)
def test_operation_with_a_number_on_either_side_gives_the_same_as_that_of_the_float(
    value: float, number: float
) -> None:
    score = score_of(value)
    cases = [
        ((score, number), (value, number)),
        ((number, score), (number, value)),
        ((score, score_of(number / 10)), (value, number / 10)),
    ]
    for operation, (operands, plain) in product(BINARY, cases):
        result, expected = outcome(operation, *operands), outcome(operation, *plain)
        assert (result, type(result)) == (expected, type(expected)), operation


@given(SCORES)
def test_operation_on_a_score_gives_the_same_as_that_of_the_float(value: float) -> None:
    for operation in UNARY:
        assert operation(score_of(value)) == operation(value), operation


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1))
def test_function_of_scores_and_floats_gives_the_same_as_that_of_the_floats(values: list[tuple[float, bool]]) -> None:
    floats = [value for value, _ in values]
    mixed = [score_of(value) if is_score else value for value, is_score in values]
    for operation, numbers in product(SEVERAL, (mixed, [score_of(value) for value in floats])):
        assert operation(numbers) == operation(floats), operation


def test_score_is_neither_joined_with_texts_nor_equal_to_them() -> None:
    operations: list[Callable[[Any, Any], Any]] = [operator.add, operator.mul, operator.lt, operator.sub]
    for operation in operations:
        for operands in ((HIGH, "0.9"), ("0.9", HIGH)):
            with pytest.raises(TypeError):
                operation(*operands)
    assert HIGH != "0.9"
    assert "%s" % HIGH == "0.900 passed"  # noqa: UP031


def test_float_is_not_an_instance_of_a_score() -> None:
    assert not isinstance(0.5, RubricScore)
    assert not isinstance("0.5", RubricScore)


def test_score_that_is_no_number_is_refused() -> None:
    missing: Any = None
    with pytest.raises(TypeError, match="`score` must be a number, got None"):
        RubricScore(missing, False, "f", 0.0)


def test_json_holds_the_digits() -> None:
    assert json.loads(json.dumps([LOW, HIGH])) == ["0.0", "0.9"]


def test_str_shows_whether_it_passed() -> None:
    assert f"{HIGH}" == "0.900 passed"
    assert f"{HIGH:.1f}" == "0.9"


def test_copies_and_pickles_hold_every_field() -> None:
    for other in (copy.deepcopy(HIGH), copy.copy(HIGH), pickle.loads(pickle.dumps(HIGH))):
        assert (float(other), bool(other), other.feedback, dict(other.items())) == (0.9, True, "f", dict(HIGH.items()))


def test_number_or_array_of_numpy_before_a_score_computes_with_its_number() -> None:
    score, array = RubricScore(score=0.5, passed=True, feedback="f", coverage=1.0), np.array([0.5, 2.0])
    assert (np.float64(2) * score, np.float32(2) / score, np.int64(2) - score) == (1.0, 4.0, 1.5)
    assert np.float64(0.5) == score
    assert sum([np.float64(1), score]) == 1.5
    assert (array * score).tolist() == [0.25, 1.0]
    assert (array == score).tolist() == [True, False]
    assert np.mean([float(score), 1.0]) == 0.75
    assert pickle.loads(pickle.dumps(score)) == score
