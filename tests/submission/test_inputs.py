"""The inputs that are converted to a submission."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Submission, grade_many
from rubric_integrations.submission import (
    as_submission,
    normalize_to_grade_input,
    parse_thinking_output,
    read_responses,
)
from rubric_integrations.submission.inputs import as_row
from tests.submission.conversations import CHAT


@pytest.mark.parametrize(
    ("text", "thinking", "output"),
    [
        ("42", "", "42"),
        ("<thinking> hm </thinking> 42", "hm", "42"),
        ("<THINKING>hm</THINKING><output>42</output> and more", "hm", "42"),
        ("<output>42</output>", "", "42"),
    ],
)
def test_parse_thinking_output_splits_at_the_markers(text: str, thinking: str, output: str) -> None:
    assert parse_thinking_output(text) == {"thinking": thinking, "output": output}


@pytest.mark.parametrize(
    ("to_grade", "thinking", "output"),
    [
        ("<thinking>hm</thinking>42", "hm", "42"),
        ("42 <thinking>is it?</thinking>", "", "42 <thinking>is it?</thinking>"),
        ({"output": "42"}, "", "42"),
        ({"thinking": None, "output": "42"}, "", "42"),
        (CHAT, "", "It was 17.2%."),
        ({"messages": CHAT}, "", "It was 17.2%."),
    ],
)
def test_normalize_to_grade_input_returns_thinking_and_output(to_grade: Any, thinking: str, output: str) -> None:
    assert normalize_to_grade_input(to_grade) == {"thinking": thinking, "output": output}


def test_as_submission_keys_that_nothing_reads_are_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match="^an input has 'extra': not graded, and not shown to the judge"):
        assert as_submission({"messages": CHAT, "extra": 1}).response == "It was 17.2%."
    with pytest.warns(UserWarning, match="'rubric'"):
        as_submission({"answer": "42", "rubric": []})


def test_as_submission_name_of_a_key_that_a_model_wrote_is_shortened_and_escaped() -> None:
    with pytest.warns(UserWarning, match="^an input has ") as caught:
        as_submission({"answer": "42", "\x1b[2J" + "x" * 1000: 1})
    assert "\x1b" not in str(caught[0].message)
    assert len(str(caught[0].message)) < 250


def test_as_submission_of_a_row_without_a_response_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^has no `response` \(its fields are \['query', 'reply'\]\)"):
        as_submission({"query": "6 x 7?", "reply": "42"})


def test_as_submission_fields_of_a_mapping_keep_their_meaning_unless_they_are_passed() -> None:
    data = {"answer": "42", "question": "6 x 7?", "expected": "forty-two", "documents": ["A table."]}
    expected = Submission(response="42", query="6 x 7?", reference="forty-two", context=("A table.",))
    assert as_submission(data) == expected
    assert as_submission(data, "7 x 6?") == expected.model_copy(update={"query": "7 x 6?"})


@pytest.mark.parametrize("to_grade", [3, None, 1.5])
def test_as_submission_other_types_are_refused(to_grade: Any) -> None:
    with pytest.raises(TypeError, match="`to_grade` must be a text"):
        as_submission(to_grade)


def test_as_submission_blank_response_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^`response` is empty: there is nothing to grade$"):
        as_submission({"thinking": "hm"})


def test_as_submission_query_replaces_that_of_a_submission() -> None:
    submission = Submission(response="42", query="old", reference="R")
    assert as_submission(submission, query="new") == Submission(response="42", query="new", reference="R")


def test_row_short_values_of_other_columns_are_its_metadata() -> None:
    data = {"Response": "42", "Topic": "sums", "split": 3, "vector": [0.1], "page": "x" * 201, "empty": None}
    with pytest.warns(UserWarning, match="'Topic', 'split'"):
        row = as_row(data | {"metadata": {"split": "of metadata"}}, 1)
    assert row.metadata == {"Topic": "sums", "split": "of metadata"}


def test_row_without_other_columns_has_no_metadata() -> None:
    assert as_row({"id": "a", "response": "42", "question": "6 x 7?"}, 1).metadata is None


_SCALARS: list[Any] = [1, None, True, 1.5, "x", [], {}]
_STEPS: list[Any] = [{"role": 1}, {"role": "user", "calls": [1]}, {"role": "user", "tool_calls": [1]},
                     {"role": "user", "content": [1]}]  # fmt: skip
_WRONG: list[Any] = [*_SCALARS, *([value] for value in (*_SCALARS, *_STEPS, [1]))]
_NAMES = ("steps", "messages", "calls", "turns", "contents", "candidates", "history", "output", "choices", "thought_0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "field", ["response", "trajectory", "query", "reference", "context", "attachments", "metadata"]
)
def test_value_of_another_type_in_a_field_is_at_most_the_error_of_its_row(tmp_path: Path, field: str) -> None:
    values = _WRONG + [{name: value} for name in _NAMES for value in _WRONG]
    good = {"id": "good", "response": "It is 42."}
    rows = [good, *({"response": "x", field: value, "id": str(number)} for number, value in enumerate(values))]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = list(read_responses(path))
    in_python = [as_row(row, 1).error for row in rows]
    # A number or a truth value as the response of a file's row is graded as its JSON.
    is_scalar = [type(row["response"]) in (int, float, bool) for row in rows]
    expected = [None if scalar else error for scalar, error in zip(is_scalar, in_python, strict=True)]
    assert [row.error for row in read] == expected
    assert [row.id for row in read] == [row["id"] for row in rows]
    assert all(row.error.startswith(f"row {row.id}") for row in read if row.error)
    run = grade_many(
        rows, [{"name": "a", "requirement": "A", "check": {"contains": "42"}}], PerCriterionGrader("offline")
    )
    assert [graded.row.id for graded in run] == [row["id"] for row in rows]


@pytest.mark.parametrize("step", [1, None, True, "x", [1], {}])
def test_trajectory_with_a_step_of_another_type_is_the_error_of_its_row(step: Any) -> None:
    row = as_row({"id": "a", "response": "x", "trajectory": {"steps": [step]}}, 1)
    assert str(row.error).startswith("row a: in the `trajectory`: `messages` must be a list of messages")
    with pytest.raises(ValueError, match="in the `trajectory`"):
        as_submission({"response": "x", "trajectory": {"steps": [step]}})


@pytest.mark.filterwarnings("ignore:an input has")
@pytest.mark.parametrize("name", [1, None, (1,), 1.5])
def test_column_whose_name_is_no_text_is_kept_as_metadata(name: Any) -> None:
    row = as_row({"response": "x", name: "kept"}, 1)
    assert (row.error, row.metadata) == (None, {str(name): "kept"})


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [10**5000, nested(20_000)], ids=["number", "nesting"])
@pytest.mark.parametrize("place", ["id", "response", "type", "query", "trajectory", "messages"])
def test_value_that_python_cannot_write_is_the_error_of_its_row(value: Any, place: str) -> None:
    for row in ({"id": "a", "response": "x", place: value}, {"id": "a", "response": {"type": value, "x": [value]}}):
        assert str(as_row(row, 1).error).startswith("row ")
        with pytest.raises(ValueError, match=r"4,000 digits|100 levels"):
            as_submission(row)


def test_conversation_with_a_number_that_python_cannot_write_is_an_error() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": {"amount": 10**5000}}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x", "tool_calls": [call]}]
    with pytest.raises(ValueError, match="4,000 digits"):
        as_submission(messages)
