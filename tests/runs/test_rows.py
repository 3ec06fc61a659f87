"""Submissions of every form become rows."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Submission
from rubric_integrations.runs.rows import as_row
from rubric_integrations.submission.files import Row

ROW = Row("a", Submission(response="42"))


@pytest.mark.parametrize(
    ("item", "row_id", "response"),
    [
        ("42", "7", "42"),
        (Submission(response="42"), "7", "42"),
        ({"response": "42", "id": "a"}, "a", "42"),
        ({"thinking": "hm", "output": "42"}, "7", "42"),
        ([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}], "7", "42"),
        (ROW, "a", "42"),
    ],
)
def test_row_of_a_submission_has_its_id_or_its_number(item: Any, row_id: str, response: str) -> None:
    row = as_row(item, 7)
    assert row.submission is not None
    assert (row.id, row.submission.response, row.error) == (row_id, response, None)


@pytest.mark.parametrize("item", [7, None, " ", {"id": "7", "reply": "42"}])
def test_row_without_anything_to_grade_has_an_error(item: Any) -> None:
    row = as_row(item, 7)
    assert (row.id, row.submission) == ("7", None)
    assert str(row.error).startswith("row 7")
