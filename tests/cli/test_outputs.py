"""Files that commands write: no input is ever overwritten, and a file appears complete or not at all."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import rubric_integrations
from rubric_integrations.cli.outputs import OutputFile
from rubric_integrations.judges import LMJudge
from rubric_integrations.runs.ledger import Ledger, LedgerError
from tests.cli.commands import grade, read_lines, run, write_inputs
from tests.judges.test_saved import record
from tests.openai_server import OpenAIServer, Reply

PACKAGE = Path(rubric_integrations.__file__).parent
OLD = {"name": "old", "scale": {"min": 0, "max": 10}, "criteria": [{"name": "c", "description": "d", "weight": 1}]}
WRITERS = [
    ("grade", "rubric.yaml", "responses.jsonl", "--out"),
    ("grade", "rubric.yaml", "responses.jsonl", "--junit"),
    ("grade", "rubric.yaml", "responses.jsonl", "--ledger", "run.sqlite", "--out"),
    ("grade", "rubric.yaml", "responses.jsonl", "--ledger", "run.sqlite", "--junit"),
    ("rescore", "run.sqlite", "--rubric", "rubric.yaml", "--out"),
    ("report", "run.jsonl", "--output"),
    ("convert", "rubric.yaml", "--to", "native", "--output"),
    ("migrate", "old.json", "--output"),
    ("schema", "--output"),
    ("probe", "--judge", "openai/m", "--out"),
]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the reports and the ledger of a run."""
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder)
    assert grade(folder, "--out", folder / "run.jsonl", "--ledger", folder / "run.sqlite").exit_code == 0
    return folder


@pytest.fixture
def finished(files: Path, finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a finished run, its ledger, another ledger and another rubric."""
    monkeypatch.chdir(files)
    for name in ("run.jsonl", "run.sqlite"):
        shutil.copy(finished_run / name, files)
    shutil.copy(files / "run.sqlite", files / "other.sqlite")
    shutil.copy(files / "run.jsonl", files / "other.jsonl")
    shutil.copy(files / "rubric.yaml", files / "other.yaml")
    return files


def same_path(path: Path, _folder: Path) -> Path:
    return path


def dotted_path(path: Path, _folder: Path) -> Path:
    return path.parent / "." / "sub" / ".." / path.name


def symbolic_link(path: Path, folder: Path) -> Path:
    link = folder / f"link-{path.name}"
    link.symlink_to(path)
    return link


def hard_link(path: Path, folder: Path) -> Path:
    link = folder / f"hard-{path.name}"
    os.link(path, link)
    return link


@pytest.mark.parametrize("alias", [same_path, dotted_path, symbolic_link, hard_link])
@pytest.mark.parametrize("name", ["rubric.yaml", "responses.jsonl"])
def test_grade_with_out_equal_to_an_input_is_refused(
    files: Path, name: str, alias: Callable[[Path, Path], Path]
) -> None:
    (files / "sub").mkdir()
    content = (files / name).read_bytes()
    result = grade(files, "--out", alias(files / name, files), "--overwrite")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "`--out`" in result.stderr
    assert "is read by this command" in result.stderr
    assert (files / name).read_bytes() == content


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_grade_with_out_equal_to_the_ledger_is_refused_also_before_it_exists(files: Path, suffix: str) -> None:
    ledger = files / "run.sqlite"
    result = grade(files, "--out", f"{ledger}{suffix}", "--ledger", ledger, "--overwrite")
    assert (result.exit_code, "`--out`" in result.stderr) == (2, True)
    assert not ledger.exists()


def test_grade_with_the_default_ledger_equal_to_out_is_refused(files: Path) -> None:
    result = grade(files, "--judge", "openai/m", "--out", files / "run.sqlite")
    assert (result.exit_code, "`--out`" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "read"),
    [
        (("convert", "rubric.yaml", "--to", "native", "--output", "rubric.yaml"), "rubric.yaml"),
        (("migrate", "old.json", "--output", "old.json"), "old.json"),
        (("report", "run.jsonl", "--output", "run.jsonl"), "run.jsonl"),
        (("rescore", "run.sqlite", "--rubric", "rubric.yaml", "--out", "rubric.yaml"), "rubric.yaml"),
        (("rescore", "run.sqlite", "--rubric", "rubric.yaml", "--out", "run.sqlite"), "run.sqlite"),
    ],
)
def test_command_with_output_equal_to_its_input_is_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], read: str
) -> None:
    monkeypatch.chdir(files)
    assert grade(files, "--out", files / "run.jsonl", "--ledger", files / "run.sqlite").exit_code == 0
    (files / "old.json").write_text(json.dumps({"name": "a", "criteria": {"b": {"description": "c"}}}))
    content = (files / read).read_bytes()
    result = run(*command)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is read by this command" in result.stderr
    assert (files / read).read_bytes() == content


PANEL = ("--judge", "openai/m", "--judge", "judge.json")
CASCADE = ("--judge", "openai/m", "--escalate-to", "judge.json", "--escalate-below", "0.5")


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "--judge", "judge.json", "--out", "judge.json"),
        ("grade", "rubric.yaml", "responses.jsonl", *PANEL, "--out", "judge.json"),
        ("grade", "rubric.yaml", "responses.jsonl", *CASCADE, "--out", "judge.json"),
        ("grade", "rubric.yaml", "responses.jsonl", *PANEL, "--junit", "judge.json"),
    ],
)
def test_file_of_the_judge_is_not_overwritten(
    files: Path, monkeypatch: pytest.MonkeyPatch, server: OpenAIServer, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(files)
    judge = LMJudge("openai/m", api_key="none")
    judge.alignment = record()
    judge.save("judge.json")
    content = (files / "judge.json").read_bytes()
    result = run(*command, "--overwrite", "--api-base", server.url)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is judge.json, which is read by this command" in result.stderr
    assert (files / "judge.json").read_bytes() == content


def test_output_with_the_name_of_a_judge_that_is_no_file_is_written(files: Path) -> None:
    assert grade(files, "--judge", "offline", "--out", files / "offline").exit_code == 0
    assert len(read_lines(files / "offline")) == 3


def test_partial_file_that_is_an_input_is_not_overwritten(files: Path) -> None:
    (files / "run.jsonl.partial").write_text('{"response": "42"}\n')
    result = grade(files, "--out", files / "run.jsonl", responses="run.jsonl.partial")
    assert result.exit_code == 2
    assert (files / "run.jsonl.partial").read_text() == '{"response": "42"}\n'


def test_grade_writes_its_lines_beside_out_and_renames_at_the_end(files: Path, server: OpenAIServer) -> None:
    lines_when_called: list[int] = []

    def script(_call: object) -> Reply:
        partial = files / "run.jsonl.partial"
        lines_when_called.append(len(partial.read_text().splitlines()) if partial.exists() else -1)
        return Reply("MET")

    server.script = script
    (files / "run.jsonl").write_text("old\n")
    options = ("--judge", "openai/m", "--api-base", server.url, "--out", files / "run.jsonl", "--overwrite")
    result = grade(files, *options, "--max-concurrency", 1)
    assert result.exit_code == 0, result.output
    # The offline rows before a call are visible while the call is under way.
    assert lines_when_called[0] == 0
    assert lines_when_called[-1] >= 1
    assert len(read_lines(files / "run.jsonl")) == 3
    assert not (files / "run.jsonl.partial").exists()


def test_output_file_that_fails_keeps_the_old_file_and_removes_or_keeps_the_partial_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(keep_partial: bool, text: str) -> None:
        with OutputFile(path, option="--out", overwrite=True, keep_partial=keep_partial) as file:
            file.write(text)
            raise KeyboardInterrupt

    for keep_partial, text, left in [(False, "new", None), (True, "new", "new"), (True, "", None)]:
        with pytest.raises(KeyboardInterrupt):
            fail(keep_partial, text)
        partial = tmp_path / "a.txt.partial"
        assert path.read_text() == "old"
        assert (partial.read_text() if partial.exists() else None) == left
        partial.unlink(missing_ok=True)


def test_output_file_through_a_symbolic_link_keeps_the_link_and_the_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with OutputFile(link, option="--out", overwrite=True) as file:
        file.write("new")
    assert link.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", 0o640)


def test_output_file_that_is_a_device_is_written_and_stays_a_device() -> None:
    with OutputFile(Path(os.devnull), option="--out", overwrite=False) as file:
        file.write("text")
    assert not Path(os.devnull).is_file()


def test_output_file_with_a_lone_surrogate_is_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with OutputFile(path, option="--out", overwrite=False) as file:
        file.write(json.dumps({"id": "a\ud800é"}, ensure_ascii=False) + "\n")
    assert path.read_bytes() == b'{"id": "a\\ud800\xc3\xa9"}\n'
    assert read_lines(path) == [{"id": "a\ud800é"}]


@pytest.mark.parametrize("place", ["missing/a.txt", "."])
def test_output_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, place: str) -> None:
    with pytest.raises(typer.Exit), OutputFile(tmp_path / place, option="--out", overwrite=False):
        pytest.fail("the body ran")


@pytest.mark.parametrize("command", [command for command in WRITERS if "--ledger" not in command])
@pytest.mark.parametrize("place", [".", "sub"])
def test_command_with_a_folder_as_its_output_is_refused_in_one_line_and_writes_nothing(
    finished: Path, command: tuple[str, ...], place: str
) -> None:
    (finished / "sub").mkdir()
    (finished / "old.json").write_text(json.dumps(OLD))
    before = sorted(finished.rglob("*"))
    judge = ("--judge", "openai/m") if command[0] == "grade" else ()
    result = run(*command, place, *judge)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is a folder: name a file" in result.stderr
    assert sorted(finished.rglob("*")) == before


@pytest.mark.parametrize("command", [("grade", "rubric.yaml", "responses.jsonl", "--ledger"), ("rescore",)])
@pytest.mark.parametrize("place", [".", "/", "sub"])
def test_command_with_a_folder_as_its_ledger_is_refused_in_one_line(
    finished: Path, command: tuple[str, ...], place: str
) -> None:
    (finished / "sub").mkdir()
    options = ("--rubric", "rubric.yaml") if command == ("rescore",) else ("--quiet",)
    result = run(*command, place, *options)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is not a file: name one" in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_grade_by_a_model_into_a_pipe_makes_no_ledger_beside_it(files: Path, server: OpenAIServer) -> None:
    os.mkfifo(files / "pipe")
    reader = subprocess.Popen(["cat", str(files / "pipe")], stdout=subprocess.PIPE, text=True)
    result = grade(files, "--judge", "openai/m", "--api-base", server.url, "--out", files / "pipe")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in reader.communicate()[0].splitlines()] == ["a", "3", "4"]
    assert not (files / "pipe.sqlite").exists()


@pytest.mark.parametrize(
    ("option", "name"),
    [("--out", "run.jsonl"), ("--out", "grades.parquet"), ("--junit", "run.xml")],
)
def test_output_in_a_folder_that_does_not_exist_is_refused_before_a_call(
    files: Path, server: OpenAIServer, option: str, name: str
) -> None:
    result = grade(files, "--judge", "openai/m", "--api-base", server.url, option, files / "none" / name)
    assert (result.exit_code, server.calls) == (2, [])
    assert (
        f"`{option}` {files / 'none' / name}: cannot be written: there is no folder '{files / 'none'}': make it"
        in result.stderr
    )
    parts = grade(files, "--quiet", "--out", f"{files / 'parts'}/")
    assert (parts.exit_code, len(list((files / "parts").iterdir()))) == (0, 1)


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of a file")
@pytest.mark.parametrize(("option", "left"), [("--quiet", []), ("--no-resume", ["run.jsonl.partial"])])
def test_full_disk_leaves_no_partial_file_unless_only_it_has_the_reports(
    files: Path, option: str, left: list[str]
) -> None:
    # The line that does not fit is smaller than the buffer of the file, which is written again when it is closed.
    (files / "responses.jsonl").write_text((json.dumps({"response": "42 " * 1_000}) + "\n") * 9)
    arguments = ["grade", files / "rubric.yaml", files / "responses.jsonl", "--out", files / "run.jsonl", option]
    process = subprocess.run(
        ["sh", "-c", 'ulimit -f 16; exec "$0" -m rubric_integrations "$@"', sys.executable, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert f"{files / 'run.jsonl'}: cannot be written: File too large" in process.stderr
    assert [path.name for path in files.glob("run.*")] == left
    assert ("the reports so far are in" in process.stderr) == bool(left)


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    "command",
    [
        ("grade", "rubric.yaml", "responses.jsonl", "--quiet"),
        ("convert", "rubric.yaml", "--to", "native"),
        ("schema",),
        ("validate", "rubric.yaml", "--format", "sarif"),
    ],
)
def test_command_whose_stdout_is_full_ends_in_one_line(files: Path, command: tuple[str, ...]) -> None:
    arguments = [str(files / name) if (files / name).exists() else name for name in command]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "rubric_integrations", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (process.returncode, process.stderr) == (2, "stdout: cannot be written: No space left on device\n")


def test_grade_of_a_row_with_a_lone_surrogate_writes_every_row(files: Path) -> None:
    (files / "odd.jsonl").write_text('{"id": "x\\ud800", "response": "42"}\n{"id": "y", "response": "42 \\udfff"}\n')
    result = grade(files, "--out", files / "run.jsonl", responses="odd.jsonl")
    assert result.exit_code == 0, result.output
    assert [line["id"] for line in read_lines(files / "run.jsonl")] == ["x\ud800", "y"]
    page = run("report", files / "run.jsonl", "--output", files / "page.html")
    assert page.exit_code == 0, page.output


def test_interrupted_grade_leaves_its_rows_and_names_the_partial_file(
    files: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rubric_integrations.cli import results as module

    server.script = lambda _call: Reply("MET")
    results = 0

    class Interrupting(module.FirstResults):
        def add(self, graded: object, place: int) -> None:
            nonlocal results
            results += 1
            if results == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "FirstResults", Interrupting)
    options = ("--judge", "openai/m", "--api-base", server.url, "--out", files / "run.jsonl")
    result = grade(files, *options)
    assert result.exit_code == 130
    assert "run.jsonl.partial" in result.stderr
    assert not (files / "run.jsonl").exists()
    assert len(read_lines(files / "run.jsonl.partial")) == 2
    monkeypatch.undo()
    assert grade(files, *options, "--resume").exit_code == 0
    assert len(read_lines(files / "run.jsonl")) == 3
    assert not (files / "run.jsonl.partial").exists()


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="the system has no /dev/stdout")
@pytest.mark.parametrize("is_pipe", [True, False])
def test_grade_with_out_dev_stdout_streams_the_reports(files: Path, is_pipe: bool) -> None:
    arguments = ["grade", "rubric.yaml", "responses.jsonl", "--out", "/dev/stdout", "--quiet"]
    command = [sys.executable, "-m", "rubric_integrations", *arguments]
    redirected = files / "redirected.jsonl"
    with redirected.open("w") as file:
        process = subprocess.run(command, cwd=files, stdout=subprocess.PIPE if is_pipe else file, check=False)
    text = process.stdout.decode() if is_pipe else redirected.read_text()
    assert process.returncode == 0
    assert text.count('"submission"') == 3
    assert "3 of 3 graded" in text


# Prints a line when it holds the file, and writes the rest when it reads one.
HOLDER = """
import sys
from pathlib import Path
from rubric_integrations.cli.outputs import OutputFile
with OutputFile(Path(sys.argv[1]), option="--out", overwrite=False, keep_partial=True) as file:
    file.write("first\\n")
    print("holds", flush=True)
    sys.stdin.readline()
    file.write("last\\n")
"""
needs_file_locks = pytest.mark.skipif(os.name == "nt", reason="files are not locked on Windows")


def hold(path: Path) -> subprocess.Popen[str]:
    """Start a process that writes an output file, and return it when it does."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "holds\n"
    return process


@needs_file_locks
def test_second_process_with_the_same_output_is_refused_and_the_first_one_loses_nothing(files: Path) -> None:
    path = files / "run.jsonl"
    process = hold(path)
    try:
        result = grade(files, "--out", path)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 2), result.output
        assert "another command is writing it now" in result.stderr
        assert (files / "run.jsonl.partial").read_text() == "first\n"
        process.communicate("go on\n")
    finally:
        process.kill()
        process.wait()
    assert path.read_text() == "first\nlast\n"
    assert not (files / "run.jsonl.partial").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows does not delete an open file")
def test_output_whose_folder_is_removed_ends_at_the_next_text_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sub" / "a.txt"
    path.parent.mkdir()

    def write() -> None:
        with OutputFile(path, option="--out", overwrite=False) as file:
            file.write("first\n")
            shutil.rmtree(path.parent)
            file.write("second\n")
            pytest.fail("the body went on")

    with pytest.raises(typer.Exit):
        write()
    stderr = capsys.readouterr().err
    assert stderr == f"{path}: cannot be written: {path}.partial was deleted or replaced meanwhile\n"


@needs_file_locks
def test_file_that_a_killed_process_left_is_written_again(files: Path) -> None:
    process = hold(files / "run.jsonl")
    process.kill()
    process.wait()
    assert (files / "run.jsonl.partial").read_text() == "first\n"
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    assert len(read_lines(files / "run.jsonl")) == 3
    assert not (files / "run.jsonl.partial").exists()


def test_output_that_another_process_finishes_before_this_one_begins_is_refused_at_once(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "a.txt", option="--out", overwrite=False)
    (tmp_path / "a.txt").write_text("another's")
    with pytest.raises(typer.Exit), file:
        pytest.fail("the body ran")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "another's")]


def test_texts_with_a_place_are_in_their_order_when_the_file_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    with OutputFile(path, option="--out", overwrite=True) as file:
        for place, text in [(2, "c\n"), (0, "ä\ud800\n"), (1, "b\n")]:
            file.write(text, place)
        assert (tmp_path / "a.txt.partial").read_text() == "c\nä\\ud800\nb\n"
    assert path.read_text() == "ä\\ud800\nb\nc\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_disk_that_is_full_when_the_texts_are_sorted_leaves_the_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    def write() -> None:
        with OutputFile(tmp_path / "a.txt", option="--out", overwrite=False) as file:
            file.write("b", 1)
            file.write("a", 0)

    monkeypatch.setattr("shutil.copymode", fail)
    with pytest.raises(typer.Exit):
        write()
    assert "a.txt: cannot be written: No space left on device" in capsys.readouterr().err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt.partial", "ba")]


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
@pytest.mark.parametrize("command", WRITERS)
def test_command_never_replaces_another_ledger(finished: Path, command: tuple[str, ...], options: tuple[str]) -> None:
    content = (finished / "other.sqlite").read_bytes()
    (finished / "old.json").write_text(json.dumps(OLD))
    for name in ("other.sqlite", "other.sqlite-wal"):
        result = run(*command, name, *options)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
        assert "a ledger" in result.stderr
    assert (finished / "other.sqlite").read_bytes() == content
    assert not (finished / "other.sqlite-wal").exists()


@pytest.mark.parametrize("command", [command for command in WRITERS if command[0] in ("grade", "rescore", "report")])
def test_command_never_replaces_a_rubric_by_something_else(finished: Path, command: tuple[str, ...]) -> None:
    content = (finished / "other.yaml").read_bytes()
    result = run(*command, "other.yaml", "--overwrite")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is a rubric" in result.stderr
    assert (finished / "other.yaml").read_bytes() == content


@pytest.mark.parametrize("name", ["notes.txt", "other.jsonl", "other.yaml"])
@pytest.mark.parametrize("command", [command for command in WRITERS if "--ledger" not in command])
def test_command_replaces_another_file_only_with_overwrite(finished: Path, command: tuple[str, ...], name: str) -> None:
    (finished / "notes.txt").write_text("mine")
    (finished / "old.json").write_text(json.dumps(OLD))
    content = (finished / name).read_bytes()
    result = run(*command, name)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert f"{name}: exists: name another file, or pass --overwrite" in result.stderr
    assert (finished / name).read_bytes() == content
    if command[0] != "probe" and name != "other.yaml":
        assert run(*command, name, "--overwrite").exit_code == 0


def test_resumed_run_replaces_reports_but_no_other_file(finished: Path) -> None:
    (finished / "notes.txt").write_text("mine")
    resumed = ("grade", "rubric.yaml", "responses.jsonl", "--ledger", "run.sqlite")
    assert run(*resumed, "--out", "notes.txt").exit_code == 2
    assert (finished / "notes.txt").read_text() == "mine"
    assert run(*resumed, "--out", "other.jsonl").exit_code == 0
    assert len(read_lines(finished / "other.jsonl")) == 3


@pytest.mark.parametrize(
    "command",
    [
        ("report", "run.jsonl", "--output", "page.html"),
        ("grade", "rubric.yaml", "responses.jsonl", "--junit", "junit.xml"),
    ],
)
def test_page_and_junit_file_are_replaced_by_new_ones(finished: Path, command: tuple[str, ...]) -> None:
    assert run(*command).exit_code == 0
    written = (finished / command[-1]).read_bytes()
    assert run(*command).exit_code == 0
    assert len((finished / command[-1]).read_bytes()) == len(written)


def test_output_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    def write() -> None:
        with OutputFile(path, option="--out", overwrite=False) as file:
            file.write("new")
            path.write_text("another program's")

    with pytest.raises(typer.Exit):
        write()
    assert (path.read_text(), (tmp_path / "a.txt.partial").read_text()) == ("another program's", "new")


def test_damaged_ledger_leaves_the_partial_reports_of_an_interrupted_run(finished: Path) -> None:
    (finished / "new.jsonl.partial").write_text("reports\n")
    (finished / "bad.sqlite").write_text("no ledger")
    result = grade(finished, "--out", finished / "new.jsonl", "--ledger", finished / "bad.sqlite")
    assert (result.exit_code, "is not a ledger" in result.stderr) == (2, True)
    assert (finished / "new.jsonl.partial").read_text() == "reports\n"
    assert not (finished / "new.jsonl").exists()


def test_ledger_that_fails_during_a_run_names_the_file_of_the_reports_so_far(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_submission(_ledger: Ledger, row_id: str, _submission: object, _rubric: object) -> None:
        if row_id == "4":
            raise LedgerError("the disk is full")

    monkeypatch.setattr(Ledger, "record_submission", record_submission)
    options = ("--ledger", files / "run.sqlite", "--out", files / "run.jsonl", "--max-concurrency", 1)
    result = grade(files, *options)
    assert result.exit_code == 2
    assert "the disk is full" in result.stderr
    assert str(files / "run.jsonl.partial") in result.stderr
    assert len(read_lines(files / "run.jsonl.partial")) >= 1


def test_files_of_the_shell_are_written_in_one_module_only() -> None:
    writers = set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _writes_a_file(node):
                writers.add(path.relative_to(PACKAGE).as_posix())
    others = {
        "_util/json.py",  # `LMJudge.save`, as DSPy's modules have it, and `Thresholds.save`
        "trust/alignment/align.py",  # counts an attempt before it begins
        "runs/batches/providers.py",  # the requests of a batch, in a temporary folder
        "runs/batches/collect.py",  # its results, likewise
        "trust/proposals.py",  # appends each reply of a draft's proposer before it is used
        "training/rollouts.py",  # `RubricReward(record=...)`, to which each step of a training run appends
        "dspy/metric.py",  # `RubricMetric.to_run`
        "submission/files.py",  # the copy of a pipe, in a temporary folder
    }
    assert writers == {"cli/outputs.py"} | others


def _writes_a_file(call: ast.Call) -> bool:
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [
        value.value
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(value, ast.Constant)
    ]
    opens_to_write = name in {"open", "fdopen"} and any(
        re.fullmatch("[wax+][bt+]*|[rb]+\\+b?", str(mode)) for mode in modes
    )
    return (is_method and name in {"write_text", "write_bytes"}) or opens_to_write


@pytest.mark.parametrize("name", ["-wal", "-shm", "run-wal"])
def test_output_with_the_name_of_a_suffix_of_a_ledger_is_written(files: Path, name: str) -> None:
    assert grade(files, "--out", files / name).exit_code == 0
    assert len(read_lines(files / name)) == 3


def test_run_that_a_limit_ends_does_not_replace_the_reports_of_a_finished_one(
    files: Path, server: OpenAIServer
) -> None:
    server.script = lambda _call: Reply("MET")
    out = files / "run.jsonl"
    options = ("--judge", "openai/m", "--api-base", server.url, "--out", out)
    assert grade(files, *options).exit_code == 0
    finished = out.read_bytes()
    (files / "rubric.yaml").write_text("- {weight: 1, requirement: Is short}\n")
    result = grade(files, *options, "--max-calls", 0)
    assert (result.exit_code, out.read_bytes()) == (4, finished)
    result = grade(files, *options, "--max-calls", 1)
    assert (result.exit_code, out.read_bytes()) == (4, finished)
    assert f"Reports: {out}" not in result.stdout
    assert str(files / "run.jsonl.partial") in result.stderr
    assert len(read_lines(files / "run.jsonl.partial")) == 1


def test_run_that_a_limit_ended_before_its_first_row_can_be_resumed(files: Path, server: OpenAIServer) -> None:
    options = ("--judge", "openai/m", "--api-base", server.url, "--out", files / "run.jsonl")
    assert grade(files, *options, "--max-calls", 0).exit_code == 4
    resumed = grade(files, *options, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert len(read_lines(files / "run.jsonl")) == 3
