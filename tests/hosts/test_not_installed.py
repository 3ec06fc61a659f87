"""The adapters without their frameworks: they can be imported, and say what to install."""

from __future__ import annotations

import sys

import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.inspect_ai import rubric_scorer
from rubric_integrations.mlflow import RubricScorer
from rubric_integrations.ray import grade_dataset

RUBRIC = [{"requirement": "Says 42", "check": {"number": 42}}]


def test_scorer_without_mlflow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    with pytest.raises(ImportError, match="MLflow is not installed: pip install mlflow"):
        RubricScorer(RUBRIC, "offline")


def test_scorer_without_inspect_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    with pytest.raises(ImportError, match="Inspect is not installed: pip install inspect-ai"):
        rubric_scorer(RUBRIC, "offline")


def test_dataset_without_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ImportError, match=r"Ray Data is not installed: pip install 'ray\[data\]'"):
        grade_dataset(object(), RUBRIC, PerCriterionGrader("offline"))
