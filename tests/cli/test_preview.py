"""The command `preview`, and the two lines of `grade` about files that are not plain rows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from rubric_integrations.submission.columns import ColumnNames
from rubric_integrations.submission.files import FileDescription, ResponsesFile
from rubric_integrations.submission.tables import Layout
from tests.cli.commands import grade, run
from tests.submission.conversations import CHAT

PROMPTFOO_ROW = {
    "testIdx": 0, "promptIdx": 0, "testCase": {"description": "a sum"}, "vars": {"topic": "sums"}, "failureReason": 0,
    "prompt": {"raw": "What is 6 x 7?", "label": "p"}, "provider": {"id": "echo"}, "response": {"output": "It is 42."},
}  # fmt: skip
FAILED_ROW = {**PROMPTFOO_ROW, "testIdx": 1, "failureReason": 2, "error": "401 Unauthorized"}
PROMPTFOO = {"evalId": "e", "results": {"version": 3, "results": [PROMPTFOO_ROW, FAILED_ROW]}, "config": {}}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read_json(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)


def describe(path: Path, content: Any = None, **columns: Any) -> FileDescription:
    """Write a file, unless there is one, and describe how it is read."""
    if content is not None:
        write(path, content)
    file = ResponsesFile(path, None, Layout(ColumnNames(**columns)))
    assert list(file.check())
    assert file.description
    return file.description


@pytest.mark.parametrize(
    ("name", "content", "form", "is_plain"),
    [
        ("f.jsonl", '{"output": "42"}\n', "JSON Lines", True),
        ("f.csv", "response;query\n42;What?\n", "CSV, separated by ';'", True),
        ("f.tsv", "response\tquery\n42\tWhat?\n", "CSV, separated by '\\t'", True),
        ("f.json", [{"response": "42"}], "JSON, a list of rows", True),
        ("f.json", {"response": "42"}, "JSON, one row", True),
        ("f.json", {"total": 42}, "JSON, all of it one response", False),
        ("f.json", {"response": {"0": "42", "1": "41"}}, "JSON, rows in one object", False),
        ("f.json", CHAT, "JSON, all of it one response", False),
        ("f.txt", "It is 42.", "one text", True),
    ],
)
def test_form_of_a_file_is_described(tmp_path: Path, name: str, content: Any, form: str, is_plain: bool) -> None:
    description = describe(tmp_path / name, content)
    assert (description.format, description.tool, description.is_plain) == (form, None, is_plain)


def test_sheet_and_parquet_are_described(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Answers"
    book.active.append(["response", "note"])
    book.active.append(["42", "n"])
    book.save(tmp_path / "f.xlsx")
    assert describe(tmp_path / "f.xlsx").format == "spreadsheet, sheet 'Answers'"
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"response": ["42"], "n": [1]}), tmp_path / "f.parquet")
    description = describe(tmp_path / "f.parquet")
    assert (description.format, description.metadata, description.is_plain) == ("Parquet", ("n",), True)


def test_columns_of_all_rows_are_described_as_they_are_read(tmp_path: Path) -> None:
    rows = [
        {"Output": "42", "instruction": "Multiply.", "input": "6 x 7", "topic": "sums"},
        {"text": "41", "Output": None, "question": "Why?", "input": None, "steps": [{"n": 1}], "metadata": {"seed": 7}},
        {"Output": "40", "instruction": "", "input": "8 x 5", "reference": "40", "output_2": "x" * 300},
    ]
    description = describe(tmp_path / "f.json", rows)
    assert description.columns == {
        "response": ("Output", "text"), "query": ("instruction", "input", "question"), "metadata": ("metadata",),
        "reference": ("reference",),
    }  # fmt: skip
    assert description.metadata == ("topic", "seed")
    assert description.ignored == ("steps", "output_2")


def test_column_of_a_second_response_is_described_as_not_read(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="has both"):
        result = run("preview", write(tmp_path / "f.json", [{"output": "42", "text": "41"}]), "--json")
    assert (read_json(result)["columns"], read_json(result)["ignored"]) == ({"response": ["output"]}, ["text"])


def test_values_of_a_tool_are_described_by_their_paths(tmp_path: Path) -> None:
    description = describe(tmp_path / "f.json", PROMPTFOO)
    assert (description.tool, description.format) == ("promptfoo results", "JSON, rows in one object")
    assert description.columns == {
        "response": ("response.output",), "query": ("prompt.raw",), "id": (),
        "metadata": ("testCase", "vars", "provider"),
    }  # fmt: skip
    assert {"topic", "description", "provider"} <= set(description.metadata)


def test_path_of_a_tools_response_is_not_that_of_an_equal_reference(tmp_path: Path) -> None:
    row = {"doc_id": 1, "doc": {"a": "It is 42."}, "target": "It is 42.", "arguments": {"gen_args_0": {"arg_0": "6x7"}}}
    content = json.dumps({**row, "resps": [["It is 42."]], "filtered_resps": ["It is 42."], "filter": "none"})
    columns = describe(tmp_path / "f.jsonl", content).columns
    assert (columns["response"], columns["reference"]) == (("resps.0.0",), ("target",))


def test_messages_of_a_tool_have_the_path_that_their_parts_share(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "6 x 7?"}, {"from": "gpt", "value": "It is 42."}]
    description = describe(tmp_path / "f.json", [{"id": "s1", "conversations": turns}])
    assert (description.tool, description.dialect) == ("ShareGPT", "openai_chat")
    assert description.columns == {"response": ("conversations",), "id": ("id",)}


def test_preview_of_a_tools_file_shows_rows_errors_paths_and_the_command(tmp_path: Path) -> None:
    file = write(tmp_path / "out.json", PROMPTFOO)
    result = run("preview", file)
    assert result.exit_code == 0, result.output
    assert "2 rows, read as promptfoo results (JSON, rows in one object); 1 cannot be graded:" in result.stdout
    assert "row test1-prompt0: has no answer: 401 Unauthorized" in result.stdout
    for text in ("response.output", "prompt.raw", "--response-column", "What is 6 x 7?", "It is 42."):
        assert text in result.stdout
    assert f"rubric-integrations grade RUBRIC.yaml {file}\n" in result.stdout


def test_wrong_guess_is_corrected_by_the_options_that_are_named(files: Path) -> None:
    file = write(files / "antworten.csv", "Nr;Antwort;Frage\nx1;Es ist 42.;Was?\n")
    refused = run("preview", file)
    assert (refused.exit_code, "--response-column" in refused.stderr, refused.stdout) == (2, True, "")
    options = ("--response-column", "Antwort", "--query-column", "Frage", "--id-column", "Nr")
    data = read_json(run("preview", file, *options, "--rubric", files / "rubric.yaml", "--json"))
    assert data["columns"] == {"response": ["Antwort"], "query": ["Frage"], "id": ["Nr"]}
    assert (data["rows"], data["failed_rows"], data["first_row"]["id"]) == (1, 0, "x1")
    program, command, *arguments = shlex.split(data["command"])
    assert (program, command) == ("rubric-integrations", "grade")
    graded = grade(files, *arguments[2:], "--judge", "offline", responses="antworten.csv")
    assert graded.exit_code == 0, graded.output
    assert "1 of 1 graded" in graded.stdout


def test_path_and_rows_that_options_name_are_described(tmp_path: Path) -> None:
    file = write(tmp_path / "f.json", {"run": [{"out": {"text": "42"}, "n": 1}, {"out": {"text": "41"}, "n": 2}]})
    refused = run("preview", file)
    assert (refused.exit_code, "--rows run" in refused.stderr) == (2, True)
    data = read_json(run("preview", file, "--rows", "run", "--response-column", "out.text", "--json"))
    assert (data["columns"], data["metadata"], data["ignored"]) == ({"response": ["out.text"]}, ["n"], [])


def test_preview_shows_the_first_question_that_no_check_decides(files: Path) -> None:
    inputs = read_json(run("preview", files / "responses.jsonl", "--rubric", files / "rubric.yaml", "--json"))
    assert list(inputs["first_row"]["inputs"]) == ["submission", "criterion", "kind"]
    assert "Is kind" in inputs["first_row"]["inputs"]["criterion"]


def test_preview_shows_the_rubric_of_the_row(tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", json.dumps({"response": "42", "rubric": ["Is blue"]}))
    result = run("preview", file)
    assert "Is blue" in result.stdout
    assert f"rubric-integrations grade {file}\n" in result.stdout
    wrong = run("preview", write(file, json.dumps({"response": "42", "rubric": "no such"})))
    assert (wrong.exit_code, "row 1" in wrong.stderr, "Traceback" in wrong.output) == (2, True, False)


def test_preview_of_checks_alone_says_that_no_judge_is_asked(files: Path) -> None:
    (files / "rubric.yaml").write_text("- {requirement: Says 42, check: {number: 42}}\n")
    result = run("preview", files / "responses.jsonl", "--rubric", files / "rubric.yaml")
    assert (result.exit_code, "no judge is asked" in result.stdout) == (0, True)


def test_preview_prints_untrusted_text_without_escape_sequences_and_markup(tmp_path: Path) -> None:
    row = {"response": "[red]x[/red]\x1b[2J\n::error::y", "query": "[/nope]", "\x1b[31mname": "v", "id": "[bold]\x07"}
    broken = '\n{"response": "\\u001b[2J", "response": 1}'
    result = run("preview", write(tmp_path / "f.jsonl", json.dumps(row) + broken))
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    for text in ("[red]x[/red]", "[/nope]", "\\x1b[31mname"):
        assert text in result.stdout
    assert not [line for line in result.output.splitlines() if line.startswith("::error::")]


def test_preview_cuts_a_long_text_and_states_its_length(tmp_path: Path) -> None:
    file = write(tmp_path / "f.txt", "a" * 50_000)
    result = run("preview", file)
    assert len(result.stdout) < 5_000
    assert " of 50,0" in result.stdout
    assert "a" * 50_000 in read_json(run("preview", file, "--json"))["first_row"]["inputs"]["submission"]


def test_preview_shows_attachments_by_their_labels(tmp_path: Path) -> None:
    image = {"data": "iVBORw0KGgo=", "mime_type": "image/png", "name": "chart.png"}
    inputs = read_json(
        run("preview", write(tmp_path / "f.json", [{"response": "42", "attachments": [image]}]), "--json")
    )
    assert inputs["first_row"]["inputs"]["file 1"] == "[attachment 1] image/png, chart.png"


@pytest.mark.parametrize(("name", "content"), [("f.jsonl", ""), ("f.csv", ""), ("f.json", [])])
def test_preview_of_an_empty_file_is_refused(tmp_path: Path, name: str, content: Any) -> None:
    result = run("preview", write(tmp_path / name, content))
    assert (result.exit_code, "is empty: there is nothing to grade" in result.stderr) == (2, True), result.output


def test_preview_without_a_row_to_grade_prints_the_reasons_and_exits_with_2(tmp_path: Path) -> None:
    result = run("preview", write(tmp_path / "f.jsonl", json.dumps(FAILED_ROW)))
    assert result.exit_code == 2, result.output
    assert "1 row, read as promptfoo results (JSON Lines); none can be graded:" in result.stdout
    assert "401 Unauthorized" in result.stdout


def test_grade_prints_two_lines_about_a_file_of_a_tool(files: Path) -> None:
    write(files / "out.json", PROMPTFOO)
    result = grade(files, "--judge", "offline", responses="out.json")
    lines = [line for line in result.stderr.splitlines() if "promptfoo results" in line or "preview" in line]
    assert len(lines) == 2, result.stderr
    assert "2 rows, read as promptfoo results" in lines[0]
    assert "response from response.output; query from prompt.raw" in lines[0]
    assert "--response-column" in lines[1]
    quiet = grade(files, "--judge", "offline", "--quiet", responses="out.json")
    assert "promptfoo results" not in quiet.stderr


def test_grade_of_plain_rows_prints_nothing_about_their_form(files: Path) -> None:
    (files / "sheet.csv").write_text("id;output;question\n1;42;6 x 7?\n")
    for name in ("responses.jsonl", "sheet.csv"):
        assert "preview" not in grade(files, "--judge", "offline", responses=name).stderr
