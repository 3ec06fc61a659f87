"""The documentation is correct: its Python runs, its error messages exist, and its navigation is complete."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubric_integrations import Rubric
from tests.pages import check_examples, example_parts, write_outputs
from tests.test_architecture import MODULES, PUBLIC_PACKAGES, imported, nodes_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# What a nested package, and the command line, exports for other packages of ours.
INTERNAL_NAMES = {
    ("cli/__init__.py", "COMMANDS"),
    ("cli/__init__.py", "app"),
    ("cli/__init__.py", "main"),
    ("runs/ledger/__init__.py", "LedgerLike"),
    ("runs/ledger/__init__.py", "use_ledger"),
    ("runs/ledger/postgres/__init__.py", "PostgresLedger"),
}
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.guides
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) or example_parts(DOCS / page)])
def test_code_on_a_page_runs_and_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    check_examples(DOCS / page, tmp_path)


@pytest.mark.parametrize(
    ("code", "shown", "fault"),
    [
        ("print('MET   ')", "MET\n", None),
        ("print('0.75 in 3 s')", "0.75 in ... s\n", None),
        ("print(0.75)", "0.8\n", "Expected:"),
        ("print(0.75)", None, "prints what the page does not show"),
        ("answer = 1", "MET\n", "Expected:"),
    ],
)
def test_output_that_differs_from_the_page_is_a_fault_until_it_is_written(
    code: str, shown: str | None, fault: str | None, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    output = "" if shown is None else f"\n```text\n{shown}```\n"
    page.write_text(f"# Page\n\n```python\n{code}\n```\n{output}\nMore.\n", encoding="utf-8")
    if fault is None:
        check_examples(page, tmp_path)
    else:
        with pytest.raises(AssertionError, match=fault):
            check_examples(page, tmp_path)
    assert write_outputs(page) == (0 if fault is None else 1)
    check_examples(page, tmp_path)
    assert page.read_text(encoding="utf-8").endswith("```\n\nMore.\n")


@pytest.mark.guides
def test_page_with_a_real_models_name_gets_the_scripted_answers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(SCRIPTED_PAGE, encoding="utf-8")
    check_examples(page, tmp_path)
    page.write_text(SCRIPTED_PAGE.replace('"Says please"', '"Says thanks"', 1), encoding="utf-8")
    with pytest.raises(AssertionError, match="no answer to 'Says please'"):
        check_examples(page, tmp_path)


SCRIPTED_PAGE = """
<!-- setup
model_answers = {"Gives the number": "MET", "Says please": ("UNMET", "It does not.")}
-->

```yaml title="rubric.yaml"
- {weight: 3, requirement: Gives the number}
- {weight: 1, requirement: Says please}
```

```python
from rubric_integrations import PerCriterionGrader, Rubric

report = Rubric.from_file("rubric.yaml").grade_sync("It is 42.", PerCriterionGrader("openai/gpt-5-mini"))
print(report.score, report.criteria[1].reason)
```

```text
0.75 It does not.
```

<!-- setup
open("reply.txt", "w").write("42")
model_answers = lambda system, user: '{"explanation": "so", "verdict": "MET"}'
-->

```sh
rubric-integrations grade rubric.yaml reply.txt --judge openai/gpt-5-mini
```

```text
...Gives the number...MET...
```
"""


def test_quickstart_yaml_and_python_blocks_have_the_same_criteria() -> None:
    yaml_rubric, code = Rubric.from_yaml(blocks("index.md", "yaml")[0]), blocks("index.md")[0]
    assert yaml_rubric.criteria == Rubric.from_yaml(code.split('"""')[1]).criteria


@cache
def texts_in_code() -> list[str]:
    """Return every text in the package's code except docstrings; … stands for the fields of an f-string."""
    texts: list[str] = []
    for path in (ROOT / "rubric_integrations").rglob("*.py"):
        nodes = nodes_of(path)
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                texts.append(node.value)
    return texts


def test_headings_of_error_messages_are_in_the_code() -> None:
    page = (DOCS / "help.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    texts = texts_in_code()
    assert len(headings) > 20
    for heading in headings:
        message = re.fullmatch(r"`` (.+) ``", heading)
        assert message, f"{heading} is not a message: write it between double backticks"
        pattern = re.compile(".*".join(map(re.escape, message[1].split("…"))))
        assert any(map(pattern.search, texts)), message[1]


def pages_of(entries: list[Any]) -> list[str]:
    """Return the pages of a navigation, which may be nested."""
    values = [value for entry in entries for value in (entry.values() if isinstance(entry, dict) else [entry])]
    return [page for value in values for page in ([value] if isinstance(value, str) else pages_of(value))]


def test_every_page_occurs_once_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(pages_of(settings["nav"])) == PAGES


def test_api_page_has_every_public_name_once_and_no_other() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    directives = [line.rpartition(".") for line in re.findall(r"^::: (.+)$", page, re.MULTILINE)]
    packages = [
        importlib.import_module(".".join(["rubric_integrations", name]).rstrip(".")) for name in PUBLIC_PACKAGES
    ]
    public = {package.__name__: set(package.__all__) for package in packages}
    # A name that two packages export is one name if it is one object.
    objects = {(name, id(getattr(package, name))) for package in packages for name in package.__all__}
    assert sorted(name for _, _, name in directives) == sorted(name for name, _ in objects)
    assert [name for package, _, name in directives if name not in public[package]] == []


def test_name_that_a_package_exports_is_in_the_reference_or_internal() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^::: .+\.(\w+)$", page, re.MULTILINE))
    packages = [module for module in MODULES if module.endswith("__init__.py")]
    exported = {(package, name) for package in packages for name in getattr(imported(package), "__all__", ())}
    undocumented = {(package, name) for package, name in exported if name not in documented}
    assert undocumented <= INTERNAL_NAMES


def test_api_page_is_generated_from_the_public_names() -> None:
    from docs.packages import API, api_page

    assert API.read_text(encoding="utf-8") == api_page(), "write it with: python -m docs.packages"


def readme_blocks() -> list[str]:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


@pytest.mark.parametrize("block", readme_blocks())
def test_readme_example_is_short_and_imports_existing_names(block: str) -> None:
    tree = ast.parse(block)
    assert len(block.splitlines()) <= 16
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rubric_integrations"):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_readme_links_to_existing_files() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert len(links := re.findall(r"\]\((?!http)([^)#]+)\)", readme)) > 10
    assert [link for link in links if not (DOCS.parent / link).exists()] == []
