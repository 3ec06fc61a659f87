"""Grade LLM output against weighted rubrics, and use the grades in DSPy, LangChain, LangSmith and RL.

`submission + rubric -> judgments -> score`: A `Rubric` lists the criteria. A grader asks a judge about each criterion
and makes an `EvaluationReport` from the answers. Importing this package imports neither DSPy nor LangChain. Each name
is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.rubric.answers import Option, Scale
    from rubric_integrations.rubric.check import Check
    from rubric_integrations.rubric.criterion import Criterion
    from rubric_integrations.rubric.rubric import Rubric, RubricError
    from rubric_integrations.runs.run import grade_many
    from rubric_integrations.scoring.length import LengthPenalty
    from rubric_integrations.scoring.report import EvaluationReport, JudgeError
    from rubric_integrations.scoring.vectorized import score_many
    from rubric_integrations.submission.messages import Fields
    from rubric_integrations.submission.submission import Submission

_MODULES = {
    "Check": "rubric.check",
    "Criterion": "rubric.criterion",
    "EvaluationReport": "scoring.report",
    "Fields": "submission.messages",
    "JudgeError": "scoring.report",
    "LengthPenalty": "scoring.length",
    "Option": "rubric.criterion",
    "PerCriterionGrader": "graders",
    "Rubric": "rubric.rubric",
    "RubricError": "rubric.rubric",
    "Scale": "rubric.criterion",
    "Submission": "submission.submission",
    "grade_many": "runs.run",
    "score_many": "scoring.vectorized",
}

__all__ = [
    "Check",
    "Criterion",
    "EvaluationReport",
    "Fields",
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
