"""Limits of files of responses: each is one error, and what users have is read."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from openpyxl import Workbook
from pyarrow import parquet

from rubric_integrations.submission import ResponsesError, read_responses
from rubric_integrations.submission.tool_rows import find_row_format

ROW = {"id": "a", "response": "It is 42."}


def refusal(path: Path) -> str:
    with pytest.raises(ResponsesError) as error:
        list(read_responses(path))
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "start", "words"),
    [
        (
            "f.jsonl",
            '{"id": "a", "response": "x"}\n{"response": "',
            "line 2 has more than 1,000 characters: write each",
        ),
        ("f.csv", 'id,response\na,"', "line 2 has more than 1,000 characters"),
        ("f.csv", "id,response,", "line 1 has more than 1,000 characters"),
        ("f.json", '[{"response": "', "has more than 1,000 characters, which are read as one: write a `.jsonl` file"),
        ("f.txt", "It is 42", "has more than 1,000 characters"),
    ],
)
def test_text_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, start: str, words: str
) -> None:
    monkeypatch.setattr("rubric_integrations.submission.text_files.MAX_PARSED", 1_000)
    path = tmp_path / name
    path.write_text(start + "x" * 1_000)
    assert words in refusal(path)
    # The limit of a line is not one of the file.
    rows = "".join(json.dumps(ROW | {"id": str(number)}) + "\n" for number in range(100))
    (tmp_path / "long.jsonl").write_text(rows)
    assert len(list(read_responses(tmp_path / "long.jsonl"))) == 100


def write_log(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("samples/a.json", content)
    return path


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubric_integrations.submission.readers.MAX_PARSED", 1_000_000)
    assert "has 2,000,000 bytes, more than" in refusal(write_log(tmp_path / "f.eval", b"0" * 2_000_000))
    # The archive says less than it has.
    packed = bytearray((tmp_path / "f.eval").read_bytes())
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    (tmp_path / "f.eval").write_bytes(packed)
    assert "is no Inspect log that can be read: Bad CRC-32" in refusal(tmp_path / "f.eval")
    assert "compressed by the method 14" in refusal(write_log(tmp_path / "g.eval", b"{}", zipfile.ZIP_LZMA))
    inner = write_log(tmp_path / "inner.eval", b"{}").read_bytes()
    assert "is no Inspect log that can be read" in refusal(write_log(tmp_path / "h.eval", inner))


def test_archive_that_is_cut_off_within_is_refused(tmp_path: Path) -> None:
    packed = bytearray(write_log(tmp_path / "f.eval", json.dumps(ROW).encode(), zipfile.ZIP_STORED).read_bytes())
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry + 20 : entry + 28] = (10_000).to_bytes(4, "little") * 2
    (tmp_path / "f.eval").write_bytes(packed)
    assert "is no Inspect log that can be read" in refusal(tmp_path / "f.eval")


def test_text_of_a_dictionary_in_every_row_of_parquet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.parquet"
    parquet.write_table(pyarrow.table({"id": [str(n) for n in range(1_000)], "response": ["x" * 20_000] * 1_000}), path)
    assert path.stat().st_size < 100_000
    assert len(list(read_responses(path))) == 1_000
    monkeypatch.setattr("rubric_integrations.submission.tables.MAX_PARSED", 1_000_000)
    assert "the 100 rows after row 0 have 2,00" in refusal(path)


def test_sheet_that_numbers_a_row_beyond_the_last_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, path = Workbook(), tmp_path / "f.xlsx"
    for cells in (["id", "response"], ["a", "It is 42."]):
        book.active.append(cells)  # pyright: ignore[reportOptionalMemberAccess]
    book.active.cell(50, 1, "b")  # pyright: ignore[reportOptionalMemberAccess]
    book.save(path)
    assert [row.id for row in read_responses(path)] == ["a", "b"]
    monkeypatch.setattr("rubric_integrations.submission.tables._SHEET_ROWS", 40)
    assert refusal(path) == "sheet 'Sheet' has more than 40 rows: save the sheet as CSV (UTF-8)"


def test_entities_that_explode_are_one_line(tmp_path: Path) -> None:
    book, path = Workbook(), tmp_path / "f.xlsx"
    book.save(path)
    entities = '<!ENTITY a "lol">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    sheet = members["xl/worksheets/sheet1.xml"].replace(b"<sheetData", b"<sheetData x='&i;'", 1)
    members["xl/worksheets/sheet1.xml"] = f"<!DOCTYPE x [{entities}]>".encode() + sheet
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    assert len(refusal(path).splitlines()) == 1


def test_number_of_too_many_digits_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"response": ' + "9" * 5_000 + "}\n" + json.dumps(ROW))
    first, second = read_responses(path)
    assert first.error == "line 1 has a number of more than 4,300 digits: write a text"
    assert second.submission


@pytest.mark.sizes
def test_header_of_one_long_field_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,response," + "x" * 10_000_001)
    assert "field larger than field limit" in refusal(path)


def test_long_python_list_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"user_input": "6 x 7?", "response": "42.", "retrieved_contexts": "['a', 'b']"}
    known = find_row_format(row)
    assert known
    assert next(iter(known.read(row))).fields["context"] == ["a", "b"]
    monkeypatch.setattr("rubric_integrations.submission.tool_answers.MAX_CHARS", 5)
    assert next(iter(known.read(row))).fields["context"] == "['a', 'b']"


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt", ".parquet"])
def test_text_of_900_000_characters_is_read(tmp_path: Path, suffix: str) -> None:
    path, text = tmp_path / f"f{suffix}", "x" * 900_000
    if suffix == ".parquet":
        parquet.write_table(pyarrow.table({"response": [text]}), path)
    else:
        path.write_text(
            {".txt": text, ".csv": f"response\n{text}\n", ".json": json.dumps([{"response": text}])}.get(
                suffix, json.dumps({"response": text})
            )
        )
    [row] = read_responses(path)
    assert row.submission
    assert row.submission.response == text


def test_error_that_quotes_a_long_value_is_short_and_keeps_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps({"id": "e", "response": [{"role": "x" * 100_000, "content": "42"}]}))
    [row] = read_responses(path)
    assert row.error
    assert row.error.startswith("row e: `messages[0]` has the unknown role 'xxx")
    assert len(row.error) < 1_100
