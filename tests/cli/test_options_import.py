"""Custom metrics in the shell: `--import` registers them, and one that is not registered fails before a call."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.commands import grade, run
from tests.openai_server import OpenAIServer

RUBRIC = """
criteria:
- {name: kind, weight: 1, requirement: Is kind}
- {name: digits, weight: 1, requirement: Has digits,
   check: {metric: {type: custom, config: {metric_function: has_digit}}}}
"""
HYBRID = """
criteria:
- {name: kind, weight: 1, requirement: Is kind}
- {name: apt, weight: 1, requirement: Is apt}
hybrid_metrics:
- {name: digits, weight: 0.5, type: custom, config: {metric_function: has_digit_too}}
"""
MODULE = """
from rubric_integrations.checks import register_metric

@register_metric("has_digit")
def has_digit(submission):
    return float(any(ch.isdigit() for ch in submission.response))
"""


@pytest.fixture
def metric_files(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from rubric_integrations.checks import metrics

    monkeypatch.setattr(metrics, "_custom_metrics", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_metrics_for_cli", raising=False)
    (files / "rubric.yaml").write_text(RUBRIC)
    (files / "hybrid.yaml").write_text(HYBRID)
    (files / "my_metrics_for_cli.py").write_text(MODULE)
    monkeypatch.chdir(files)
    return files


@pytest.mark.parametrize("name", ["rubric.yaml", "hybrid.yaml"])
def test_metric_that_is_not_registered_fails_in_validate(metric_files: Path, name: str) -> None:
    result = run("validate", name, "--format", "json")
    assert result.exit_code == 1
    [file] = json.loads(result.stdout)
    assert "is not registered" in file["faults"][0]["message"]
    assert "--import" in file["faults"][0]["message"]


def test_metric_that_is_not_registered_fails_in_grade_before_a_call(metric_files: Path, server: OpenAIServer) -> None:
    result = grade(metric_files, "--judge", "openai/m", "--api-base", server.url)
    assert (result.exit_code, len(result.stderr.splitlines()), len(server.calls)) == (2, 1, 0), result.output
    assert "'has_digit', which is not registered" in result.stderr


def test_import_option_registers_the_metrics_of_a_module(metric_files: Path) -> None:
    assert run("validate", "rubric.yaml", "--import", "my_metrics_for_cli").exit_code == 0
    result = grade(metric_files, "--import", "my_metrics_for_cli")
    assert result.exit_code == 0, result.output
    assert "mean 1.000" in result.stdout


def test_import_option_takes_the_path_of_a_file_that_imports_its_neighbour(metric_files: Path) -> None:
    folder = metric_files / "elsewhere"
    folder.mkdir()
    (folder / "neighbour_for_cli.py").write_text("def has_digit(text):\n    return any(map(str.isdigit, text))\n")
    # The name of a module that is imported already.
    (folder / "json.py").write_text(
        MODULE.replace("any(ch.isdigit() for ch in submission.response)", "neighbour(submission.response)").replace(
            "from rubric", "from neighbour_for_cli import has_digit as neighbour\nfrom rubric", 1
        )
    )
    result = grade(metric_files, "--import", "elsewhere/json.py")
    assert result.exit_code == 0, result.output
    assert "mean 1.000" in result.stdout
    assert sys.modules["json"] is json


@pytest.mark.parametrize("name", ["no_such_module_here", "broken_for_cli", "broken_for_cli.py", "no_such_file.py"])
def test_import_option_of_a_module_that_cannot_be_imported_exits_with_2(metric_files: Path, name: str) -> None:
    (metric_files / "broken_for_cli.py").write_text("1 / 0\n")
    result = run("validate", "rubric.yaml", "--import", name)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert name in result.stderr
