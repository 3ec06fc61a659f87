"""What run files store of attachments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Submission, grade_many
from rubric_integrations.runs import read_run
from rubric_integrations.submission import Attachment, Step, Trajectory, attachments
from rubric_integrations.submission.attachments import store_attachments

SMALL = Attachment.model_validate({"data": b"GIF89a", "name": "small.gif"})
LARGE = Attachment.model_validate({"data": bytes(200_001), "name": "large.pdf"})
REMOTE = Attachment(mime_type="image/png", url="https://example.com/chart.png")


def test_line_of_a_run_has_the_steps_the_small_files_and_a_description_of_the_large_ones(tmp_path: Path) -> None:
    trajectory = Trajectory(steps=(Step(role="user", text="Hi"),))
    submission = Submission(response="x", trajectory=trajectory, attachments=(SMALL, LARGE, REMOTE))
    grader = PerCriterionGrader("offline")
    rubric = [{"requirement": "x", "check": {"contains": "x"}}]
    (line,) = [graded.to_dict() for graded in grade_many([submission], rubric, grader)]
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert path.stat().st_size < 5_000
    row = read_run(path).rows[0]
    assert row.submission == submission.model_copy(update={"attachments": ()})
    assert [(a.name, a.data, a.size, a.sha256, a.url) for a in row.attachments] == [
        ("small.gif", SMALL.data, 6, SMALL.sha256, None),
        ("large.pdf", None, 200_001, LARGE.sha256, None),
        (None, None, None, None, "https://example.com/chart.png"),
    ]


def test_line_without_steps_and_files_is_as_before() -> None:
    rubric = [{"requirement": "x", "check": {"contains": "x"}}]
    (graded,) = grade_many(["x"], rubric, PerCriterionGrader("offline"))
    assert graded.to_dict()["submission"] == {"response": "x"}


def test_files_of_one_row_are_stored_up_to_a_limit_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MAX_BYTES_OF_ROW", 12)
    assert [attachment.data is not None for attachment in store_attachments([SMALL] * 3)] == [True, True, False]
