"""One local Ray for all tests of this folder, which `make test-ray` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray_data() -> Iterator[Any]:
    """`ray.data`, on two CPUs of this machine."""
    pytest.importorskip("ray.data", reason="Ray is not installed: make test-ray")
    ray: Any = import_module("ray")
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {"env_vars": {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": path}}
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        runtime_env=environment,
    )  # fmt: skip
    data = import_module("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    yield data
    ray.shutdown()
