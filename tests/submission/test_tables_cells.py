"""Cells of tables: the same rows give the same submissions in every kind of file and of table."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.submission import ResponsesError, Row, Submission, read_responses
from rubric_integrations.submission.inputs import as_row
from tests.submission.samples import encode

TASK, ANSWER = {"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}
CALL = {"id": "c", "type": "function", "function": {"name": "times", "arguments": '{"a": 6, "b": 7}'}}
CHAT = [
    TASK,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "42"},
    ANSWER,
]
OF_CHAT = Submission.from_messages(CHAT)
TEXT = json.dumps([TASK, ANSWER])
CELLS: dict[str, tuple[dict[str, Any], Submission]] = {
    "messages": ({"messages": CHAT}, OF_CHAT),
    "messages and an empty response": ({"response": None, "messages": CHAT, "respond": None}, OF_CHAT),
    "text of messages": ({"messages": json.dumps(CHAT)}, OF_CHAT),
    "response and trajectory": (
        {"response": "It is 42.", "trajectory": CHAT}, Submission(response="It is 42.", trajectory=OF_CHAT.trajectory),
    ),
    "response that is the JSON of messages": ({"response": TEXT}, Submission(response=TEXT)),
    "documents": ({"response": "x", "context": ["d1", "d2"]}, Submission(response="x", context=("d1", "d2"))),
    "one document": ({"response": "x", "documents": "[d1"}, Submission(response="x", context=("[d1",))),
    "object": ({"response": "x", "context": '{"a":1}'}, Submission(response="x", context=('{"a":1}',))),
    "tokens": ({"response": "x", "context": [128006, 882]}, Submission(response="x")),
    "attachment": (
        {"response": "x", "attachments": [{"url": "https://example.org/a.png", "mime_type": "image/png"}]},
        Submission.model_validate({"response": "x", "attachments": [{"url": "https://example.org/a.png"}]}),
    ),
    "empty cells": (
        {"output": "", "answer": "x", "query": " ", "question": "6 x 7?", "reference": "", "thinking": None},
        Submission(response="x", query="6 x 7?"),
    ),
}  # fmt: skip
FILES = (".csv", ".tsv", ".xlsx", ".parquet", ".jsonl", ".json", ".yaml")


def cell(value: Any) -> Any:
    """Return the value of a cell of a table without nested values."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def write(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"rows{suffix}"
    if suffix in (".csv", ".tsv", ".xlsx"):
        rows = [{name: cell(value) for name, value in row.items()} for row in rows]
    path.write_bytes(encode(suffix, rows))
    return path


class DatasetOfRows:
    """Rows by index, as a `Dataset` of Hugging Face has them."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


TABLES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "DataFrame": pd.DataFrame,
    "Arrow table": pa.Table.from_pylist,
    "dataset": DatasetOfRows,
    "rows of Polars": list,
}
SAYS_42 = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])


def rows_of(table: Any) -> list[Row]:
    return [graded.row for graded in grade_many(table, SAYS_42, PerCriterionGrader("offline"))]


def all_reads(folder: Path, rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows as they are read from each kind of file and of table, without the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for suffix in FILES:
            yield suffix, list(read_responses(write(folder, suffix, rows)))
        for name, table in TABLES.items():
            yield name, rows_of(table(rows))


@pytest.mark.parametrize(("fields", "expected"), CELLS.values(), ids=list(CELLS))
def test_cell_is_read_alike_in_every_file_and_table(
    tmp_path: Path, fields: dict[str, Any], expected: Submission
) -> None:
    for name, rows in all_reads(tmp_path, [{"id": "a", **fields}, {"id": "b", **fields}]):
        assert rows == [Row("a", expected), Row("b", expected)], name


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (1.5, "1.5"), (True, "true"), (-0.0, "-0.0")])
def test_number_is_a_response_in_a_file_and_an_error_in_python(tmp_path: Path, value: Any, text: str) -> None:
    for suffix in FILES:
        own = text if suffix in (".csv", ".tsv") else value
        [row] = read_responses(write(tmp_path, suffix, [{"id": "a", "response": own}]))
        # A sheet has one kind of numbers.
        assert row == Row("a", Submission(response="0" if suffix == ".xlsx" and value == 0 else text)), suffix
    for name, table in TABLES.items():
        [row] = rows_of(table([{"id": "a", "response": value}]))
        assert "not a text" in (row.error or ""), name


def test_row_whose_responses_are_all_empty_is_an_error_in_every_file_and_table(tmp_path: Path) -> None:
    for name, (filled, empty) in all_reads(
        tmp_path, [{"id": "a", "output": None, "answer": "x"}, {"id": "b", "output": None, "answer": None}]
    ):
        assert (filled.error, empty.submission) == (None, None), name
        assert "there is nothing to grade" in (empty.error or ""), name


EMPTY = st.sampled_from([None, "", " ", "\n", float("nan")])


@given(values=st.lists(EMPTY | st.sampled_from(["x", "y"]), min_size=3, max_size=3))
def test_empty_cell_never_wins_over_a_filled_one(values: list[Any]) -> None:
    filled = [value for value in values if value in ("x", "y")]
    names = {"response": ("response", "output", "text"), "query": ("query", "prompt", "instruction")}
    fields = {name: dict(zip(columns, values, strict=True)) for name, columns in names.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = as_row({**fields["response"], **fields["query"]}, 1)
    if filled:
        assert row.submission == Submission(response=filled[0], query=filled[0])
    else:
        assert "there is nothing to grade" in (row.error or "")


def test_response_that_is_the_json_of_messages_is_told_once_for_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, ".csv", [{"id": str(number), "response": TEXT} for number in range(3)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert [row.submission for row in read_responses(path)] == [Submission(response=TEXT)] * 3
    assert len(caught) == 1
    assert "write it as JSON into a column `messages`" in str(caught[0].message)
    with pytest.warns(UserWarning, match="a text that contains a list of messages"):
        assert as_row({"messages": str([TASK, ANSWER])}, 1).submission == Submission(response=str([TASK, ANSWER]))
    deep = "[" * 200 + "]" * 200
    assert as_row({"response": deep}, 1) == Row("1", Submission(response=deep))


def test_messages_that_are_no_conversation_have_the_same_error_as_text(tmp_path: Path) -> None:
    for value in ([], [1, 2], [TASK]):
        rows = [as_row({"messages": messages}, 1) for messages in (value, json.dumps(value))]
        assert rows[0] == rows[1]
        assert rows[0].error
    assert as_row({"messages": "It is 42."}, 1) == Row("1", Submission(response="It is 42."))


@pytest.mark.parametrize("names", [("response", "response"), ("response", "Response"), ("query", "Query ")])
def test_column_that_is_there_twice_is_refused_with_its_names(tmp_path: Path, names: tuple[str, str]) -> None:
    columns, values = ["id" if "response" in names else "response", *names], ["a", "x", "y"]
    words = f"has the columns {list(names)!r}, which are one name"
    frame = pd.DataFrame([values], columns=columns)
    table = pa.Table.from_arrays([pa.array([value]) for value in values], names=columns)
    for submissions in (frame, table, [frame], table.to_batches()):
        with pytest.raises(ValueError, match="which are one name") as error:
            rows_of(submissions)
        assert words in str(error.value)
    path = tmp_path / "rows.parquet"
    parquet.write_table(table, path)
    with pytest.raises(ResponsesError, match=r"rows\.parquet: has the columns"):
        list(read_responses(path))
    split = tmp_path / "split.json"
    split.write_text(json.dumps({"columns": columns, "index": [0], "data": [values]}))
    with pytest.raises(ResponsesError, match=r"split\.json: is a pandas table with the columns"):
        list(read_responses(split))
    if names[0] != names[1]:
        assert words in (as_row(dict(zip(columns, values, strict=True)), 1).error or "")


def test_column_that_is_not_read_may_be_there_twice() -> None:
    frame = pd.DataFrame([["42", "x", "y"]], columns=["response", "note", "note"])
    with pytest.warns(UserWarning, match="an input has 'note'"):
        [row] = rows_of(frame)
    assert row.submission == Submission(response="42")


def test_columns_of_several_levels_are_refused() -> None:
    frame = pd.DataFrame([["x", "y"]], columns=pd.MultiIndex.from_tuples([("a", "response"), ("a", "query")]))
    with pytest.raises(ValueError, match=r"several levels, such as \('a', 'response'\)"):
        rows_of(frame)


def test_frame_of_another_library_is_refused_with_what_to_pass() -> None:
    class LazyFrame:
        columns = ("response",)

        def __iter__(self) -> Iterator[str]:
            return iter(["a column"])

    with pytest.raises(TypeError, match=r"LazyFrame, whose columns .*`frame\.to_dicts\(\)` of Polars"):
        rows_of(LazyFrame())
    with pytest.raises(TypeError, match=r"got DataFrame: .*pass a table to `grade_many`"):
        SAYS_42.grade_sync(pd.DataFrame([{"response": "x"}]), PerCriterionGrader("offline"))  # pyright: ignore[reportArgumentType]


def sheet_of(path: Path, cells: dict[str, Any], *merged: str) -> Path:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for place, value in cells.items():
        sheet[place] = value
    for cells_of in merged:
        sheet.merge_cells(cells_of)
    book.save(path)
    return path


def test_merged_cells_of_a_sheet_have_their_value_in_every_row(tmp_path: Path) -> None:
    header = {"A2": "id", "B2": "query", "C2": "response", "D2": "reference"}
    answers = {f"C{line}": f"answer {line}" for line in range(3, 8)} | {"A3": "a", "A6": "d"}
    cells = {**header, **answers, "A4": "b", "A5": "c", "A7": "e", "B3": "6 x 7?", "B6": "6 x 8?", "D4": "42"}
    # The title over all columns is no header, and the cells merged within a row have one value.
    path = sheet_of(tmp_path / "r.xlsx", cells, "B3:B5", "B6:B7", "D4:D6", "D7:E7")
    rows = {row.id: row.submission for row in read_responses(path)}
    assert {row_id: (row.query, row.reference) for row_id, row in rows.items() if row} == {
        "a": ("6 x 7?", None), "b": ("6 x 7?", "42"), "c": ("6 x 7?", "42"),
        "d": ("6 x 8?", "42"), "e": ("6 x 8?", None),
    }  # fmt: skip


def test_merged_cells_of_a_header_or_of_blank_rows_make_no_rows(tmp_path: Path) -> None:
    cells = {"A1": "id", "B1": "response", "A3": "a", "B3": "x"}
    path = sheet_of(tmp_path / "r.xlsx", cells, "A1:A2", "B1:B2", "A3:A9", "B3:B9")
    assert list(read_responses(path)) == [Row("a", Submission(response="x"))]


def test_merged_cells_beyond_a_block_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubric_integrations.submission.tables._BLOCK", 7)
    path = sheet_of(tmp_path / "r.xlsx", {"A1": "query", "B1": "response", "A2": "Q", "B2": "x", "B3": "y"}, "A2:A3")
    assert [row.submission.query for row in read_responses(path) if row.submission] == ["Q", "Q"]


def test_failed_row_of_a_langsmith_experiment_leaves_the_answers_of_the_others(tmp_path: Path) -> None:
    rows = [
        {"inputs.question": "6 x 7?", "outputs.output": None, "outputs.answer": "It is 42.", "error": None, "id": "a"},
        {"inputs.question": "6 x 8?", "outputs.output": None, "outputs.answer": None, "error": "boom", "id": "b"},
        {"inputs.question": "6 x 9?", "outputs.output": None, "outputs.answer": None, "error": None, "id": "c"},
    ]
    for suffix in FILES:
        answer, failed, empty = read_responses(write(tmp_path, suffix, rows))
        assert answer.submission == Submission(response="It is 42.", query="6 x 7?"), suffix
        assert (failed.id, "boom" in (failed.error or "")) == ("b", True)
        assert (empty.id, "there is nothing to grade" in (empty.error or "")) == ("c", True)
