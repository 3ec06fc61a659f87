"""Turns the arguments `rubric`, `judge` and `grader` of the adapters into a rubric and a grader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from rubric_integrations.formats.rubric_like import RubricLike, as_rubric
from rubric_integrations.rubric.rubric import Rubric

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


def check_rubric(rubric: RubricLike | Callable[[Any], RubricLike]) -> Rubric | Callable[[Any], RubricLike]:
    """Return the argument `rubric` of an adapter as a `Rubric`; return a function unchanged.

    Adapters call this when they are constructed, so that a mistake is reported before the first call of a judge.

    Raises:
        RubricError: The file or the data is not a rubric.
        TypeError: `rubric` is none of the accepted types.
    """
    is_function = callable(rubric) and not isinstance(rubric, Rubric)
    return cast("Callable[[Any], RubricLike]", rubric) if is_function else as_rubric(cast("RubricLike", rubric))


def resolve_rubric(rubric: Rubric | Callable[[Any], RubricLike], source: Any) -> Rubric:
    """Return the rubric itself, or the rubric that a function returns for this example, input or state.

    Raises:
        RubricError: The function returned a file or data that is not a rubric.
        TypeError: The function returned something else.
    """
    return rubric if isinstance(rubric, Rubric) else as_rubric(rubric(source))


def resolve_grader(judge: JudgeLike | None, grader: Grader | None, caller: str) -> Callable[[], Grader]:
    """Return a function that returns the grader; it makes one from the judge when it is first called.

    An adapter can thus be constructed without importing DSPy, which takes more than half a second.

    Args:
        judge: What judges the criteria, or None.
        grader: A configured grader, or None.
        caller: The public name whose arguments these are, for the error message.

    Raises:
        ValueError: Neither or both of `judge` and `grader` are passed.
    """
    if (judge is None) == (grader is None):
        passed = "neither" if judge is None else "both"
        raise ValueError(
            f"`{caller}` needs either `judge`, such as ChatOpenAI(model='gpt-5-mini'), or `grader`, but got {passed}"
        )
    graders, lock = [grader] if grader else [], threading.Lock()

    def get_grader() -> Grader:
        # Threads must share one grader, because the grader holds the concurrency limit.
        with lock:
            if not graders:
                from rubric_integrations.graders import PerCriterionGrader

                graders.append(PerCriterionGrader(judge))
            return graders[0]

    return get_grader
