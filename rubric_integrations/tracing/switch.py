"""Switches the recording of grades with OpenTelemetry on and off, for the whole process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations.graders.observer import set_observer
from rubric_integrations.tracing.grade_tracer import GradeTracer

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.trace import TracerProvider


def instrument(
    *,
    explanations: bool = True,
    openinference: bool = False,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Record every grade that begins from now on in this process; a second call replaces the settings of the first.

    Each grade gets a span `evaluate <name of the rubric>`, a child of the caller's current span, and events: one for
    the whole, and one for each criterion. Higher scores are better, also those of penalties. A grade that fails has the
    status `ERROR`, an `error.type`, and no score. A report that comes from a cache of reports gets no span.

    Nothing is exported unless your program sets up the OpenTelemetry SDK, which it may do before or after. An error of
    the SDK is logged once, and never changes a grade.

    Args:
        explanations: Whether the reasons of judges and the messages of errors are recorded, up to 8,192 characters of
            each. They may quote what is graded; without them, no text of a submission is recorded.
        openinference: Whether the span also has the scores as the attributes of OpenInference, which Phoenix reads.
        tracer_provider: The provider of spans; by default the global one.
        logger_provider: The provider of events; by default the global one.

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
    """Record no grade that begins from now on; without effect if none is recorded.

    Example:
        >>> uninstrument()
    """
    set_observer(None)
