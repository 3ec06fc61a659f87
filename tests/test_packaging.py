"""What the package imports is what `pyproject.toml` declares, so that an installed wheel lacks nothing."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rubric_integrations.judges.fast_path import TESTED_DSPY
from tests.cli.test_doctor import DEVELOPMENT_EXTRAS
from tests.counts import total

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
# Each release of pydantic requires exactly one of pydantic-core, so that a bound of our own would say nothing.
PART_OF = {"pydantic-core": "pydantic"}
# pytest imports the plugin, so that it is installed wherever the plugin is used.
HOSTS = {"pytest"}
# A trainer calls the reward: its extra names the versions for which the reward is correct, and nothing imports it.
CALLERS = {"trl"}
# Trainers that call a function of their user's file, and are installed before this project is. No extra names them.
TRAINERS = {"nemo-gym", "rllm", "skyrl-gym", "swift", "tinker", "tinker-cookbook"}
# Functions that import the module whose name they get.
IMPORTERS = {"import_module", "import_library"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def modules_imported(source: str) -> Iterator[str]:
    """Yield the module of each absolute import, also of those inside functions and of those by name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(func=ast.Name(id=function), args=[ast.Constant(value=str(module)), *_]) if (
                function in IMPORTERS
            ):
                yield module
            case _:
                pass


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions that each installed module comes from."""
    return packages_distributions()


def distribution_of(module: str) -> str:
    """Return the distribution of a module; an unknown module stands for itself."""
    package, *parts = module.split(".")
    # Several distributions share these packages.
    if package == "opentelemetry":
        return "opentelemetry-sdk" if parts[:1] == ["sdk"] else "opentelemetry-api"
    if package == "langgraph":
        return "langgraph"
    return distributions().get(package, [package])[0]


def third_party(source: str) -> set[str]:
    """Return the distributions that a source needs, except this one."""
    own = {*sys.stdlib_module_names, "rubric_integrations", "tests"}
    modules = [m for m in modules_imported(source) if m.partition(".")[0] not in own]
    names = {canonicalize_name(distribution_of(module)) for module in modules}
    return {PART_OF.get(name, name) for name in names}


def names_of(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


CORE = names_of(PROJECT["dependencies"])
EXTRAS = {
    name: names_of(requirements)
    for name, requirements in PROJECT["optional-dependencies"].items()
    if name not in DEVELOPMENT_EXTRAS
}
DECLARED = CORE.union(*EXTRAS.values())


def test_package_imports_exactly_the_distributions_that_are_declared() -> None:
    modules = (ROOT / "rubric_integrations").rglob("*.py")
    imported = {name for module in modules for name in third_party(module.read_text(encoding="utf-8"))}
    assert imported - DECLARED - HOSTS == set(), "declare these in pyproject.toml"
    assert DECLARED - imported - CALLERS == set(), "nothing imports these: remove them from pyproject.toml"


def test_source_archive_includes_the_files_for_ci_and_coding_agents_which_the_tests_read() -> None:
    included = SETTINGS["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"AGENTS.md", "skills", "action.yml", ".pre-commit-hooks.yaml"} <= set(included)
    assert [name for name in included if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_imports_only_what_is_declared_or_what_it_says_how_to_install(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    installed = {
        canonicalize_name(name) for line in re.findall(r"pip install ([\w \-]+)", text) for name in line.split()
    }
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert {name for block in blocks for name in third_party(block)} - DECLARED - TRAINERS - installed == set()


def test_tested_releases_of_dspy_are_those_that_are_declared_and_installed() -> None:
    assert version("dspy") in TESTED_DSPY
    requirements = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    bounds = [match[1] for text in requirements if (match := re.fullmatch(r"dspy(?:\[\w+\])?>=([\d.]+),<3\.5", text))]
    assert [TESTED_DSPY[0]] * 2 == bounds
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"dspy=={TESTED_DSPY[-1]}" in lines


def selections(target: str) -> list[str]:
    """Return the markers with which a target of the Makefile selects tests, one for each run of pytest."""
    make = ["make", "--dry-run", "--always-make", "PROCESSES=2", target]
    # If make runs the tests, it passes its own options on to every make below it.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("FAMILIES", "MAKEFLAGS", "MAKEOVERRIDES")
    }
    done = subprocess.run(make, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return re.findall(r'-m pytest .* -m "(.*?)"', done.stdout)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_slow_tests_are_those_of_all_declared_families_and_no_test_is_in_both_parts() -> None:
    declared = [marker.partition(":")[0] for marker in SETTINGS["tool"]["pytest"]["ini_options"]["markers"]]
    slow = " or ".join(declared[1:])
    assert declared[0] == "rubric_gate"
    assert sorted(declared[1:]) == declared[1:]
    assert selections("test") == [f"not ({slow})"]
    assert selections("test-slow") == [slow]
    assert selections("test-all") == selections("coverage") == [f"not ({slow})", slow]


def test_each_declared_family_marks_a_test() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    # Tests with these fixtures are marked by `conftest.py`.
    by_fixture = {"browser", "postgres"}
    for marker in SETTINGS["tool"]["pytest"]["ini_options"]["markers"]:
        name = marker.partition(":")[0]
        assert name in by_fixture or re.search(rf"mark\.{name}\b", sources), name


def test_counts_of_two_runs_of_pytest_are_added() -> None:
    log = "7 passed, 1 skipped in 2.50s\n5 failed\n=== 2 failed, 3 passed, 1 warning in 61.25s (0:01:01) ===\n"
    assert total(log) == "10 passed, 1 skipped, 2 failed, 1 warnings in 63.75s"
