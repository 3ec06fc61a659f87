"""The example of MLflow on the page of the hosts."""

from __future__ import annotations

from typing import Any

from tests.hosts.page import run_example


def test_example_on_the_page_runs(mlflow: Any) -> None:
    assert len(run_example("mlflow")["rows"]) == 2
