"""The package `rubric_integrations.langchain`: lazy imports, optional dependencies and public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rubric_integrations.langchain


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.processes
def test_import_loads_no_framework_and_an_adapter_loads_no_dspy() -> None:
    run_python("""
import sys
import rubric_integrations.langchain
assert not {"dspy", "langchain_core", "langsmith"} & set(sys.modules), "at import"
from rubric_integrations import Rubric
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable
rubric = Rubric.from_dict([{"weight": 1, "requirement": "a", "check": {"contains": "a"}}])
evaluator, runnable = RubricEvaluator(rubric, judge="openai/m"), RubricRunnable(rubric, judge="openai/m")
assert "dspy" not in sys.modules, "before a judge is made"
assert RubricEvaluator(rubric, judge="offline")(outputs="a")["score"] == 1.0
""")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("RubricMiddleware", "langchain", "langchain"),
        ("RubricStringEvaluator", "langchain_classic", "langchain-classic"),
    ],
)
def test_import_without_an_optional_package_names_its_extra(name: str, package: str, extra: str) -> None:
    message = run_python(f"""
import sys
sys.modules["{package}"] = None
try:
    from rubric_integrations.langchain import {name}
except ModuleNotFoundError as error:
    print(error)
""")
    assert f"`{name}` needs the package `{package}`" in message
    assert f"pip install {extra}" in message


@pytest.mark.processes
def test_star_import_without_the_optional_packages_leaves_out_their_names() -> None:
    imported = run_python("""
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
def find_others(name, path=None, target=None):
    return None if name.split(".")[0] in ("langchain", "langchain_classic") else find_spec(name, path, target)
PathFinder.find_spec = find_others
from rubric_integrations.langchain import *
print(*[name for name in globals() if "ubric" in name])
""").split()
    needs_package = {"RubricMiddleware", "RubricStringEvaluator", "RubricPairwiseStringEvaluator"}
    assert set(imported) == {name for name in rubric_integrations.langchain.__all__ if "ubric" in name} - needs_package


def test_public_names_are_defined_and_listed() -> None:
    for name in rubric_integrations.langchain.__all__:
        assert getattr(rubric_integrations.langchain, name).__name__ == name
    assert dir(rubric_integrations.langchain) == rubric_integrations.langchain.__all__
    with pytest.raises(AttributeError, match="nonsense"):
        rubric_integrations.langchain.nonsense  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
