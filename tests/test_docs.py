"""The documents tell the truth: their Python runs, their messages are real, and they make a whole site."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubric_integrations import Rubric

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_the_code_on_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": page}
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert len(names) > 1


def test_the_rubric_of_the_quickstart_is_the_one_that_is_graded() -> None:
    shown, graded = Rubric.from_yaml(blocks("index.md", "yaml")[0]), blocks("index.md")[0]
    assert shown.criteria == Rubric.from_yaml(graded.split('"""')[1]).criteria


def texts_in_code() -> list[str]:
    """Every text in the package's code but the docstrings, with … for what is filled in."""
    found: list[str] = []
    for path in (ROOT / "rubric_integrations").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.append(node.value)
    return found


def test_the_messages_in_troubleshooting_are_real() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    texts = texts_in_code()
    assert len(headings) > 20
    for heading in headings:
        message = re.fullmatch(r"`` (.+) ``", heading)
        assert message, f"{heading} is no message: write it between double backticks"
        pattern = re.compile(".*".join(map(re.escape, message[1].split("…"))))
        assert any(map(pattern.search, texts)), message[1]


def nav_of(entries: list[Any]) -> list[str]:
    below = [value for entry in entries for value in (entry.values() if isinstance(entry, dict) else [entry])]
    return [page for value in below for page in ([value] if isinstance(value, str) else nav_of(value))]


def test_every_page_is_in_the_navigation_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(nav_of(settings["nav"])) == PAGES


def test_the_reference_has_every_public_name() -> None:
    import rubric_integrations
    import rubric_integrations.dspy
    import rubric_integrations.graders
    import rubric_integrations.langchain

    page = (DOCS / "api.md").read_text(encoding="utf-8")
    named = {line.rpartition(".")[2] for line in re.findall(r"^::: (.+)$", page, re.MULTILINE)}
    # What users subclass is described in customizing.md.
    public = {*rubric_integrations.graders.__all__} - {"CriterionGrader"}
    for module in (rubric_integrations, rubric_integrations.dspy, rubric_integrations.langchain):
        public |= set(module.__all__)
    assert public <= named


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    missing = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if find_spec(name) is None]
    if missing:
        pytest.skip(
            f"no {' and no '.join(missing)}: install mkdocs-material and mkdocstrings[python] to build the site"
        )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\"'>]+")
    for path in (tmp_path / "site").glob("*.html"):
        assert not loads.findall(path.read_text(encoding="utf-8")), path.name


def readme_blocks() -> list[str]:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


@pytest.mark.parametrize("block", readme_blocks())
def test_an_example_in_the_readme_is_short_and_its_names_are_there(block: str) -> None:
    tree = ast.parse(block)
    assert len(block.splitlines()) <= 16
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rubric_integrations"):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_what_the_readme_links_to_is_there() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert len(links := re.findall(r"\]\((?!http)([^)#]+)\)", readme)) > 10
    assert [link for link in links if not (DOCS.parent / link).exists()] == []
