"""MLflow with its data in a temporary folder, and without its telemetry."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module `mlflow`, which records its traces in a database of this session."""
    pytest.importorskip("mlflow", reason="MLflow is not installed: make test-host-mlflow")
    module: Any = import_module("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    module.set_tracking_uri(f"sqlite:///{folder / 'tracking.sqlite'}")
    experiment = module.create_experiment("rubric", artifact_location=(folder / "artifacts").as_uri())
    module.set_experiment(experiment_id=experiment)
    return module
