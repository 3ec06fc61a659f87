"""Loads the recorded scoring cases; `README.md` describes them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).with_name("cases.json")


def recorded_cases(stance: str, *sources: str) -> list[Any]:
    """Return the cases of one stance, from sources with one of these prefixes, as pytest parameters."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    selected = [case for case in cases if case["stance"] == stance and case["source"].startswith(sources)]
    return [pytest.param(case, id=case["id"]) for case in selected]


def is_close(value: float | None, expected: float | None) -> bool:
    """Return whether two scores are equal within 1e-9, or both undefined."""
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, abs_tol=1e-9)
