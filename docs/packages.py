"""Writes the parts of pages that restate the code: in `architecture.md`, `api.md`, `cli.md` and `providers.md`.

The table of packages in `architecture.md` has the first line of each package's docstring. The names in `api.md` are
those of each package's `__all__`, below the heading and the introduction of its section, which are written by hand. The
commands in `cli.md` are those of the command line. Run it as `python -m docs.packages`.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

from docs.commands import cli_page
from docs.providers import PAGE as PROVIDERS_PAGE
from docs.providers import providers_page
from docs.reference import entry

ROOT = Path(__file__).resolve().parents[1] / "rubric_integrations"
PAGE = Path(__file__).with_name("architecture.md")
API = Path(__file__).with_name("api.md")
CLI = Path(__file__).with_name("cli.md")


def package_table() -> str:
    """Return a Markdown table with a row for each package, and for each module that is a package's equal."""
    paths = [*ROOT.glob("*/__init__.py"), *ROOT.glob("[!_]*.py")]
    rows: list[str] = []
    for path in sorted(paths, key=lambda path: path.parent.name if path.name == "__init__.py" else path.stem):
        name = f"{path.parent.name}/" if path.name == "__init__.py" else path.name
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        rows.append(f"| `{name}` | {docstring.split(chr(10))[0].rstrip('.:')} |")
    return "\n".join(["| package | what it is for |", "|---|---|", *rows])


def architecture_page() -> str:
    """Return `architecture.md` with the current table of packages."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(r"\| package \|.*?(?=\n\n)", lambda _: package_table(), page, count=1, flags=re.S)


def api_page() -> str:
    """Return `api.md` with the current public names. A name that two packages export is in the first section alone."""
    listed: set[tuple[str, int]] = set()
    head, *sections = re.split(r"^(?=## )", API.read_text(encoding="utf-8"), flags=re.M)
    pages = [head]
    for section in sections:
        introduction = re.sub(r"^It also has `.*|^<a id=.*", "", section, flags=re.M | re.S).rstrip()
        [name] = re.findall(r"\A## .*\n\n`([\w.]+)`", introduction)
        package = import_module(name)
        names = {public: (public, id(getattr(package, public))) for public in package.__all__}
        earlier = [f"`{public}`" for public, identity in names.items() if identity in listed]
        entries = [
            entry(name, public, getattr(package, public))
            for public, identity in names.items()
            if identity not in listed
        ]
        listed |= set(names.values())
        also = [f"It also has {', '.join(earlier)}."] if earlier else []
        pages.append("\n\n".join([introduction, *also, "\n".join(entries)]))
    return pages[0] + "\n".join(pages[1:])


if __name__ == "__main__":
    PAGE.write_text(architecture_page(), encoding="utf-8")
    API.write_text(api_page(), encoding="utf-8")
    CLI.write_text(cli_page(), encoding="utf-8")
    PROVIDERS_PAGE.write_text(providers_page(), encoding="utf-8")
