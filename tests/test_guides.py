"""The guides of docs/customizing.md: each diff applies to a copy of the package, and the addition works end to end."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import Rings, import_cycle, ring_faults

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs/customizing.md").read_text(encoding="utf-8")
GUIDES = {
    heading: text
    for heading, text in re.findall(r"^## (Add .+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    if "```diff" in text
}


def block(guide: str, language: str) -> str:
    """Return the one block of a language, with a title, that a guide has."""
    [text] = re.findall(rf"^```{language} title=[^\n]*\n(.*?)^```$", GUIDES[guide], re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture(params=GUIDES)
def guide(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def patched(guide: str, tmp_path: Path) -> Path:
    """Make a folder with a copy of the package to which the guide's diff is applied."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed, which applies the diffs of the guides")
    # With its byte code, which is valid for every file that the diff does not change.
    shutil.copytree(REPOSITORY / "rubric_integrations", tmp_path / "rubric_integrations")
    (tmp_path / "tests").mkdir()
    shutil.copy(REPOSITORY / "tests/test_architecture.py", tmp_path / "tests")
    # Without a ceiling, git would take the paths of the diff relative to a repository above the temporary folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    diff = block(guide, "diff")
    applied = subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, env=environment, input=diff, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, applied.stderr
    return tmp_path


def test_page_has_a_guide_for_each_kind_of_addition() -> None:
    assert list(GUIDES) == ["Add a check", "Add a file format", "Add a judge", "Add a host"]


def test_diff_of_a_guide_adds_one_file_and_few_lines(guide: str) -> None:
    files = re.split(r"^--- ", block(guide, "diff"), flags=re.MULTILINE)[1:]
    new = [file for file in files if file.startswith("/dev/null")]
    changed = [file for file in files if file not in new]
    added = sum(len(re.findall(r"^\+(?!\+\+ )", file, re.MULTILINE)) for file in changed)
    # An import and an entry; a check has its field and the line that documents it, and the import of its module.
    assert (len(new), added) <= (1, {"Add a check": 3, "Add a host": 0}.get(guide, 2))


@pytest.mark.guides
def test_program_of_a_guide_prints_the_output_that_the_page_shows(guide: str, patched: Path) -> None:
    program = patched / "guide.py"
    program.write_text(block(guide, "python"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(patched), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, program], cwd=patched, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == block(guide, "text")


def rings_in(path: Path) -> Rings:
    """Return the rings that a patched `test_architecture.py` names."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    [rings] = [node.value for node in nodes if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RINGS"]
    return ast.literal_eval(rings or "")


@pytest.mark.guides
def test_package_with_the_addition_of_a_guide_obeys_the_architecture(patched: Path) -> None:
    package = patched / "rubric_integrations"
    assert ring_faults(package, rings_in(patched / "tests/test_architecture.py")) == []
    assert import_cycle(package) == []
