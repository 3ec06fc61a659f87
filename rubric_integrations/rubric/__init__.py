"""Rubrics as data: criteria, checks, metrics, and the `Rubric` that contains them.

To add a field to a record of this package, add it to the pydantic class with a default and describe it in the class
docstring. Then run `rubric-integrations schema --output schema/rubric.schema.json`, because editors read that file.
"""

from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.rubric.case import Case, Expectation
from rubric_integrations.rubric.check import (
    Check,
    ExpectedCall,
    FieldCheck,
    FieldsCheck,
    HybridMetric,
    Metric,
    NumberCheck,
    SimilarityCheck,
    ToolUse,
)
from rubric_integrations.rubric.criterion import Aspect, Criterion, WorkedExample
from rubric_integrations.rubric.rubric import Fault, Node, NodeValue, Rubric, RubricError, node_values

__all__ = [
    "Aspect",
    "Case",
    "Check",
    "Criterion",
    "Expectation",
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
    "WorkedExample",
    "node_values",
]
