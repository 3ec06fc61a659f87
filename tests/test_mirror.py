"""Each test file names the module that it tests, or `tests/README.md` lists it as a subject."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rubric_integrations
from rubric_integrations.cli import COMMANDS

TESTS = Path(__file__).parent
PACKAGE = Path(rubric_integrations.__file__).parent
TABLE = (TESTS / "README.md").read_text(encoding="utf-8").partition("## Subjects")[2].partition("\n## ")[0]
# The first cell of each row. A folder stands for all files in it.
SUBJECTS = [
    name for cell in re.findall(r"^\| (`[^|]+) \| \S", TABLE, re.MULTILINE) for name in re.findall(r"[^`, ]+", cell)
]


def names_its_module(file: str) -> bool:
    """Whether a test file is named like a module, package, page or script, or begins with its name.

    The underscores around the name of a module are left out. In `cli`, the name may be that of a command.
    """
    folder, _, name = file.removesuffix(".py").rpartition("/")
    modules = {path.stem.strip("_") for path in (PACKAGE / folder).glob("[!.]*") if path.name != "__pycache__"}
    modules |= set(COMMANDS) if folder == "cli" else set()
    return any(f"{name}_".startswith(f"test_{module}_") for module in modules)


@pytest.mark.parametrize(
    ("file", "is_named"),
    [
        ("scoring/test_formula.py", True),
        ("scoring/test_formula_bounds.py", True),
        ("scoring/test_formulas.py", False),
        ("trust/test_formula.py", False),
        ("runs/test_batches.py", True),
        ("judges/test_init.py", True),
        ("test_host.py", True),
        ("reporting/page/test_whatif.py", True),
        ("cli/test_convert.py", True),
        ("formats/test_convert.py", False),
    ],
)
def test_name_of_a_file_is_that_of_a_module_a_package_a_script_or_a_command(file: str, is_named: bool) -> None:
    assert names_its_module(file) is is_named


def test_test_file_names_its_module_or_is_listed_as_a_subject() -> None:
    files = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
    others = [file for file in files if not names_its_module(file)]
    unlisted = [file for file in others if not file.startswith(tuple(SUBJECTS))]
    assert unlisted == [], "name each after its module, or add it to the table in tests/README.md"
    stale = [subject for subject in SUBJECTS if not any(file.startswith(subject) for file in others)]
    assert stale == [], "remove these from the table in tests/README.md"
