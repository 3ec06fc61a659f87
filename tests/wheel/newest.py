"""Prints the requirements of the package whose newest version may be refused by a ceiling, without the ceiling.

python tests/wheel/newest.py names > overrides.txt    # for `uv pip install --override`
python tests/wheel/newest.py versions                 # in the environment: what is newer than in constraints.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def names() -> list[str]:
    """Return the names of the required libraries that have a ceiling, with the extras that the tests need."""
    project = tomllib.loads(PROJECT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    required, tests = project["dependencies"], project["optional-dependencies"]["test"]
    return [match[0] for line in [*required, *tests] if "<" in line and (match := re.match(r"[\w.\[\],-]+", line))]


def describe(name: str) -> str:
    """Return one line about the installed version of a library."""
    name = name.partition("[")[0]
    constraints = PROJECT.joinpath("constraints.txt").read_text(encoding="utf-8")
    tested = "".join(re.findall(rf"^{re.escape(name)}==(\S+)$", constraints, re.MULTILINE))
    if tested == version(name):
        return f"{name} {tested}: nothing newer on the package index"
    return f"{name} {version(name)}, newer than {tested} of constraints.txt"


if __name__ == "__main__":
    print(*(names() if sys.argv[1] == "names" else sorted({*map(describe, names())})), sep="\n")
