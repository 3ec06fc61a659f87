"""Rubric files: reading them into a `Rubric`, and writing one out. One module a format."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import IO, Any

from rubric_integrations.formats import native
from rubric_integrations.formats.documents import Syntax, dump, parse
from rubric_integrations.rubric import Fault, Rubric, RubricError

# A thousand criteria of 3,000 characters fit; a file beyond this is not a rubric.
MAX_BYTES = 10_000_000

_SYNTAX: dict[str, Syntax] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read_document(document: Any, source: str) -> Rubric:
    """Make a rubric of parsed data; `source` names it in errors."""
    return native.read(document, source)


def write_document(rubric: Rubric) -> dict[str, Any]:
    """A rubric as plain data in the native shape."""
    return native.write(rubric)


def read_text(text: str, syntax: Syntax | None, source: str) -> Rubric:
    """Make a rubric of JSON or YAML text; without a syntax, JSON where the text starts like it."""
    if len(text) > MAX_BYTES:
        raise RubricError(source, [Fault("", "", f"has {len(text):,} characters, more than {MAX_BYTES:,}")])
    if syntax is None:
        syntax = "json" if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") else "yaml"
    return read_document(parse(text, syntax, source), source)


def write_text(rubric: Rubric, syntax: Syntax) -> str:
    """A rubric as JSON or YAML text in the native shape."""
    return dump(write_document(rubric), syntax)


def read_file(source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
    """Make a rubric of a file, by path or open."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        name = str(path)
        try:
            with path.open("rb") as file:
                content: str | bytes = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise RubricError(name, [Fault("", "", f"cannot be read: {error.strerror or error}")]) from None
    else:
        name = str(getattr(source, "name", "rubric"))
        content = source.read(MAX_BYTES + 1)
    if isinstance(content, bytes):
        if len(content) > MAX_BYTES:
            raise RubricError(name, [Fault("", "", f"is larger than {MAX_BYTES:,} bytes: that is no rubric")])
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            fault = Fault("", "", f"is not text (byte {error.start} is {content[error.start]:#04x}): save it as UTF-8")
            raise RubricError(name, [fault]) from None
    return read_text(content, _SYNTAX.get(Path(name).suffix.lower()), name)
