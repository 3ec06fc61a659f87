"""The SDK of OpenTelemetry with exporters in memory, and what they have received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.sdk._logs import LoggerProvider, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from rubric_integrations.tracing import instrument

NAME, SCORE, LABEL, EXPLANATION = (
    f"gen_ai.evaluation.{name}" for name in ("name", "score.value", "score.label", "explanation")
)


class Recorder:
    """Providers of spans and events, and what was exported.

    Args:
        sampler: Which spans are recorded.
    """

    def __init__(self, sampler: Sampler = ALWAYS_ON):
        self.tracer_provider, self.logger_provider = TracerProvider(sampler=sampler), LoggerProvider()
        self._spans, self._logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.tracer = self.tracer_provider.get_tracer("tests")

    def instrument(self, *, explanations: bool = True, openinference: bool = False) -> None:
        """Record all grades with these providers."""
        instrument(
            explanations=explanations,
            openinference=openinference,
            tracer_provider=self.tracer_provider,
            logger_provider=self.logger_provider,
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of grades, in the order in which they ended."""
        return [span for span in self._spans.get_finished_spans() if span.name.startswith("evaluate ")]

    @property
    def records(self) -> list[ReadWriteLogRecord]:
        """The log records, in order."""
        return [cast("ReadWriteLogRecord", log) for log in self._logs.get_finished_logs()]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The attributes of each event, in order."""
        return [attributes_of(record.log_record) for record in self.records]

    def events_of(self, span: ReadableSpan) -> list[dict[str, Any]]:
        """Return the attributes of each event that belongs to a span."""
        return [
            attributes_of(record.log_record)
            for record in self.records
            if (record.log_record.trace_id, record.log_record.span_id) == ids_of(span)
        ]

    def exported_text(self) -> str:
        """Return everything that was exported, as one text."""
        spans = [span.to_json() for span in self._spans.get_finished_spans()]
        return "\n".join(spans + [log.to_json() for log in self._logs.get_finished_logs()])


def attributes_of(item: Any) -> dict[str, Any]:
    """Return the attributes of a span or a log record."""
    return dict(cast("Mapping[str, Any]", item.attributes or {}))


def ids_of(span: Any) -> tuple[int, int]:
    """Return the id of a span's trace, and its own."""
    context = span.get_span_context()
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """Return the ids of the parent of a span; None for the root of a trace."""
    return span.parent and (span.parent.trace_id, span.parent.span_id)
