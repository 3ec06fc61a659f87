"""The releases of DSPy that CI tests: those that are declared, and that the tests run with."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from rubric_integrations.judges.fast_path import TESTED_DSPY

ROOT = Path(__file__).resolve().parents[1]


def test_installed_dspy_is_a_tested_release() -> None:
    assert version("dspy") in TESTED_DSPY


def test_lower_bound_of_dspy_is_the_first_tested_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    bounds = [match[1] for text in requirements if (match := re.fullmatch(r"dspy(?:\[\w+\])?>=([\d.]+),<3\.5", text))]
    assert [TESTED_DSPY[0]] * 2 == bounds


def test_newest_dspy_in_the_constraints_is_the_last_tested_release() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"dspy=={TESTED_DSPY[-1]}" in lines
