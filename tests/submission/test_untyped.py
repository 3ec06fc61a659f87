"""Submissions from the values of evaluation frameworks, which may be of any type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rubric_integrations.submission.untyped import own_rubric_of, submission_of

CONVERSATION = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]


@dataclass
class Product:
    """An output that a program may return."""

    value: int


@pytest.mark.parametrize(
    ("output", "response"),
    [("42", "42"), (42, "42"), ({"answer": 42}, "42"), (Product(42), '{"value": 42}'), (["42"], '["42"]')],
)
def test_output_is_graded_as_its_text(output: Any, response: str) -> None:
    assert submission_of(output).response == response


def test_task_is_left_out_if_the_output_is_a_conversation_that_contains_it() -> None:
    submission = submission_of({"messages": CONVERSATION}, {"question": "6 x 7?"}, {"answer": "42"})
    assert submission.response == "42"
    assert str(submission.query).count("6 x 7?") == 1
    assert submission.reference == "42"


def test_task_with_several_values_is_written_as_json() -> None:
    assert submission_of("42", {"question": "6 x 7?", "unit": None}).query == '{"question": "6 x 7?", "unit": null}'


@pytest.mark.parametrize("output", [None, "", "  ", {}, [], {"answer": None}])
def test_output_without_content_is_refused(output: Any) -> None:
    with pytest.raises(ValueError, match="response"):
        submission_of(output, "6 x 7?")


def test_own_rubric_is_read_of_mappings_and_objects() -> None:
    assert own_rubric_of({"rubric": 1}) == 1
    assert own_rubric_of(None) is own_rubric_of({}) is own_rubric_of("text") is None
