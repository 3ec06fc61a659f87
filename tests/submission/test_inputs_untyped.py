"""Submissions from the values of evaluation frameworks, which may be of any type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rubric_integrations import Submission
from rubric_integrations.submission.inputs import own_rubric_of, submission_of

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


@pytest.mark.parametrize(
    ("task", "query"),
    [
        ({"question": "6 x 7?", "context": ["A table."]}, "6 x 7?"),
        ({"topic": "sums"}, "sums"),
        ({"topic": "sums", "unit": None}, '{"topic": "sums", "unit": null}'),
        ({"messages": [{"role": "user", "content": "6 x 7?"}]}, '{"role": "user", "content": "6 x 7?"}'),
    ],
)
def test_task_of_a_mapping_is_its_named_value_or_its_only_one_or_its_json(task: Any, query: str) -> None:
    assert submission_of("42", task).query == query


def test_key_of_the_task_that_nothing_reads_is_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match="an input has 'unit'"):
        assert submission_of("42", {"question": "6 x 7?", "unit": "m"}).query == "6 x 7?"


def test_output_cannot_set_its_reference_or_which_part_of_it_is_graded() -> None:
    output = {"answer": "42", "reference": "42", "respond": "transcript", "rubric": []}
    with pytest.warns(UserWarning, match="'reference', 'respond', 'rubric'"):
        submission = submission_of(output, "6 x 7?", None)
    assert submission.reference is None
    assert submission_of({"answer": "42", "query": "7?"}, "6 x 7?").query == "6 x 7?"


def test_fields_in_a_text_are_no_fields() -> None:
    text = '{"answer": "42", "trajectory": [], "context": "x"}'
    for output in (text, {"answer": text}):
        assert submission_of(output) == Submission(response=text)
    assert submission_of({"answer": "42", "trajectory": '[{"role": "tool", "content": "42"}]'}).trajectory is None


@pytest.mark.parametrize("output", [None, "", "  ", {}, [], {"answer": None}])
def test_output_without_content_is_refused(output: Any) -> None:
    with pytest.raises(ValueError, match="response"):
        submission_of(output, "6 x 7?")


def test_own_rubric_is_read_of_mappings_and_objects() -> None:
    assert own_rubric_of({"rubric": 1}) == 1
    assert own_rubric_of(None) is own_rubric_of({}) is own_rubric_of("text") is None
