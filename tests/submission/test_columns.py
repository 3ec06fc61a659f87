"""Files from spreadsheets and programs: columns under any usual name, and one clear error where a file is wrong."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import ResponsesError, Row, Submission, read_responses
from rubric_integrations.submission.inputs import as_row, read_row
from tests.submission.conversations import CHAT

Write = Callable[..., Path]
FLATTER = "write it flatter, or as text"


@dataclass
class Nested:
    """A record within a record."""

    inner: Any


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write_file


def test_csv_row_with_too_many_fields_is_refused_with_line_and_count(write: Write) -> None:
    path = write("r.csv", 'id,response,query\na,"Sorry, I cannot.",Q\nb,Sorry, I cannot.,Q\nc,Yes.,Q\n')
    first, second, third = read_responses(path)
    assert first == Row("a", Submission(response="Sorry, I cannot.", query="Q"))
    assert second == Row(
        "2", None, "line 3 has 4 fields, but the header has 3: put quotes around a text that contains ','"
    )
    assert third == Row("c", Submission(response="Yes.", query="Q"))


@pytest.mark.parametrize(
    "text",
    ['id,response\na,"It is 42\nb,Yes\nc,No\n', 'id,response\na,"It is 42\nb,Yes\nc,"No"\n'],
)
def test_csv_with_an_unclosed_quote_is_refused(write: Write, text: str) -> None:
    with pytest.raises(ResponsesError, match=r"r\.csv: line 2: .*quote"):
        list(read_responses(write("r.csv", text)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "Id; Response ;QUESTION\r\na;It is 4,2.;6 x 7?\r\n"),
        ("r.csv", "\ufeffid\tresponse\tprompt\na\tIt is 4,2.\t6 x 7?\n"),
        ("r.tsv", 'id,response,query\r\na,"It is 4,2.",6 x 7?\r\n'),
        ("r.csv", '\n\nid,OUTPUT,query\n\na,"It is 4,2.",6 x 7?\n'),
        ("r.json", json.dumps([{"ID": "a", "Response": "It is 4,2.", "query": "6 x 7?"}], indent=1)),
        ("r.jsonl", '\ufeff{"Id": "a", "Completion": "It is 4,2.", "Input": "6 x 7?"}\r\n'),
    ],
)
def test_delimiters_capitals_spaces_and_line_ends_are_recognised(write: Write, name: str, text: str) -> None:
    assert list(read_responses(write(name, text))) == [Row("a", Submission(response="It is 4,2.", query="6 x 7?"))]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "Nr;Modell;Text der Antwort\n1;m;x\n2;m;y\n"),
        ("r.jsonl", '{"Nr": 1, "Modell": "m", "Text der Antwort": "x"}\n{"Nr": 2, "Text der Antwort": "y"}\n'),
        ("r.json", '[{"Nr": 1, "Modell": "m", "Text der Antwort": "x"}]'),
    ],
)
def test_file_without_a_response_column_is_one_error_with_its_columns(write: Write, name: str, text: str) -> None:
    path = write(name, text)
    words = r"has no `response` column \(its columns are \['Nr', 'Modell', 'Text der Antwort'\]\): .*response_column"
    with pytest.raises(ResponsesError, match=words):
        list(read_responses(path))
    rows = list(read_responses(path, response_column="text der antwort", id_column="Nr"))
    assert rows[0] == Row("1", Submission(response="x"), metadata={"Modell": "m"})


def test_named_columns_replace_the_usual_ones(write: Write) -> None:
    path = write("r.csv", "key,response,final,task,gold\na,draft,42,6 x 7?,forty-two\n")
    named: dict[str, Any] = {
        "response_column": "final",
        "query_column": "task",
        "reference_column": "gold",
        "id_column": "key",
    }
    expected = Row("a", Submission(response="42", query="6 x 7?", reference="forty-two"))
    assert list(read_responses(path, **named)) == [expected]
    for name in named:
        wrong: dict[str, Any] = {**named, name: "wrong"}
        with pytest.raises(ResponsesError, match=r"has no column 'wrong' \(its columns are \['key', 'response'"):
            list(read_responses(path, **wrong))
    with pytest.raises(ResponsesError, match="has no columns"):
        list(read_responses(write("r.txt", "text"), response_column="final"))


def test_jsonl_row_without_a_named_column_has_an_error(write: Write) -> None:
    path = write("r.jsonl", '{"final": "42", "task": "Q"}\n{"final": "43"}\n{"task": "Q"}\n')
    rows = list(read_responses(path, response_column="final", query_column="task"))
    assert rows[0].submission == Submission(response="42", query="Q")
    assert [row.error for row in rows[1:]] == [
        "row 2 has no column 'task' (its fields are ['final']): it cannot be graded",
        "row 3 has no column 'final' (its fields are ['task']): it cannot be graded",
    ]


def test_many_rows_without_a_response_are_refused_before_the_end(write: Write) -> None:
    path = write("r.jsonl", '{"note": "x"}\n' * 5000 + '{"response": "x"}\n')
    with pytest.raises(ResponsesError, match="has no `response` column"):
        next(iter(read_responses(path)))
    broken = write("b.jsonl", "{\n" * 900 + '{"response": "x"}\n')
    rows = list(read_responses(broken))
    assert (len(rows), rows[-1]) == (901, Row("901", Submission(response="x")))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "`answer` is null: there is nothing to grade"),
        (math.nan, "`answer` is NaN, an empty cell: there is nothing to grade"),
        (42, "`answer` is the number 42, not a text: write '42'"),
        (4.5, "`answer` is the number 4.5, not a text: write '4.5'"),
        (True, "`answer` is True, not a text: write 'True'"),
    ],
)
def test_response_that_is_not_a_text_is_explained(write: Write, value: Any, words: str) -> None:
    expected = Row("a", None, f"row a: {words}")
    assert as_row({"id": "a", "answer": value}, 1) == expected
    path = write("r.jsonl", json.dumps({"id": "a", "answer": value}) + "\n")
    [row] = read_responses(path)
    assert row == expected if "nothing to grade" in words else row.submission == Submission(response=json.dumps(value))


def test_empty_cells_of_other_columns_are_missing_values() -> None:
    row = as_row({"id": math.nan, "response": math.nan, "output": "42", "query": math.nan, "thinking": math.nan}, 7)
    assert row == Row("7", Submission(response="42"))
    assert as_row({"id": 0, "response": "42"}, 7).id == "0"


def test_duplicate_ids_are_refused_with_both_lines(write: Write) -> None:
    rows = [{"id": "a", "response": "x"}, {"id": "b", "response": "x"}, {"id": "a", "response": "y"}]
    files = {
        "r.jsonl": ("".join(json.dumps(row) + "\n" for row in rows), "line 1 and line 3"),
        "r.csv": ('id,response\na,"two\nlines"\nb,x\na,y\n', "line 2 and line 5"),
        "r.json": (json.dumps(rows), "item 1 and item 3"),
    }
    for name, (text, lines) in files.items():
        with pytest.raises(ResponsesError, match=f"the `id` 'a' is on {lines}"):
            list(read_responses(write(name, text)))


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("r.csv", "id;response\n;x\n1;y\n;z\n3;w\n3-2;v\n", ["1-2", "1", "3-3", "3", "3-2"]),
        ("r.csv", "response\nx\ny\n", ["1", "2"]),
        ("r.jsonl", '{"response": "x"}\n{"response": "y", "id": 1}\nz\n', ["1-2", "1", "3"]),
        ("r.jsonl", '{"id": "2", "response": "42"}\n{"response": \n', ["2", "2-2"]),
        ("r.json", '["x", {"response": "y", "ID": "1"}]', ["1-2", "1"]),
    ],
)
def test_row_without_an_id_gets_one_that_no_other_row_has(write: Write, name: str, text: str, ids: list[str]) -> None:
    assert [row.id for row in read_responses(write(name, text))] == ids


def test_csv_rows_of_empty_cells_are_blank_lines(write: Write) -> None:
    rows = list(read_responses(write("r.csv", "id;response;note\n;;\na;x;\n ; ;\n;;;;;\n;y;\nb;;\n")))
    assert [row.id for row in rows] == ["a", "2", "b"]
    assert (rows[2].error or "").startswith("row b: `response` is empty")
    [x, empty] = read_responses(write("r.csv", 'response\nx\n""\n'))
    assert (x.error, (empty.error or "").startswith("row 2: `response` is empty")) == (None, True)


@pytest.mark.parametrize("separator", [";", ",", "\t", "|"])
def test_csv_line_that_names_the_separator_is_skipped(write: Write, separator: str) -> None:
    fields = (separator.join(line) for line in (["id", "response"], ["a", "42"], ["b"] * 3))
    text = f"\ufeffsep={separator}\r\n" + "\r\n".join(fields)
    a, b = read_responses(write("r.csv", text))
    assert a == Row("a", Submission(response="42"))
    assert (b.error or "").startswith("line 4 has 3 fields, but the header has 2")


def test_csv_with_a_column_twice_is_refused(write: Write) -> None:
    with pytest.raises(ResponsesError, match=r"the column 'Response' is there twice"):
        list(read_responses(write("r.csv", "response,id,Response\nx,a,y\n")))
    assert list(read_responses(write("e.csv", "response,,\nx,,\n"))) == [Row("1", Submission(response="x"))]


def test_csv_without_rows_has_none(write: Write) -> None:
    assert list(read_responses(write("r.csv", ""))) == list(read_responses(write("s.csv", "id,response\n"))) == []
    [row] = read_responses(write("t.csv", "id,response,query\na\n"))
    assert row == Row("a", None, "row a: `response` is null: there is nothing to grade")


@pytest.mark.parametrize(
    ("task", "query"),
    [
        ({"instruction": "Add.", "input": "1, 2"}, "Add.\n\n1, 2"),
        ({"Instruction": "Add.", "Input": " "}, "Add."),
        ({"instruction": "", "input": "1, 2"}, "1, 2"),
        ({"instruction": "Add 1 to 2."}, "Add 1 to 2."),
        ({"instruction": "Be brief.", "query": "1 + 2?", "input": "1"}, "1 + 2?"),
        ({"instruction": None, "prompt": "1 + 2?"}, "1 + 2?"),
    ],
)
def test_instruction_and_its_input_are_the_task(task: dict[str, Any], query: str) -> None:
    row = read_row({**task, "output": "It is 3."}, 1)
    assert row.submission
    assert row.submission.query == query
    assert as_row({**task, "output": "It is 3."}, 1) == row


def test_query_of_the_caller_is_the_task_of_rows_with_an_empty_cell(write: Write) -> None:
    rows = read_responses(write("r.csv", "response,query\n42,\n43,  \n44,own\n"), "Q")
    assert [row.submission.query for row in rows if row.submission] == ["Q", "Q", "own"]


def test_named_query_column_is_the_task_beside_an_instruction(write: Write) -> None:
    path = write("r.jsonl", json.dumps({"instruction": "Add.", "input": "1, 2", "output": "3"}))
    [row] = read_responses(path, query_column="input")
    assert row.submission
    assert row.submission.query == "1, 2"


@pytest.mark.parametrize("name", ["task", "user_input", "User Query", "instructions"])
def test_column_that_looks_like_the_task_is_named_in_a_warning_if_there_is_no_task(name: str) -> None:
    with pytest.warns(UserWarning, match=rf"if '{name}' is the task, name it by `query_column`"):
        read_row({name: "6 x 7?", "response": "42"}, 1)
    with pytest.warns(UserWarning, match=rf"an input has '{name}': (?!.*is the task)"):
        read_row({name: "6 x 7?", "response": "42", "question": "6 x 7?"}, 1)


def test_json_file_is_read_by_its_content(write: Write) -> None:
    texts = write("t.json", '["42", {"response": "43"}, 7]')
    assert list(read_responses(texts, "Q")) == [
        Row("1", Submission(response="42", query="Q")),
        Row("2", Submission(response="43", query="Q")),
        Row("3", None, "item 3 is int, not an object with a `response`"),
    ]
    assert list(read_responses(write("c.json", json.dumps(CHAT)))) == [Row("c", Submission.from_messages(CHAT))]
    assert list(read_responses(write("o.json", '{"total": 42}'))) == [Row("o", Submission(response='{"total": 42}'))]
    with pytest.raises(ResponsesError, match=r"b\.json: is not JSON: "):
        list(read_responses(write("b.json", '[{"response": "x"},\n')))


@pytest.mark.parametrize(
    ("name", "words"),
    [("r.xls", "save the sheet as CSV"), ("r.ods", "save the sheet as CSV")],
)
def test_binary_tables_are_refused_with_the_remedy(write: Write, name: str, words: str) -> None:
    with pytest.raises(
        ResponsesError, match=rf"{name}: `{Path(name).suffix.lower()}` files are not supported: .*{words}"
    ):
        list(read_responses(write(name, "PK\x03\x04")))


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.json", "r.txt"])
def test_file_in_utf_16_or_a_named_encoding_is_read(write: Write, name: str) -> None:
    text = {
        "r.csv": "response\nZürich – 3 €\n", "r.jsonl": '{"response": "Zürich – 3 €"}', "r.json": '["Zürich – 3 €"]',
        "r.txt": "Zürich – 3 €",
    }[name]  # fmt: skip
    for encoding, named in (("utf-16", None), ("utf-8", None), ("cp1252", "cp1252"), ("utf-16-le", "utf-16-le")):
        [row] = read_responses(write(name, text, encoding), encoding=named)
        assert row.submission
        assert row.submission.response == "Zürich – 3 €"
    with pytest.raises(ResponsesError, match=r"is not text \(byte .*`--encoding cp1252`"):
        list(read_responses(write(name, text, "cp1252")))
    with pytest.raises(ResponsesError, match="`encoding` 'ansi2' is unknown"):
        list(read_responses(write(name, text), encoding="ansi2"))
    with pytest.raises(ResponsesError, match="is not text in 'ascii'"):
        list(read_responses(write(name, text), encoding="ascii"))


@pytest.fixture
def sheets(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a spreadsheet of sheets, each a list of rows."""
    openpyxl = pytest.importorskip("openpyxl", reason="spreadsheets need openpyxl (extra `xlsx`)")

    def write_sheets(hidden: str = "", **tables: list[list[Any]]) -> Path:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for title, rows in tables.items():
            sheet = book.create_sheet(title)
            sheet.sheet_state = "hidden" if title == hidden else "visible"
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / "r.xlsx")
        return tmp_path / "r.xlsx"

    return write_sheets


ANSWERS = [["ID", "Response", None, "Question"], [1, "It is 42.", None, "6 x 7?"], [None] * 4, ["b", 41, "note", None]]


def test_spreadsheet_is_read_as_its_rows(sheets: Callable[..., Path]) -> None:
    path = sheets(Notes=[["see the other sheet"]], Empty=[], Answers=[[None], *ANSWERS])
    first, second = read_responses(path)
    assert first == Row("1", Submission(response="It is 42.", query="6 x 7?"))
    assert second == Row("b", Submission(response="41"))
    assert list(read_responses(sheets(Empty=[]))) == []


def test_spreadsheet_with_several_sheets_of_responses_asks_for_one(sheets: Callable[..., Path]) -> None:
    path = sheets(A=ANSWERS[:2], B=[["answer"], ["It is 41."]], C=ANSWERS, hidden="C")
    with pytest.raises(ResponsesError, match=r"several sheets: name one of \['A', 'B'\] by `rows`"):
        list(read_responses(path))
    assert list(read_responses(path, rows="B")) == [Row("1", Submission(response="It is 41."))]
    assert [row.id for row in read_responses(path, rows="C")] == ["1", "b"]
    with pytest.raises(ResponsesError, match=r"has no sheet 'D'.*it has \['A', 'B', 'C'\]"):
        list(read_responses(path, rows="D"))


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_table_with_a_nul_in_a_column_name_is_refused_and_one_in_a_text_is_read(tmp_path: Path, suffix: str) -> None:
    path, separator = tmp_path / f"f.{suffix}", "\t" if suffix == "tsv" else ","
    path.write_text(f"response{separator}que\0ry\nIt is 42.{separator}Why?\n")
    with pytest.raises(ResponsesError, match=r"the column 'que\\x00ry' has a NUL character"):
        list(read_responses(path))
    path.write_text(f"response{separator}query\nIt is\0 42.{separator}Why?\n")
    [row] = read_responses(path)
    assert row.submission == Submission(response="It is\0 42.", query="Why?")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["id", "text of it"], ["a", "x"]], r"has no `response` column \(its columns are \['id', 'text of it'\]\)"),
        ([["response", "Response"], ["a", "x"]], "the column 'Response' is there twice"),
    ],
)
def test_spreadsheet_with_a_wrong_header_is_refused(sheets: Callable[..., Path], rows: Any, words: str) -> None:
    with pytest.raises(ResponsesError, match=rf"r\.xlsx: sheet 'A': {words}"):
        list(read_responses(sheets(A=rows)))


def test_spreadsheet_that_cannot_be_read_is_one_error(sheets: Callable[..., Path]) -> None:
    path = sheets(A=ANSWERS)
    for content in (b"", b"text", path.read_bytes()[:-100]):
        path.write_bytes(content)
        with pytest.raises(ResponsesError, match=r"is no spreadsheet that can be read .*save the sheet as CSV"):
            list(read_responses(path))


def test_spreadsheet_that_unpacks_to_too_much_is_refused(
    sheets: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sheets(A=ANSWERS)
    monkeypatch.setattr("rubric_integrations.submission.tables.MAX_PARSED", 1_000)
    with pytest.raises(ResponsesError, match=r"bytes unpacked, more than 1,000"):
        list(read_responses(path))


def test_spreadsheet_without_openpyxl_names_the_package(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ResponsesError, match="needs openpyxl: pip install openpyxl; or save the sheet as CSV"):
        list(read_responses(write("r.xlsx", "PK")))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize("field", ["metadata", "labels", "trajectory", "response", "context", "unknown"])
@pytest.mark.parametrize("depth", [60, 200, 400])
def test_value_that_is_nested_too_deeply_is_an_error_of_its_row(write: Write, field: str, depth: int) -> None:
    rows = [{"id": "first", "response": "x"}, {"id": "deep", "response": "x", field: nested(depth)}]
    first, deep = read_responses(write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert first.submission
    assert deep == Row("deep", None, f"row deep: `{field}` is nested more than 100 levels deep: {FLATTER}")


@pytest.mark.parametrize("field", ["metadata", "labels", "trajectory"])
def test_json_text_in_a_cell_that_is_nested_too_deeply_is_an_error_of_its_row(field: str) -> None:
    row = read_row({"response": "x", field: json.dumps(nested(200))}, 7)
    assert row.error == f"row 7: `{field}` is nested more than 100 levels deep: {FLATTER}"


def test_python_value_that_contains_itself_or_many_records_is_an_error_of_its_row() -> None:
    circle: list[Any] = []
    circle.append(circle)
    records: Any = None
    for _ in range(2000):
        records = Nested(records)
    for value in ({"response": "x", "metadata": circle}, {"value": circle}, records):
        assert "is nested more than 100 levels deep" in (as_row(value, 1).error or "")


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("answr", "answer"), ("anwser", "answer"), ("Respnse", "response"), ("resposne", "response"),
        ("ouput", "output"), ("outptu", "output"), ("complition", "completion"), ("mesages", "messages"),
        ("txt", "text"), ("structured-respons", "structured_response"),
    ],
)  # fmt: skip
def test_misspelled_name_of_a_response_is_named_in_every_file(write: Write, name: str, usual: str) -> None:
    with pytest.warns(UserWarning, match=f"no '{usual}', but '{name}': all its fields are graded as JSON"):
        (row,) = read_responses(write("f.json", json.dumps({name: "x", "foo": "refund"})))
    assert row.submission
    for file, text in (("f.jsonl", json.dumps({"id": 1, name: "x"})), ("f.csv", f"id,{name}\n1,x\n")):
        with pytest.raises(ResponsesError, match=f"has no `response` column .*: rename '{name}' to '{usual}', or"):
            list(read_responses(write(file, text)))


def test_own_keys_of_an_answer_are_not_taken_for_misspelled_names() -> None:
    names = (
        "answers", "answer_2", "answered", "message", "test", "next", "context", "competition", "completed", "target",
        "responses", "responder", "texts", "content", "result", "outputs_1", "put", "respond_to", "", "x" * 1000,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in names:
            row = as_row({"response": {name: "x", "foo": 1}}, 1)
            assert row.submission
            assert json.loads(row.submission.response) == {name: "x", "foo": 1}
        # A mapping with many keys is data.
        assert as_row({"response": {**{f"k{n}": n for n in range(20)}, "answr": 1}}, 1).submission
