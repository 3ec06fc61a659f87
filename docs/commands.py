"""For the site alone: writes the reference of the commands into `cli.md`, from the command line itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

MARKER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_event: Any) -> str:
    """Insert the reference at its marker, and remove the set-ups of examples; MkDocs calls this for each page."""
    markdown = re.sub(r"^<!-- setup\n.*?^-->\n", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return markdown.replace(MARKER, reference()) if MARKER in markdown else markdown


def reference() -> str:
    """Return the commands with their arguments, options, defaults and exit codes, as Markdown."""
    program = ["typer", "rubric_integrations.cli", "utils", "docs", "--name", "rubric-integrations"]
    command, root = [sys.executable, "-m", *program], Path(__file__).resolve().parents[1]
    result = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- no input
    # The page has its own introduction.
    return result.stdout[result.stdout.index("\n## ") :]
