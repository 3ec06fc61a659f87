"""Grading strategies: they choose the questions to ask a judge, and the number of calls.

To add a strategy, subclass `CriterionGrader` and implement `ask`, or subclass `Grader` and implement `judge` and
`aggregate`. Then add the new class to `GRADERS`. `rescore` uses this table to recreate the grader of an earlier run.
"""

from __future__ import annotations

from rubric_integrations.graders.grader import CriterionGrader, Grader
from rubric_integrations.graders.holistic import RubricAsJudgeGrader
from rubric_integrations.graders.one_shot import PerCriterionOneShotGrader
from rubric_integrations.graders.per_criterion import PerCriterionGrader
from rubric_integrations.graders.settings import CallLimits, OptionDisplay, TextLimits, Voting

__all__ = [
    "CallLimits",
    "CriterionGrader",
    "Grader",
    "OptionDisplay",
    "PerCriterionGrader",
    "PerCriterionOneShotGrader",
    "RubricAsJudgeGrader",
    "TextLimits",
    "Voting",
]

GRADERS: dict[str, type[Grader]] = {
    "PerCriterionGrader": PerCriterionGrader,
    "PerCriterionOneShotGrader": PerCriterionOneShotGrader,
    "RubricAsJudgeGrader": RubricAsJudgeGrader,
}
"""The class of each grading strategy by its name. A ledger records the name."""
