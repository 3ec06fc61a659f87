"""The registry of file formats, and the detection of the format of parsed data."""

from __future__ import annotations

from typing import Any, Protocol

from rubric_integrations.formats import agentv, checklist, healthbench, native, openrubricrl, promptfoo, rar
from rubric_integrations.rubric.rubric import Rubric


class RubricFormat(Protocol):
    """A format of rubric files. A module with these four functions is one."""

    def matches(self, document: Any, /) -> bool:
        """Return whether parsed data looks like this format, however many faults it has. It must not raise."""
        ...

    def read(self, document: Any, source: str, /) -> Rubric:
        """Make a rubric from parsed data.

        Args:
            document: Dictionaries, lists and scalars, nested at most 50 levels deep, of any shape.
            source: The name of the file, for errors.

        Raises:
            RubricError: With every fault of the data. No other exception may be raised, whatever the data is.
        """
        ...

    def losses(self, document: Any, /) -> list[str]:
        """Return one message for everything that the rubric of a valid document does not hold.

        Raises:
            RubricError: The document has faults.
        """
        ...

    def write(self, rubric: Rubric, /) -> tuple[dict[str, Any], list[str]]:
        """Return a rubric as plain data, with one message for everything that the format cannot express.

        Raises:
            RubricError: The format cannot express the rubric at all.
        """
        ...


Format = str
"""The name of a format: a key of `FORMATS`."""

FORMATS: dict[Format, RubricFormat] = {
    "openrubricrl": openrubricrl,
    "healthbench": healthbench,
    "rar": rar,
    "checklist": checklist,
    "agentv": agentv,
    "promptfoo": promptfoo,
    "native": native,
}
"""The formats by name, in the order of their detection: `native` comes last because it matches everything."""


def detect(document: Any) -> Format:
    """Return the name of the format of parsed data.

    Example:
        >>> detect([{"requirement": "Is polite"}]), detect({"rubrics": ["Is polite"]})
        ('native', 'agentv')
    """
    return next(name for name, rubric_format in FORMATS.items() if rubric_format.matches(document))


def format_named(name: Format) -> RubricFormat:
    """Return the format with a name.

    Raises:
        ValueError: There is none.
    """
    if name not in FORMATS:
        raise ValueError(f"there is no rubric format {name!r}: use one of {', '.join(sorted(FORMATS))}")
    return FORMATS[name]
