"""How often a file of responses is opened, how often its rows are converted, and how a pipe is read."""

from __future__ import annotations

import gc
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rubric_integrations.cli import app
from rubric_integrations.submission import ResponsesError, Submission, read_responses
from rubric_integrations.submission.files import ResponsesFile
from rubric_integrations.submission.tables import Layout
from rubric_integrations.submission.tool_rows import find_row_format
from tests.submission.samples import PLAIN, SAMPLES, Sample, encode
from tests.submission.traces import OBSERVATIONS

_OPENED: list[Path] = []
# A hook of the interpreter cannot be removed. It does nothing while no test counts.
_COUNTING: list[Path] = []


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _COUNTING and isinstance(arguments[0], str | bytes | os.PathLike):
        path = Path(os.fsdecode(arguments[0]))
        _OPENED.extend([path] if path in _COUNTING else [])


sys.addaudithook(_note_open)


@contextmanager
def counted_opens(path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Path]]:
    """Count the times that a file is opened. pyarrow opens files in C++, which no hook sees."""
    from pyarrow import parquet

    class CountedFile(parquet.ParquetFile):
        def __init__(self, source: Path):
            _note_open("open", (source,))
            super().__init__(source)

    _OPENED.clear()
    _COUNTING.append(path)
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "ParquetFile", CountedFile)
        yield _OPENED
    _COUNTING.clear()


WITHOUT_IDS = [{"response": "It is 42."}, {"response": "It is 41.", "id": "1"}]
KINDS = [
    *SAMPLES,
    Sample("rows without ids", ".jsonl", WITHOUT_IDS),
    Sample("rows without ids", ".csv", [{"response": "It is 42."}, {"response": "It is 41."}]),
    Sample("spans without ids", ".jsonl", [*OBSERVATIONS, "not a span"]),
]
RUBRIC = "- {weight: 1, requirement: Says 42, check: {number: 42}}\n"


@pytest.fixture(params=KINDS, ids=lambda sample: f"{sample.name}{sample.suffix}")
def sample(request: pytest.FixtureRequest) -> Sample:
    return request.param


@pytest.fixture
def file(sample: Sample, tmp_path: Path) -> Path:
    path = tmp_path / f"file{sample.suffix}"
    path.write_bytes(encode(sample.suffix, sample.data))
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    return path


def most_passes(sample: Sample) -> int:
    """Return 3 for rows that are spans, 2 for all others."""
    known = find_row_format(sample.data[0] if isinstance(sample.data, list) else sample.data)
    return 3 if known and known.spans else 2


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The data of the submissions that are made."""
    made, validate = list[object](), Submission.model_validate

    def counting(data: Any) -> Submission:
        made.append(data)
        return validate(data)

    monkeypatch.setattr(Submission, "model_validate", counting)
    return made


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_grade_reads_a_file_at_most_twice_and_converts_each_row_once(
    file: Path, sample: Sample, submissions: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(read_responses(file))
    submissions.clear()
    with counted_opens(file, monkeypatch) as opened:
        result = CliRunner().invoke(app, ["grade", str(file.with_name("rubric.yaml")), str(file), "--judge", "offline"])
    assert result.exit_code in (0, 2), result.output
    assert len(opened) == most_passes(sample)
    assert len(submissions) == sum(row.submission is not None for row in rows)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_check_finds_the_rows_and_makes_no_submission(file: Path, sample: Sample, submissions: list[object]) -> None:
    responses = ResponsesFile(file, None, Layout())
    outlines = list(responses.check())
    assert (submissions, responses.description is None) == ([], False)
    rows = list(responses.rows())
    assert rows == list(read_responses(file))
    assert [outline.rubric for outline in outlines] == [row.rubric for row in rows]
    assert [outline.id for outline in outlines if "without ids" not in sample.name] in ([], [row.id for row in rows])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_preview_reads_a_file_at_most_twice(file: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_opens(file, monkeypatch) as opened:
        result = CliRunner().invoke(app, ["preview", str(file)])
    assert result.exit_code in (0, 2), result.output
    assert len(opened) == most_passes(sample)


def test_file_with_a_repeated_id_is_refused_before_a_row_is_converted(
    tmp_path: Path, submissions: list[object]
) -> None:
    (tmp_path / "r.yaml").write_text(RUBRIC)
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "response": "42"}\n{"id": "a", "response": "41"}\n')
    result = CliRunner().invoke(app, ["grade", str(tmp_path / "r.yaml"), str(tmp_path / "rows.jsonl")])
    assert (result.exit_code, "the `id` 'a' is on line 1 and line 2" in result.output) == (2, True), result.output
    assert submissions == []


# Pipes.


@contextmanager
def named_pipe(folder: Path, content: bytes) -> Generator[Path]:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    path = folder / "pipe"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,), daemon=True)
    writer.start()
    yield path
    writer.join()


def copies(folder: Path) -> list[Path]:
    return list(folder.rglob("rubric-integrations-*"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pipe_with_a_format_is_read_like_a_file_and_its_private_copy_is_removed(
    sample: Sample, tmp_path: Path, temporary: Path
) -> None:
    file, content = tmp_path / f"pipe{sample.suffix}", encode(sample.suffix, sample.data)
    with named_pipe(tmp_path, content) as pipe:
        rows = read_responses(pipe, input_format=sample.suffix.rpartition(".")[2])
        first = next(rows)
        [copy] = copies(temporary)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o700
        file.write_bytes(content)
        assert [first, *rows] == list(read_responses(file))
    assert copies(temporary) == []


@pytest.mark.usefixtures("temporary")
def test_error_of_a_pipe_names_the_pipe_and_the_line(tmp_path: Path) -> None:
    rows = [{"id": "a", "response": "1"}, {"id": "a", "response": "2"}]
    for content, form, words in (
        (encode(".jsonl", rows), "jsonl", "the `id` 'a' is on line 1 and line 2"),
        (b"a: [", "yaml", "is not YAML"),
        (b"%PDF-1.7\n1 0 obj", "txt", "is a PDF file, not text: extract its text: `pdftotext pipe.txt "),
    ):
        with named_pipe(tmp_path, content) as pipe, pytest.raises(ResponsesError) as error:
            list(read_responses(pipe, input_format=form))
        assert str(error.value).startswith(f"{pipe}: {words}")
        assert "rubric-integrations-" not in str(error.value)


def test_grade_and_preview_read_stdin(temporary: Path) -> None:
    (temporary / "r.yaml").write_text(RUBRIC)
    command = ["grade", str(temporary / "r.yaml"), "-", "--input-format", "jsonl"]
    result = CliRunner().invoke(app, command, input=encode(".jsonl", WITHOUT_IDS))
    assert (result.exit_code, "2 of 2 graded" in result.output) == (0, True), result.output
    result = CliRunner().invoke(app, ["preview", "-", "--input-format", "txt", "--json"], input="It is 42.")
    assert json.loads(result.stdout)["first_row"]["id"] == "stdin"
    result = CliRunner().invoke(app, ["grade", str(temporary / "r.yaml"), "-"], input=encode(".jsonl", PLAIN))
    assert (result.exit_code, "-: is stdin, whose format is unknown" in result.output) == (2, True), result.output
    # Without this, the copies are removed at the end of the process.
    gc.collect()
    assert copies(temporary) == []


def test_format_of_a_file_is_named_by_an_option_if_its_suffix_does_not_tell(tmp_path: Path) -> None:
    path = tmp_path / "rows.log"
    path.write_bytes(encode(".jsonl", PLAIN))
    assert [row.id for row in read_responses(path, input_format="jsonl")] == ["a", "b", "c"]
    with pytest.raises(ResponsesError, match=r"`input_format` .*'json5' is unknown: use one of jsonl"):
        list(read_responses(path, input_format="json5"))


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system has no /dev/fd")
def test_substituted_process_of_a_shell_is_graded_and_leaves_no_copy(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RUBRIC)
    (tmp_path / "rows.jsonl").write_bytes(encode(".jsonl", WITHOUT_IDS))
    script = f"'{sys.executable}' -m rubric_integrations grade r.yaml <(cat rows.jsonl) --input-format jsonl"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "2 of 2 graded" in done.stdout) == (0, True), done.stdout + done.stderr
    assert copies(tmp_path) == []
    piped = f"cat rows.jsonl | '{sys.executable}' -m rubric_integrations grade r.yaml /dev/stdin"
    done = subprocess.run(
        ["bash", "-c", piped], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    # Without a format, a pipe is one text.
    assert (done.returncode, "1 of 1 graded" in done.stdout) == (0, True), done.stdout + done.stderr
