"""Prints a constraint for each library of the package and of its users' extras: the lowest version that is declared.

python tests/wheel/lowest.py > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from rubric_integrations._util.lazy import EXTRAS


def main() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    libraries = [library for extra in EXTRAS for library in project["optional-dependencies"][extra]]
    for library in project["dependencies"] + libraries:
        match = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", library)
        assert match, library
        name, lowest = match.groups()
        print(f"{name}=={lowest}")


if __name__ == "__main__":
    main()
