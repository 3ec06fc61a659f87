"""The rubric of an example: one for all examples, the example's own, or what a function of the example returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.rubric.rubric import Rubric


class RubricFunctionError(BaseException):
    """An example has no valid rubric, or the function that returns it failed.

    It is not an `Exception`, for the same reason as `JudgeOutage`: DSPy would score every program 0 because of it.
    """


def rubric_of(rubrics: RowRubrics, example: Any) -> Rubric:
    """Return the rubric by which the predictions for an example are graded.

    Raises:
        RubricFunctionError: The function failed, or it returned no rubric; or the example brings none that is valid.
    """
    try:
        return rubrics.of(example, _own_rubric(example, has_shared=rubrics.shared is not None))
    except Exception as error:
        fields = sorted(example.keys()) if hasattr(example, "keys") else []
        raise RubricFunctionError(
            f"an example {problem_of(error)}, among its fields {fields!r}: let the function or the field hold a "
            "Rubric, the path of a rubric file, a list or a dictionary, or DSPy would score every program 0"
        ) from error


def _own_rubric(example: Any, *, has_shared: bool) -> Any:
    """The field `rubric` of an example; one that is an input of the program is no rubric where there is another."""
    if not hasattr(example, "get"):
        return None
    fields = cast("Mapping[str, Any]", example)
    return None if has_shared and "rubric" in input_names(example) else fields.get("rubric")


def input_names(example: Any) -> set[str]:
    """Return the names of the inputs of an example; empty if they are not declared."""
    try:
        return set(example.inputs().keys())
    except (AttributeError, ValueError):
        return set()
