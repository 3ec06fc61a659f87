"""The observer of all grades of this process, such as the one that makes OpenTelemetry spans; by default none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from rubric_integrations.results.report import EvaluationReport

if TYPE_CHECKING:
    from rubric_integrations.graders.base import Grader
    from rubric_integrations.rubric.rubric import Rubric

Grade: TypeAlias = Coroutine[Any, Any, EvaluationReport]
GradeObserver: TypeAlias = "Callable[[Grader, Rubric, object, Grade], Grade]"
"""Receives the grader, the rubric, what is graded, and the grade as a coroutine, which it must await once.

It returns the report, and raises whatever the grade raises. A grade in several rounds (`rounds.py`) is observed as a
whole, and each of its rounds within it, with the same three objects.
"""

_observer: GradeObserver | None = None


def set_observer(observer: GradeObserver | None) -> None:
    """Observe every grade that begins from now on; None to observe none."""
    global _observer  # noqa: PLW0603 -- one observer per process, for graders that were made before and after
    _observer = observer


def observed(grader: Grader, rubric: Rubric, to_grade: object, grade: Grade) -> Grade:
    """Return a grade as the observer runs it; without an observer, the grade itself."""
    return grade if _observer is None else _observer(grader, rubric, to_grade, grade)
