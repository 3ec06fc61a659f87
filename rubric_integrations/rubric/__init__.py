"""Rubrics as data: criteria, checks, metrics, and the `Rubric` that holds them.

To add a field to a record of this package, add it to the pydantic class with a default and describe it in the class
docstring; then run `rubric-integrations schema --output schema/rubric.schema.json`, because editors read that file.
"""

from rubric_integrations.rubric.answer_checks import FieldCheck, FieldsCheck, SimilarityCheck, TypeCheck
from rubric_integrations.rubric.check import Check, HybridMetric, Metric, NumberCheck
from rubric_integrations.rubric.criterion import Aspect, Criterion, Option, Scale, WorkedExample
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.trajectory_checks import ExpectedCall, ToolUse
from rubric_integrations.rubric.tree import Node, NodeValue, node_values

__all__ = [
    "Aspect",
    "Check",
    "Criterion",
    "ExpectedCall",
    "Fault",
    "FieldCheck",
    "FieldsCheck",
    "HybridMetric",
    "Metric",
    "Node",
    "NodeValue",
    "NumberCheck",
    "Option",
    "Rubric",
    "RubricError",
    "Scale",
    "SimilarityCheck",
    "ToolUse",
    "TypeCheck",
    "WorkedExample",
    "node_values",
]
