"""The reference of the commands in `cli.md`, from the command line itself; and what MkDocs changes in each page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

CLI = Path(__file__).with_name("cli.md")
MARKER = "<!-- The rest is written by: python -m docs.packages -->"


def on_page_markdown(markdown: str, **_event: Any) -> str:
    """Remove the set-ups of examples, and let mkdocstrings show the entries of the API; MkDocs calls this."""
    markdown = re.sub(r"^<!-- setup\n.*?^-->\n", "", markdown, flags=re.DOTALL | re.MULTILINE)
    entry = r'^<a id="(rubric_integrations[\w.]*)"></a>\n.*?(?=^<a id="|^## |\Z)'
    return re.sub(entry, r"::: \1\n\n", markdown, flags=re.DOTALL | re.MULTILINE)


def cli_page() -> str:
    """Return `cli.md` with the current commands below its marker."""
    introduction, marker, _ = CLI.read_text(encoding="utf-8").partition(MARKER)
    return f"{introduction}{marker or MARKER}\n{reference()}"


def reference() -> str:
    """Return the commands with their arguments, options, defaults and exit codes, as Markdown."""
    program = ["typer", "rubric_integrations.cli", "utils", "docs", "--name", "rubric-integrations"]
    command, root = [sys.executable, "-m", *program], Path(__file__).resolve().parents[1]
    result = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- no input
    # The page has its own introduction.
    text = result.stdout[result.stdout.index("\n## ") :]
    return text.replace("&#x27;", "'").replace("&quot;", '"').rstrip() + "\n"
