"""Runs that tracing tools export: LangSmith."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.inputs import is_row, is_state
from rubric_integrations.submission.tool_answers import (
    Fields,
    ToolAnswer,
    failed_answer,
    has_keys,
    has_no_response,
    parsed_json,
    query_of,
    response_of,
    short_values,
    unclear_answer,
)


def read_langsmith_run(row: Fields) -> Iterable[ToolAnswer]:
    """Return the answer of a run of LangSmith; none for a step of another run."""
    if row.get("parent_run_id"):
        return []
    row_id = str(row.get("id") or row.get("run_id"))
    outputs = parsed_json(row.get("outputs"))
    if row.get("error") or not outputs:
        return [failed_answer(row_id, row.get("error") or "it has no `outputs`")]
    fields = {
        "id": row_id,
        "query": query_of(parsed_json(row.get("inputs"))),
        "metadata": short_values(row, "name", "run_type"),
    }
    if not isinstance(outputs, Mapping):
        return [ToolAnswer({**fields, "response": response_of(outputs)})]
    generations = outputs.get("generations")
    if isinstance(generations, list) and generations:
        first = generations[0][0] if isinstance(generations[0], list) and generations[0] else generations[0]
        return [ToolAnswer({**fields, "response": first.get("text") if isinstance(first, Mapping) else None})]
    if isinstance(outputs.get("messages"), list) and not is_state(outputs):
        return [failed_answer(row_id, "its `outputs.messages` cannot be read")]
    if len(outputs) == 1 and not is_state(outputs):
        return [ToolAnswer({**fields, "response": response_of(next(iter(outputs.values())))})]
    if is_row(outputs) or dialect_of(outputs) is not None:
        # A conversation has its task, as in LangChain's hosts.
        query = None if is_state(outputs) else fields["query"]
        return [ToolAnswer({**fields, "query": query, "response": outputs})]
    return [unclear_answer(row_id, [f"outputs.{name}" for name in outputs])]


def matches_langsmith_run(row: Fields) -> bool:
    """Return whether a row is a run of LangSmith."""
    return has_keys("run_type", "inputs", "start_time")(row) and ("outputs" in row or has_no_response(row))
