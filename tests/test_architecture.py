"""The rules of the architecture: rings, import cycles, public names, registries, names and wording.

The functions that read the source (`ring_faults`, `import_cycle`) are also run by `test_guides.py`, on copies of the
package.
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
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_type_hints
from unittest.mock import MagicMock, Mock

import dspy
import pytest
from dspy.clients import model_metadata

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "rubric_integrations"


def modules_of(root: Path) -> list[str]:
    """Return the paths of a package's modules, relative to the package."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))


def package_of(module: str) -> str:
    return module.removesuffix(".py").split("/")[0]


MODULES = modules_of(ROOT)

# A package imports its own ring and those before it. Every other package is a host, in the outermost ring.
Rings: TypeAlias = dict[str, tuple[str, ...]]
RINGS: Rings = {
    "core": ("rubric", "submission", "scoring", "formats", "checks", "judges", "graders", "runs", "library"),
    "trust": ("trust", "redteam"),
}
# A host never imports another, but these, and the command line imports all.
SHARED_BY_HOSTS = {"_host", "reporting"}

# The packages and modules from which users import: those with `__all__`. A nested package is a part of the one above
# it, and users of the command line import nothing.
PUBLIC_PACKAGES = tuple(
    module.removesuffix(".py").removesuffix("__init__").rstrip("/")
    for module in MODULES
    if re.fullmatch(r"(?:\w+/)?__init__\.py|\w+\.py", module)
    and package_of(module) != "cli"
    and re.search(r"^__all__ = ", (ROOT / module).read_text(encoding="utf-8"), re.MULTILINE)
)
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
    "Rubric": "a rubric file, of which only the criteria must be written",
    "EvaluationReport": "the result of a grade, which users read and do not construct",
    "CriterionAgreement": "the figures of a criterion, which users read and do not construct",
    "CriterionReport": "the result of a criterion, which users read and do not construct",
    "GateResult": "the decision of a gate, which users read and do not construct",
    "DriftReport": "the figures of a check, which users read and do not construct",
    "JudgeComparison": "the figures of two judges, which users read and do not construct",
    "RunComparison": "the figures of a comparison, which users read and do not construct",
    "RunSummary": "the result of a run, which users read and do not construct",
}
# Names in the hints of public callables that do not resolve at run time, and the reason.
UNRESOLVED_HINTS = {
    "BaseTool": "a hint of `AgentMiddleware`, the base class, which LangChain does not resolve",
    "Context": "OpenTelemetry is an extra, imported when tracing is switched on",
    "DataFrame": "pandas is an extra, imported when a table is made",
    "DecisionProgram": "DSPy is imported when a program of a decision judge is made",
    "LoggerProvider": "OpenTelemetry is an extra, imported when tracing is switched on",
    "Module": "DSPy is imported when a program of a decision judge is made",
    "Submission": "`submission` imports `rubric`, and is imported when a `Case` is read",
    "TracerProvider": "OpenTelemetry is an extra, imported when tracing is switched on",
    "TransformerFactory": "a hint of `AgentMiddleware`, the base class, which LangChain does not resolve",
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


# Users of each framework look for this name.
CLASSES_OF_FRAMEWORKS = {"RubricEvaluator": ["langchain/evaluator.py", "pydantic_evals.py"]}
FILE_NAME = re.compile(r"`([\w./]+\.py)`")


# Where an object of DSPy is made or read. A folder ends with a slash.
DSPY_MODULES = {
    "judges/lm_judge.py": "a judge is a `dspy.Module`",
    "judges/explorer.py": "an explorer is a `dspy.Module`",
    "judges/decision_program.py": "makes a `dspy.Predict`, and is imported lazily",
    "judges/saved.py": "saves and loads the prompts of a `dspy.Module`",
    "judges/prompts/signatures.py": "the signatures and the adapter",
    "judges/fast_path.py": "the form of a request depends on the `dspy.LM` and the `dspy.Predict`",
    "judges/engines.py": "engines that take the place of DSPy's own",
    "judges/provider.py": "reads the requests of DSPy, and is imported lazily",
    "judges/models/": "makes and describes a `dspy.LM`, and sorts its errors",
    "judges/metric_score.py": "reads the `dspy.Prediction` of a metric",
    "submission/predictions.py": "reads a `dspy.Prediction`, and is imported only for one",
    "dspy/": "the host",
    "trust/proposals.py": "the signature by which a model proposes criteria",
    "trust/alignment/": "optimizes a judge with the optimizers of DSPy",
    "redteam/": "attacks the prompt as DSPy renders it",
}

# Private names of DSPy that the package uses, and the reason.
PRIVATE_NAMES_OF_DSPY = {
    ("judges/prompts/signatures.py", "_prepare_response_format"): "the only place where an adapter chooses a format",
    ("judges/metric_score.py", "_store"): "a score is a `dspy.Prediction` that is also a number",
    ("dspy/feedback_text.py", "_store"): "adds the feedback to such a score",
}


class Import(NamedTuple):
    """One import of our own package: the module imported, and whether it happens only when a function is called."""

    module: str
    is_lazy: bool


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


def ring_faults(root: Path, rings: Rings) -> list[str]:
    """Return one message for each import that its ring forbids."""
    ring_of = {package: number for number, packages in enumerate(rings.values()) for package in packages}
    # `_util` is inside of all rings, and so is the top level, from which only names are imported at first use.
    ring_of |= {"_util": -1, "": -1}
    hosts = len(rings)
    faults: list[str] = []
    for module in modules_of(root):
        package = package_of(module)
        if package in ("__init__", "__main__"):
            continue
        ring = ring_of.get(package, hosts)
        for target, _ in imports_of(module, root):
            other = package_of(target)
            ring_of_other = ring_of.get(other, hosts)
            is_beside = ring_of_other == ring and (ring != hosts or package == "cli" or other in SHARED_BY_HOSTS)
            if other != package and not (ring_of_other < ring or is_beside):
                faults.append(f"{module} imports {target}")
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


def test_imports_of_all_modules_obey_the_rings() -> None:
    assert ring_faults(ROOT, RINGS) == []


def test_import_of_another_host_or_of_an_outer_ring_is_a_fault(tmp_path: Path) -> None:
    sources = {
        "rubric/rubric.py": "from rubric_integrations.dspy.metric import RubricMetric",
        "dspy/metric.py": "from rubric_integrations.langchain.runnable import RubricRunnable",
        "langchain/runnable.py": "from rubric_integrations.reporting.grades import junit",
        "cli/grade.py": "from rubric_integrations.langchain.runnable import RubricRunnable",
        "scoring/formula.py": "from rubric_integrations.other.module import name",
        "other/module.py": "from rubric_integrations.scoring.formula import score_values",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    assert ring_faults(tmp_path, RINGS) == [
        "dspy/metric.py imports langchain/runnable",
        "rubric/rubric.py imports dspy/metric",
        "scoring/formula.py imports other/module",
    ]


def test_imports_between_modules_have_no_cycle() -> None:
    assert import_cycle(ROOT) == []


def test_architecture_page_names_only_files_that_exist() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", page)
    missing = [name for name in names if not (ROOT / name).exists() and not (REPOSITORY / name).exists()]
    assert names
    assert missing == []


def test_docstrings_and_comments_name_only_files_that_exist() -> None:
    missing: list[str] = []
    for module in MODULES:
        for line, text in prose(ROOT / module, in_package=False, pattern=FILE_NAME):
            for name in FILE_NAME.findall(text):
                folders = (ROOT, REPOSITORY, (ROOT / module).parent)
                if not any((folder / name).exists() for folder in folders):
                    missing.append(f"{module}:{line}: {name}")
    assert missing == []


def imports_dspy(path: Path) -> bool:
    """Whether a module imports DSPy when it runs, also in a function."""
    nodes = nodes_of(path)
    type_checking = [block for block in nodes if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)]
    typing_only = {id(node) for block in type_checking for node in ast.walk(block)}
    names = [
        name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in typing_only
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]
    return any(name.split(".")[0] == "dspy" for name in names)


@cache
def private_names_of_dspy() -> set[str]:
    """Return the names with an underscore of the classes, objects and modules of DSPy that a judge deals with."""
    classes = (dspy.Adapter, dspy.JSONAdapter, dspy.LM, dspy.BaseLM, dspy.Module, dspy.Predict, dspy.Prediction)
    objects = (dspy.LM("openai/m"), dspy.Prediction(), dspy.Predict("a -> b"), model_metadata)
    names = {name for holder in (*classes, *objects) for name in dir(holder)}
    return {name for name in names if name.startswith("_") and not name.endswith("__")}


def uses_of_dspys_private_names(source: str) -> Iterator[str]:
    """Yield the private modules of DSPy that a module imports, and DSPy's private names that it uses."""
    private = private_names_of_dspy()
    nodes = nodes_in(source)
    own = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names]
            modules = [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else names
            yield from (
                part for name in modules if name.startswith("dspy") for part in name.split(".") if part[0] == "_"
            )
        elif isinstance(node, ast.Attribute) and node.attr in private and f"self.{node.attr}" not in own:
            yield node.attr


def test_dspy_is_used_by_its_public_names() -> None:
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in MODULES}
    with_dspy = {name: source for name, source in sources.items() if "dspy" in source}
    used = {(name, used) for name, source in with_dspy.items() for used in uses_of_dspys_private_names(source)}
    assert used == set(PRIVATE_NAMES_OF_DSPY)


def test_dspy_is_imported_only_where_its_objects_are_made_or_read() -> None:
    importing = [module for module in MODULES if imports_dspy(ROOT / module)]
    assert [module for module in importing if not module.startswith(tuple(DSPY_MODULES))] == []
    assert [place for place in DSPY_MODULES if not any(module.startswith(place) for module in importing)] == []


@pytest.mark.processes
def test_importing_the_package_and_the_command_line_imports_no_framework() -> None:
    code = (
        "import sys, rubric_integrations as r; r.Rubric; r.Criterion; r.RubricError; import rubric_integrations.cli;"
        "heavy = {'dspy', 'langchain_core', 'langsmith', 'litellm', 'openai', 'pandas', 'numpy', 'scipy', 'jinja2', "
        "'aiohttp', 'jsonschema'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.processes
def test_grading_without_a_model_imports_neither_dspy_nor_litellm(tmp_path: Path) -> None:
    rubric, rows = (ROOT.parent / "examples" / "quarterly_margin" / name for name in ("rubric.yaml", "responses.jsonl"))
    arguments = ["grade", str(rubric), str(rows), "--out", str(tmp_path / "run.jsonl"), "--ledger", str(tmp_path / "l")]
    code = (
        "import atexit, sys; from rubric_integrations import PerCriterionGrader, Rubric;"
        "from rubric_integrations.testing import ScriptedJudge; from rubric_integrations.cli import main;"
        "rubric = Rubric.from_dict([{'requirement': 'It says `42`'}]);"
        "reports = [rubric.grade_sync('42', PerCriterionGrader(judge)) for judge in ('offline', ScriptedJudge('MET'))];"
        "atexit.register(lambda: print(sorted({'dspy', 'litellm', 'openai'} & set(sys.modules)), reports[1].score));"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[] 1.0"]), done.stdout + done.stderr


@pytest.mark.processes
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


def hinted_objects() -> Iterator[tuple[str, Any]]:
    """Yield the name and the object of every public function and class, and of the public members of our classes."""
    for name, value in PUBLIC.items():
        yield name, value
        for base in own_classes(value) if inspect.isclass(value) else ():
            for member, attribute in vars(base).items():
                if member in ("__init__", "__call__") or not member.startswith("_"):
                    function = getattr(attribute, "fget", None) or getattr(attribute, "func", attribute)
                    if inspect.isroutine(function):
                        yield f"{name}.{member}", getattr(function, "__func__", function)


def unresolved_names(value: Any) -> Iterator[str]:
    """Yield each name in the hints of a function or a class that its module does not define at run time."""
    stand_ins: dict[str, Any] = {}
    while True:
        try:
            get_type_hints(value, localns=stand_ins)
        except NameError as error:
            name = str(error.name)
            yield name
            stand_ins[name] = MagicMock()
        else:
            return


def test_hints_of_public_callables_resolve_at_run_time() -> None:
    unresolved = {(name, unknown) for name, value in hinted_objects() for unknown in unresolved_names(value)}
    assert {(name, unknown) for name, unknown in unresolved if unknown not in UNRESOLVED_HINTS} == set()
    assert {unknown for _, unknown in unresolved} == set(UNRESOLVED_HINTS)


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
    from rubric_integrations.judges.models.names import MODEL_SOURCES

    modules = [imported(module) for module in MODULES if module.startswith("judges/models/")]
    makers = {value for module in modules for name, value in vars(module).items() if name.startswith("lm_from_")}
    registered = {source.make.__name__ for source in MODEL_SOURCES.values()}
    assert {maker.__name__ for maker in makers} == (registered - {"_with_its_key"}) | {"lm_from_name"}


# Size.

GRADER_MODULES = [module for module in MODULES if module.startswith("graders/")]
# The most branches of a function in a module: loops, conditions and their parts, and handlers of errors.
MAX_BRANCHES = {"submission/files.py": 15, **dict.fromkeys(GRADER_MODULES, 12)}
MAX_LEVELS = 3
# A private function of so many lines needs a docstring. Ruff checks the public functions.
LONG_FUNCTION = 15
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)


def functions_of(module: str) -> list[Function]:
    return [node for node in nodes_of(ROOT / module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def branches_of(function: ast.AST) -> int:
    """Return the number of branches of a function, without those of functions within it."""
    count, nodes = 0, list(ast.iter_child_nodes(function))
    for node in nodes:  # which grows
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        kinds = ast.If | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.match_case
        count += isinstance(node, kinds)
    return count


def levels_of(node: ast.AST) -> int:
    """Return how deep the blocks in a node are nested, without those of functions within it."""
    inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, Function | ast.Lambda)]
    is_elif = isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
    levels = [
        levels_of(child) + (isinstance(child, BLOCKS) and not (is_elif and child in getattr(node, "orelse", ())))
        for child in inner
    ]
    return max(levels, default=0)


@pytest.mark.parametrize("module", MAX_BRANCHES)
def test_function_has_few_branches(module: str) -> None:
    most = MAX_BRANCHES[module]
    assert {function.name: count for function in functions_of(module) if (count := branches_of(function)) > most} == {}


def test_branches_and_levels_of_a_function_are_counted() -> None:
    source = """
async def call(items):
    async with slot:
        try:
            if a and b: pass
            elif c: pass
            else: pass
        except ValueError:
            return [item for item in items if item]
    def inner():
        for item in items: pass
"""
    function = ast.parse(source).body[0]
    assert (branches_of(function), levels_of(function)) == (5, 3)


def test_long_private_function_has_a_docstring() -> None:
    private = [
        (module, function)
        for module in MODULES
        for function in functions_of(module)
        if re.match("_[^_]", function.name)
    ]
    assert [
        f"{module}:{function.lineno}: {function.name}"
        for module, function in private
        if (function.end_lineno or 0) - function.lineno + 1 >= LONG_FUNCTION and ast.get_docstring(function) is None
    ] == []


@pytest.mark.parametrize("module", GRADER_MODULES)
def test_function_of_graders_is_nested_at_most_three_levels_deep(module: str) -> None:
    deep = {function.name: levels for function in functions_of(module) if (levels := levels_of(function)) > MAX_LEVELS}
    assert deep == {}


# State.


class Assignment(NamedTuple):
    """An assignment to an attribute in a method: `owner.attribute = ...`."""

    owner: str
    attribute: str
    method: str


def assignments_of(cls: ast.ClassDef) -> set[Assignment]:
    return {
        Assignment(ast.unparse(node.value), node.attr, method.name)
        for method in cls.body
        if isinstance(method, Function)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    }


GRADER_CLASSES = {
    node.name: node for module in GRADER_MODULES for node in nodes_of(ROOT / module) if isinstance(node, ast.ClassDef)
}


def bases_of(name: str) -> list[str]:
    """Return the names of the base classes of a class that are in `graders`."""
    direct = [base for node in GRADER_CLASSES[name].bases if (base := ast.unparse(node)) in GRADER_CLASSES]
    return [*direct, *(further for base in direct for further in bases_of(base))]


def test_private_attribute_of_graders_is_assigned_by_its_class_alone() -> None:
    own = {
        name: {a.attribute for a in assignments_of(cls) if a.owner == "self"} for name, cls in GRADER_CLASSES.items()
    }
    faults = [
        (name, f"{each.owner}.{each.attribute}")
        for name, cls in GRADER_CLASSES.items()
        for each in assignments_of(cls)
        if each.attribute.startswith("_")
        and not each.attribute.endswith("__")
        and (each.attribute not in own[name] or any(each.attribute in own[base] for base in bases_of(name)))
    ]
    assert faults == []


def test_grader_is_changed_by_its_constructor_alone() -> None:
    graders = [name for name in GRADER_CLASSES if "Grader" in (name, *bases_of(name))]
    assert len(graders) > 4
    changes = {
        (name, each) for name in graders for each in assignments_of(GRADER_CLASSES[name]) if each.owner == "self"
    }
    assert {(name, each) for name, each in changes if each.method != "__init__"} == set()


@pytest.mark.parametrize("module", GRADER_MODULES)
def test_module_of_graders_does_not_copy_an_object_to_change_it(module: str) -> None:
    copies = [ast.unparse(node) for node in nodes_of(ROOT / module) if isinstance(node, ast.Call)]
    assert [call for call in copies if call in ("copy.copy(self)", "copy(self)", "copy.deepcopy(self)")] == []


# Names and wording.


def test_public_function_that_takes_a_path_takes_it_as_text_too() -> None:
    methods = {
        f"{name}.{method}": getattr(function, "__func__", function)
        for name, value in PUBLIC.items()
        for method, function in (vars(value).items() if inspect.isclass(value) else [("", value)])
        if not method.startswith("_") and inspect.isfunction(getattr(function, "__func__", function))
    }
    assert "read_run." in methods
    only_paths = [
        (name, parameter)
        for name, function in methods.items()
        for parameter, kind in function.__annotations__.items()
        if parameter != "return" and "Path" in str(kind) and "str" not in str(kind)
    ]
    assert only_paths == []


def test_every_public_class_has_a_name_of_its_own() -> None:
    modules: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse((ROOT / module).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(module)
    assert {name: files for name, files in modules.items() if len(files) > 1} == CLASSES_OF_FRAMEWORKS


def test_no_file_name_occurs_three_times() -> None:
    names = Counter(name for module in MODULES if (name := module.split("/")[-1]) != "__init__.py")
    assert [name for name, count in names.items() if count > 2] == []


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


def prose(path: Path, in_package: bool, pattern: re.Pattern[str] = BANNED_WORDS) -> Iterator[tuple[int, str]]:
    """Yield every docstring and comment of a file and, in the package, every text, which may be part of a message.

    Those without a match of `pattern` may be left out.
    """
    source = path.read_text(encoding="utf-8")
    # A file in which the pattern matches nowhere has no comment with a match, whatever its comments are.
    for token in tokenize.generate_tokens(io.StringIO(source).readline) if pattern.search(source) else ():
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    # The same holds for texts, of which neighbouring parts are one text.
    nodes = nodes_in(source) if pattern.search(re.sub(r"""["']\s*[a-zA-Z]*["']""", "", source)) else []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (in_package or id(node) in docstrings):
            yield node.lineno, node.value


def test_names_docstrings_comments_and_messages_use_the_words_of_the_field() -> None:
    folders = ("rubric_integrations", "tests", "examples", "benchmarks", "docs")
    files = {path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")} - {Path(__file__)}
    # The texts of attacks and of the replies to them imitate anything that people write.
    data = {"attacks.py", "structural.py"}
    findings: list[str] = []
    for path in sorted(files):
        in_package = path.is_relative_to(ROOT) and path.name not in data
        words = [(line, name) for line, name in bound_names(path) if name.strip("_") in BANNED_NAMES]
        words += [(line, match[0]) for line, text in prose(path, in_package) for match in BANNED_WORDS.finditer(text)]
        findings += [f"{path.relative_to(REPOSITORY)}:{line}: {word}" for line, word in words]
    assert not findings, "\n".join(findings)
