"""OpenTelemetry: a span for every grade, and an event for each of its scores (extra `otel`).

The events are `gen_ai.evaluation.result` of OpenTelemetry's conventions for generative AI. Data without an attribute in
them is in attributes that begin with `rubric.`. To add one, open `tracing/tracer.py`.
"""

from __future__ import annotations

from rubric_integrations.tracing.tracer import evaluated_response, instrument, uninstrument

__all__ = ["evaluated_response", "instrument", "uninstrument"]
