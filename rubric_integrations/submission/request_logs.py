"""Reads logs in which a row is a request to a model, or one trace as a whole: LiteLLM, Braintrust and Opik.

A row has one answer, or an error if the request failed. An agent's run may be many requests. They are not joined, and a
row of a step is never an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rubric_integrations._util.json import JsonObject
from rubric_integrations.submission.dialects.replies import matches_reply
from rubric_integrations.submission.text_files import LayoutError
from rubric_integrations.submission.tool_answers import (
    RawRow,
    RowFormat,
    all_objects,
    as_mapping,
    failed_answer,
    has_keys,
    has_value,
    short_values,
)
from rubric_integrations.submission.traces import Span, trace_answers

_NOT_AN_ANSWER = "or steps would be graded as answers"


def _litellm(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer of a request that LiteLLM logged. Retries of a request have one `trace_id`."""
    row_id, response, trace = str(row["id"]), row["response"], row.get("trace_id")
    if row["status"] == "failure":
        answer = failed_answer(row_id, row.get("error_str"))
    elif isinstance(response, str) or matches_reply(response):
        request = "query" if isinstance(response, str) else "messages"
        metadata = short_values(row, "model", "session_id", "trace_id")
        answer = RawRow({"id": row_id, request: row["messages"], "response": response, "metadata": metadata})
    else:
        answer = failed_answer(row_id, f"its `response` is no reply of a model (`call_type` {row['call_type']!r})")
    return [answer._replace(group=trace if isinstance(trace, str) and trace else None)]


def _braintrust(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer of a root span of Braintrust.

    Raises:
        LayoutError: The row is a span inside a trace.
    """
    if row.get("span_parents") or row["span_id"] != row["root_span_id"]:
        raise LayoutError(
            "is a span of Braintrust within another one: keep the root spans, which have the answers (`jq -c "
            f"'select(.span_id == .root_span_id)'`), {_NOT_AN_ANSWER}"
        )
    output = row.get("output")
    output = {"choices": output} if all_objects(output, has_keys("message", "finish_reason")) else output
    answer = _answer(row, "Braintrust span", output, row.get("error"))
    beside = {"reference": row.get("expected"), "metadata": short_values(as_mapping(row.get("metadata")))}
    return [answer._replace(fields={**answer.fields, **beside})]


def _opik(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer of a trace of Opik. Its spans are in another table.

    Raises:
        LayoutError: The row is a span.
    """
    if has_value(row.get("trace_id")):
        raise LayoutError(f"is a span of Opik: name an export of the traces, {_NOT_AN_ANSWER}")
    return [_answer(row, "Opik trace", row.get("output"), row.get("error_info"))]


def _answer(row: JsonObject, kind: str, output: Any, error: Any) -> RawRow:
    """Return the answer of a row. The error of an output without a clear answer names the kind of row and a way."""
    row_id = str(row["id"])
    if has_value(error):
        return failed_answer(row_id, error)
    output = output if has_value(output) and output not in ([], {}) else None
    if isinstance(output, list) and not all_objects(output, has_keys("role")):
        answer = failed_answer(row_id, f"its output is a list of {len(output)} values")
    else:
        answer = trace_answers(
            [], Span(row_id, "", None, "step", str(row.get("name") or ""), "", row.get("input"), output)
        )[0]
    places = [f"output.{name}" for name in as_mapping(row.get("output"))]
    if answer.error is None or not places:
        return answer
    remedy = f"name the text in the {kind} by `response_column` (`--response-column {places[0]}`)"
    return answer._replace(error=f"{answer.error}; {remedy}")


def _is_opik(row: JsonObject) -> bool:
    has_end = "error_info" in row and ("end_time" in row or "thread_id" in row)
    return has_keys("id", "name", "start_time", "output")(row) and has_end


LOG_FORMATS = (
    RowFormat(
        "LiteLLM log", has_keys("id", "call_type", "status", "messages", "response", "model_parameters"), _litellm,
        has_all_calls=True,
    ),
    RowFormat("Braintrust spans", has_keys("id", "root_span_id", "span_attributes"), _braintrust),
    RowFormat("Opik traces", _is_opik, _opik),
)  # fmt: skip
"""The formats of rows of request logs. The first format that matches reads a row."""
