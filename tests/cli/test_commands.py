"""The registry of commands: each has a help text that names its exit codes, and is cheap to list."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import rubric_integrations.cli
from rubric_integrations.cli import COMMANDS, app
from tests.cli.commands import run
from tests.test_architecture import MAX_PARAMETERS, nodes_of

MODULES = sorted(Path(rubric_integrations.cli.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("name", COMMANDS)
def test_command_with_help_option_documents_its_exit_codes(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Exit codes: 0" in " ".join(result.output.split())


def parameters_of(name: str) -> list[Any]:
    group: Any = typer.main.get_command(app)
    return group.commands[name].params


@pytest.mark.parametrize("name", COMMANDS)
def test_help_marks_no_argument_as_required_that_may_be_left_out(name: str) -> None:
    optional = [parameter for parameter in parameters_of(name) if "Leave it out" in (parameter.help or "")]
    assert [parameter.name for parameter in optional if parameter.required] == []
    if optional:
        assert run(name).exit_code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_help_at_80_columns_cuts_no_name(name: str) -> None:
    text = CliRunner(env={"COLUMNS": "80"}).invoke(app, [name, "--help"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for parameter in parameters_of(name):
        first, *others = [parameter.name] if parameter.param_type_name == "argument" else parameter.opts
        # The first name begins a row; other names of the same option are in columns of their own.
        assert re.search(rf"^│ +(\* +)?{first}(\.\.\.)? ", text, re.MULTILINE), first
        for other in [*others, *parameter.secondary_opts]:
            assert re.search(rf"^│ .*{first} .* {other} ", text, re.MULTILINE), other


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_functions_of_the_command_line_have_few_parameters(path: Path) -> None:
    functions = [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    counts = {node.name: len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) for node in functions}
    assert {name: count for name, count in counts.items() if count > MAX_PARAMETERS} == {}


def test_every_function_that_documents_exit_codes_is_a_command_by_its_name() -> None:
    modules = [import_module(f"rubric_integrations.cli.{path.stem}") for path in MODULES if path.stem != "__init__"]
    commands = {
        name.removesuffix("_").replace("_", "-"): value  # `import` is a keyword of Python
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and "Exit codes:" in (value.__doc__ or "")
    }
    assert commands == COMMANDS


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
    assert "rubric_integrations.cli.commands" in imported
    heavy = {
        "pydantic", "dspy", "langchain_core", "langsmith", "litellm", "openai", "pandas", "numpy", "scipy", "jinja2",
        "aiohttp", "jsonschema", "yaml", "sqlite3", "asyncio", "importlib.metadata",
        "rubric_integrations.runs.summary", "rubric_integrations.reporting.grades",
    }  # fmt: skip
    assert imported & heavy == set()
