"""What is asked: criteria, checks and the rubric that holds them."""

from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.criterion import Criterion, Option, Scale
from rubric_integrations.rubric.errors import RubricError
from rubric_integrations.rubric.rubric import Rubric

__all__ = ["Check", "Criterion", "Option", "Rubric", "RubricError", "Scale"]
