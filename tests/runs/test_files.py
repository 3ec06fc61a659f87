"""Runs are read back from the files that `grade --out` writes."""

from __future__ import annotations

import gc
import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Submission, grade_many
from rubric_integrations.reporting import report_page
from rubric_integrations.runs import RunFileError, read_run
from tests.reporting.page.runs import RUBRIC, EchoJudge, own_line


def test_run_is_read_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    responses = ["right=MET error=UNMET tone=plain", "  "]
    graded = grade_many(responses, RUBRIC, PerCriterionGrader(EchoJudge()))
    path.write_text("".join(json.dumps(result.to_dict()) + "\n" for result in graded))
    run = read_run(str(path))
    assert list(run.rows) == list(read_run(path).rows)
    assert [row.report.score if row.report else None for row in run.rows] == [1.0, None]
    assert run.rows[1].error
    assert run.rows[0].submission == Submission(response="right=MET error=UNMET tone=plain")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("nope\n", ":1: is not JSON"), ("[]\n", ":1: is list"), ('{"a": 1}\n', ":1: is no grade")],
)
def test_file_that_is_no_run_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RunFileError, match=message) as error:
        read_run(path)
    assert "\n" not in str(error.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="cannot be read: No such file"):
        read_run(tmp_path / "run.jsonl")


def write_run(path: Path) -> list[str]:
    responses = ["right=MET error=UNMET tone=plain \u2028 and \u0085 \x1c", "right=MET error=UNMET tone=plain"]
    graded = grade_many(responses, RUBRIC, PerCriterionGrader(EchoJudge()))
    lines = [json.dumps(result.to_dict(), ensure_ascii=False) + "\n" for result in graded]
    path.write_text("".join(lines), encoding="utf-8")
    return responses


def test_run_with_unusual_line_separators_is_read_back(tmp_path: Path) -> None:
    responses = write_run(tmp_path / "run.jsonl")
    run = read_run(tmp_path / "run.jsonl")
    assert [row.submission.response if row.submission else None for row in run.rows] == responses


def test_run_with_a_torn_last_line_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="run.jsonl:2: is cut off"):
        assert len(read_run(path).rows) == 1


@pytest.mark.sizes
def test_run_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("w") as file:
        for number in range(100):
            line = own_line(number, "MET")
            line["submission"]["response"] = f"{number} " * 50_000
            file.write(json.dumps(line) + "\n")
    report_page([read_run(path)])  # imports libraries, whose memory is not that of the run
    tracemalloc.start()
    try:
        page = report_page([read_run(path)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "</html>" in page
    assert peak < path.stat().st_size / 2


def test_line_with_fields_that_the_report_does_not_know_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = own_line(1, "MET", "UNMET")
    line["report"][0]["of_tomorrow"] = 1
    path.write_text(json.dumps(line | {"of_tomorrow": {}}) + "\n")
    (row,) = read_run(path).rows
    assert row.report
    assert (row.tags, row.criterion_tags) == ({"style": 1.0, "facts": 0.0}, (("style",), ("facts",)))
    assert row.submission == Submission(response="It is 1.", query="Question 1?")


def test_run_from_a_pipe_is_read_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    run = read_run(pipe)
    writer.join()
    assert len(run.rows) == 2
    assert "2 of 2" in report_page([run])


@pytest.mark.parametrize("text", ["", '{"id": "other", "score": null, "passed": false}\n' * 2])
def test_run_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path)
    run = read_run(path)
    path.write_text(text)
    with pytest.raises(RunFileError, match=r"run\.jsonl: changed while it was read: repeat the command"):
        report_page([run])


def test_rows_of_a_file_are_a_sequence(tmp_path: Path) -> None:
    write_run(tmp_path / "run.jsonl")
    rows = read_run(tmp_path / "run.jsonl").rows
    assert [row.id for row in rows[:1]] == ["1"]
    assert rows[-1].id == "2"
    with pytest.raises(IndexError):
        rows[2]


@pytest.mark.parametrize(("names", "expected"), [(("a", "a"), "a"), (("a", "b"), None), ((None, "b"), None)])
def test_run_has_the_name_of_its_rubric_only_if_all_rows_have_it(
    tmp_path: Path, names: tuple[str | None, ...], expected: str | None
) -> None:
    path = tmp_path / "run.jsonl"
    lines = [own_line(number, "MET") | {"rubric": name, "judge": "echo"} for number, name in enumerate(names)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(path)
    assert (run.rubric, run.judge) == (expected, "echo")


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_collection_is_as_before_after_a_run_was_read_into_memory(tmp_path: Path, was_enabled: bool) -> None:
    # It is off while rows are read, since each collection would look at all of them.
    good, bad = tmp_path / "run.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"id": "1", "score": null, "passed": false}\n')
    bad.write_text('{"id": "1"}\n')
    (gc.enable if was_enabled else gc.disable)()
    try:
        assert len(read_run(good, in_memory=True).rows) == 1
        assert gc.isenabled() is was_enabled
        with pytest.raises(RunFileError):
            read_run(bad, in_memory=True)
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


def test_run_has_the_pass_mark_of_its_rows_only_if_all_have_the_same(tmp_path: Path) -> None:
    line = {"id": "a", "score": 1.0, "passed": True}
    for marks, expected in (([0.7, None, 0.7], 0.7), ([0.7, 0.8], None), ([None], None), (["x"], None)):
        path = tmp_path / "run.jsonl"
        path.write_text("".join(json.dumps({**line, "id": str(i), "pass_mark": m}) + "\n" for i, m in enumerate(marks)))
        assert read_run(path).pass_mark == read_run(path, in_memory=True).pass_mark == expected
