"""The rules of the architecture: layers, import cycles, module size, public names, light imports, runnable examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import rubric_integrations

ROOT = Path(rubric_integrations.__file__).parent
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

# A package imports itself and packages of lower layers. `docs/architecture.md` shows the same table.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_util",),
    ("rubric", "submission", "results"),
    ("scoring", "formats", "checks"),
    ("judges",),
    ("graders",),
    ("runs",),
    ("dspy", "langchain", "reporting", "redteam"),
    ("cli",),
    ("__init__", "__main__"),
)
LAYER_OF = {package: number for number, layer in enumerate(LAYERS) for package in layer}
# In these layers a package may also import those before it: a submission knows nothing of results.
ORDERED_LAYERS = (1, 2)
# `Rubric.from_file` and `Rubric.compute_score` are methods where users look for them; they import when called.
LAZY_EXCEPTIONS = {"rubric": {"formats", "scoring"}, "submission": {"results"}}
MAX_LINES = 320


class Import(NamedTuple):
    """One import of our own package: the module imported, and whether it happens only when a function is called."""

    module: str
    is_lazy: bool


def package_of(module: str) -> str:
    return module.removesuffix(".py").split("/")[0]


def imports_of(module: str) -> list[Import]:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(node) for function in functions for node in ast.walk(function)}
    type_checking = [
        block for block in ast.walk(tree) if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
    ]
    typing_only = {id(node) for block in type_checking for node in ast.walk(block)}
    imports: list[Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing_only:
            parts = node.module.split(".")
            if parts[0] == "rubric_integrations":
                for name in node.names:
                    path = "/".join([*parts[1:], name.name])
                    is_module = (ROOT / f"{path}.py").exists() or (ROOT / path).is_dir()
                    imports.append(Import(path if is_module else "/".join(parts[1:]), id(node) in lazy))
    return imports


@pytest.mark.parametrize("module", MODULES)
def test_import_of_a_module_points_to_a_lower_layer(module: str) -> None:
    package = package_of(module)
    assert package in LAYER_OF, f"{module} is in a package without a layer: add it to LAYERS and docs/architecture.md"
    for target, is_lazy in imports_of(module):
        imported = package_of(target)
        if imported == package or (is_lazy and imported in LAZY_EXCEPTIONS.get(package, ())):
            continue
        layer, imported_layer = LAYER_OF[package], LAYER_OF[imported]
        comes_earlier = (
            LAYERS[layer].index(package) > LAYERS[layer].index(imported) if layer == imported_layer else False
        )
        assert imported_layer < layer or (layer in ORDERED_LAYERS and comes_earlier), f"{module} imports {target}"


def test_imports_between_modules_have_no_cycle() -> None:
    graph = {
        module.removesuffix(".py"): {
            target if (ROOT / f"{target}.py").exists() else f"{target}/__init__".lstrip("/")
            for target, is_lazy in imports_of(module)
            if not is_lazy
        }
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other: {error.args[1]}")


@pytest.mark.parametrize("module", MODULES)
def test_module_is_not_longer_than_the_limit(module: str) -> None:
    lines = len((ROOT / module).read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{module} has {lines} lines: is it still about one topic?"


def test_the_front_door_loads_no_framework() -> None:
    code = (
        "import sys, rubric_integrations as r; r.Rubric; r.Criterion; r.RubricError; import rubric_integrations.cli;"
        "heavy = {'dspy', 'langchain_core', 'langsmith', 'litellm', 'openai', 'pandas', 'numpy', 'scipy', 'jinja2', "
        "'aiohttp', 'jsonschema'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_configures_no_logging_and_reads_no_files_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=leaked\n")
    code = (
        "import logging, os; before = list(logging.getLogger().handlers);"
        "from rubric_integrations import *; import rubric_integrations.cli;"
        "assert logging.getLogger().handlers == before; assert os.environ.get('OPENAI_API_KEY') != 'leaked'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    for name in rubric_integrations.__all__:
        assert getattr(rubric_integrations, name).__name__ == name
    assert set(dir(rubric_integrations)) == set(rubric_integrations.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        rubric_integrations.nonsense  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("module", [m for m in MODULES if m != "__main__.py"])
def test_examples_in_docstrings_run(module: str) -> None:
    name = "rubric_integrations." + module.removesuffix(".py").replace("/", ".").removesuffix("__init__").rstrip(".")
    loaded = importlib.import_module(name.rstrip("."))
    failed, _ = doctest.testmod(loaded, extraglobs={name: getattr(loaded, name) for name in dir(loaded)})
    assert failed == 0
