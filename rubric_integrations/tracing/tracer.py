"""Records a span and events for every grade, and switches this recording on and off for the process.

It can also link a grade to the model call that wrote the graded response. OpenTelemetry is imported when recording is
switched on.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from traceback import format_exception
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from rubric_integrations._util.lazy import install_command
from rubric_integrations._util.records import encodable
from rubric_integrations.graders.grader import Grade, set_observer
from rubric_integrations.scoring.judgment import FailureKind
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, NamedScore, outcomes_of

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    from rubric_integrations.graders import Grader
    from rubric_integrations.rubric.rubric import Rubric

Attributes = dict[str, str | bool | int | float]

MAX_CHARS = 8192
"""The largest number of characters of a text that are recorded. A judge may return a megabyte of text, and servers
refuse a complete batch of spans if the batch is too large."""


def outcomes_to_record(report: EvaluationReport | None, name: str, failure: BaseException | None) -> list[NamedScore]:
    """Return the overall outcome of a grade and the outcome of each criterion.

    The list is empty if the grade was cancelled. Without a report, it has only the failure of the grade.

    Args:
        report: The report, which may be the incomplete report of a `JudgeError`. None if there is no report.
        name: The name of the overall outcome.
        failure: The exception that the grade raised, or None.
    """
    if failure is not None and not isinstance(failure, Exception):
        return []
    if report is not None:
        return outcomes_of(report, name, failure)
    return [NamedScore(name=name, kind="failure", explanation=f"not graded: {failure}", error=str(failure))]


def event_attributes(outcome: NamedScore, failure: BaseException | None, *, explanations: bool) -> Attributes:
    """Return the attributes of the event `gen_ai.evaluation.result` of one outcome.

    Args:
        outcome: The outcome of the grade or of one criterion: a score, an abstention or a failure.
        failure: The exception that the grade raised, or None. Its class is the error type of the overall outcome.
        explanations: Whether to include the explanation, which may quote the graded text.
    """
    error_type = None
    if outcome.kind == "failure":
        is_whole = outcome.weight is None
        error_type = error_type_of(failure) if is_whole and failure else _failure_kind(outcome.error or "")
    return present(
        {
            "gen_ai.evaluation.name": outcome.name,
            "gen_ai.evaluation.score.value": outcome.score,
            "gen_ai.evaluation.score.label": outcome.label,
            "gen_ai.evaluation.explanation": (outcome.explanation or None) if explanations else None,
            "error.type": error_type,
            "rubric.weight": outcome.weight,
        }
    )


def span_attributes(report: EvaluationReport, *, has_score: bool) -> Attributes:
    """Return the attributes of the span of a grade. Unknown values, such as an unknown cost, are left out.

    Args:
        report: The report.
        has_score: Whether to include the score and `passed`. Set it to False for a failed grade.
    """
    usage = report.token_usage
    return present(
        {
            "rubric.score": report.score if has_score else None,
            "rubric.passed": report.passed if has_score else None,
            "rubric.coverage": report.coverage,
            "rubric.cannot_assess_count": report.cannot_assess_count,
            "rubric.failed_count": report.failed_count,
            "rubric.calls": report.spend.calls,
            "rubric.cost": report.cost,
            "rubric.cost_is_lower_bound": report.spend.is_lower_bound or None,
            "gen_ai.usage.input_tokens": usage and usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage and usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage and usage.cached_tokens,
        }
    )


def openinference_attributes(
    outcomes: Iterable[NamedScore], report: EvaluationReport | None, *, explanations: bool
) -> Attributes:
    """Return the outcomes as the span attributes that OpenInference defines.

    Failures are left out, because OpenInference has no attribute for them. An error message in another attribute would
    look like the explanation of a result. The status of the span shows whether the grade failed.
    """
    attributes: Attributes = {"openinference.span.kind": "EVALUATOR"}
    # The first outcome is the overall outcome. The criteria follow in the order of the report.
    computed = [row.computed for row in report.criteria if row.was_asked] if report else []
    kinds = [bool(computed) and all(computed), *computed]
    number = 0
    for outcome, is_computed in zip(outcomes, kinds, strict=False):
        if outcome.kind == "failure":
            continue
        values = {
            "name": outcome.name,
            "score": outcome.score,
            "label": outcome.label,
            "explanation": (outcome.explanation or None) if explanations else None,
            "annotator_kind": "CODE" if is_computed else "LLM",
        }
        attributes |= {f"evaluations.{number}.evaluation.{key}": value for key, value in present(values).items()}
        number += 1
    return attributes


def error_type_of(failure: BaseException) -> str:
    """Return the name of an exception's class, by which dashboards can group errors."""
    return type(failure).__qualname__


def present(values: Mapping[str, Any]) -> Attributes:
    """Return attributes with shortened texts, and without None and numbers that JSON cannot represent."""
    return {
        key: recordable(value) if isinstance(value, str) else value
        for key, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def recordable(text: str) -> str:
    r"""Shorten a text to `MAX_CHARS` characters, and escape lone surrogates.

    With a lone surrogate in one span, an exporter would lose the complete batch of spans.

    Example:
        >>> recordable("fine \ud83d"), len(recordable("x" * 10**6))
        ('fine \\ud83d', 8192)
    """
    text = encodable(text[: MAX_CHARS + 1])
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


# The kind of the failure is the first part of an error, or the second if a condition has failed.
_KIND = re.compile(rf"(?:[^:]+: )?({'|'.join(get_args(FailureKind))}): ")


def _failure_kind(error: str) -> str:
    match = _KIND.match(error)
    return match[1] if match else "judge_failure"


class EvaluatedResponse(NamedTuple):
    """The model call that wrote a graded response: the id of the response and the call's OpenTelemetry context."""

    id: str | None = None
    context: Context | None = None


_current: ContextVar[EvaluatedResponse | None] = ContextVar("evaluated_response", default=None)


@contextmanager
def evaluated_response(*, response_id: str | None = None, context: Context | None = None) -> Generator[None]:
    """Link the grades in a `with` block to the model call that wrote the graded response.

    The events of each grade in the block get the response id, and belong to the span of the model call, as
    OpenTelemetry's conventions recommend. The span of the grade links to the span of the model call. It stays
    a child of the caller's current span.

    Args:
        response_id: The provider's id of the response (`gen_ai.response.id`).
        context: The OpenTelemetry context that contains the span of the model call, such as
            `opentelemetry.propagate.extract({"traceparent": ...})` for a logged call.

    Raises:
        TypeError: `context` is not an OpenTelemetry context, for example a span.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> with evaluated_response(response_id="chatcmpl-1"):
        ...     rubric.grade_sync("It is 42.", PerCriterionGrader("offline")).score
        1.0
    """
    if context is not None and not isinstance(cast("object", context), Mapping):
        raise TypeError(
            f"`context` must be an OpenTelemetry context, got {type(context).__name__}: pass "
            "`opentelemetry.trace.set_span_in_context(span)`, or the events would belong to no span"
        )
    token = _current.set(EvaluatedResponse(response_id, context))
    try:
        yield
    finally:
        _current.reset(token)


def current_response() -> EvaluatedResponse:
    """Return the model call of the innermost `evaluated_response` block. Both fields are None outside a block."""
    return _current.get() or EvaluatedResponse()


_SCOPE = "rubric_integrations"
_EVENT = "gen_ai.evaluation.result"
_log = logging.getLogger(__name__)


class GradeTracer:
    """Records grades with OpenTelemetry. An error of OpenTelemetry is logged once and does not affect the grade.

    Args:
        explanations: Whether to record the judges' reasons and the error messages, which may quote the graded text.
        openinference: Whether the span also has the scores as OpenInference attributes, which Phoenix reads.
        tracer_provider: The provider of spans. None for the global provider.
        logger_provider: The provider of events. None for the global provider.

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
        # Both also use a global provider that is set later.
        self._tracer = trace.get_tracer(_SCOPE, _version(), tracer_provider)
        self._logger = _logs.get_logger(_SCOPE, _version(), logger_provider)
        self._key = context.create_key("rubric_integrations.grade")

    async def __call__(self, grader: Grader, rubric: Rubric, to_grade: object, grade: Grade) -> EvaluationReport:
        """Await the grade in a new span, and return its report or raise its exception."""
        parent, identity = self._context.get_current(), (grader, rubric, to_grade)
        outer = self._context.get_value(self._key, parent)
        if isinstance(outer, tuple) and all(one is other for one, other in zip(outer, identity, strict=True)):
            return await grade  # a further round of a grade, which is already recorded by the outer span
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
        """Start the span. Return it with the attributes that the span and all its events have."""
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
        """Record a grade on its span and end the span. Errors of OpenTelemetry become warnings."""
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
        """Set the attributes of a grade's span, and emit an event for each of its scores."""
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
            # Without the chained error of the grade, which may quote the graded text.
            lines = "".join(format_exception(error, chain=False))
            _log.warning("OpenTelemetry did not record a grade; further errors are not logged: %s", lines)


def _version() -> str:
    try:
        return version("rubric-integrations")
    except PackageNotFoundError:
        return ""  # a source folder that is not installed


def instrument(
    *,
    explanations: bool = True,
    openinference: bool = False,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Record every later grade in this process with OpenTelemetry. A second call replaces the settings of the first.

    Each grade gets a span `evaluate <name of the rubric>`, which is a child of the caller's current span. It also gets
    one event for the overall score and one event for each criterion. Higher scores are better, also for penalties. A
    failed grade has the status `ERROR`, an `error.type`, and no score. A report from a cache of reports gets no span.

    Nothing is exported unless your program sets up the OpenTelemetry SDK, before or after this call. An error of the
    SDK is logged once, and never changes a grade.

    Args:
        explanations: Whether to record the judges' reasons and the error messages, up to 8,192 characters of each. They
            may quote the graded text. Without them, no text of a submission is recorded.
        openinference: Whether the span also has the scores as OpenInference attributes, which Phoenix reads.
        tracer_provider: The provider of spans. By default, the global provider.
        logger_provider: The provider of events. By default, the global provider.

    Raises:
        ImportError: `opentelemetry-api` is not installed, or is older than 1.45.

    Example:
        >>> instrument(explanations=False)
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> rubric.grade_sync("It is 42.", PerCriterionGrader("offline")).score
        1.0
        >>> uninstrument()
    """
    set_observer(GradeTracer(explanations, openinference, tracer_provider, logger_provider))


def uninstrument() -> None:
    """Stop recording: later grades get no spans and no events. Has no effect if recording is off.

    Example:
        >>> uninstrument()
    """
    set_observer(None)
