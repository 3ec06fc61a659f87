"""Rubric files: reading them into a `Rubric`, and writing one out. One module a format, each `read` and `write`."""

from __future__ import annotations

from os import PathLike
from typing import IO, Any, Literal, get_args

from rubric_integrations.formats import agentv, native, openrubricrl
from rubric_integrations.formats.parsing import Syntax, bounded, dump, load, load_text
from rubric_integrations.rubric.rubric import Rubric

Format = Literal["native", "agentv", "openrubricrl"]
FORMATS: tuple[Format, ...] = get_args(Format)


def detect(document: Any) -> Format:
    """The format that parsed data is shaped like; native where nothing speaks for another."""
    if openrubricrl.is_openrubricrl(document):
        return "openrubricrl"
    return "agentv" if agentv.is_agentv(document) else "native"


def read_document(document: Any, source: str) -> Rubric:
    """Make a rubric of parsed data in any format; `source` names it in errors."""
    bounded(document, source)
    return {"native": native.read, "agentv": agentv.read, "openrubricrl": openrubricrl.read}[detect(document)](
        document, source
    )


def write_document(rubric: Rubric, to: Format = "native") -> tuple[dict[str, Any], list[str]]:
    """A rubric as plain data in a format, and what of it the format cannot hold."""
    if to == "native":
        return native.write(rubric), []
    return agentv.write(rubric) if to == "agentv" else openrubricrl.write(rubric)


def read_text(text: str, syntax: Syntax | None, source: str) -> Rubric:
    """Make a rubric of JSON or YAML text; without a syntax, JSON where the text starts like it."""
    return read_document(load_text(text, syntax, source), source)


def write_text(rubric: Rubric, syntax: Syntax) -> str:
    """A rubric as JSON or YAML text in the native format."""
    return dump(native.write(rubric), syntax)


def read_file(source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
    """Make a rubric of a file, by path or open."""
    return read_document(*load(source))
