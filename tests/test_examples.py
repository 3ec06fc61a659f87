"""The scripts in `examples/` run, and print the results that their docstrings describe."""

from __future__ import annotations

import logging
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.guides
def test_optimize_script_with_simulated_models_improves_the_score_and_saves_calls() -> None:
    done = subprocess.run(
        [sys.executable, "examples/optimize/optimize.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout
    rows = {name: re.findall(r"[\d.]+", cells) for name, cells in re.findall(r"│ ([\w' ]+?) +│(.*)", done.stdout)}
    before, *after = map(float, rows["score"])
    assert len(after) == 3
    assert all(score > before for score in after)
    assert all(int(saved) > 0 for saved in rows["calls saved"][-2:])


def test_agent_script_grades_six_runs_and_refuses_the_step_that_the_hostile_one_invents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ROOT / "examples" / "agent"
    monkeypatch.syspath_prepend(folder)
    runpy.run_path(str(folder / "agent.py"), run_name="__main__")
    printed = capsys.readouterr().out
    cells = {
        row[0].strip(): [cell.strip() for cell in row[1:]]
        for line in printed.splitlines()
        if (row := line.split("│")[1:-1])
    }
    assert {name: row[-2:] for name, row in cells.items()} == {
        "excellent": ["1.00", "yes"],
        "wasteful": ["0.95", "yes"],
        "careless": ["0.55", "no"],
        "lying": ["0.25", "no"],
        "deleting": ["0.85", "no"],
        "hostile": ["none", "no"],
    }
    assert cells["excellent"][5:7] == ["MET", "step 2"]
    assert "the judge cites the step 9, and the submission has steps 1 to 2" in " ".join(printed.split())


@pytest.mark.guides
@pytest.mark.filterwarnings("ignore:Passing OpenAI-style message:DeprecationWarning")
def test_align_script_with_a_simulated_judge_keeps_what_each_optimizer_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ROOT / "examples" / "align"
    monkeypatch.syspath_prepend(folder)
    # A module of this name is in `examples/optimize`, too.
    monkeypatch.delitem(sys.modules, "simulated", raising=False)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path)])
    monkeypatch.setenv("COLUMNS", "200")
    try:
        runpy.run_path(str(folder / "run.py"), run_name="__main__")
    finally:
        logging.disable(logging.NOTSET)
        sys.modules.pop("simulated", None)
    printed = capsys.readouterr().out
    assert "SIMULATED" in printed
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    assert [(row[0], row[4], row[6]) for row in cells] == [
        (name, "yes", f"{name}.json") for name in ("gepa", "miprov2", "bootstrap")
    ]
    assert all(float(row[2][:5]) > float(row[1][:5]) for row in cells)
    assert {path.name for path in tmp_path.glob("*.json")} == {"gepa.json", "miprov2.json", "bootstrap.json"}
    assert (tmp_path / "labels.lock").exists()
