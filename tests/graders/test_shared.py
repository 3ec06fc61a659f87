"""The grader of an adapter: one for each name of a judge in a process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders.shared import shared_grader
from tests.hosts.six_responses import judge


def test_threads_that_name_the_same_judge_get_the_same_grader() -> None:
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(shared_grader, "openai/some-model", None, "Host") for _ in range(32)]
        graders = [call.result() for call in calls]
    assert len({id(grader) for grader in graders}) == 1
    assert shared_grader("openai/another-model", None, "Host") is not graders[0]


def test_function_as_judge_and_a_grader_are_not_shared() -> None:
    grader = PerCriterionGrader("offline")
    assert shared_grader(None, grader, "Host") is grader
    assert shared_grader(judge, None, "Host") is not shared_grader(judge, None, "Host")


@pytest.mark.parametrize(
    ("name", "grader", "message"), [(None, None, "got neither"), ("offline", PerCriterionGrader("offline"), "got both")]
)
def test_neither_or_both_of_judge_and_grader_are_refused(name: str | None, grader: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"`Host` needs either `judge`.*{message}"):
        shared_grader(name, grader, "Host")


def test_name_in_place_of_a_grader_is_refused() -> None:
    name: Any = "PerCriterionGrader"
    with pytest.raises(TypeError, match="must be a grader, got 'PerCriterionGrader'"):
        shared_grader(None, name, "Host")
