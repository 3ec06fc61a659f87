"""Turns the arguments `rubric`, `judge` and `grader` of the adapters into a rubric and a grader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rubric_integrations.rubric.rubric import Rubric

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


def resolve_rubric(rubric: Rubric | Callable[[Any], Rubric], source: Any) -> Rubric:
    """Return the rubric itself, or the rubric that a function returns for this example, input or state."""
    return rubric if isinstance(rubric, Rubric) else rubric(source)


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
