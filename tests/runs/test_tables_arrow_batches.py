"""`grade_batches`: Arrow in and out, without any engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders.endpoint import JudgeUnusable
from rubric_integrations.runs import grade_batches
from rubric_integrations.runs.tables import grades_schema
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeJudge

RUBRIC = [{"name": "good", "requirement": "Is good"}]


def batch(*texts: str | None, first: int = 0) -> Any:
    ids = [str(number) for number in range(first, first + len(texts))]
    return pa.record_batch({"id": ids, "response": pa.array(texts, pa.string())})


def grade(batches: Any, judge: FakeJudge, **options: Any) -> list[dict[str, Any]]:
    grader = PerCriterionGrader(judge, max_retries=0)
    results = list(grade_batches(batches, options.pop("rubric", RUBRIC), grader, **options))
    return [row for result in results for row in result.to_pylist()]


def test_each_batch_gives_a_batch_of_the_schema_of_grades_in_the_order_of_its_rows() -> None:
    batches = [batch("a", "b", "c"), batch(), batch("d", first=3), batch()]
    results = list(grade_batches(batches, RUBRIC, PerCriterionGrader(FakeJudge())))
    assert [result.num_rows for result in results] == [3, 0, 1, 0]
    assert all(result.schema == grades_schema() for result in results)
    assert [row["id"] for result in results for row in result.to_pylist()] == ["0", "1", "2", "3"]


def test_failures_and_bad_rows_are_errors_in_their_rows_and_stop_no_other() -> None:
    judge = FakeJudge(lambda question: JudgeFailure("parse", "no") if question.submission.response == "bad" else "MET")
    rows = grade([batch("good", "bad", None, "fine")], judge)
    assert [row["score"] for row in rows] == [1.0, None, None, 1.0]
    assert "no" in rows[1]["error"]
    assert "null" in rows[2]["error"]
    assert not rows[1]["passed"]


def test_rubric_of_each_row_is_used_in_any_form() -> None:
    own = [{"requirement": "Own"}]
    table = pa.table({"response": ["a", "b", "c"], "rubric": ['[{"requirement": "As text"}]', "brief", "unknown"]})
    judge = FakeJudge()
    rows = grade([table], judge, rubric=None, library={"brief": own})
    assert sorted(judge.requirements) == ["As text", "Own"]
    assert [row["score"] for row in rows] == [1.0, 1.0, None]
    assert "unknown" in rows[2]["error"]


def test_columns_of_the_rows_are_carried_with_their_type() -> None:
    table = pa.table({"response": ["a", "b"], "key": pa.array([7, None], pa.int32()), "other": [1, 2]})
    (result,) = grade_batches([table], RUBRIC, PerCriterionGrader(FakeJudge()), columns=["key"])
    assert result.schema.field("key").type == pa.int32()
    assert result.column("key").to_pylist() == [7, None]
    assert "other" not in result.schema.names


def test_ids_that_repeat_do_not_mix_rows() -> None:
    table = pa.table({"id": ["same"] * 3, "response": ["a", "b", "c"], "metadata": ['{"position": 3}'] * 3})
    rows = grade([table], FakeJudge(lambda question: "MET" if question.submission.response == "b" else "UNMET"))
    assert [row["score"] for row in rows] == [0.0, 1.0, 0.0]


def test_limit_leaves_errors_in_all_further_rows_also_of_batches_that_were_not_read(tmp_path: Path) -> None:
    ledger = tmp_path / "run.sqlite"
    grade([batch("c", first=2)], FakeJudge(fingerprint="f"), ledger=ledger)
    batches = [batch("a", "b", "c"), batch("d", first=3), batch("e", "f", first=4)]
    rows = grade(batches, FakeJudge(fingerprint="f"), ledger=ledger, max_calls=1, max_concurrency=1)
    assert [row["id"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert rows[0]["score"] == 1.0
    left = [row for row in rows if row["score"] is None]
    assert len(left) >= 4
    assert all(row["error"].startswith("not graded: `max_calls`") for row in left)


def test_judge_that_cannot_be_used_ends_the_run_with_its_reason() -> None:
    judge = FakeJudge(JudgeFailure("config", "wrong key"))
    with pytest.raises(JudgeUnusable, match="wrong key"):
        grade([batch(*"abcdefgh")], judge)


def test_source_is_read_only_as_fast_as_its_rows_are_graded() -> None:
    read = 0

    def source() -> Iterator[Any]:
        nonlocal read
        for number in range(100):
            read += 1
            yield batch("a", "b", first=2 * number)

    results = grade_batches(source(), RUBRIC, PerCriterionGrader(FakeJudge()), max_concurrency=2)
    next(results)
    assert read < 50
    assert sum(1 for _ in results) == 99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["absent"]}, "not in the batch"),
        ({"columns": ["score"]}, "names of the grades"),
        ({"max_concurrency": 0}, "max_concurrency"),
    ],
)
def test_wrong_option_is_refused_with_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grade([batch("a")], FakeJudge(), **options)


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([{"response": "a"}], {}, "got one of dict"),
        ([batch("a")], {"columns": "key"}, "must be a list"),
        ([batch("a")], {"rubric": lambda row: RUBRIC}, "column `rubric`"),  # pyright: ignore[reportUnknownLambdaType]
    ],
)
def test_wrong_type_is_refused_with_what_to_do(batches: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        grade(batches, FakeJudge(), **options)
