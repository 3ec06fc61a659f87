"""OpenTelemetry: a span for every grade, and an event for each of its scores (extra `otel`).

The events have the name `gen_ai.evaluation.result`, from OpenTelemetry's conventions for generative AI. Data that these
conventions do not cover is in attributes that begin with `rubric.`. To add an attribute, edit `tracing/tracer.py`.
"""

from __future__ import annotations

from rubric_integrations.tracing.tracer import evaluated_response, instrument, uninstrument

__all__ = ["evaluated_response", "instrument", "uninstrument"]
