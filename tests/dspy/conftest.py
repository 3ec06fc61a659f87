"""Fixtures of the tests of the DSPy adapter."""

from __future__ import annotations

import pytest

from rubric_integrations.dspy import RubricMetric
from tests.dspy.programs import judge_script, metric_at
from tests.openai_server import OpenAIServer


@pytest.fixture
def metric(server: OpenAIServer) -> RubricMetric:
    server.script = judge_script
    return metric_at(server)
