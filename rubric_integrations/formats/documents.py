"""Reading a rubric from parsed data, text or a file of any format, and writing it."""

from __future__ import annotations

from os import PathLike
from typing import IO, Any

from rubric_integrations.formats.parsing import Syntax, check_document, dump, load, load_text
from rubric_integrations.formats.registry import FORMATS, Format, RubricFormat, detect, format_named
from rubric_integrations.rubric.rubric import Rubric


def read_document(document: Any, source: str, rubric_format: Format | None = None) -> Rubric:
    """Make a rubric from parsed data in any format.

    Args:
        document: Dictionaries, lists and scalars, as parsed from JSON or YAML.
        source: The name of the data in errors, such as the path of its file.
        rubric_format: The name of the format; None detects it.

    Raises:
        RubricError: With every fault of the data.
        ValueError: There is no such format.

    Example:
        >>> read_document({"rubrics": ["Is polite"]}, "example").criteria[0].requirement
        'Is polite'
    """
    check_document(document, source)
    return _format_of(document, rubric_format).read(document, source)


def reading_losses(document: Any, rubric_format: Format | None = None) -> list[str]:
    """Return one message for everything that the rubric of parsed data does not hold, or words differently.

    Args:
        document: Data from which `read_document` makes a rubric.
        rubric_format: The name of the format; None detects it.

    Raises:
        RubricError: The data has faults.
        ValueError: There is no such format.

    Example:
        >>> reading_losses([{"criterion": "Is polite", "points": 5, "explanation": "It is."}])
        ['`explanation` of 1 criterion is left out']
    """
    return _format_of(document, rubric_format).losses(document)


def _format_of(document: Any, rubric_format: Format | None) -> RubricFormat:
    return FORMATS[detect(document)] if rubric_format is None else format_named(rubric_format)


def write_document(rubric: Rubric, to: Format = "native") -> tuple[dict[str, Any], list[str]]:
    """Convert a rubric to plain data.

    Args:
        rubric: The rubric.
        to: The name of the format.

    Returns:
        The data, and one message for everything that the format cannot express.

    Raises:
        RubricError: The format cannot express the rubric at all.
        ValueError: There is no such format.

    Example:
        >>> write_document(Rubric([{"requirement": "Is polite", "name": "tone"}]), "agentv")[0]
        {'rubrics': [{'id': 'tone', 'expected_outcome': 'Is polite', 'weight': 10.0}]}
    """
    return format_named(to).write(rubric)


def read_text(text: str, syntax: Syntax | None, source: str) -> Rubric:
    """Make a rubric from JSON or YAML text. Without a syntax, text that starts with a bracket or brace is JSON.

    Raises:
        RubricError: With every fault of the text.
    """
    return read_document(load_text(text, syntax, source), source)


def write_text(rubric: Rubric, syntax: Syntax) -> str:
    """Return a rubric as JSON or YAML text in the native format."""
    return dump(write_document(rubric)[0], syntax)


def read_file(source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
    """Make a rubric from a path or an open file.

    Raises:
        RubricError: With every fault of the file.
    """
    return read_document(*load(source))
