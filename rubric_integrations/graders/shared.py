"""The grader of an adapter: the one that a user passes, or the one that a process has for a judge's name."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.per_criterion import PerCriterionGrader

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike

_lock = Lock()
_graders: dict[str, Grader] = {}


def shared_grader(judge: JudgeLike | None, grader: Grader | None, caller: str) -> Grader:
    """Return `grader`, or the `PerCriterionGrader` of `judge`.

    For the name of a judge it is the same one in the whole process. A framework may construct an evaluator for each
    task or dataset, and each grader has a concurrency limit of its own.

    Args:
        judge: What judges the criteria, or None.
        grader: A configured grader, or None.
        caller: The public name whose arguments these are, for the error message.

    Raises:
        TypeError: `grader` is not a grader.
        ValueError: Neither or both of `judge` and `grader` are passed.

    Example:
        >>> shared_grader("offline", None, "RubricScorer") is shared_grader("offline", None, "RubricScorer")
        True
    """
    if (judge is None) == (grader is None):
        passed = "neither" if judge is None else "both"
        raise ValueError(
            f"`{caller}` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`, but got {passed}: a file or a "
            "log holds no `grader`, so write the name of the judge there"
        )
    if grader is not None:
        if not isinstance(grader, Grader):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"`grader` of `{caller}` must be a grader, got {grader!r}: pass `judge` in its place, since a log "
                "holds only the name of a grader's class"
            )
        return grader
    if not isinstance(judge, str):
        return PerCriterionGrader(judge)
    with _lock:
        if judge not in _graders:
            _graders[judge] = PerCriterionGrader(judge)
        return _graders[judge]
