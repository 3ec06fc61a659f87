"""OpenTelemetry: a span for every grade, and an event for each of its scores (extra `otel`).

The events are those of OpenTelemetry's conventions for generative AI, `gen_ai.evaluation.result`. What these have no
attribute for is in attributes that begin with `rubric.`; to add one, open `attributes.py`.
"""

from __future__ import annotations

from rubric_integrations.tracing.response import evaluated_response
from rubric_integrations.tracing.switch import instrument, uninstrument

__all__ = ["evaluated_response", "instrument", "uninstrument"]
