"""The pages that restate the code agree with it: settings, files of responses, exit codes, extras, CI recipe."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import typer.main
import yaml

from rubric_integrations._util.lazy import EXTRAS
from rubric_integrations.checks.text import PATTERN_SECONDS
from rubric_integrations.cli import app
from rubric_integrations.cli.console import Exit
from rubric_integrations.cli.options import JUDGE_OPTIONS
from rubric_integrations.formats.linting import RULES, lint
from rubric_integrations.formats.parsing import MAX_BYTES, MAX_DEPTH, MAX_NODES
from rubric_integrations.graders.endpoint import LONGEST_WAIT, MAX_FAILED_SUBMISSIONS
from rubric_integrations.rubric.rubric import MAX_CRITERIA, MAX_LEAVES, Rubric
from rubric_integrations.submission.columns import COLUMNS, ColumnNames
from rubric_integrations.submission.readers import READERS
from rubric_integrations.submission.submission import MAX_CHARS
from tests.cli.commands import EXAMPLE
from tests.test_architecture import PUBLIC
from tests.test_docs import DOCS, ROOT, blocks

LIMITS = {
    "characters of a response, a query or a reference": MAX_CHARS,
    "criteria of a rubric, or of a group in it": MAX_CRITERIA,
    "criteria of a rubric with groups": MAX_LEAVES,
    "bytes of a rubric file": MAX_BYTES,
    "levels of nesting in a rubric file": MAX_DEPTH,
    "values in a rubric file, with its aliases expanded": MAX_NODES,
    "seconds of a `regex` check": PATTERN_SECONDS,
    "seconds that a server may request to wait": LONGEST_WAIT,
    "failed submissions in a row that end a run": MAX_FAILED_SUBMISSIONS,
}


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of all rows below the table heads of a page that begin with a text."""
    table = re.compile(rf"^\| {re.escape(head)} \|.*\n\|[-|: ]+\|\n((?:\|.*\n)+)", re.MULTILINE)
    lines = "".join(table.findall((DOCS / page).read_text(encoding="utf-8"))).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    """Return the texts of a cell that are marked as code."""
    return [first or second for first, second in re.findall(r"`` (.+?) ``|`([^`]+)`", cell)]


# Lint rules and decisions.


def test_page_of_the_lint_rules_has_every_rule_and_those_that_find_something_in_other_languages() -> None:
    german = Rubric.from_yaml("""
    pass_mark: 1.0
    criteria:
      - {requirement: Nennt die Ursache und erklärt die Abhilfe}
      - {requirement: Nennt die Ursache und erklärt die Abhilfe}
      - {requirement: Ist angemessen geschrieben}
      - {requirement: Hat höchstens 90 Wörter}
      - {requirement: (-5) Beschuldigt den Kunden}
      - {requirement: Enthält keine Fehler, weight: -4}
      - {requirement: Welcher Ton?, options: [{label: kalt, value: 0}, {label: warm, value: 0.5}]}
    """)
    sentence = re.search(r"In other languages, only(.*?)find\s+anything", (DOCS / "writing.md").read_text(), re.DOTALL)
    assert sentence
    assert {warning.rule for warning in lint(german)} == set(code(sentence[1]))
    assert [code(rule)[0] for rule, *_ in rows("writing.md", "rule")] == list(RULES)


# Settings.


class Setting(NamedTuple):
    """A row of a table of settings. A default in words stands for None in the code."""

    name: str
    parameters: list[str]
    options: list[str]
    default: Any


def settings() -> list[Setting]:
    return [
        Setting(name, code(python), code(shell), ast.literal_eval(code(default)[0]) if default[0] == "`" else None)
        for name, python, shell, default in rows("settings.md", "setting")
    ]


def default_of(parameter: str) -> Any:
    """Return the default of a parameter, such as `CallLimits.timeout`."""
    owner, _, name = parameter.partition(".")
    value = PUBLIC[owner]
    fields: dict[str, Any] = getattr(value, "model_fields", {})
    # Not `signature(cls)`: DSPy's metaclass hides the parameters of a module.
    signature = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    return fields[name].default if name in fields else signature.parameters[name].default


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.name)
def test_setting_on_the_page_has_the_default_of_the_code(setting: Setting) -> None:
    assert setting.parameters
    assert {parameter: default_of(parameter) for parameter in setting.parameters} == dict.fromkeys(
        setting.parameters, setting.default
    )


@pytest.mark.parametrize("setting", [row for row in settings() if row.options], ids=lambda setting: setting.name)
def test_setting_on_the_page_has_the_same_default_in_the_shell(setting: Setting) -> None:
    group: Any = typer.main.get_command(app)
    options = {name: parameter for parameter in group.commands["grade"].params for name in parameter.opts}
    for option in setting.options:
        name, _, key = option.partition(" ")
        assert options[name].default == (None if key else setting.default)
        assert not key or key.partition("=")[0] in JUDGE_OPTIONS


@pytest.mark.parametrize("record", ["CallLimits", "TextLimits"])
def test_every_limit_is_on_the_page_of_the_settings(record: str) -> None:
    listed = {parameter for setting in settings() for parameter in setting.parameters}
    assert {f"{record}.{name}" for name in PUBLIC[record].model_fields} <= listed


def test_options_of_the_server_on_the_page_have_the_defaults_of_the_code() -> None:
    group: Any = typer.main.get_command(app)
    commands = {name: {opt: p for p in group.commands[name].params for opt in p.opts} for name in ("grade", "serve")}
    table = rows("settings.md", "option of `serve`")
    for option, python, default in table:
        value = ast.literal_eval(code(default)[0])
        assert commands["serve"][code(option)[0]].default == value
        assert {default_of(parameter) for parameter in code(python)} <= {value}
    for name, parameter in commands["serve"].items():
        if name in commands["grade"]:
            assert parameter.default == commands["grade"][name].default, name


def test_limits_on_the_page_are_those_of_the_code() -> None:
    assert {name: float(value.replace(",", "")) for name, value in rows("settings.md", "limit")} == LIMITS


# Files of responses.


def test_page_of_the_files_has_every_format_that_is_read() -> None:
    listed = [suffix for cells in rows("files.md", "file") for suffix in code(cells[0])]
    assert sorted(listed) == sorted(READERS)


def test_page_of_the_files_has_every_column_with_its_usual_names_in_order() -> None:
    table = {code(names)[0]: (tuple(code(names)), code(option)) for _, names, option in rows("files.md", "field")}
    assert {names[0]: names for names, _ in table.values()} == {names[0]: names for names in COLUMNS.values()}
    for field, (_, options) in table.items():
        option = f"--{field}" if field == "respond" else f"--{field}-column"
        assert options == ([option] if field in (*ColumnNames._fields, "respond") else [])


# The command line and the installation.


def test_exit_codes_on_the_pages_are_those_of_the_commands() -> None:
    assert [int(cells[0]) for cells in rows("cli.md", "code")] == list(Exit)
    # Those that end a build.
    assert [int(cells[0]) for cells in rows("ci.md", "exit code")] == list(Exit)[1:5]


def test_page_of_the_installation_has_every_extra() -> None:
    listed = [name for cells in rows("install.md", "extra") for name in code(cells[0])]
    assert sorted(listed) == sorted(EXTRAS)


# The CI recipe.


@pytest.fixture
def steps() -> dict[str, dict[str, Any]]:
    [job] = yaml.safe_load(blocks("ci.md", "yaml")[0])["jobs"].values()
    return {step["name"]: step for step in job["steps"] if "name" in step}


@pytest.mark.guides
def test_ci_recipe_with_the_offline_judge_grades_and_reports_and_then_reuses_its_judgments(
    steps: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "evals")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/rubric-integrations"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rubric_integrations "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "JUDGE": "offline"}

    def run(name: str) -> subprocess.CompletedProcess[str]:
        # The shell of GitHub's runners, which ends at the first command that fails.
        command = ["bash", "-e", "-c", steps[name]["run"]]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert run("Validate the rubric").returncode == Exit.DONE
    first = run("Grade")
    assert first.returncode == Exit.NOT_PASSED, first.stderr
    assert first.stderr.count("gate failed") == 2
    assert len(ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")) == 6
    assert run("Make the report page").returncode == Exit.DONE
    assert "judgments from the ledger" not in first.stdout
    assert "judgments from the ledger" in run("Grade").stdout
    for name in ("Restore the judgments of earlier builds", "Save the judgments", "Publish the report page"):
        assert (tmp_path / steps[name]["with"]["path"]).stat().st_size > 0
    assert steps["Publish the table of results"]["with"]["report_paths"] == "junit.xml"


def test_ci_recipe_saves_its_files_also_if_a_gate_fails_and_restores_the_latest_ledger(
    steps: dict[str, dict[str, Any]],
) -> None:
    names = list(steps)
    for name in names[names.index("Grade") + 1 :]:
        [file] = re.findall(r"hashFiles\('([\w.]+)'\)", steps[name]["if"])
        assert steps[name]["if"] == f"always() && hashFiles('{file}') != ''"
        assert file in str(steps[name].get("with", steps[name].get("run")))
    restore, save = steps["Restore the judgments of earlier builds"]["with"], steps["Save the judgments"]["with"]
    assert (save["path"], save["key"]) == (restore["path"], restore["key"])
    assert "run_id" in save["key"]
    assert "run_attempt" in save["key"]
    assert save["key"].startswith(restore["restore-keys"])


# Commands in the text and in examples of the shell.

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_on(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the long options of each of our commands on a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"rubric-integrations ([a-z]+)\b([^`\n|#&>]*)", text):
        yield name, re.findall(r"(?<=\s)-{1,2}[a-z][a-z-]*", rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_a_page_exist_with_their_options(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    options = {
        name: {
            "--help",
            *(option for parameter in command.params for option in parameter.opts + parameter.secondary_opts),
        }
        for name, command in group.commands.items()
    }
    commands = list(commands_on(page))
    assert {name for name, _ in commands} <= set(options)
    assert [(name, option) for name, used in commands for option in used if option not in options[name]] == []
