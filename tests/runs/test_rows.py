"""Submissions of every form become rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.runs.rows import as_row
from rubric_integrations.submission.files import Row

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]
TEXT = {"type": "text", "text": "6 x 7?"}
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
        *(({"response": "42", "id": number}, str(number), "42") for number in (0, 1, 2, np.int64(0))),
        ({"messages": np.array(MESSAGES, dtype=object)}, "7", "42"),
        (np.array(MESSAGES, dtype=object), "7", "42"),
        ({"messages": np.array([{**MESSAGES[0], "content": np.array([TEXT])}, MESSAGES[1]])}, "7", "42"),
        ({"response": np.str_("42"), "query": pd.NA, "reference": pd.NaT, "thinking": np.float32("nan")}, "7", "42"),
    ],
)
def test_row_of_a_submission_has_its_id_or_its_number(item: Any, row_id: str, response: str) -> None:
    row = as_row(item, 7)
    assert row.submission is not None
    assert (row.id, row.submission.response, row.error) == (row_id, response, None)


@pytest.mark.parametrize("item", [7, None, " ", {"id": "7", "reply": "42"}, {"response": pd.NA}, np.array([1, 2])])
def test_row_without_anything_to_grade_has_an_error(item: Any) -> None:
    row = as_row(item, 7)
    assert (row.id, row.submission) == ("7", None)
    assert str(row.error).startswith("row 7")


def test_arrays_in_a_row_are_lists_and_numbers() -> None:
    row = as_row(
        {"response": "x", "context": np.array(["one", "two"]), "labels": {"c": np.int64(1)}, "rubric": np.array([{}])},
        1,
    )
    assert row.submission is not None
    assert row.submission.context == ("one", "two")
    assert (row.labels, row.rubric) == ({"c": 1}, [{}])
    assert type((row.labels or {})["c"]) is int


RECORDS = [{"id": 0, "response": "good"}, {"id": 1, "response": "bad"}, {"id": 2, "response": "good"}]
TABLE = pa.Table.from_pylist(RECORDS)


class NumpyRows:
    """Rows as a `datasets.Dataset` in the format `numpy` yields them."""

    def __len__(self) -> int:
        return len(RECORDS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": np.int64(RECORDS[index]["id"]), "response": np.str_(RECORDS[index]["response"])}


async def batches() -> AsyncGenerator[Any]:
    for batch in TABLE.to_batches(max_chunksize=2):
        yield batch


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(RECORDS), TABLE, TABLE.to_batches()[0], TABLE.to_batches(max_chunksize=2), TABLE.to_reader(),
        batches(), NumpyRows(), [TABLE.slice(0, 1), RECORDS[1], TABLE.slice(2, 1)],
        [pd.DataFrame([record]) for record in RECORDS],
    ],
    ids=["data frame", "table", "batch", "batches", "reader", "async batches", "dataset", "mixed", "data frames"],
)  # fmt: skip
def test_tables_are_graded_by_row(table: Any) -> None:
    rubric = Rubric([Criterion(requirement="Is good", check=Check(contains="good"))])
    received: list[Any] = []
    results = list(grade_many(table, lambda row: received.append(row) or rubric, PerCriterionGrader("offline")))
    assert [(graded.row.id, graded.score) for graded in results] == [("0", 1.0), ("1", 0.0), ("2", 1.0)]
    assert [row["response"] for row in received] == ["good", "bad", "good"]
