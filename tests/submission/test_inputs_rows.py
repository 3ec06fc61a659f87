"""Submissions of every form become rows."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from typing import Any

import dspy
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompt_values import ChatPromptValue
from pydantic import BaseModel

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.submission import Row
from rubric_integrations.submission.inputs import as_row

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]
TEXT = {"type": "text", "text": "6 x 7?"}


class Product(BaseModel):
    """What a program may return."""

    value: int


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
        (pd.DataFrame([{"id": "a", "answer": "42"}]).iloc[0], "a", "42"),
        (dspy.Prediction(reasoning="6 x 7", answer="42"), "7", "42"),
        (dspy.Prediction(answer="42", unit="m"), "7", "answer: 42\n\nunit: m"),
        (dspy.Example(id="a", question="6 x 7?", answer="42").with_inputs("question"), "a", "42"),
        ({"id": "a", "response": dspy.Prediction(answer="42")}, "a", "42"),
        (AIMessage("42"), "7", "42"),
        ({"id": "a", "output": AIMessage("42")}, "a", "42"),
        (ChatPromptValue(messages=[HumanMessage("6 x 7?"), AIMessage("42")]), "7", "42"),
        ({"messages": [HumanMessage("6 x 7?"), AIMessage("42")]}, "7", "42"),
        (Product(value=42), "7", '{"value": 42}'),
        ({"product": 42}, "7", '{"product": 42}'),
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


def test_state_of_an_agent_with_a_structured_response_keeps_its_messages_as_the_trajectory() -> None:
    submission = as_row({"id": "a", "messages": MESSAGES, "structured_response": {"product": 42, "answer": 42}}, 1)[1]
    assert submission is not None
    assert submission.response == '{"product": 42, "answer": 42}'
    assert submission.query == '{"role": "user", "content": "6 x 7?"}'
    assert submission.trajectory is not None
    assert (len(submission.trajectory.steps), submission.show_trajectory) == (2, "if_needed")


def test_columns_that_nothing_reads_are_named_once_unless_a_function_may_read_them() -> None:
    rubric = Rubric([Criterion(requirement="Says 42", check=Check.model_validate({"number": 42}))])
    rows = [{"response": "42", "qeury": "6 x 7?"}] * 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert [graded.score for graded in grade_many(rows, rubric, PerCriterionGrader("offline"))] == [1.0] * 3
        assert [str(warning.message).partition(":")[0] for warning in caught] == ["an input has 'qeury'"]
        list(grade_many([{"response": "42", "kind": "a"}], lambda _: rubric, PerCriterionGrader("offline")))
        assert len(caught) == 1


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


LONG = "x" * 9_000


def refuse(_row: Any) -> Rubric:
    raise ValueError(f"{LONG}: fix it")


@pytest.mark.parametrize(
    ("row", "rubric", "end"),
    [
        ({"messages": [{"role": LONG, "content": "42"}]}, None, "use 'user', 'assistant', 'system' or 'tool'"),
        ({"id": LONG, "response": None}, None, "there is nothing to grade"),
        ({"id": "a\n\nb", "response": None}, None, "there is nothing to grade"),
        ({"id": "a", LONG: "42"}, None, "nothing to grade"),
        ({"response": "42", "rubric": [{LONG: 1}]}, None, "it would change the score silently"),
        ({"response": "42"}, refuse, "fix it"),
    ],
)
def test_long_error_of_a_row_is_shortened_and_keeps_its_end(row: dict[str, Any], rubric: Any, end: str) -> None:
    rubric = rubric or (None if "rubric" in row else Rubric([Criterion(requirement="Is good")]))
    [graded] = grade_many([row], rubric, PerCriterionGrader("offline"))
    assert graded.report is None
    assert graded.row.error
    assert len(graded.row.error) < 1_100
    assert len(graded.row.error.splitlines()) == 1
    assert graded.row.error.endswith(end)
