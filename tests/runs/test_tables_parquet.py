"""Grades as Parquet: one schema for all rows, files that appear when they are whole, and rows from such files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.runs import Graded, RunFileError, read_run, tables, write_parquet
from rubric_integrations.runs.tables import grades_schema
from rubric_integrations.scoring import JudgeFailure, Spend
from tests.fakes import FakeJudge
from tests.openai_server import OpenAIServer

RUBRIC = Rubric([Criterion(name="good", requirement="Is good", check=Check(contains="good"))])


def grades(path: Path) -> list[dict[str, Any]]:
    table: Any = pq.read_table(path)
    assert table.schema.equals(grades_schema())
    assert table.schema.metadata == grades_schema().metadata
    return table.to_pylist()


def run_over(*texts: Any) -> Iterator[Graded]:
    return iter(grade_many(texts, RUBRIC, PerCriterionGrader("offline")))


def test_row_of_each_outcome_has_every_column(tmp_path: Path) -> None:
    rubric = Rubric([Criterion(name="a", requirement="a"), Criterion(name="b", requirement="b")])
    judge = FakeJudge(
        lambda question: (
            JudgeFailure("config", "half an emoji: \ud83d", about_text=True)
            if question.criterion.requirement == "b" and question.submission.response == "fails"
            else "CANNOT_ASSESS"
            if question.submission.response == "abstains"
            else "MET"
        ),
        spend=Spend(calls=1, cost=None),
    )
    rows = [{"id": 0, "response": "fine"}, {"id": "\ud83d", "response": "abstains"}, {"id": 2, "response": ""},
            {"id": 3, "response": "fails"}]  # fmt: skip
    write_parquet(grade_many(rows, rubric, PerCriterionGrader(judge, max_retries=0)), tmp_path / "grades.parquet")
    fine, abstains, empty, fails = grades(tmp_path / "grades.parquet")
    verdicts = [{"name": name, "verdict": "MET", "value": 1.0, "reason": "", "error": None} for name in ("a", "b")]
    assert fine == {
        "id": "0", "score": 1.0, "passed": True, "coverage": 1.0, "error": None, "calls": 2, "cost": None,
        "verdicts": verdicts,
    }  # fmt: skip
    assert (abstains["id"], abstains["score"], abstains["verdicts"][0]["value"]) == ("\\ud83d", None, None)
    assert (empty["score"], empty["passed"], empty["verdicts"], empty["calls"]) == (None, False, [], 0)
    assert "is empty" in empty["error"]
    assert (fails["score"], fails["passed"], fails["verdicts"][1]["verdict"]) == (None, False, None)
    assert "half an emoji: \\ud83d" in fails["verdicts"][1]["error"]
    assert "half an emoji" in fails["error"]


def test_folder_gets_parts_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 2)
    monkeypatch.setattr(tables, "ROWS_PER_PART", 4)
    write_parquet(run_over(*["good"] * 9), tmp_path / "grades")
    parts = sorted((tmp_path / "grades").iterdir())
    assert [part.name for part in parts] == [f"part-0000{number}.parquet" for number in range(3)]
    assert [pq.read_metadata(part).num_row_groups for part in parts] == [2, 2, 1]
    assert [row["id"] for row in grades(tmp_path / "grades")] == [str(number) for number in range(1, 10)]
    with pytest.raises(FileExistsError, match=r"part-00000.parquet exists: .*overwrite=True"):
        write_parquet(run_over("bad"), tmp_path / "grades")
    write_parquet(run_over("bad"), tmp_path / "grades", overwrite=True)
    assert [row["score"] for row in grades(tmp_path / "grades")] == [0.0]


def test_part_of_another_program_is_never_replaced(tmp_path: Path) -> None:
    pq.write_table(pa.table({"response": ["good"]}), tmp_path / "part-00000.parquet")
    with pytest.raises(FileExistsError, match="is no file of grades"):
        write_parquet(run_over("good"), tmp_path, overwrite=True)
    (tmp_path / "part-00000.parquet").write_bytes(b"")
    with pytest.raises(FileExistsError, match="is no file of grades"):
        write_parquet(run_over("good"), tmp_path, overwrite=True)


@pytest.mark.parametrize("name", ["grades.parquet", "grades"])
def test_interrupted_run_leaves_earlier_grades_and_whole_parts(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 1)
    monkeypatch.setattr(tables, "ROWS_PER_PART", 2)

    def interrupted() -> Iterator[Graded]:
        yield from run_over("bad", "bad", "bad")
        raise KeyboardInterrupt

    write_parquet(run_over("good"), tmp_path / name)
    with pytest.raises(KeyboardInterrupt):
        write_parquet(interrupted(), tmp_path / name, overwrite=True)
    is_file = name.endswith(".parquet")
    assert [row["score"] for row in grades(tmp_path / name)] == ([1.0] if is_file else [0.0, 0.0])
    assert not list(tmp_path.rglob("*.partial"))


def test_run_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    write_parquet(run_over(), tmp_path / "grades.parquet")
    assert grades(tmp_path / "grades.parquet") == []


def test_grades_in_parquet_are_refused_where_a_run_is_read(tmp_path: Path) -> None:
    write_parquet(run_over("good"), tmp_path / "grades.parquet")
    for path in (tmp_path / "grades.parquet", tmp_path):
        with pytest.raises(RunFileError, match=r"have neither the submissions .* `grade --out run.jsonl`"):
            read_run(path)


def test_parquet_of_a_ledger_counts_the_calls_of_its_judgments(server: OpenAIServer, tmp_path: Path) -> None:
    rubric = Rubric([Criterion(requirement="Is good")])
    for number in range(2):
        grader = PerCriterionGrader(FakeJudge(fingerprint="fake"))
        run = grade_many(["good"], rubric, grader, ledger=tmp_path / "run.sqlite")
        write_parquet(run, tmp_path / "grades.parquet", overwrite=True)
        assert run.summary.spend.calls == 1 - number
        assert [row["calls"] for row in grades(tmp_path / "grades.parquet")] == [1]
