"""Samples of the files of tracing tools, written for the tests in the form that each tool writes."""

from __future__ import annotations

import json
from typing import Any

TASK, ANSWER = "6 x 7?", "It is 42."
RATE_LIMIT = "row t2: has no answer: rate limit"


def langfuse(trace: str, span: str, parent: str | None, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": span, "traceId": trace, "parentObservationId": parent, "type": kind, "name": name, "level": "DEFAULT",
            "startTime": f"2026-01-01T00:00:0{span[-1]}Z", "input": None, "output": None, **fields}  # fmt: skip


ASSISTANT_CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "c1", "function": {"name": "times", "arguments": '{"a": 6}'}}]}  # fmt: skip
OBSERVATIONS = [
    # The root of a trace need not come first.
    langfuse("t1", "s2", "s1", "GENERATION", "model", input=[{"role": "user", "content": TASK}], output=ASSISTANT_CALL),
    langfuse("t1", "s3", "s1", "TOOL", "execute_tool times", input={"a": 6}, output="42"),
    langfuse("t2", "s4", None, "SPAN", "agent", input=TASK, level="ERROR", statusMessage="rate limit"),
    langfuse("t1", "s1", None, "AGENT", "agent", input={"question": TASK}, output=ANSWER),
    langfuse("t2", "s5", "s4", "GENERATION", "model", input=TASK, output="a step"),
    langfuse("t3", "s6", None, "GENERATION", "model", input=TASK, output="41."),
]
OBSERVATION_ROWS = [("t1", ANSWER, TASK), ("t2", RATE_LIMIT, None), ("t3", "41.", TASK)]
LANGFUSE_TRACE = {"id": "t1", "timestamp": "2026-01-01", "name": "chat", "bookmarked": False, "level": "DEFAULT",
                  "input": '{"question": "6 x 7?"}', "output": ANSWER, "accuracy": [1]}  # fmt: skip
LANGFUSE_DOCUMENT = {
    "trace": {"id": "t1", "input": json.dumps(TASK), "output": json.dumps(ANSWER)},
    "observations": [{**row, "input": None} for row in OBSERVATIONS if row["traceId"] == "t1"],
}


def phoenix(trace: str, span: str, parent: str | None, kind: str, **fields: Any) -> dict[str, Any]:
    context = {"trace_id": trace, "span_id": span}
    return {"name": "step", "context": context, "span_kind": kind, "parent_id": parent, "status_code": "OK",
            "status_message": "", "start_time": f"2026-01-01T00:00:0{span[-1]}", "end_time": "", "attributes": {},
            "events": [], **fields}  # fmt: skip


def io(task: Any, answer: Any) -> dict[str, Any]:
    return {"input": {"value": task}, "output": {"value": answer}}


def json_io(task: str, answer: str) -> dict[str, Any]:
    """Return an output that an instrumentation encoded as JSON, as its type says."""
    return {"input": {"value": task}, "output": {"value": answer, "mime_type": "application/json"}}


PHOENIX = [
    phoenix("t1", "s2", "s1", "TOOL", attributes={"tool": {"name": "times"}, **io('{"a": 6}', "42")}),
    # Its parent is in no row.
    phoenix("t1", "s1", "s0", "AGENT", attributes=io(TASK, ANSWER)),
    phoenix("t2", "s3", None, "CHAIN", status_code="ERROR", status_message="rate limit", attributes=io(TASK, "half")),
    phoenix("t3", "s4", None, "LLM", attributes={"llm": {
        "input_messages": [{"message": {"role": "user", "contents": [{"message_content": {"text": TASK}}]}}],
        "output_messages": [{"message": {"role": "assistant", "content": "41."}}],
    }, **io('{"messages": []}', '{"choices": []}')}),
]  # fmt: skip
PHOENIX_ROWS = [("t1", ANSWER, TASK), ("t2", RATE_LIMIT, None), ("t3", "41.", TASK)]


def mlflow_span(span: str, parent: str | None, kind: str, sent: Any, received: Any, **fields: Any) -> dict[str, Any]:
    attributes = {"mlflow.spanType": json.dumps(kind), "mlflow.spanInputs": json.dumps(sent)}
    attributes |= {} if received is None else {"mlflow.spanOutputs": json.dumps(received)}
    return {"span_id": span, "parent_span_id": parent, "name": "times" if kind == "TOOL" else "step",
            "start_time_unix_nano": int(span[-1]), "status": {"code": "STATUS_CODE_OK"}, "attributes": attributes,
            **fields}  # fmt: skip


def mlflow(trace: str, *spans: dict[str, Any], state: str = "OK") -> dict[str, Any]:
    info = {"trace_id": trace, "state": state, "request_preview": "cut...", "response_preview": "cut..."}
    return {"info": info, "data": {"spans": list(spans)}}


FAILED = {"code": "STATUS_CODE_ERROR", "message": "rate limit"}
MLFLOW = [
    mlflow("t1", mlflow_span("s2", "s1", "TOOL", {"a": 6}, 42), mlflow_span("s1", None, "AGENT", {"q": TASK}, ANSWER)),
    mlflow("t2", mlflow_span("s1", None, "CHAIN", {"q": TASK}, None, status=FAILED), state="ERROR"),
    mlflow("t3", mlflow_span("s1", None, "CHAIN", {"q": TASK}, {"answer": "41.", "tokens": 3})),
    mlflow("t4", mlflow_span("s1", None, "CHAIN", {"q": TASK}, "half"), state="IN_PROGRESS"),
]
MLFLOW_ROWS = [
    ("t1", ANSWER, TASK),
    ("t2", RATE_LIMIT, None),
    ("t3", "41.", TASK),
    ("t4", "row t4: has no answer: its state is IN_PROGRESS", None),
]
MLFLOW_TABLE = [
    {"trace_id": row["info"]["trace_id"], "trace": json.dumps(row), "request": "", "response": "", "state": "OK"}
    for row in MLFLOW
]


def part(role: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", **fields}]}


GENAI_CALL = part("assistant", type="tool_call", id="c1", name="times", arguments={"a": 6})
GENAI_RESULT = part("tool", type="tool_call_response", id="c1", response="42")
USER = part("user", content=TASK)


def genai(operation: str, sent: list[Any] | None = None, received: list[Any] | None = None) -> dict[str, Any]:
    messages = {"input": sent, "output": received}
    texts = {f"gen_ai.{name}.messages": json.dumps(value) for name, value in messages.items() if value is not None}
    return {"gen_ai.operation.name": operation, **texts}


def sdk(trace: str, span: str, parent: str | None, attributes: dict[str, Any], **status: str) -> dict[str, Any]:
    return {"name": "step", "context": {"trace_id": trace, "span_id": span, "trace_state": "[]"}, "events": [],
            "kind": "SpanKind.CLIENT", "parent_id": parent, "start_time": f"2026-01-01T00:00:0{span[-1]}Z",
            "status": status or {"status_code": "UNSET"}, "attributes": attributes}  # fmt: skip


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "times", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"a": 6}', "gen_ai.tool.call.result": "42"}  # fmt: skip
SDK = [
    sdk("t1", "s2", "s1", genai("chat", [USER], [GENAI_CALL])),
    sdk("t1", "s3", "s1", TOOL),
    # A tool's own model is a part of the tool.
    sdk("t1", "s5", "s3", genai("chat", [part("user", content="other")], [part("assistant", content="a step")])),
    sdk("t1", "s4", "s1", genai("chat", [USER, GENAI_CALL, GENAI_RESULT], [part("assistant", content=ANSWER)])),
    sdk("t1", "s1", None, {}),
    sdk("t2", "s6", None, genai("chat", [USER]), status_code="ERROR", description="rate limit"),
    sdk("health", "s7", None, {"http.method": "GET"}),
]
SDK_ROWS = [("t1", ANSWER, TASK), ("t2", RATE_LIMIT, None)]


def otlp(row: dict[str, Any]) -> dict[str, Any]:
    """Return a span of the SDK in the form of an exporter."""
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in row["attributes"].items()]
    status = {"code": 2, "message": "rate limit"} if row["status"]["status_code"] == "ERROR" else {}
    return {"traceId": row["context"]["trace_id"], "spanId": row["context"]["span_id"], "name": "step",
            "parentSpanId": row["parent_id"] or "", "startTimeUnixNano": row["start_time"][-2], "status": status,
            "attributes": attributes}  # fmt: skip


def export(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [otlp(row) for row in rows]}]}]}


TRACES: dict[str, tuple[list[Any], list[Any]]] = {
    "Langfuse observations": (OBSERVATIONS, OBSERVATION_ROWS),
    "Langfuse traces": ([LANGFUSE_TRACE], [("t1", ANSWER, TASK)]),
    "Langfuse trace": ([LANGFUSE_DOCUMENT], [("t1", ANSWER, TASK)]),
    "Phoenix spans": (PHOENIX, PHOENIX_ROWS),
    "MLflow traces": (MLFLOW, MLFLOW_ROWS),
    "MLflow table": (MLFLOW_TABLE, MLFLOW_ROWS),
    "OpenTelemetry spans": (SDK, SDK_ROWS),
    "OTLP spans": ([export(*SDK[:3]), export(*SDK[3:])], SDK_ROWS),
}
"""The rows of each format, and what is read of them: the id, the response or the error, and the task."""
