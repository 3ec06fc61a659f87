"""`RubricScore` as a number, a truth value and a string."""

from __future__ import annotations

import copy
import json
import pickle

import dspy
import pytest

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


def test_json_holds_the_digits() -> None:
    assert json.loads(json.dumps([LOW, HIGH])) == ["0.0", "0.9"]


def test_str_shows_whether_it_passed() -> None:
    assert f"{HIGH}" == "0.900 passed"
    assert f"{HIGH:.1f}" == "0.9"


def test_copies_and_pickles_hold_every_field() -> None:
    for other in (copy.deepcopy(HIGH), copy.copy(HIGH), pickle.loads(pickle.dumps(HIGH))):
        assert (float(other), bool(other), other.feedback, dict(other.items())) == (0.9, True, "f", dict(HIGH.items()))
