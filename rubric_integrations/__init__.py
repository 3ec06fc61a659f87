"""Grade LLM output against weighted rubrics, and use that grade in DSPy, LangChain, LangSmith and RL.

`submission + rubric -> judgments -> score`: a `Rubric` says what is asked, a grader asks a judge, one aggregator
turns the answers into an `EvaluationReport`. Importing this package loads neither DSPy nor LangChain; each name is
fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.results.report import EvaluationReport, JudgeError
    from rubric_integrations.rubric.check import Check
    from rubric_integrations.rubric.criterion import Criterion, Option, Scale
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.runner import grade_many
    from rubric_integrations.scoring.length import LengthPenalty
    from rubric_integrations.scoring.vectorized import score_many
    from rubric_integrations.submission.submission import Submission

_MODULES = {
    "Check": "rubric.check",
    "Criterion": "rubric.criterion",
    "EvaluationReport": "results.report",
    "JudgeError": "results.report",
    "LengthPenalty": "scoring.length",
    "Option": "rubric.criterion",
    "PerCriterionGrader": "graders",
    "Rubric": "rubric.rubric",
    "RubricError": "rubric.errors",
    "Scale": "rubric.criterion",
    "Submission": "submission.submission",
    "grade_many": "runs.runner",
    "score_many": "scoring.vectorized",
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
    "grade_many",
    "score_many",
]


__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
