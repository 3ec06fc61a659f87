"""Which call to a model wrote the response that is graded, for grades of logged responses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from opentelemetry.context import Context


class EvaluatedResponse(NamedTuple):
    """The arguments of `evaluated_response`."""

    id: str | None = None
    context: Context | None = None


_current: ContextVar[EvaluatedResponse | None] = ContextVar("evaluated_response", default=None)


@contextmanager
def evaluated_response(*, response_id: str | None = None, context: Context | None = None) -> Generator[None]:
    """Name the call to a model that wrote the response which is graded in this block.

    The events of each grade in the block get the id, and belong to the span of that call, as OpenTelemetry's
    conventions recommend. The span of the grade links to it, and remains a child of the caller's current span.

    Args:
        response_id: The provider's id of the response (`gen_ai.response.id`).
        context: The OpenTelemetry context that has the span of the call, such as
            `opentelemetry.propagate.extract({"traceparent": ...})` for a logged one.

    Raises:
        TypeError: `context` is a span or anything else that is no context.

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
    """Return the call that the innermost `evaluated_response` names; one without id and context outside of any."""
    return _current.get() or EvaluatedResponse()
