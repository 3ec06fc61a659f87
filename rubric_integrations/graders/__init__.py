"""Strategies: which questions to ask a judge, and in how many calls."""

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.per_criterion import PerCriterionGrader

__all__ = ["Grader", "PerCriterionGrader"]
