"""Rubric files on disk: within bounds, as text, parsed."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import IO, Any

from rubric_integrations.formats.documents import Syntax, check_depth, parse
from rubric_integrations.rubric import Fault, RubricError

# A thousand criteria of 3,000 characters fit; a file beyond this is not a rubric.
MAX_BYTES = 10_000_000

_SYNTAX: dict[str, Syntax] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def load(source: str | PathLike[str] | IO[str] | IO[bytes]) -> tuple[Any, str]:
    """Parse a file, by path or open, and tell its name.

    Raises:
        RubricError: It cannot be read, is too large, is not text, or is neither JSON nor YAML.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        name = str(path)
        try:
            with path.open("rb") as file:
                content: str | bytes = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RubricError(name, [Fault("", "", f"cannot be read: {reason}")]) from None
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
    return load_text(content, _SYNTAX.get(Path(name).suffix.lower()), name), name


def load_text(text: str, syntax: Syntax | None, source: str) -> Any:
    """Parse JSON or YAML text; without a syntax, JSON where the text starts like it.

    Raises:
        RubricError: It is too large, nests too deep, or is not of its syntax.
    """
    if len(text) > MAX_BYTES:
        raise RubricError(source, [Fault("", "", f"has {len(text):,} characters, more than {MAX_BYTES:,}")])
    if syntax is None:
        syntax = "json" if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") else "yaml"
    document = parse(text, syntax, source)
    bounded(document, source)
    return document


def bounded(document: Any, source: str) -> None:
    """Refuse parsed data that nests too deep to walk."""
    try:
        check_depth(document)
    except (ValueError, RecursionError):
        raise RubricError(source, [Fault("", "", "nests deeper than 50 levels")]) from None
