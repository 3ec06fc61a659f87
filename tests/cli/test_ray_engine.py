"""`grade --engine ray` before Ray starts: what it refuses. `tests/ray` has what it does."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text("- {name: good, requirement: Is good}")
    pq.write_table(pa.table({"id": ["a"], "response": ["good"]}), tmp_path / "rows.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "run.jsonl"), "name a .parquet file or a folder"),
        ((), "name a .parquet file or a folder"),
        (("--out", "grades/", "--gate", "--junit", "x.xml"), "leave out --gate, --junit,"),
        (("--out", "grades/", "--no-resume"), "leave out --resume,"),
        (("--out", "grades/", "--response-column", "text"), "leave out --response-column,"),
    ],
)
def test_option_without_meaning_on_ray_is_refused(
    folder: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = run("grade", "rubric.yaml", "rows.parquet", "--engine", "ray", *options)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr
    assert not (folder / "grades").exists()


def test_missing_ray_names_the_command_that_installs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    files = (folder / "rubric.yaml", folder / "rows.parquet", "--out", f"{folder}/grades/")
    result = run("grade", *files, "--engine", "ray")
    assert result.exit_code == 2
    assert "pip install 'ray[data]'" in result.stderr


@pytest.mark.parametrize("rows", ["absent/*.parquet", "s3://bucket/*.parquet"])
def test_rows_that_ray_cannot_read_are_refused(folder: Path, rows: str) -> None:
    pytest.importorskip("ray.data", reason="Ray is not installed: make test-ray")
    result = run("grade", folder / "rubric.yaml", rows, "--engine", "ray", "--out", f"{folder}/grades/")
    assert result.exit_code == 2
    assert result.stderr.startswith(rows)
