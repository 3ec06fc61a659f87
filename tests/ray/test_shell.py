"""`grade --engine ray`, in a process of its own with a Ray of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.runs.parquet import grades_schema
from tests.openai_server import OpenAIServer

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("ray.data", reason="Ray is not installed: make test-ray")


def test_folder_of_files_is_graded_into_a_folder_in_order_and_bad_rows_are_counted(
    tmp_path: Path, server: OpenAIServer
) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "rubric.yaml").write_text("- {name: good, requirement: Is good}")
    (tmp_path / "rows").mkdir()
    for part in range(3):
        ids = [f"{part}-{number}" for number in range(30)]
        texts = [f"text {name}" if name != "1-5" else None for name in ids]
        pq.write_table(pa.table({"id": ids, "response": texts, "unused": ids}), tmp_path / f"rows/{part}.parquet")
    options = ["--engine", "ray", "--ledger", "run.sqlite", "--out", "grades/", "--judge", "openai/m"]
    command = ["rubric.yaml", "rows/*.parquet", *options, "--api-base", server.url, "--api-key", "sk-secret"]
    result = subprocess.run(
        [sys.executable, "-m", "rubric_integrations", "grade", *command],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "90 rows: 89 graded, 89 passed, 1 ungradable, mean score 1.000; 89 calls" in result.stderr
    assert "Traceback" not in result.stderr
    assert "sk-secret" not in result.stderr + result.stdout
    table = pq.read_table(tmp_path / "grades")
    assert table.schema.equals(grades_schema())
    assert [row["id"] for row in table.to_pylist()] == [f"{part}-{n}" for part in range(3) for n in range(30)]
    assert len(server.calls) == 89
    assert (tmp_path / "run.sqlite").exists()
