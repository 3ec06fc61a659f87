"""The registry of commands: each is one module, has a help text that names its exit codes, and is cheap to list."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rubric_integrations.cli
from rubric_integrations.cli import COMMANDS
from tests.cli.commands import run


@pytest.mark.parametrize("name", COMMANDS)
def test_command_with_help_option_documents_its_exit_codes(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Exit codes: 0" in " ".join(result.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_the_function_of_the_module_with_its_name(name: str) -> None:
    assert COMMANDS[name].__module__ == f"rubric_integrations.cli.{name}"
    assert COMMANDS[name].__name__ == name


def test_every_module_with_a_function_of_its_name_is_registered() -> None:
    stems = [path.stem for path in Path(rubric_integrations.cli.__file__).parent.glob("[a-z]*.py")]
    modules = {stem: import_module(f"rubric_integrations.cli.{stem}") for stem in stems}
    assert {stem for stem, module in modules.items() if hasattr(module, stem)} == set(COMMANDS)


def test_help_lists_the_commands_in_the_order_of_the_registry() -> None:
    output = run("--help").output
    places = [output.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)


def test_unknown_command_exits_with_bad_usage() -> None:
    result = run("regrade")
    assert (result.exit_code, "No such command" in result.stderr) == (2, True)


def test_help_imports_no_heavy_package() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "rubric_integrations", "--help"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "rubric_integrations.cli.registry" in imported
    heavy = {
        "pydantic", "dspy", "langchain_core", "langsmith", "litellm", "openai", "pandas", "numpy", "scipy", "jinja2",
        "aiohttp", "jsonschema", "yaml", "sqlite3", "asyncio", "importlib.metadata",
        "rubric_integrations.runs.progress", "rubric_integrations.reporting.terminal",
    }  # fmt: skip
    assert imported & heavy == set()
