"""The rules of the architecture: layers, import cycles, module size, public names, registries, names and wording.

The functions that read the source (`layer_faults`, `import_cycle`, `length_faults`) are also run by `test_guides.py`,
on copies of the package.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import Mock

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "rubric_integrations"


def modules_of(root: Path) -> list[str]:
    """Return the paths of a package's modules, relative to the package."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))


MODULES = modules_of(ROOT)

# A package imports itself and packages of lower layers. `docs/architecture.md` shows the same table.
Layers: TypeAlias = tuple[tuple[str, ...], ...]
LAYERS: Layers = (
    ("_util",),
    ("rubric", "submission", "results"),
    ("scoring", "formats", "checks"),
    ("judges",),
    ("graders",),
    ("runs",),
    ("agreement",),
    (
        "dspy",
        "langchain",
        "pytest_plugin",
        "ray",
        "mlflow",
        "inspect_ai",
        "pydantic_evals",
        "reporting",
        "redteam",
        "server",
        "tracing",
        "training",
    ),
    ("cli",),
    ("__init__", "__main__"),
)
LAYER_OF = {package: number for number, layer in enumerate(LAYERS) for package in layer}
# In these layers a package may also import those before it: a submission knows nothing of results.
ORDERED_LAYERS = (1, 2)
# `Rubric.from_file` and `Rubric.compute_score` are methods where users look for them; they import when called.
LAZY_EXCEPTIONS = {"rubric": {"formats", "scoring"}, "submission": {"results"}}
MAX_LINES = 300

# The packages from which users import.
PUBLIC_PACKAGES = (
    "", "agreement", "checks", "dspy", "formats", "graders", "inspect_ai", "judges", "langchain", "mlflow",
    "pydantic_evals", "ray", "redteam", "reporting", "results", "runs", "server", "submission", "tracing", "training",
)  # fmt: skip
MAX_PARAMETERS = 15
VARIADIC = {
    "LMJudge.forward": "DSPy's optimizers pass the fields of a signature as keyword arguments",
    "LMJudge.aforward": "DSPy's optimizers pass the fields of a signature as keyword arguments",
    "RubricRunnable.invoke": "an override of LangChain's `Runnable.invoke`",
    "RubricRunnable.ainvoke": "an override of LangChain's `Runnable.ainvoke`",
    "RubricEvaluator.__call__": "openevals passes further arguments to evaluators",
    "RubricEvaluator.acall": "openevals passes further arguments to evaluators",
    "RubricReward.__call__": "TRL passes each column of the dataset as a keyword argument",
}
LARGE_RECORDS = {
    "Check": "an entry of a rubric file, of which one condition must be written",
    "Criterion": "an entry of a rubric file, of which only the requirement must be written",
    "EvaluationReport": "the result of a grade, which users read and do not construct",
    "CriterionAgreement": "the figures of a criterion, which users read and do not construct",
    "CriterionReport": "the result of a criterion, which users read and do not construct",
    "RunSummary": "the result of a run, which users read and do not construct",
}
UNDOCUMENTED_CONSTRUCTORS = {"Run": "`grade_many` makes it, and documents the same arguments"}

# Participles say nothing about what a variable holds: `answers`, not `given`; `results`, not `found`.
BANNED_NAMES = {"said", "told", "given", "found", "asked"}
ANY_BANNED_NAME = re.compile(rf"\b_*({'|'.join(sorted(BANNED_NAMES))})_*\b")
# Words in which only this project ever spoke of its own parts.
BANNED_WORDS = re.compile(
    r"\b(said|told|mend|mends|mended|as whom|the way of|what becomes of|asked of|bought|dear|dearer|dearest|twins?|"
    r"anew|front door|rooms?|houses?)\b",
    re.IGNORECASE,
)


class Import(NamedTuple):
    """One import of our own package: the module imported, and whether it happens only when a function is called."""

    module: str
    is_lazy: bool


def package_of(module: str) -> str:
    return module.removesuffix(".py").split("/")[0]


# By the source and not by the path: the copies of the package that `test_guides.py` makes have nearly the same sources.
@cache
def nodes_in(source: str) -> list[ast.AST]:
    """Return all nodes of the syntax tree of a source."""
    return list(ast.walk(ast.parse(source)))


def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of the syntax tree of a file."""
    return nodes_in(path.read_text(encoding="utf-8"))


@cache
def names_imported_by(source: str) -> list[tuple[tuple[str, ...], bool]]:
    """Return each name of our own package that a source imports, as a path, and whether only a call imports it."""
    nodes = nodes_in(source)
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(node) for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)}
    type_checking = [block for block in nodes if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)]
    typing_only = {id(node) for block in type_checking for node in ast.walk(block)}
    names: list[tuple[tuple[str, ...], bool]] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing_only:
            package, *parts = node.module.split(".")
            if package == "rubric_integrations":
                names += [((*parts, name.name), id(node) in lazy) for name in node.names]
    return names


def imports_of(module: str, root: Path) -> list[Import]:
    """Return the modules of our own package that a module imports."""
    imports: list[Import] = []
    for parts, is_lazy in names_imported_by((root / module).read_text(encoding="utf-8")):
        path = "/".join(parts)
        is_module = (root / f"{path}.py").exists() or (root / path).is_dir()
        imports.append(Import(path if is_module else "/".join(parts[:-1]), is_lazy))
    return imports


def layer_faults(root: Path, layers: Layers) -> list[str]:
    """Return one message for each import that does not point to a lower layer."""
    layer_of = {package: number for number, layer in enumerate(layers) for package in layer}
    faults: list[str] = []
    for module in modules_of(root):
        package = package_of(module)
        if package not in layer_of:
            faults.append(f"{module} is in a package without a layer: add it to LAYERS and docs/architecture.md")
            continue
        layer = layer_of[package]
        allowed = {package, *(other for lower in layers[:layer] for other in lower)}
        if layer in ORDERED_LAYERS:
            allowed |= set(layers[layer][: layers[layer].index(package)])
        faults += [
            f"{module} imports {target}"
            for target, is_lazy in imports_of(module, root)
            if package_of(target) not in allowed
            and not (is_lazy and package_of(target) in LAZY_EXCEPTIONS.get(package, ()))
        ]
    return faults


def import_cycle(root: Path) -> list[str]:
    """Return modules that import each other in a cycle, or an empty list."""
    graph = {
        module.removesuffix(".py"): {
            target if (root / f"{target}.py").exists() else f"{target}/__init__".lstrip("/")
            for target, is_lazy in imports_of(module, root)
            if not is_lazy
        }
        for module in modules_of(root)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def length_faults(root: Path) -> list[str]:
    """Return one message for each module that is longer than the limit."""
    lengths = {module: len((root / module).read_text(encoding="utf-8").splitlines()) for module in modules_of(root)}
    return [f"{module} has {lines} lines: split it by topic" for module, lines in lengths.items() if lines > MAX_LINES]


def test_imports_of_all_modules_point_to_lower_layers() -> None:
    assert layer_faults(ROOT, LAYERS) == []


def test_imports_between_modules_have_no_cycle() -> None:
    assert import_cycle(ROOT) == []


def test_modules_are_not_longer_than_the_limit() -> None:
    assert length_faults(ROOT) == []


def test_architecture_page_names_every_package_in_its_layer_and_only_modules_that_exist() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (.+?) \| .*? \| (.*) \|$", page, re.MULTILINE)
    packages = {name: int(layer) for layer, names, _ in rows for name in re.findall(r"`(\w+)/?`", names)}
    assert packages == {name: layer for name, layer in LAYER_OF.items() if not name.endswith("__")}
    for _, names, modules in rows:
        folder = ROOT / re.findall(r"`(\w+)/?`", names)[0]
        for name in re.findall(r"`([\w/]+)`", modules):
            paths = [folder / f"{name}.py", folder / name, *folder.glob(f"*/{name}.py")]
            assert any(path.exists() for path in paths), f"docs/architecture.md names `{name}`, which is not there"


def test_importing_the_package_and_the_command_line_imports_no_framework() -> None:
    code = (
        "import sys, rubric_integrations as r; r.Rubric; r.Criterion; r.RubricError; import rubric_integrations.cli;"
        "heavy = {'dspy', 'langchain_core', 'langsmith', 'litellm', 'openai', 'pandas', 'numpy', 'scipy', 'jinja2', "
        "'aiohttp', 'jsonschema'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_configures_no_logging_and_reads_no_files_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=leaked\n")
    code = (
        "import logging, os; before = list(logging.getLogger().handlers);"
        "from rubric_integrations import *; import rubric_integrations.cli;"
        "assert logging.getLogger().handlers == before; assert os.environ.get('OPENAI_API_KEY') != 'leaked'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [m for m in MODULES if m != "__main__.py"])
def test_examples_in_docstrings_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each docstring makes a debugger, which would look at the files of all modules for changes.
    monkeypatch.setattr("linecache.checkcache", Mock())
    loaded = imported(module)
    failed, _ = doctest.testmod(loaded, extraglobs={name: getattr(loaded, name) for name in dir(loaded)})
    assert failed == 0


# Public names.


def imported(module: str) -> Any:
    path = module.removesuffix(".py").removesuffix("__init__").strip("/")
    return importlib.import_module(".".join(["rubric_integrations", *path.split("/")]).rstrip("."))


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each public class and function of ours.

    The second class of one name, as of the evaluators of two frameworks, has the name of its package before it.
    """
    values: dict[str, Any] = {}
    for package in PUBLIC_PACKAGES:
        loaded = imported(package)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield (name if values.setdefault(name, value) is value else f"{package}.{name}"), value


PUBLIC = dict(public_objects())


def own_classes(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("rubric_integrations")]


def constructor_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class's constructor; none if it has only an inherited one of another package."""
    is_record = issubclass(cls, tuple) or hasattr(cls, "model_fields")
    if not is_record and not any("__init__" in vars(base) for base in own_classes(cls)):
        return {}
    if getattr(cls, "_is_protocol", False):
        return {}
    # Not `signature(cls)`: DSPy's metaclass hides the parameters of a module.
    parameters = inspect.signature(cls if is_record else cls.__init__).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def public_callables() -> Iterator[tuple[str, dict[str, inspect.Parameter]]]:
    for name, value in PUBLIC.items():
        if inspect.isfunction(value):
            yield name, dict(inspect.signature(value).parameters)
            continue
        yield name, constructor_parameters(value)
        for base in own_classes(value):
            for member, function in vars(base).items():
                if (
                    inspect.isroutine(function)
                    and type(function).__name__ != "cached_property"
                    and (member == "__call__" or not member.startswith("_"))
                ):
                    yield f"{name}.{member}", dict(inspect.signature(getattr(value, member)).parameters)


@pytest.mark.parametrize("module", [m for m in MODULES if m.endswith("__init__.py")])
def test_public_names_of_a_package_exist_and_are_sorted_and_are_no_modules(module: str) -> None:
    package = imported(module)
    names: list[str] = list(getattr(package, "__all__", []))
    # Constants, then classes, then functions: the order that ruff gives `__all__`.
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    folder = (ROOT / module).parent
    for name in names:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__name__ == name or not value.__module__.startswith("rubric_integrations")
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        assert not is_module, f"`{name}` is a module of {module}, and importing it would replace the public name"
    if "__getattr__" in vars(package):
        assert set(dir(package)) == set(names)
        with pytest.raises(AttributeError, match="nonsense"):
            _ = package.nonsense


def test_public_callables_have_few_and_no_variadic_parameters() -> None:
    callables = dict(public_callables())
    variadic = {
        name
        for name, parameters in callables.items()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    }
    assert variadic == set(VARIADIC)
    large = {name for name, parameters in callables.items() if len(parameters) > MAX_PARAMETERS}
    assert large == set(LARGE_RECORDS)


@pytest.mark.parametrize("name", sorted(name for name, value in PUBLIC.items() if inspect.isclass(value)))
def test_constructor_of_a_public_class_has_typed_and_documented_parameters(name: str) -> None:
    cls = PUBLIC[name]
    parameters = constructor_parameters(cls)
    assert [parameter for parameter in parameters.values() if parameter.annotation is parameter.empty] == []
    if name not in UNDOCUMENTED_CONSTRUCTORS:
        docstrings = "\n".join(base.__doc__ or "" for base in own_classes(cls))
        assert [parameter for parameter in parameters if not re.search(rf"^ +{parameter}:", docstrings, re.M)] == []


# Registries. Those of conditions, metrics, formats, voting strategies and commands are tested in their packages.


def test_named_judge_has_a_fingerprint_and_a_name_that_no_model_has() -> None:
    from rubric_integrations.judges import NAMED_JUDGES, Judge, as_judge
    from rubric_integrations.judges.protocol import fingerprint_of

    for name in NAMED_JUDGES:
        judge = as_judge(name)
        assert isinstance(judge, Judge)
        assert fingerprint_of(judge)
        assert "/" not in name


def test_every_concrete_grader_is_registered_for_rescoring() -> None:
    from rubric_integrations import graders

    classes = [PUBLIC[name] for name in graders.__all__ if inspect.isclass(PUBLIC[name])]
    concrete = [cls for cls in classes if issubclass(cls, graders.Grader) and not inspect.isabstract(cls)]
    assert {cls.__name__: cls for cls in concrete} == graders.GRADERS


def test_every_module_that_makes_a_model_is_a_source_of_models() -> None:
    from rubric_integrations.judges.models import MODEL_SOURCES

    modules = [imported(module) for module in MODULES if module.startswith("judges/models/")]
    makers = {value for module in modules for name, value in vars(module).items() if name.startswith("lm_from_")}
    registered = {source.make.__name__ for source in MODEL_SOURCES.values()}
    assert {maker.__name__ for maker in makers} == (registered - {"_with_its_key"}) | {"lm_from_name"}


# Names and wording.


def bound_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every name that a file binds, with its line, if one of the banned names is anywhere in the file."""
    source = path.read_text(encoding="utf-8")
    for node in nodes_in(source) if ANY_BANNED_NAME.search(source) else ():
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case _:
                pass


def prose(path: Path, in_package: bool) -> Iterator[tuple[int, str]]:
    """Yield every docstring and comment of a file and, in the package, every text, which may be part of a message."""
    source = path.read_text(encoding="utf-8")
    # A file in which the pattern matches nowhere has no comment with a match, whatever its comments are.
    for token in tokenize.generate_tokens(io.StringIO(source).readline) if BANNED_WORDS.search(source) else ():
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    # The same holds for texts, of which neighbouring parts are one text.
    nodes = nodes_in(source) if BANNED_WORDS.search(re.sub(r"""["']\s*[a-zA-Z]*["']""", "", source)) else []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (in_package or id(node) in docstrings):
            yield node.lineno, node.value


def assert_no_findings(check: Callable[[Path], Iterator[tuple[int, str]]]) -> None:
    folders = ("rubric_integrations", "tests", "examples", "benchmarks", "docs")
    files = {path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")} - {Path(__file__)}
    findings = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word}" for path in sorted(files) for line, word in check(path)
    ]
    assert not findings, "\n".join(findings)


def test_variables_are_called_by_what_they_hold() -> None:
    def check(path: Path) -> Iterator[tuple[int, str]]:
        for line, name in bound_names(path):
            if name.strip("_") in BANNED_NAMES:
                yield line, name

    assert_no_findings(check)


def test_docstrings_comments_and_messages_use_the_words_of_the_field() -> None:
    # The texts of attacks and of the replies to them imitate anything that people write.
    data = {"attack_texts.py", "reply_check.py"}

    def check(path: Path) -> Iterator[tuple[int, str]]:
        in_package = path.is_relative_to(ROOT) and path.name not in data
        for line, text in prose(path, in_package):
            for match in BANNED_WORDS.finditer(text):
                yield line, match[0]

    assert_no_findings(check)
