"""Grade LLM output against weighted rubrics, and use that grade in DSPy, LangChain, LangSmith and RL.

`submission + rubric -> judgments -> score`: a `Rubric` says what is asked, a grader asks a judge, one aggregator
turns the answers into an `EvaluationReport`. Importing this package loads neither DSPy nor LangChain; each name is
fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rubric_integrations.check import Check
    from rubric_integrations.criterion import Criterion, Option, Scale
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.length import LengthPenalty
    from rubric_integrations.rubric import Rubric, RubricError
    from rubric_integrations.runner import agrade_many, grade_many
    from rubric_integrations.scoring_arrays import score_many
    from rubric_integrations.submission import Submission
    from rubric_integrations.verdict import EvaluationReport, JudgeError

_ROOMS = {
    "Check": "check",
    "Criterion": "criterion",
    "EvaluationReport": "verdict",
    "JudgeError": "verdict",
    "LengthPenalty": "length",
    "Option": "criterion",
    "PerCriterionGrader": "graders",
    "Rubric": "rubric",
    "RubricError": "rubric",
    "Scale": "criterion",
    "Submission": "submission",
    "agrade_many": "runner",
    "grade_many": "runner",
    "score_many": "scoring_arrays",
}

__all__ = [
    "Check",
    "Criterion",
    "EvaluationReport",
    "JudgeError",
    "LengthPenalty",
    "Option",
    "PerCriterionGrader",
    "Rubric",
    "RubricError",
    "Scale",
    "Submission",
    "agrade_many",
    "grade_many",
    "score_many",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
