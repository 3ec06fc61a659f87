"""Events about a logged response belong to the span of the call that wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import propagate, trace

from rubric_integrations import JudgeError, grade_many
from rubric_integrations.tracing import evaluated_response
from tests.hosts.six_responses import ROWS, RUBRIC, make_grader
from tests.tracing.recorder import Recorder, ids_of, parent_of

TEXT = ROWS[0].response
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LOGGED = (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


def ids_of_events(recorder: Recorder) -> set[tuple[int | None, int | None]]:
    return {(record.log_record.trace_id, record.log_record.span_id) for record in recorder.records}


def test_events_belong_to_the_logged_call_and_the_span_links_to_it(recorder: Recorder) -> None:
    context = propagate.extract({"traceparent": TRACEPARENT})
    with (
        recorder.tracer.start_as_current_span("caller") as caller,
        evaluated_response(response_id="chatcmpl-1", context=context),
    ):
        RUBRIC.grade_sync(TEXT, make_grader())
    [span] = recorder.spans
    assert parent_of(span) == ids_of(caller)
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [LOGGED]
    assert ids_of_events(recorder) == {LOGGED}
    assert [event["gen_ai.response.id"] for event in recorder.events] == ["chatcmpl-1"] * 4


def test_events_can_belong_to_a_span_that_has_ended(recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("chat") as chat:
        pass
    with evaluated_response(context=trace.set_span_in_context(chat)):
        assert len(list(grade_many([TEXT, TEXT], RUBRIC, make_grader()))) == 2
    assert ids_of_events(recorder) == {ids_of(chat)}
    assert "gen_ai.response.id" not in recorder.events[0]


def test_id_alone_leaves_the_events_with_the_span_of_the_grade(recorder: Recorder) -> None:
    with evaluated_response(response_id="chatcmpl-1"), pytest.raises(JudgeError):
        RUBRIC.grade_sync(ROWS[-1].response, make_grader())
    [span] = recorder.spans
    assert (ids_of_events(recorder), list(span.links)) == ({ids_of(span)}, [])
    assert recorder.events[0]["gen_ai.response.id"] == "chatcmpl-1"


def test_grades_after_the_block_and_those_of_a_context_without_a_span_have_no_link(recorder: Recorder) -> None:
    with evaluated_response(context=propagate.extract({"traceparent": "nonsense"})):
        RUBRIC.grade_sync(TEXT, make_grader())
    RUBRIC.grade_sync(TEXT, make_grader())
    assert [list(span.links) for span in recorder.spans] == [[], []]
    assert not any("gen_ai.response.id" in event for event in recorder.events)


@pytest.fixture(params=["span", "text"])
def no_context(request: pytest.FixtureRequest, recorder: Recorder) -> Any:
    return recorder.tracer.start_span("chat") if request.param == "span" else TRACEPARENT


def test_span_or_text_in_place_of_the_context_is_refused(no_context: Any) -> None:
    with (
        pytest.raises(TypeError, match=r"`context` must be an OpenTelemetry context.*set_span_in_context"),
        evaluated_response(context=no_context),
    ):
        pass
