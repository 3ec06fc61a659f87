"""The observer of grades that makes a span and events of each."""

from __future__ import annotations

import logging
import time
from importlib.metadata import PackageNotFoundError, version
from traceback import format_exception
from typing import TYPE_CHECKING

from rubric_integrations._util.extras import install_command
from rubric_integrations.graders.observer import Grade
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.tracing.attributes import (
    Attributes,
    error_type_of,
    event_attributes,
    openinference_attributes,
    outcomes_to_record,
    recordable,
    span_attributes,
)
from rubric_integrations.tracing.response import current_response

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    from rubric_integrations.graders import Grader
    from rubric_integrations.rubric.rubric import Rubric

_SCOPE = "rubric_integrations"
_EVENT = "gen_ai.evaluation.result"
_log = logging.getLogger(__name__)


class GradeTracer:
    """Records grades with OpenTelemetry. Whatever its SDK raises is logged once, and the grade goes on.

    Args:
        explanations: As for `instrument`.
        openinference: As for `instrument`.
        tracer_provider: As for `instrument`.
        logger_provider: As for `instrument`.

    Raises:
        ImportError: `opentelemetry-api` is not installed, or is older than 1.45.
    """

    def __init__(
        self,
        explanations: bool,
        openinference: bool,
        tracer_provider: TracerProvider | None,
        logger_provider: LoggerProvider | None,
    ):
        try:
            from opentelemetry import _logs, context, trace

            _ = _logs.Logger.enabled
        except (ImportError, AttributeError) as error:
            command = f"{install_command('otel')} --upgrade"
            raise ImportError(f"`instrument` needs opentelemetry-api 1.45 or newer: {command}") from error
        self._explanations, self._openinference, self._has_warned = explanations, openinference, False
        self._context, self._trace = context, trace
        # Both find a global provider that is set later.
        self._tracer = trace.get_tracer(_SCOPE, _version(), tracer_provider)
        self._logger = _logs.get_logger(_SCOPE, _version(), logger_provider)
        self._key = context.create_key("rubric_integrations.grade")

    async def __call__(self, grader: Grader, rubric: Rubric, to_grade: object, grade: Grade) -> EvaluationReport:
        """Await the grade, in a span of its own, and return or raise what it does."""
        parent, identity = self._context.get_current(), (grader, rubric, to_grade)
        outer = self._context.get_value(self._key, parent)
        if isinstance(outer, tuple) and all(one is other for one, other in zip(outer, identity, strict=True)):
            return await grade  # a further round of a grade that is recorded as a whole
        started = self._start(grader, rubric, parent)
        if started is None:
            return await grade
        span, base = started
        own = self._trace.set_span_in_context(span, parent)
        token = self._context.attach(self._context.set_value(self._key, identity, own))
        try:
            report = await grade
        except BaseException as error:
            self._finish(span, own, base, error.report if isinstance(error, JudgeError) else None, error)
            raise
        else:
            self._finish(span, own, base, report, None)
            return report
        finally:
            self._context.detach(token)

    def _start(self, grader: Grader, rubric: Rubric, parent: Context) -> tuple[Span, Attributes] | None:
        """Start the span, with those attributes that all events have, too."""
        try:
            name = recordable(rubric.name or "rubric")
            judges = recordable(", ".join(member.model for member in grader.panel))
            base: Attributes = {"rubric.name": name, "rubric.judge.model": judges}
            return self._tracer.start_span(f"evaluate {name}", parent, attributes=base, links=self._links()), base
        except Exception as error:  # noqa: BLE001 -- whatever a sampler or a processor raises
            self._warn(error)
            return None

    def _links(self) -> list[Link]:
        context = current_response().context
        if context is None:
            return []
        target = self._trace.get_current_span(context).get_span_context()
        return [self._trace.Link(target)] if target.is_valid else []

    def _finish(
        self,
        span: Span,
        own: Context,
        base: Attributes,
        report: EvaluationReport | None,
        failure: BaseException | None,
    ) -> None:
        try:
            self._record(span, own, base, report, failure)
        except Exception as error:  # noqa: BLE001 -- whatever a processor or an exporter raises
            self._warn(error)
        try:
            span.end()
        except Exception as error:  # noqa: BLE001 -- as above
            self._warn(error)

    def _record(
        self,
        span: Span,
        own: Context,
        base: Attributes,
        report: EvaluationReport | None,
        failure: BaseException | None,
    ) -> None:
        response = current_response()
        context = own if response.context is None else response.context
        has_readers = self._logger.enabled(context=context, event_name=_EVENT)
        if not has_readers and not span.is_recording():
            return
        outcomes = outcomes_to_record(report, str(base["rubric.name"]), failure)
        if span.is_recording():
            if report is not None:
                span.set_attributes(span_attributes(report, has_score=failure is None))
            if self._openinference:
                span.set_attributes(openinference_attributes(outcomes, report, explanations=self._explanations))
            if failure is not None:
                span.set_attribute("error.type", error_type_of(failure))
                message = recordable(str(failure)) if self._explanations else None
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, message))
        if response.id is not None:
            base = {**base, "gen_ai.response.id": recordable(str(response.id))}
        for outcome in outcomes if has_readers else ():
            attributes = base | event_attributes(outcome, failure, explanations=self._explanations)
            self._logger.emit(timestamp=time.time_ns(), event_name=_EVENT, context=context, attributes=attributes)

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            # Without the error of the grade, during which this one may have occurred: it may quote what is graded.
            lines = "".join(format_exception(error, chain=False))
            _log.warning("OpenTelemetry did not record a grade; further errors are not logged: %s", lines)


def _version() -> str:
    try:
        return version("rubric-integrations")
    except PackageNotFoundError:
        return ""  # a source folder that is not installed
