"""The error for a rubric that cannot be used, and the faults that it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Fault(NamedTuple):
    """One thing that is wrong with a rubric.

    Attributes:
        where: The place in the document, such as `criteria[2]`; empty for the document itself.
        field: The field's name; empty if the fault does not belong to one field.
        message: What is wrong, and what to write instead.
    """

    where: str
    field: str
    message: str

    def __str__(self) -> str:
        place = " ".join(part for part in (self.where, f"`{self.field}`" if self.field else "") if part)
        return f"{place}: {self.message}" if place else self.message


class RubricError(ValueError):
    """Raised for a rubric that cannot be used; the message has one line for each fault.

    Attributes:
        source: The name of the file or value that was read.
        faults: All faults, in the order of the document.
    """

    def __init__(self, source: str, faults: Sequence[Fault]):
        self.source, self.faults = source, tuple(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))

    def __reduce__(self) -> Any:
        return type(self), (self.source, self.faults)


def require_grader(grader: T | None) -> T:
    """Return the grader that a rubric is used with.

    Raises:
        ValueError: There is none.
    """
    if grader is None:
        raise ValueError(
            "`grader` is missing: pass one, such as PerCriterionGrader(judge='openai/gpt-5-mini'); "
            "with a default, your text would go to a model that you did not choose"
        )
    return grader
