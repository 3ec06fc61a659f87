"""The registries of conditions and metrics."""

from __future__ import annotations

from typing import get_args

from rubric_integrations.checks.metrics import METRICS
from rubric_integrations.checks.registry import CHECKS, MEASURES
from rubric_integrations.rubric import Check
from rubric_integrations.rubric.check import CONDITIONS, SETTINGS, MeasureName, MetricType


def test_every_condition_field_of_check_has_a_function() -> None:
    assert set(CONDITIONS) == set(Check.model_fields) - set(SETTINGS)
    assert set(CHECKS) == set(CONDITIONS) - {"metric"}
    assert set(MEASURES) == set(get_args(MeasureName))


def test_every_metric_type_has_a_function() -> None:
    assert set(METRICS) == set(get_args(MetricType))
