"""The house rules: imports point down, the front door is light, and every example in a docstring runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rubric_integrations

ROOT = Path(rubric_integrations.__file__).parent
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

# Each room's floor; a room may import its own folder and what lies below. `docs/architecture.md` shows it.
FLOORS = {
    "record": 0,
    "display": 0, "results": 2,
    "tree": 0, "quantity": 0, "background": 0, "check": 0, "criterion": 0, "rubric": 0, "submission": 0,
    "conversation": 0, "spend": 0, "verdict": 0,
    "answers": 1, "length": 1, "responses": 1,
    "scoring": 2, "score_range": 3, "scoring_arrays": 3, "voting": 2, "labels": 2, "formats": 3, "lint": 3,
    "judges": 3,
    "graders": 4, "ledger": 4,
    "progress": 4, "rescoring": 5, "runner": 5, "probe": 5,
    "dspy": 6, "langchain": 6, "reporting": 6,
    "cli": 7, "__main__": 8, "__init__": 8,
}  # fmt: skip
# A rubric is data, but `Rubric.from_file` and its siblings are where a user looks: these doors open when used.
DOORS = {"rubric": {"formats", "scoring"}}


def room_of(module: str) -> str:
    return module.removesuffix(".py").split("/")[0]


def ours(tree: ast.AST) -> list[tuple[str, bool]]:
    """The rooms that a module imports, and whether only inside a function."""
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)
    }
    typing_only = {
        id(n)
        for i in ast.walk(tree)
        if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.dump(i.test)
        for n in ast.walk(i)
    }
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing_only:
            parts = node.module.split(".")
            if parts[0] == "rubric_integrations":
                rooms = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
                found += [(room, id(node) in inside) for room in rooms]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    room = room_of(module)
    assert room in FLOORS, f"{module} is a room without a floor: add it to FLOORS and to docs/architecture.md"
    for target, lazily in ours(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if target in DOORS.get(room, ()) and lazily:
            continue
        same_floor_is_fine = FLOORS[target] == FLOORS[room] and (target == room or FLOORS[room] == 0)
        assert FLOORS[target] < FLOORS[room] or same_floor_is_fine, f"{module} imports {target}"


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_one_thought(module: str) -> None:
    lines = len((ROOT / module).read_text(encoding="utf-8").splitlines())
    assert lines <= 330, f"{module} has {lines} lines"


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
