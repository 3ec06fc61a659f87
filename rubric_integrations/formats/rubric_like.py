"""A rubric from whatever a user passes as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from rubric_integrations.formats.documents import read_document, read_file
from rubric_integrations.rubric.rubric import Rubric

RubricLike = Rubric | str | PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""A `Rubric`, the path of a rubric file, or a rubric as lists and dictionaries."""


def as_rubric(rubric: RubricLike) -> Rubric:
    """Return a rubric, read from its file or made from lists and dictionaries where it is not one already.

    Raises:
        RubricError: The file or the data is not a rubric.
        TypeError: `rubric` is none of the accepted types.

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
