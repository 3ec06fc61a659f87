"""The registry of file formats: detects the format of a document, reads it into a `Rubric`, and writes a rubric.

`as_rubric` accepts every type that a user may pass as a rubric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, Protocol

from rubric_integrations.formats import (
    adk,
    agent_skills,
    agentv,
    checklist,
    flask,
    markdown,
    modelgraded,
    native,
    openai_evals,
    openrubricrl,
    paperbench,
    prometheus,
    promptfoo,
    rar,
    rewardkit,
    verifiers,
)
from rubric_integrations.formats.datasets import DATASETS
from rubric_integrations.formats.items import Reading
from rubric_integrations.formats.parsing import Syntax, check_document, dump, load_text
from rubric_integrations.formats.promptfoo import warn_of_losses
from rubric_integrations.formats.refused import refuse_known
from rubric_integrations.formats.suite_files import load_with_tests, with_attachments
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError


class RubricFormat(Protocol):
    """The protocol of a format of rubric files: a module or an object with the three functions of this protocol."""

    def matches(self, document: Any, /) -> bool:
        """Return whether parsed data looks like this format, even if it has faults. It must not raise an exception."""
        ...

    def parse(self, document: Any, source: str, /) -> Reading:
        """Make a rubric from parsed data, with one message for each part that is left out of it or changed.

        Args:
            document: Dictionaries, lists and scalars, nested at most 50 levels deep, of any shape.
            source: The name of the file, for errors.

        Raises:
            RubricError: The data has faults. The error lists every fault. No other exception may be raised for any
                data.
        """
        ...

    def write(self, rubric: Rubric, /) -> tuple[dict[str, Any], list[str]]:
        """Return a rubric as lists and dictionaries, with one message for each part that the format cannot express.

        Raises:
            RubricError: The format cannot express the rubric at all.
        """
        ...


Format = str
"""The name of a format: a key of `FORMATS`."""

FORMATS: dict[Format, RubricFormat] = {
    "markdown": markdown,
    "openrubricrl": openrubricrl,
    **{dataset.name: dataset for dataset in DATASETS},
    "rar": rar,
    "prometheus": prometheus,
    "flask": flask,
    "paperbench": paperbench,
    "modelgraded": modelgraded,
    "openai_evals": openai_evals,
    "rewardkit": rewardkit,
    "adk": adk,
    "verifiers": verifiers,
    "checklist": checklist,
    "agent_skills": agent_skills,
    "agentv": agentv,
    "promptfoo": promptfoo,
    "native": native,
}
"""The formats by name, in the order of their detection. `native` comes last because it matches everything."""


SYNTAX_OF_FORMAT: dict[Format, Syntax] = {"markdown": "markdown", "rewardkit": "toml"}
"""The syntax of the formats that are written neither as JSON nor as YAML."""


def detect(document: Any) -> Format:
    """Return the name of the format of parsed data.

    Example:
        >>> detect([{"requirement": "Is polite"}]), detect({"rubrics": ["Is polite"]})
        ('native', 'agentv')
    """
    return next(name for name, rubric_format in FORMATS.items() if rubric_format.matches(document))


def format_named(name: Format) -> RubricFormat:
    """Return the format with a given name.

    Raises:
        ValueError: There is no format with this name.
    """
    if name not in FORMATS:
        raise ValueError(f"there is no rubric format {name!r}: use one of {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def read_document(document: Any, source: str, rubric_format: Format | None = None) -> Rubric:
    """Make a rubric from parsed data in any format.

    Args:
        document: Dictionaries, lists and scalars, as parsed from JSON or YAML.
        source: The name of the data in errors, such as the path of its file.
        rubric_format: The name of the format. None to detect it.

    Raises:
        RubricError: The data has faults. The error lists every fault.
        ValueError: There is no format with this name.

    Example:
        >>> read_document({"rubrics": ["Is polite"]}, "example").criteria[0].requirement
        'Is polite'
    """
    check_document(document, source)
    if rubric_format is None:
        refuse_known(document, source)
    reading = _format_of(document, rubric_format).parse(document, source)
    warn_of_losses(reading.not_graded, source)
    return reading.rubric


def reading_losses(document: Any, rubric_format: Format | None = None) -> list[str]:
    """Return one message for each part of parsed data that `read_document` leaves out of the rubric or changes.

    Args:
        document: Data from which `read_document` makes a rubric.
        rubric_format: The name of the format. None to detect it.

    Raises:
        RubricError: The data has faults.
        ValueError: There is no format with this name.

    Example:
        >>> reading_losses([{"criterion": "Is polite", "points": 5, "explanation": "It is."}])
        ['`explanation` of 1 criterion is left out']
    """
    return _format_of(document, rubric_format).parse(document, "rubric").losses


def _format_of(document: Any, rubric_format: Format | None) -> RubricFormat:
    return FORMATS[detect(document)] if rubric_format is None else format_named(rubric_format)


def write_document(rubric: Rubric, to: Format = "native") -> tuple[dict[str, Any], list[str]]:
    """Convert a rubric to lists and dictionaries in a format.

    Args:
        rubric: The rubric.
        to: The name of the format.

    Returns:
        The data and one message for each part of the rubric that the format cannot express.

    Raises:
        RubricError: The format cannot express the rubric at all.
        ValueError: There is no format with this name.

    Example:
        >>> write_document(Rubric([{"requirement": "Is polite", "name": "tone"}]), "agentv")[0]
        {'rubrics': [{'id': 'tone', 'expected_outcome': 'Is polite', 'weight': 10.0}]}
    """
    return format_named(to).write(rubric)


def read_text(text: str, syntax: Syntax | None, source: str) -> Rubric:
    """Make a rubric from JSON or YAML text. If `syntax` is None, text that starts with `[` or `{` is JSON.

    Raises:
        RubricError: The text has faults. The error lists every fault.
    """
    refuse_known({"rubric": text}, source)
    return read_document(load_text(text, syntax, source), source)


def write_text(rubric: Rubric, syntax: Syntax) -> str:
    """Return a rubric as JSON or YAML text in the native format."""
    return dump(write_document(rubric)[0], syntax)


def read_file(source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
    """Make a rubric from a path or an open file.

    Raises:
        RubricError: The file has faults. The error lists every fault.
    """
    return read_document(*load_with_tests(source))


CASE_FILES = (".cases.yaml", ".cases.yml", ".cases.json")
"""The endings of a file of test cases next to the file of a rubric: `rubric.cases.yaml` belongs to `rubric.yaml`."""


def read_with_cases(path: str | PathLike[str], cases: str | PathLike[str] | None = None) -> Rubric:
    """Make a rubric from a file, with its own test cases and the cases of another file.

    Only the tests of a rubric read the other file. A grade does not need it.

    Args:
        path: The file of the rubric.
        cases: The file of further cases: a list of cases, or a mapping with `cases`. By default, the file
            `NAME.cases.yaml` (or `.yml`, `.json`) next to the file `NAME.yaml`, if it exists.

    Raises:
        RubricError: A file has faults. The error lists every fault.
    """
    rubric = read_file(path)
    file = Path(path)
    beside = (candidate for ending in CASE_FILES if (candidate := file.with_name(file.stem + ending)).is_file())
    source = next(beside, None) if cases is None else Path(cases)
    if source is None:
        return rubric
    further = _read_cases(source)
    try:
        # First alone, because the places of its faults are those in its file.
        rubric.with_cases(further)
        return rubric.with_cases([*rubric.cases, *further])
    except RubricError as error:
        raise RubricError(str(source), error.faults) from None


def _read_cases(source: Path) -> list[Any]:
    """Return the cases in a file, as parsed."""
    document, name = load_with_tests(source)
    listed = document if isinstance(document, Mapping) else {"cases": document}
    cases = with_attachments(listed, "cases", source.parent, name).get("cases")
    if not isinstance(cases, list) or not cases or listed.keys() != {"cases"}:
        message = "is no file of test cases: write a list of cases, such as `- {name: ..., response: ..., expect: ...}`"
        raise RubricError(name, [Fault("", "", message)])
    return cases


def read_file_and_format(path: str | PathLike[str]) -> tuple[Rubric, Format]:
    """Make a rubric from a file and return it with the name of its format.

    Raises:
        RubricError: The file has faults. The error lists every fault.
    """
    document, source = load_with_tests(path)
    return read_document(document, source), detect(document)


RubricLike = Rubric | str | PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""A `Rubric`, the path of a rubric file, or a rubric as lists and dictionaries."""


def as_rubric(rubric: RubricLike) -> Rubric:
    """Return a `Rubric` from a rubric, the path of its file, or lists and dictionaries.

    Raises:
        RubricError: The file or the data is not a rubric.
        TypeError: `rubric` has another type.

    Example:
        >>> as_rubric([{"weight": 10, "requirement": "Is polite"}]).keys
        ('c1',)
    """
    if isinstance(rubric, Rubric):
        return rubric
    if isinstance(rubric, str | PathLike):
        return read_file(rubric)
    if isinstance(rubric, Mapping | list | tuple):
        return read_document(rubric, source="rubric")
    raise TypeError(
        f"`rubric` must be a Rubric, the path of a rubric file, a list or a dictionary, got {type(rubric).__name__}: "
        "nothing could be graded by it"
    )
