"""The reference of the commands in `cli.md`, from the command line itself; and what MkDocs changes and adds.

MkDocs calls the functions whose names begin with `on_`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CLI = Path(__file__).with_name("cli.md")
MARKER = "<!-- The rest is written by: python -m docs.packages -->"


def on_page_markdown(markdown: str, **_event: Any) -> str:
    """Remove the set-ups of examples, and let mkdocstrings show the entries of the API."""
    entry = r'^<a id="(rubric_integrations[\w.]*)"></a>\n.*?(?=^<a id="|^## |\Z)'
    return re.sub(entry, r"::: \1\n\n", without_setups(markdown), flags=re.DOTALL | re.MULTILINE)


def without_setups(markdown: str) -> str:
    """Return a page without the set-ups of its examples."""
    return re.sub(r"^<!-- setup\n.*?^-->\n", "", markdown, flags=re.DOTALL | re.MULTILINE)


def on_post_build(config: Any) -> None:
    """Write `llms.txt`, a list of the pages for language models, and each page as Markdown next to its HTML."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    pages = {path: without_setups((docs / path).read_text(encoding="utf-8")) for path in _pages(config["nav"])}
    for path, markdown in pages.items():
        (site / path).write_text(markdown, encoding="utf-8")
    text = llms_text(config["site_name"], config["site_description"], config["nav"], pages)
    (site / "llms.txt").write_text(text, encoding="utf-8")


def _pages(nav: Iterable[Mapping[str, Any]]) -> list[str]:
    return [path for section in nav for entries in section.values() for entry in entries for path in entry.values()]


def llms_text(name: str, description: str, nav: Iterable[Mapping[str, Any]], pages: Mapping[str, str]) -> str:
    """Return `llms.txt`: the sections of the navigation, with the first sentence and the headings of each page.

    Args:
        name: The name of the site.
        description: The site in a sentence.
        nav: The navigation: sections of pages.
        pages: The Markdown of each page, by its path.
    """
    lines = [f"# {name}", "", f"> {description}"]
    for section in nav:
        for title, entries in section.items():
            links = [(label, path) for entry in entries for label, path in entry.items()]
            lines += ["", f"## {title}", "", *(f"- [{label}]({path}): {_note(pages[path])}" for label, path in links)]
    return "\n".join(lines) + "\n"


def _note(markdown: str) -> str:
    """Return the first sentence of a page, if it begins with text, and its headings."""
    text = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\[(.*?)\]\([^)]*\)", r"\1", re.sub(r"^<a id=.*\n", "", text, flags=re.MULTILINE), flags=re.DOTALL)
    [paragraph] = re.findall(r"\A# .*\n+(.*(?:\n.+)*)", text)
    sentence = re.split(r"(?<=[.?!:])\s", " ".join(paragraph.split()))[0]
    headings = "; ".join(re.findall(r"^## (.*)$", text, re.MULTILINE)).replace("`", "")
    parts = [
        "" if re.match(r"[#|<]", sentence) else f"{sentence.rstrip(':.')}.",
        f"Sections: {headings}." if headings else "",
    ]
    return " ".join(filter(None, parts))


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
