"""The documentation is correct: its Python runs, its error messages exist, and its navigation is complete."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs.commands import cli_page, on_page_markdown
from docs.figures import difference, figures
from docs.packages import api_page, architecture_page
from docs.providers import providers_page
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
@pytest.mark.parametrize(
    "page", ["../README.md", *(page for page in PAGES if blocks(page) or example_parts(DOCS / page))]
)
def test_code_on_a_page_runs_and_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    check_examples(DOCS / page, tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("jobs/")])
def test_job_page_shows_the_code_that_writes_its_files(page: str) -> None:
    hidden = [part.text for part in example_parts(DOCS / page) if part.kind == "setup"]
    assert [text for text in hidden if re.search(r"\bopen\(|write_text|writelines|writerow", text)] == []


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


@pytest.mark.parametrize("page", ["files.md", "help.md"])
def test_error_messages_on_a_page_are_in_the_code(page: str) -> None:
    # Messages are between double backticks, in a heading or in the first cell of a row.
    places = re.findall(r"^(?:###|\|) (``[^|\n]+)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    messages = [message for place in places for message in re.findall("`` (.+?) ``", place)]
    assert len(messages) > 10
    for message in messages:
        pattern = re.compile(".*".join(map(re.escape, message.split("…"))))
        assert any(map(pattern.search, texts_in_code())), message


def test_api_page_has_every_public_name_once_and_no_other() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    directives = [line.rpartition(".") for line in re.findall(r'^<a id="(.+)"></a>$', page, re.MULTILINE)]
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
    documented = set(re.findall(r'^<a id=".+\.(\w+)"></a>$', page, re.MULTILINE))
    packages = [module for module in MODULES if module.endswith("__init__.py")]
    exported = {(package, name) for package in packages for name in getattr(imported(package), "__all__", ())}
    undocumented = {(package, name) for package, name in exported if name not in documented}
    assert undocumented <= INTERNAL_NAMES


@pytest.mark.parametrize(
    ("page", "write"),
    [
        ("api.md", api_page),
        ("architecture.md", architecture_page),
        ("cli.md", cli_page),
        ("providers.md", providers_page),
    ],
)
def test_page_that_is_generated_is_current(page: str, write: Callable[[], str]) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == write(), "write it with: python -m docs.packages"


def test_site_shows_a_directive_in_place_of_each_entry_of_the_api() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert on_page_markdown(page).count("::: rubric_integrations.") == page.count('<a id="rubric_integrations.')


PUBLIC_NAMES = {
    (package.__name__, name)
    for package in [importlib.import_module(f"rubric_integrations.{name}".rstrip(".")) for name in PUBLIC_PACKAGES]
    for name in package.__all__
}
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
}


def without_code(text: str) -> str:
    """Return Markdown without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def imported_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield each module of ours and the name that a block of Python without a title imports from it."""
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rubric_integrations"):
                yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("page", TEXTS)
def test_examples_import_public_names_only(page: str) -> None:
    names = set(imported_names(TEXTS[page]))
    assert {name for name in names if importlib.util.find_spec(name[0]) is None or name not in PUBLIC_NAMES} == set()


@pytest.mark.parametrize("page", [page for page in TEXTS if page != "CHANGELOG.md"])
def test_dotted_names_of_this_package_in_a_page_exist(page: str) -> None:
    names = set(re.findall(r"`(rubric_integrations(?:\.\w+)+)`", without_code(TEXTS[page])))
    missing: list[str] = []
    for name in names:
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    assert missing == []


# An install command with the bare name of this package, which is somebody else's on an index: pip takes a path, an
# address, or `rubric-integrations @ git+...`.
BARE_NAME = re.compile(r"""\binstall\b[^\n`;]*?[\s"']rubric[-_]integrations\b(?!/| @|[-\w]*\.whl)""")


@pytest.mark.parametrize(
    ("command", "is_bare"),
    [
        ('pip install "rubric-integrations[agreement]"', True),
        ("uv pip install rubric-integrations", True),
        ("pip install './vendor/rubric-integrations[report]'", False),
        ("pip install 'rubric-integrations @ git+https://example.com/rubric-integrations'", False),
        ("pip install git+https://example.com/rubric-integrations", False),
        ("make install; then rubric_integrations.testing is there", False),
    ],
)
def test_install_command_with_a_bare_name_is_recognized(command: str, is_bare: bool) -> None:
    assert bool(BARE_NAME.search(command)) is is_bare


def test_no_page_and_no_message_installs_this_package_by_a_name_on_an_index() -> None:
    texts = {**TEXTS, **{f"message {text!r}": text for text in texts_in_code()}}
    pages = [path for folder in ("examples", "skills") for path in (ROOT / folder).rglob("*.md")]
    texts |= {str(path): path.read_text(encoding="utf-8") for path in pages}
    assert {name: match[0] for name, text in texts.items() if (match := BARE_NAME.search(text))} == {}


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page: those of its headings, as GitHub and MkDocs make them, and those in its HTML."""
    text = without_code(TEXTS[page])
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).replace("`", "").lower() for heading in headings]
    slugs = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_pages_and_headings_that_exist(page: str) -> None:
    missing: list[str] = []
    for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", without_code(TEXTS[page])):
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        name = os.path.relpath(path, ROOT)
        if not path.exists() or (anchor and anchor not in anchors_of(name)):
            missing.append(target)
    assert missing == []
    files = re.findall(r"\[`([\w./-]+\.(?:py|md|yaml|toml))`\]\(([^)#]+)", without_code(TEXTS[page]))
    assert [(text, target) for text, target in files if not target.endswith(text)] == []


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure["text"])
def test_figure_with_a_command_is_on_a_page_and_its_program_exists(figure: dict[str, Any]) -> None:
    text = figure["text"].format(*figure["values"])
    assert any(text in " ".join(page.split()) for page in TEXTS.values()), text
    for path in re.findall(r"\S+\.py", figure["command"]):
        assert (ROOT / path).exists()
    assert figure.get("cheap", False) is ("printed" in figure)


@pytest.mark.parametrize(
    ("printed", "fault"), [("287 tokens", None), ("291 tokens", "is now '291 tokens'"), ("none", "does not print")]
)
def test_figure_that_differs_from_the_output_of_its_command_is_reported(printed: str, fault: str | None) -> None:
    command = f"python -c \"print('{printed}')\""
    figure = {"text": "{} uncached", "values": [287], "command": command, "printed": r"(\d+) tokens", "cheap": True}
    message = difference(figure)
    assert message is None if fault is None else fault in str(message)


def test_programs_that_pages_name_exist() -> None:
    names = {
        name for text in TEXTS.values() for name in re.findall(r"\b(?:benchmarks|tests|examples)/[\w/]+\.py", text)
    }
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).exists()] == []


# The pages that are generated.
GENERATED = {"docs/api.md", "docs/cli.md", "docs/judges.md"}
MAX_WORDS = 29_000


def test_readme_and_pages_have_no_more_words_than_a_user_may_be_asked_to_read() -> None:
    pages = {name: text for name, text in TEXTS.items() if name == "README.md" or name.startswith("docs/")}
    words: dict[str, int] = {}
    for name in pages.keys() - GENERATED:
        prose = re.sub(r"<!--.*?-->|```.*?```|`[^`\n]*`", "", pages[name], flags=re.DOTALL)
        words[name] = len(re.findall(r"[A-Za-z][A-Za-z'-]*", prose))
    assert sum(words.values()) <= MAX_WORDS, "shorten a page for what you add"
