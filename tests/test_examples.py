"""The scripts in `examples/` run, and print the results that their docstrings describe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
