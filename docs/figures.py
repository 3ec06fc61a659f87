"""Compares the figures of the pages with what their commands print today: `make docs-figures`.

`figures.toml` lists each figure with its command. The cheap commands are run; those of the others are listed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def figures() -> list[dict[str, Any]]:
    """Return the entries of `figures.toml`."""
    return tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))["figure"]


@cache
def output(command: str) -> str:
    """Run a command with this Python, at the top of the repository, and return what it prints."""
    _, *arguments = shlex.split(command)
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout + done.stderr


def difference(figure: dict[str, Any]) -> str | None:
    """Run the command of a figure; None if it prints the values that the pages have."""
    shown = figure["text"].format(*figure["values"])
    match = re.search(figure["printed"], text := output(figure["command"]))
    if match is None:
        return f"{shown!r}: `{figure['command']}` does not print {figure['printed']!r}:\n{text[-2000:]}"
    values = [float(value.replace(",", "")) for value in match.groups()]
    if values == figure["values"]:
        return None
    return f"{shown!r} is now {match[0]!r}: `{figure['command']}`"


def main() -> int:
    """Print each figure with the result of its command; return 1 if one differs."""
    differs = False
    for figure in figures():
        shown = figure["text"].format(*figure["values"])
        if not figure.get("cheap"):
            sys.stdout.write(f"not run: {shown!r}: `{figure['command']}`\n")
            continue
        message = difference(figure)
        differs = differs or message is not None
        sys.stdout.write(f"{message or f'the same: {shown!r}'}\n")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
