"""Binary files are never graded as text, whatever their name and encoding, and texts that resemble them are read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import re
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather, ipc, orc, parquet

from rubric_integrations import Rubric
from rubric_integrations.runs.imported import JudgmentsError, read_judgments
from rubric_integrations.submission import ResponsesError, Submission, read_responses
from rubric_integrations.submission.files import ResponsesFile
from rubric_integrations.submission.tables import Layout
from rubric_integrations.submission.text_files import binary_problem
from rubric_integrations.trust import read_labels
from rubric_integrations.trust.labels import LabelsError

RUBRIC = Rubric.from_dict([{"weight": 1, "requirement": "Says 42"}])
LINE = b'{"id": "a", "response": "It is 42."}\n'
TABLE = pa.table({"id": ["a"], "response": ["It is 42."]})
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"


def zipped(name: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(name, LINE)
    return sink.getvalue()


def tarred() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("rows.jsonl")
        member.size = len(LINE)
        archive.addfile(member, io.BytesIO(LINE))
    return sink.getvalue()


def arrow(kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "stream":
        with ipc.new_stream(sink, TABLE.schema) as stream:
            stream.write_table(TABLE)
    else:
        {"feather": feather.write_feather, "orc": orc.write_table, "parquet": parquet.write_table}[kind](TABLE, sink)
    return sink.getvalue()


def array() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.array(["It is 42."]))
    return sink.getvalue()


def database(folder: Path) -> bytes:
    path = folder / "d.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (id, response)")
        connection.execute("INSERT INTO answers VALUES ('a', 'It is 42.')")
    connection.close()
    return path.read_bytes()


CONTENTS: dict[str, bytes] = {
    ".gz": gzip.compress(LINE), ".bz2": bz2.compress(LINE), ".xz": lzma.compress(LINE),
    ".lzma": lzma.compress(LINE, lzma.FORMAT_ALONE), ".zst": zstandard.compress(LINE), ".zip": zipped("rows.jsonl"),
    ".tar": tarred(), ".tgz": gzip.compress(tarred()), ".docx": zipped("word/document.xml"), ".odt": zipped("c.xml"),
    ".pptx": zipped("ppt/presentation.xml"), ".ods": zipped("c.xml"), ".doc": OLE, ".xls": OLE, ".ppt": OLE,
    ".pdf": PDF, ".rtf": rb"{\rtf1\ansi It is 42.}", ".feather": arrow("feather"), ".arrow": arrow("stream"),
    ".ipc": arrow("feather"), ".orc": arrow("orc"), ".pkl": pickle.dumps(pd.DataFrame({"response": ["It is 42."]})),
    ".npy": array(), ".h5": b"\x89HDF\r\n\x1a\n" + b"\0" * 100, ".avro": b"Obj\1" + b"\0" * 40,
    ".png": b"\x89PNG\r\n\x1a\n" + b"\0" * 40, ".7z": b"7z\xbc\xaf\x27\x1c\0\4", ".parquet.txt": arrow("parquet"),
    ".br": b"\x0b\x08\x80",
}  # fmt: skip
ENCODINGS = (None, "latin-1", "cp1252", "cp437", "utf-16", "utf-16-le", "utf-8")


@pytest.mark.parametrize("suffix", CONTENTS)
def test_binary_file_is_refused_under_each_name_and_encoding(tmp_path: Path, suffix: str) -> None:
    # Brotli has no mark.
    names = [f"f{suffix}", *(["f.txt", "f.jsonl", "f.json", "f.csv", "f.yaml", "f"] if suffix != ".br" else [])]
    for name in names:
        path = tmp_path / name
        path.write_bytes(CONTENTS[suffix])
        for encoding in ENCODINGS:
            with pytest.raises(ResponsesError) as error:
                list(read_responses(path, encoding=encoding))
            message = str(error.value)
            assert len(message.splitlines()) == 1
            assert re.search(r"files are not supported: |is an? .*, not text: ", message), (name, encoding, message)
            with pytest.raises(ResponsesError, match=re.escape(message)):
                list(ResponsesFile(path, None, Layout(encoding=encoding)).check())


def test_command_names_the_file_and_replaces_none() -> None:
    assert "`gzip -dc 'a b.jsonl.gz' > 'a b.jsonl'`" in str(binary_problem(Path("a b.jsonl.gz")))
    assert "`gzip -dc f.jsonl > f-unpacked.jsonl`" in str(binary_problem(Path("f.jsonl"), CONTENTS[".gz"]))
    assert "`pdftotext f.txt f-unpacked.txt`" in str(binary_problem(Path("f.txt"), PDF))
    assert "`unzip f.docx.txt`" in str(binary_problem(Path("f.docx.txt"), CONTENTS[".docx"]))
    assert "pandoc" in str(binary_problem(Path("f.docx"), CONTENTS[".docx"]))
    assert "ipc.open_file(r)" in str(binary_problem(Path("f.arrow"), CONTENTS[".feather"]))


@pytest.mark.processes
@pytest.mark.parametrize("suffix", [".gz", ".tar", ".arrow", ".npy", ".sqlite"])
def test_command_makes_a_file_that_is_read(tmp_path: Path, suffix: str) -> None:
    name = "rows.jsonl" if suffix in (".gz", ".bz2", ".xz") else "rows"
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(database(tmp_path) if suffix == ".sqlite" else CONTENTS[suffix])
    with pytest.raises(ResponsesError) as error:
        list(read_responses(path))
    command = re.findall("`([^`]+)`", str(error.value))[-1].replace("python -c", f"{sys.executable} -c")
    process = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    if process.returncode == 127:
        pytest.skip(process.stderr)
    assert process.returncode == 0, process.stderr
    [made] = [file for file in tmp_path.iterdir() if file.name.startswith("rows") and file != path]
    assert [row.submission.response for row in read_responses(made) if row.submission] == ["It is 42."]


@given(seed=st.integers(0, 2**32), size=st.integers(400, 5_000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_never_graded(tmp_path: Path, seed: int, size: int) -> None:
    content = random.Random(seed).randbytes(size)
    for name in ("f.txt", "f.json", "f.csv", "f.jsonl", "f.yaml"):
        (tmp_path / name).write_bytes(b"response\n" + content if name == "f.csv" else content)
        for encoding in (None, "latin-1", "cp437", "koi8-r"):
            try:
                rows = list(read_responses(tmp_path / name, encoding=encoding))
            except ResponsesError:
                continue
            assert not any(row.submission for row in rows), (name, encoding)


def test_binary_part_of_a_long_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"It is 42. " * 20_000 + bytes(range(256)) * 40)
    with pytest.raises(ResponsesError, match=r"control characters, as if it were binary: .*--encoding utf-16-le"):
        list(read_responses(path, encoding="latin-1"))


def test_utf_16_without_its_mark_is_refused_with_its_encoding(tmp_path: Path) -> None:
    for name, text in (("f.txt", "It is 42."), ("f.csv", "response\nIt is 42.\n"), ("g.txt", "Zürich – 3 €")):
        path = tmp_path / name
        path.write_bytes(text.encode("utf-16-le"))
        with pytest.raises(ResponsesError, match=r"control characters.*`--encoding utf-16-le`"):
            list(read_responses(path))
        assert [row.error for row in read_responses(path, encoding="utf-16-le")] == [None]


@pytest.mark.parametrize(
    "text",
    [
        "PK is a suffix of primary keys.", "%PDF is how a PDF begins.", "%PDF-1.7 is its header.\nThen comes one.",
        "BZh9 and GIF89a are marks.", "GIF89a is a format.", "The ftyp box is first.", "RIFF is one.", "PAR1 is",
        "\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m", "page 1\f\npage 2\f", "It is\0 42.", "{\\rtf is a group}",
        "\ue200cite\ue202turn0search0\ue201", "四十二", "🙂",
    ],
)  # fmt: skip
def test_text_that_resembles_a_binary_file_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.txt"
    path.write_text(text, encoding="utf-8")
    assert [row.submission for row in read_responses(path)] == [Submission(response=text)]


@given(text=st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).map("x".__add__))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_without_control_characters_is_read_in_every_encoding(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.txt"
    for encoding in (
        "utf-8",
        "utf-16-le",
        "utf-32-be",
        "gb18030",
        "utf-7",
        "cp037",
        "shift_jis",
        "iso2022_jp",
        "cp1252",
    ):
        try:
            path.write_bytes(text.encode(encoding))
        except UnicodeEncodeError:
            continue
        expected = Submission(response=path.read_bytes().decode(encoding))
        assert [row.submission for row in read_responses(path, encoding=encoding)] == [expected], encoding


def test_line_of_zeros_in_a_file_of_rows_is_the_error_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(LINE + b"\0" * 1_000)
    first, last = read_responses(path)
    assert first.submission == Submission(response="It is 42.")
    assert "line 2 is not JSON" in (last.error or "")


def test_folder_is_refused_with_a_command_that_makes_rows(tmp_path: Path) -> None:
    folder = tmp_path / "my answers"
    folder.mkdir()
    (folder / "a.txt").write_text('It is "42".\n')
    with pytest.raises(
        ResponsesError, match="is a folder: name one of its files; or make a row of each text: "
    ) as error:
        list(read_responses(folder))
    command = re.findall("`(.+)`", str(error.value))[0]
    process = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    if process.returncode == 127 or "not found" in process.stderr:
        pytest.skip("jq is not installed")
    assert [row.submission for row in read_responses(tmp_path / "rows.jsonl")] == [Submission(response='It is "42".\n')]


def test_labels_and_judgments_in_a_binary_file_are_refused(tmp_path: Path) -> None:
    for name in ("f.csv.gz", "f.csv", "f.xlsx"):
        path = tmp_path / name
        path.write_bytes(CONTENTS[".gz"])
        with pytest.raises(LabelsError, match=r"not supported: (unpack|save)|is a gzip file"):
            read_labels(path, RUBRIC)
        with pytest.raises(JudgmentsError, match=r"not supported: (unpack|save)|is a gzip file"):
            read_judgments(path, RUBRIC)
