"""Several samples of one prompt in a row: their ids, their group, and the rows that are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import dspy
import pandas
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.runs import Ledger, RunFile
from rubric_integrations.submission import ResponsesError, read_responses
from rubric_integrations.submission.files import ResponsesFile
from rubric_integrations.submission.inputs import Row, as_row, as_submission
from rubric_integrations.submission.tables import Layout

Fields = dict[str, Any]
USER, TURNS = {"role": "user", "content": "6 x 7?"}, [{"role": "assistant", "content": text} for text in ("42", "41")]
CHOICES = [{"index": place, "finish_reason": "stop", "message": turn} for place, turn in enumerate(TURNS)]
SHAPES: dict[str, Fields] = {
    "texts": {"responses": ["42", "41"]},
    "best of n": {"samples": [{"text": "42", "score": 0.9}, {"text": "41", "score": 0.1}]},
    "completions": {"completions": ["42", "41"]},
    "vLLM": {"outputs": [{"index": 0, "text": "42", "finish_reason": "stop"}, {"index": 1, "text": "41"}]},
    "outputs": {"outputs": ["42", "41"]},
    "choices": {"choices": CHOICES},
    "conversations": {"responses": [[USER, turn] for turn in TURNS]},
    "messages": {"samples": [{"message": turn} for turn in TURNS]},
    "JSON in a cell": {"responses": '["42", "41"]'},
    "upper case": {"Responses": ["42", "41"]},
}


def rows_of(folder: Path, *rows: Fields) -> list[Row]:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return list(read_responses(path))


def texts_of(rows: list[Row]) -> list[tuple[str, str | None, str | None]]:
    return [(row.id, row.group, row.submission and row.submission.response) for row in rows]


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_of_a_row_are_rows_of_one_group(tmp_path: Path, shape: str) -> None:
    rows = rows_of(tmp_path, {"id": "a", "prompt": "6 x 7?", **SHAPES[shape]}, {"id": "b", "response": "42"})
    assert texts_of(rows) == [("a#1", "a", "42"), ("a#2", "a", "41"), ("b", None, "42")]
    queries = [row.submission and row.submission.query for row in rows[:2]]
    assert all("6 x 7?" in (query or "") for query in queries)


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_in_memory_are_the_rows_of_the_file(tmp_path: Path, shape: str) -> None:
    row = {"id": "a", "prompt": "6 x 7?", **SHAPES[shape]}
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    run = grade_many([row, {"id": "b", "response": "41"}], rubric, PerCriterionGrader("offline"))
    graded = list(run)
    assert texts_of([result.row for result in graded[:2]]) == texts_of(rows_of(tmp_path, row))
    assert [result.score for result in graded] == [1.0, 0.0, 0.0]
    assert (graded[0].run or {})["rows"] == 3


@pytest.mark.parametrize("kind", ["frame", "Arrow", "example", "series"])
def test_samples_in_rows_of_every_kind_are_rows(kind: str) -> None:
    row = {"id": "a", "query": "6 x 7?", "responses": ["42", "41"]}
    sources: dict[str, Any] = {
        "frame": pandas.DataFrame([row]), "Arrow": pyarrow.Table.from_pylist([row]),  # type: ignore[attr-defined]
        "example": [dspy.Example(**row).with_inputs("query")], "series": [pandas.Series(row)],
    }  # fmt: skip
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    run = grade_many(sources[kind], rubric, PerCriterionGrader("offline"))
    assert [(one.row.id, one.row.group, one.score) for one in run] == [("a#1", "a", 1.0), ("a#2", "a", 0.0)]
    # A number of rows that is too small would hide that a run was stopped.
    assert run.summary.rows in (None, 2)


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".csv", ".parquet", "one.json"])
def test_samples_are_read_from_every_kind_of_file(tmp_path: Path, suffix: str) -> None:
    row: Fields = {"id": "a", "prompt": "6 x 7?", "responses": ["42", "41"]}
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)  # type: ignore[attr-defined]
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(row), [*list(row.values())[:2], json.dumps(row["responses"])]])
    else:
        path.write_text(json.dumps(row if suffix == "one.json" else [row]))
    assert texts_of(list(read_responses(path))) == [("a#1", "a", "42"), ("a#2", "a", "41")]


def test_row_without_an_id_is_a_group_by_its_number(tmp_path: Path) -> None:
    row = {"prompt": "6 x 7?", "responses": ["42", "41"]}
    rows = rows_of(tmp_path, row, {"id": "1", "response": "x"}, row)
    assert [(one.id, one.group) for one in rows] == [
        ("1-2#1", "1-2"), ("1-2#2", "1-2"), ("1", None), ("3#1", "3"), ("3#2", "3"),
    ]  # fmt: skip


def test_single_sample_has_the_id_of_its_row(tmp_path: Path) -> None:
    assert texts_of(rows_of(tmp_path, {"id": "a", "responses": ["42"]})) == [("a", None, "42")]


@pytest.mark.parametrize("is_checked", [True, False])
def test_rows_with_one_task_id_are_a_group(tmp_path: Path, is_checked: bool) -> None:
    path = tmp_path / "rows.jsonl"
    lines: list[Fields] = [
        {"task_id": "H/0", "completion": "return 1"}, {"task_id": "H/1", "completion": "return 1"},
        {"task_id": "H/0", "completion": "return 2"}, {"task_id": "H/0", "samples": ["3", "4"]},
        {"task_id": "H/0", "id": "own", "completion": "return 5"},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))
    file = ResponsesFile(path, None, Layout())
    outlines = [(row.id, row.group) for row in file.check()] if is_checked else None
    rows = list(file.rows())
    ids = [(row.id, row.group) for row in rows]
    assert ids == [
        ("H/0#1", "H/0"), ("H/1", None), ("H/0#2", "H/0"), ("H/0#3#1", "H/0"), ("H/0#3#2", "H/0"), ("own", None),
    ]  # fmt: skip
    assert outlines in (None, ids)
    # `--cluster task_id` was the way to group such rows before.
    assert [(row.metadata or {})["task_id"] for row in rows] == ["H/0", "H/1", *["H/0"] * 4]


def test_task_id_in_memory_is_the_id_and_the_group() -> None:
    row = as_row({"task_id": "H/0", "completion": "return 1"}, 3)
    assert (row.id, row.group) == ("H/0", "H/0")


def test_rows_in_memory_with_one_task_id_have_different_ids() -> None:
    rows: list[Fields] = [
        {"task_id": 0, "completion": "41"}, {"task_id": 1, "completion": "42"}, {"task_id": 0, "completion": "42"},
        {"task_id": 0, "samples": ["1", "2"]}, {"task_id": 0, "completion": ""}, {"task_id": 2, "samples": ["3", "4"]},
        {"task_id": 2, "completion": "5"},
    ]  # fmt: skip
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    ids = [(one.row.id, one.row.group) for one in grade_many(rows, rubric, PerCriterionGrader("offline"))]
    assert ids == [
        ("0", "0"), ("1", "1"), ("0#2", "0"), ("0#3#1", "0"), ("0#3#2", "0"), ("0#5", "0"),
        ("2#1", "2"), ("2#2", "2"), ("2#3", "2"),
    ]  # fmt: skip


def test_task_id_in_a_json_response_does_not_make_it_a_row() -> None:
    assert as_submission({"task_id": "T1", "state": "done"}).response == '{"task_id": "T1", "state": "done"}'


REFUSED: dict[str, tuple[Fields, str]] = {
    "empty": ({"responses": []}, "is an empty list"),
    "mixed": ({"responses": ["42", TURNS[0]]}, "`responses[1]` is a message, which may be a sample or a turn"),
    "one conversation": ({"samples": [USER, TURNS[0]]}, "or a conversation as `messages`"),
    "numbers": ({"samples": [42, 41]}, "`samples[0]` is int, and a sample is a text"),
    "unknown objects": ({"samples": [{"score": 1}]}, "`samples[0]` is dict with the keys ['score']"),
    "two texts": ({"samples": [{"text": "a", "answer": "b"}]}, "is dict with the keys ['text', 'answer']"),
    "mixed outputs": ({"outputs": ["42", {"score": 1}]}, "`outputs[1]` is dict with the keys ['score']"),
    "labels": ({"responses": ["42", "41"], "labels": {"answer": "MET"}}, "`labels` belongs to one response"),
    "trajectory": ({"responses": ["42", "41"], "trajectory": [USER]}, "`trajectory` belongs to one response"),
    "answered": ({"responses": ["42", "41"], "messages": [USER, TURNS[0]]}, "does not end with a message of the user"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_samples_of_another_form_are_an_error_of_their_row(tmp_path: Path, case: str) -> None:
    fields, words = REFUSED[case]
    bad, good = rows_of(tmp_path, {"id": "a", "query": "6 x 7?", **fields}, {"id": "b", "response": "42"})
    assert bad.submission is None
    assert str(bad.error).startswith("row a: ")
    assert words in str(bad.error)
    assert good.error is None


def test_missing_sample_is_a_row_with_an_error(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"id": "a", "responses": ["42", None, ""]})
    assert [(row.id, row.group, row.error is None) for row in rows] == [
        ("a#1", "a", True), ("a#2", "a", False), ("a#3", "a", False),
    ]  # fmt: skip
    assert "row a#2: `response` is null" in str(rows[1].error)


def test_messages_next_to_samples_are_their_task(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"id": "a", "messages": [USER], "samples": ["42", "41"]})
    assert [row.submission and row.submission.query for row in rows] == ['{"role": "user", "content": "6 x 7?"}'] * 2


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "response": "42", "samples": ["40", "41"]},
        {"id": "a", "question": "Which?", "choices": ["42", "41"], "answer": "42"},
        {"id": "a", "output": ["42", "41"]},
        {"id": "a", "outputs": {"answer": "42"}},
        {"id": "a", "outputs": [USER, TURNS[0]]},
        {"id": "a", "outputs": [{"type": "output_text", "text": "4"}, {"type": "output_text", "text": "2"}]},
    ],
)
def test_row_with_a_response_has_no_samples(tmp_path: Path, row: Fields) -> None:
    assert [(one.id, one.group) for one in rows_of(tmp_path, row)] == [("a", None)]


@pytest.mark.parametrize("choices", [["42", "41"], [{"label": "A", "text": "42"}, {"label": "B", "text": "41"}]])
def test_options_of_a_question_are_no_samples(tmp_path: Path, choices: list[Any]) -> None:
    with pytest.raises(ResponsesError, match="has no `response` column"):
        rows_of(tmp_path, {"id": "a", "question": "Which?", "choices": choices, "answerKey": "A"})


def test_choices_of_a_completion_are_samples(tmp_path: Path) -> None:
    choices = [{"index": n, "text": text, "finish_reason": None} for n, text in enumerate(("42", "41"))]
    rows = rows_of(tmp_path, {"id": "a", "prompt": "6 x 7?", "choices": choices})
    assert texts_of(rows) == [("a#1", "a", "42"), ("a#2", "a", "41")]


def test_samples_where_one_response_is_graded_are_refused_with_the_way_that_works() -> None:
    with pytest.raises(ValueError, match="2 samples in `responses`, and only one response can be graded here"):
        as_submission({"query": "6 x 7?", "responses": ["42", "41"]})
    assert "2 samples in `outputs`" in str(as_row({"id": "a", "outputs": ["42", "41"]}, 1).error)


def test_named_column_of_samples_is_split_like_the_usual_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "a", "response": "x", "samples": ["42", "41"]}))
    rows = list(read_responses(path, response_column="samples"))
    assert texts_of(rows) == [("a#1", "a", "42"), ("a#2", "a", "41")]


def test_ids_of_samples_that_another_row_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResponsesError, match="the `id` 'a#2' is on line 1, sample 2 and line 2"):
        rows_of(tmp_path, {"id": "a", "responses": ["42", "41"]}, {"id": "a#2", "response": "42"})


def test_description_names_the_column_of_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "6 x 7?", "responses": ["42", "41"]}))
    file = ResponsesFile(path, None, Layout())
    assert len(list(file.check())) == 2
    assert file.description is not None
    assert (file.description.columns["response"], file.description.ignored) == (("responses",), ())


def test_tools_that_repeat_a_task_write_groups(tmp_path: Path) -> None:
    choices = [{"index": n, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
               for n, text in enumerate(("42", "41"))]  # fmt: skip
    lines: list[tuple[Fields, list[tuple[str, str | None]]]] = [
        ({"id": "c", "object": "chat.completion", "model": "m", "choices": choices},
         [("c-choice1", "c"), ("c-choice2", "c")]),
        ({"object": "chat.completion", "model": "m", "choices": choices}, [("1#1", "1"), ("1#2", "1")]),
        ({"doc_id": 0, "doc": {}, "target": "42", "arguments": [["6 x 7?", {}]], "resps": [["42", "41"]]},
         [("0-repeat1", "0"), ("0-repeat2", "0")]),
        ({"task_id": 3, "trial": 1, "reward": 1.0, "traj": [USER, TURNS[0]], "info": {}}, [("3-trial1", "3")]),
    ]  # fmt: skip
    for row, ids in lines:
        assert [(one.id, one.group) for one in rows_of(tmp_path, row)] == ids


def test_judgments_in_a_ledger_serve_samples_and_single_rows_alike(tmp_path: Path) -> None:
    from tests.runs.scripted import InstantJudge

    judge = InstantJudge()
    rubric = Rubric([{"name": "answer", "requirement": "Says 42"}])
    single = [{"id": text, "query": "6 x 7?", "response": text} for text in ("It is 42.", "It is 41.")]
    samples = [{"id": "a", "query": "6 x 7?", "responses": [row["response"] for row in single]}]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        first = list(grade_many(single, rubric, PerCriterionGrader(judge), ledger=ledger))
        for _ in range(2):
            run = grade_many(samples, rubric, PerCriterionGrader(judge), ledger=ledger)
            assert [result.score for result in run] == [result.score for result in first]
            assert (run.summary.spend.calls, run.summary.reused) == (0, 2)


def test_group_stands_in_the_record_of_a_run(tmp_path: Path) -> None:
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    graded = list(grade_many([{"id": "a", "responses": ["42", "41"]}, "42"], rubric, PerCriterionGrader("offline")))
    assert [result.to_dict().get("group") for result in graded] == ["a", "a", None]
    run = RunFile.of("run", graded)
    assert (list(run.row_groups()), [row.group for row in run.rows]) == (["a", "a", None],) * 2


def test_actual_output_is_a_response_after_all_other_names(tmp_path: Path) -> None:
    rows = [
        {"input": "6 x 7?", "actual_output": "42", "expected_output": "42", "context": ["A table."]},
        {"input": "6 x 7?", "actual_output": "42", "output": "41"},
    ]
    first, second = read_responses(_written(tmp_path, rows))
    assert first.submission is not None
    assert second.submission is not None
    assert (first.submission.response, first.submission.reference, first.submission.query) == ("42", "42", "6 x 7?")
    assert "A table." in first.submission.context
    assert second.submission.response == "41"


def _written(folder: Path, rows: list[Fields]) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows))
    return path


_TEXT = st.text(max_size=5)
_KEYS = st.sampled_from(("text", "role", "content", "message", "score", "type", "index"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    column=st.sampled_from(("responses", "samples", "completions", "choices")),
    items=st.lists(_VALUES | st.just("42"), max_size=4),
)
def test_any_list_of_samples_is_graded_by_its_texts_or_is_an_error(
    tmp_path: Path, column: str, items: list[Any]
) -> None:
    try:
        rows = rows_of(tmp_path, {"id": "b", "response": "x"}, {"id": "a", "query": "6 x 7?", column: items})
    except ResponsesError:
        return
    texts, waiting = set[str](), list[Any](items)
    while waiting:
        item = waiting.pop()
        texts |= {item.strip()} if isinstance(item, str) else set()
        waiting += list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
    for row in rows[1:]:
        assert row.error is not None or (row.submission is not None and row.submission.response.strip() in texts)
