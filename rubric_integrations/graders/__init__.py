"""Strategies: which questions to ask a judge, and in how many calls."""

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.holistic import RubricAsJudgeGrader
from rubric_integrations.graders.one_shot import PerCriterionOneShotGrader
from rubric_integrations.graders.per_criterion import PerCriterionGrader

__all__ = ["CriterionGrader", "Grader", "PerCriterionGrader", "PerCriterionOneShotGrader", "RubricAsJudgeGrader"]
