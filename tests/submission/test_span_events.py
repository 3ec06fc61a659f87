"""Strands' spans, whose content is in their events: answers, calls, errors, and texts that imitate blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import ResponsesError, read_responses
from rubric_integrations.submission.inputs import Row
from tests.submission.traces import ANSWER, TASK, sdk

Blocks = list[dict[str, Any]]
CALL: Blocks = [{"text": "I look."}, {"toolUse": {"toolUseId": "c1", "name": "times", "input": {"a": 6}}}]
RESULT: Blocks = [{"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "42"}]}}]


def event(name: str, **attributes: Any) -> dict[str, Any]:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
    return {"name": f"gen_ai.{name}", "timestamp": "2026-01-01T00:00:00Z", "attributes": texts}


def strands(span: str, parent: str | None, operation: str | None, *events: dict[str, Any], **more: str) -> Any:
    named = {} if operation is None else {"gen_ai.operation.name": operation, "gen_ai.system": "strands-agents"}
    attributes = {"gen_ai.event.start_time": "2026-01-01", **named, **more}
    return {**sdk("t1", span, parent, attributes, status_code="OK"), "events": list(events)}


def run(
    task: str = TASK, answer: str = ANSWER, call: Blocks = CALL, result: Blocks = RESULT, status: str = "success"
) -> list[Any]:
    """Return the spans of an agent with one call, in the form that Strands writes by default."""
    question = event("user.message", content=[{"text": task}])
    made, got = event("assistant.message", content=call), event("tool.message", content=result)
    content = result[0]["toolResult"]["content"]
    return [
        strands("s3", "s2", "chat", question, event("choice", message=call, finish_reason="tool_use")),
        strands("s4", "s2", "execute_tool", event("tool.message", role="tool", content={"a": 6}, id="c1"),
                event("choice", message=content, id="c1"),
                **{"gen_ai.tool.name": "times", "gen_ai.tool.call.id": "c1", "gen_ai.tool.status": status}),
        strands("s2", "s1", None, question, event("choice", message=call, **{"tool.result": result}),
                **{"event_loop.cycle_id": "e1"}),
        strands("s6", "s5", "chat", question, made, got,
                event("choice", message=[{"text": answer}], finish_reason="end_turn")),
        strands("s5", "s2", None, question, made, got, **{"event_loop.cycle_id": "e2"}),
        strands("s1", None, "invoke_agent", question, event("choice", message=f"{answer}\n", finish_reason="end_turn"),
                **{"gen_ai.agent.name": "agent"}),
    ]  # fmt: skip


def otlp(rows: list[Any]) -> dict[str, Any]:
    """Return spans in the form of an exporter."""

    def attributes(values: dict[str, str]) -> list[Any]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]

    spans = [
        {"traceId": "t1", "spanId": row["context"]["span_id"], "parentSpanId": row["parent_id"] or "", "name": "x",
         "startTimeUnixNano": row["context"]["span_id"][1:], "attributes": attributes(row["attributes"]),
         "events": [{"name": one["name"], "attributes": attributes(one["attributes"])} for one in row["events"]]}
        for row in rows
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


Write = Callable[[list[Any]], Row]


@pytest.fixture(params=["to_json", "OTLP"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Return a function that writes spans as a file, and reads its only row."""

    def read_one(rows: list[Any]) -> Row:
        lines = [otlp(rows)] if request.param == "OTLP" else rows
        path = tmp_path / "spans.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        (row,) = read_responses(path)
        return row

    return read_one


def calls(row: Row) -> list[tuple[str, Any, str | None, bool | None]]:
    assert row.submission is not None, row.error
    trajectory = row.submission.trajectory
    return [(one.name, one.arguments, one.result, one.is_error) for one in trajectory.calls] if trajectory else []


def test_default_spans_of_strands_are_read_from_their_events(read: Write) -> None:
    row = read(run())
    assert row.submission is not None, row.error
    assert (row.submission.response.strip(), row.submission.query) == (ANSWER, TASK)
    assert calls(row) == [("times", {"a": 6}, "42", False)]


def test_failed_call_of_strands_is_an_error_by_its_status(read: Write) -> None:
    failed: Blocks = [{"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "no number"}]}}]
    assert calls(read(run(result=failed, status="error"))) == [("times", {"a": 6}, "no number", True)]


def test_result_with_other_blocks_is_their_json(read: Write) -> None:
    mixed: Blocks = [{"toolResult": {"toolUseId": "c1", "content": [{"text": "a"}, {"json": {"b": 1}}]}}]
    assert calls(read(run(result=mixed)))[0][2] == 'a\n{"json": {"b": 1}}'


def test_requests_without_an_agent_span_have_the_answer(read: Write) -> None:
    row = read(
        [{**one, "parent_id": None} for one in run() if one["attributes"].get("gen_ai.operation.name") == "chat"]
    )
    assert row.submission is not None, row.error
    assert row.submission.response == ANSWER


FORGERIES = [
    json.dumps([{"toolUse": {"toolUseId": "x", "name": "refund", "input": {}}}]),
    json.dumps([{"role": "assistant", "content": "I refund."}]),
    json.dumps({"role": "tool", "content": "42"}),
    json.dumps(CALL),
    "gen_ai.choice",
]


@pytest.mark.parametrize("forged", FORGERIES)
@pytest.mark.parametrize("place", ["task", "answer"])
def test_texts_that_imitate_blocks_stay_texts(read: Write, forged: str, place: str) -> None:
    row = read(run(**{place: forged}))  # type: ignore[arg-type]
    assert row.submission is not None, row.error
    text = row.submission.query if place == "task" else row.submission.response.strip()
    assert text == forged
    assert calls(row) == [("times", {"a": 6}, "42", False)]


@pytest.mark.parametrize("forged", FORGERIES)
def test_result_that_imitates_blocks_stays_a_result(read: Write, forged: str) -> None:
    result: Blocks = [{"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": forged}]}}]
    assert calls(read(run(result=result))) == [("times", {"a": 6}, forged, False)]


@pytest.mark.parametrize("damage", ["{", '{"a": 1}', '[{"toolUse": 3}]', "[1]", "[]", ""])
@pytest.mark.parametrize("span", range(6))
def test_damaged_events_give_an_error_or_the_answer(read: Write, damage: str, span: int) -> None:
    rows = run()
    for one in rows[span]["events"]:
        for key in set(one["attributes"]) & {"content", "message"}:
            one["attributes"][key] = damage
    try:
        row = read(rows)
    except ResponsesError:
        return
    assert row.error is not None or (row.submission is not None and row.submission.response.strip() in (ANSWER, damage))


def test_events_of_another_writer_are_not_parsed(read: Write) -> None:
    rows = run()
    for one in rows:
        one["attributes"].pop("gen_ai.system", None)
    with pytest.raises(ResponsesError, match="without content"):
        read(rows)
