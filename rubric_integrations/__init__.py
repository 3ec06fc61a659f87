"""Grade LLM output against weighted rubrics, and use that grade in DSPy, LangChain, LangSmith and RL.

`submission + rubric -> judgments -> score`: a `Rubric` says what is asked, a grader asks a judge, one aggregator
turns the answers into an `EvaluationReport`. Importing this package loads neither DSPy nor LangChain; each name is
fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.rubric import Check, Criterion, Rubric, RubricError
    from rubric_integrations.submission import Submission
    from rubric_integrations.verdict import CriterionReport, EvaluationReport, JudgeError, JudgeFailure, Judgment

_ROOMS = {
    "Check": "rubric",
    "Criterion": "rubric",
    "CriterionReport": "verdict",
    "EvaluationReport": "verdict",
    "JudgeError": "verdict",
    "JudgeFailure": "verdict",
    "Judgment": "verdict",
    "PerCriterionGrader": "graders",
    "Rubric": "rubric",
    "RubricError": "rubric",
    "Submission": "submission",
}

__all__ = [
    "Check",
    "Criterion",
    "CriterionReport",
    "EvaluationReport",
    "JudgeError",
    "JudgeFailure",
    "Judgment",
    "PerCriterionGrader",
    "Rubric",
    "RubricError",
    "Submission",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
