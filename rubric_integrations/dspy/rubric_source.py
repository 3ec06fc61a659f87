"""The rubric of an example: one for all examples, or what a function of the example returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rubric_integrations.formats import RubricLike, as_rubric
from rubric_integrations.rubric.rubric import Rubric

RubricFunction = Callable[[Any], RubricLike]
"""A function that returns the rubric of an example."""


class RubricFunctionError(BaseException):
    """The function that returns an example's rubric failed, or it returned no rubric.

    It is not an `Exception`, for the same reason as `JudgeOutage`: DSPy would score every program 0 because of it.
    """


def rubric_or_function(rubric: RubricLike | RubricFunction) -> Rubric | RubricFunction:
    """Return the rubric that all examples share, or the function that returns the rubric of an example.

    Raises:
        RubricError: The file or the data is not a rubric.
        TypeError: `rubric` is none of the accepted types.

    Example:
        >>> rubric_or_function([{"requirement": "Is polite"}]).keys
        ('c1',)
    """
    if callable(rubric):
        return rubric
    try:
        return as_rubric(rubric)
    except TypeError as error:
        raise TypeError(f"{error}. If every example has its own rubric, pass a function of the example") from None


def rubric_of(source: Rubric | RubricFunction, example: Any) -> Rubric:
    """Return the rubric by which the predictions for an example are graded.

    Raises:
        RubricFunctionError: The function failed, or it returned no rubric.
    """
    if isinstance(source, Rubric):
        return source
    try:
        return as_rubric(source(example))
    except Exception as error:
        fields = sorted(example.keys()) if hasattr(example, "keys") else []
        raise RubricFunctionError(
            f"the rubric function failed with {type(error).__name__}: {error}, for an example with the fields "
            f"{fields!r}: let it return a Rubric, the path of a rubric file, a list or a dictionary, or DSPy would "
            "score every program 0"
        ) from error
