"""Finds the rubric that an input or an example brings, and makes a grader of the adapters' arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


def own_rubric(*sources: Any) -> Any:
    """Return the value under `rubric` in the first of some mappings that has one; None if none has."""
    for source in sources:
        if isinstance(source, Mapping) and (rubric := cast("Mapping[str, Any]", source).get("rubric")) is not None:
            return rubric
    return None


def without_rubric(source: Any) -> Any:
    """Return a mapping without its `rubric`, and any other value unchanged: a rubric is no task and no reference."""
    if not isinstance(source, Mapping) or "rubric" not in source:
        return source
    return {key: value for key, value in cast("Mapping[str, Any]", source).items() if key != "rubric"} or None


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
    return _LazyGrader(judge, grader)


class _LazyGrader:
    """Returns a grader, which it makes from a judge when it is first called."""

    def __init__(self, judge: JudgeLike | None, grader: Grader | None):
        self._judge, self._grader = judge, grader
        self._lock = threading.Lock()

    def __call__(self) -> Grader:
        # Threads must share one grader, because the grader holds the concurrency limit.
        with self._lock:
            if self._grader is None:
                from rubric_integrations.graders import PerCriterionGrader

                self._grader = PerCriterionGrader(self._judge)
            return self._grader

    def __reduce__(self) -> Any:
        # Not the judge: a chat model with a client is pickled only as part of a grader.
        return _LazyGrader, (None, self())
