"""The adapters without their frameworks: they can be imported, and say what to install."""

from __future__ import annotations

import sys

import pytest

from rubric_integrations.inspect_ai import rubric_scorer
from rubric_integrations.mlflow import RubricScorer

RUBRIC = [{"requirement": "Says 42", "check": {"number": 42}}]


def test_scorer_without_mlflow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    with pytest.raises(ImportError, match="MLflow is not installed: pip install mlflow"):
        RubricScorer(RUBRIC, "offline")


def test_scorer_without_inspect_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    with pytest.raises(ImportError, match="Inspect is not installed: pip install inspect-ai"):
        rubric_scorer(RUBRIC, "offline")
