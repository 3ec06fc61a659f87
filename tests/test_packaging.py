"""What the package imports is what `pyproject.toml` declares, so that an installed wheel lacks nothing."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.test_doctor import DEVELOPMENT_EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Each release of pydantic requires exactly one of pydantic-core, so that a bound of our own would say nothing.
PART_OF = {"pydantic-core": "pydantic"}
# pytest imports the plugin, so that it is installed wherever the plugin is used.
HOSTS = {"pytest"}
# A trainer calls the reward: its extra names the versions for which the reward is correct, and nothing imports it.
CALLERS = {"trl"}
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
    if package == "opentelemetry":  # several distributions share it
        return "opentelemetry-sdk" if parts[:1] == ["sdk"] else "opentelemetry-api"
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_imports_only_what_is_declared_or_what_it_says_how_to_install(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    installed = {
        canonicalize_name(name) for line in re.findall(r"pip install ([\w \-]+)", text) for name in line.split()
    }
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert {name for block in blocks for name in third_party(block)} - DECLARED - installed == set()
