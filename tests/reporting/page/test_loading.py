"""Runs are read back from the files that `grade --out` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Submission, grade_many
from rubric_integrations.reporting import RunFileError, read_run
from tests.reporting.page.runs import RUBRIC, EchoJudge


def test_run_is_read_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    responses = ["right=MET error=UNMET tone=plain", "  "]
    graded = grade_many(responses, RUBRIC, PerCriterionGrader(EchoJudge()))
    path.write_text("".join(json.dumps(result.to_dict()) + "\n" for result in graded))
    run = read_run(path)
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
