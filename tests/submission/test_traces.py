"""Exports of tracing tools: one answer for each trace, never the output of a step, and no call that is lost."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.submission import ResponsesError, Row, read_responses, traces
from rubric_integrations.submission.tool_rows import find_row_format
from tests.submission.traces import (
    ANSWER,
    ASSISTANT_CALL,
    GENAI_CALL,
    GENAI_RESULT,
    LANGFUSE_DOCUMENT,
    MLFLOW,
    MLFLOW_TABLE,
    OBSERVATION_ROWS,
    OBSERVATIONS,
    PHOENIX,
    PHOENIX_ROWS,
    SDK,
    TASK,
    TRACES,
    USER,
    export,
    genai,
    io,
    json_io,
    langfuse,
    part,
    phoenix,
    sdk,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, *values: Any) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(value if isinstance(value, str) else json.dumps(value) for value in values))
        return path

    return write_file


def summary(rows: Sequence[Row]) -> list[tuple[str, str | None, str | None]]:
    return [
        (row.id, row.submission.response, row.submission.query) if row.submission else (row.id, row.error, None)
        for row in rows
    ]


def read(path: Path, **options: Any) -> list[tuple[str, str | None, str | None]]:
    return summary(list(read_responses(path, **options)))


def calls(row: Row) -> list[tuple[str, Any, str | None]] | None:
    assert row.submission
    trajectory = row.submission.trajectory
    return trajectory and [(call.name, call.arguments, call.result) for call in trajectory.calls]


@pytest.mark.parametrize("name", ["Langfuse trace", "MLflow traces", "OTLP spans"])
def test_one_object_in_a_json_file_is_read(write: Write, name: str) -> None:
    rows, expected = TRACES[name]
    path = write("f.json", export(*SDK) if name == "OTLP spans" else rows[0])
    assert read(path) == (expected if name == "OTLP spans" else expected[:1])


def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a span of Phoenix as a row of its data frame."""
    values = dict[str, Any]()
    for name, value in row.items():
        is_inner = isinstance(value, dict) and value
        values |= flat(value, f"{prefix}{name}.") if is_inner else {f"{prefix}{name}": value}
    return values


def test_tables_of_traces_are_read(write: Write, tmp_path: Path) -> None:
    def table(rows: Sequence[dict[str, Any]]) -> Path:
        names = list(dict.fromkeys(name for row in rows for name in row))
        with (tmp_path / "f.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            for row in rows:
                values = {name: json.dumps(v) if isinstance(v, dict | list) else v for name, v in row.items()}
                writer.writerow(values)
        return tmp_path / "f.csv"

    assert read(table(OBSERVATIONS)) == OBSERVATION_ROWS
    assert read(table([flat(row) for row in PHOENIX[:3]])) == PHOENIX_ROWS[:2]
    assert [row[0] for row in read(table(MLFLOW_TABLE))] == ["t1", "t2", "t3", "t4"]
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    frame = pyarrow.Table.from_pylist([flat(row) for row in PHOENIX[::-1]])
    parquet.write_table(frame, tmp_path / "f.parquet")
    assert sorted(read(tmp_path / "f.parquet")) == PHOENIX_ROWS


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Langfuse observations", {"a": 6}), ("Langfuse trace", None), ("Phoenix spans", {"a": 6}),
     ("MLflow traces", {"a": 6}), ("MLflow table", {"a": 6}), ("OpenTelemetry spans", {"a": 6}),
     ("OTLP spans", {"a": 6})],
)  # fmt: skip
def test_calls_of_a_trace_are_its_trajectory_and_each_is_there_once(write: Write, name: str, arguments: Any) -> None:
    path = write("f.jsonl", *TRACES[name][0])
    rows = list(read_responses(path))
    assert calls(rows[0]) == [("times", arguments, "42")]
    assert not any(row.submission and row.submission.trajectory for row in rows[1:])
    use = {"name": "times", "max": 1}
    uses: Any = [{"name": "uses", "requirement": "Multiplies once", "check": {"tool_used": use}},
                 {"name": "not", "requirement": "Does not", "check": {"tool_forbidden": ["times"]}}]  # fmt: skip
    run = grade_many(rows[:1], uses, PerCriterionGrader("offline"))
    reports = [graded.report for graded in run]
    assert [entry.verdict for report in reports if report for entry in report.criteria] == ["MET", "UNMET"]


def test_call_without_a_span_is_in_the_trajectory(write: Write) -> None:
    rows = [OBSERVATIONS[0], OBSERVATIONS[3]]
    assert [calls(row) for row in read_responses(write("f.jsonl", *rows))] == [[("times", {"a": 6}, None)]]
    hosted = part("assistant", type="tool_call", id="c2", name="search", arguments={"q": "x"})
    more = sdk("t1", "s4", "s1", genai("chat", [USER, hosted, GENAI_RESULT], [part("assistant", content=ANSWER)]))
    [row] = read_responses(write("f.jsonl", SDK[1], SDK[4], more))
    assert [name for name, *_ in calls(row) or []] == ["search", "times"]


@pytest.mark.parametrize(
    "row",
    [
        langfuse("t1", "s1", None, "AGENT", "agent", input=TASK, output=[{"role": "assistant", "content": ANSWER}]),
        # The call of an earlier turn says nothing about this one.
        langfuse("t1", "s1", None, "AGENT", "agent", output=[{"role": "assistant", "content": ANSWER}], input=[
            {"role": "user", "content": "a"}, ASSISTANT_CALL, {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": TASK}]),
        sdk("t1", "s1", None, genai("chat", [USER], [part("assistant", content=ANSWER)])),
        phoenix("t1", "s1", None, "CHAIN", attributes=json_io(TASK, '{"x": [{"role": "assistant", "content": "42"}]}')),
    ],
)  # fmt: skip
def test_trace_without_calls_has_no_trajectory(write: Write, row: dict[str, Any]) -> None:
    rows = list(read_responses(write("f.jsonl", row)))
    assert [calls(row) for row in rows] == [None]
    never: Any = [{"name": "never", "requirement": "Uses no tool", "check": {"tool_forbidden": ["*"]}}]
    [graded] = grade_many(rows, never, PerCriterionGrader("offline"))
    assert graded.score is None


def test_task_has_the_conversation_before_the_answer(write: Write) -> None:
    earlier = [part("user", content="Hi"), part("assistant", content="Hello.")]
    row = sdk(
        "t1", "s1", None, genai("chat", [*earlier, USER, GENAI_CALL, GENAI_RESULT], [part("assistant", content=ANSWER)])
    )
    [(_, response, query)] = read(write("f.jsonl", row))
    assert response == ANSWER
    assert query == "\n".join(
        json.dumps({"role": role, "content": text})
        for role, text in (("user", "Hi"), ("assistant", "Hello."), ("user", TASK))
    )


def chat(span: str, parent: str | None, task: str, answer: str) -> dict[str, Any]:
    return sdk("t1", span, parent, genai("chat", [part("user", content=task)], [part("assistant", content=answer)]))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The request of an agent, not the one of its sub-agent, nor a title that is written after it.
        ([sdk("t1", "s1", None, genai("invoke_agent")), chat("s2", "s1", TASK, ANSWER),
          sdk("t1", "s3", "s1", genai("invoke_agent")), chat("s4", "s3", "x", "a step")], ANSWER),
        ([sdk("t1", "s0", None, {}), sdk("t1", "s1", "s0", genai("invoke_agent")), chat("s2", "s1", TASK, ANSWER),
          chat("s3", "s0", "Write a title", "Sums")], ANSWER),
        ([sdk("t1", "s1", None, genai("invoke_agent", [USER], [part("assistant", content=ANSWER)])),
          chat("s2", "s1", TASK, "a step")], ANSWER),
        ([chat("s1", None, TASK, ANSWER), chat("s2", None, "Write a title", "Sums")],
         "row t1: has no answer: none of its 2 outermost spans ('step', 'step') contains the others: trace them within "
         "one span that has the answer"),
        ([phoenix("t1", "s1", None, "CHAIN"), phoenix("t1", "s2", "s1", "LLM", attributes=io(TASK, "a step"))],
         "row t1: has no answer: its root span has no output"),
        ([phoenix("t1", "s1", None, "TOOL", attributes=io("{}", "a result"))],
         "row t1: has no answer: its root span has no output"),
        ([sdk("t1", "s1", None, {**genai("chat", [USER]), "gen_ai.output.messages": '[{"role": "assistant", "par'})],
         "row t1: has no answer: its `gen_ai.*.messages` are not a JSON list of messages: a limit of attributes may "
         "have cut them off"),
        ([phoenix("t1", "s1", None, "LLM", attributes=json_io(TASK, '{"choices": []}'))],
         "row t1: has no answer: its output has no answer, or none that is known by its name: 'choices'"),
        ([langfuse("t1", "s1", None, "SPAN", "a", level="ERROR"), langfuse("t1", "s2", None, "SPAN", "b", output="x")],
         "row t1: has no answer: none of its 2 outermost spans ('a', 'b') contains the others: trace them within one "
         "span that has the answer"),
        ([phoenix("t1", "s1", None, "CHAIN", attributes=json_io(TASK, '{"a": "1", "b": "2"}'))],
         "row t1: has no answer: its output has no answer, or none that is known by its name: 'a', 'b'"),
        ([sdk("t1", "s1", None, genai("chat", [USER], [GENAI_CALL]))],
         "row t1: has no answer: its last message, of the role 'assistant', has no answer"),
        ([sdk("t1", "s1", None, genai("chat", [USER], [{"role": "assistant", "parts": []}]))],
         "row t1: has no answer: the messages of its output are empty"),
    ],
)  # fmt: skip
def test_output_of_a_step_is_never_the_answer(write: Write, rows: list[Any], expected: str) -> None:
    assert [row[1] for row in read(write("f.jsonl", *rows))] == [expected]


def test_flat_attributes_of_openinference_are_read_from_otlp(write: Write) -> None:
    messages = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": TASK,
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": ANSWER}  # fmt: skip
    row = sdk("t1", "s1", None, {"openinference.span.kind": "LLM", **messages})
    assert read(write("f.json", export(row))) == [("t1", ANSWER, TASK)]


def test_call_of_this_turn_is_not_taken_for_an_earlier_one(write: Write) -> None:
    history = [{"role": "user", "content": "a"}, ASSISTANT_CALL, {"role": "tool", "tool_call_id": "c1", "content": "1"},
               {"role": "assistant", "content": "b"}, {"role": "user", "content": TASK}]  # fmt: skip
    root = langfuse("t1", "s1", None, "AGENT", "agent", input=history, output=ANSWER)
    tool = langfuse("t1", "s2", "s1", "TOOL", "times", input={"a": 7}, level="ERROR", statusMessage="no number")
    [row] = read_responses(write("f.jsonl", root, tool))
    assert calls(row) == [("times", {"a": 6}, "1"), ("times", {"a": 7}, "no number")]
    # The last request to a model contains the calls of its trace, and not one with other arguments.
    for sent, expected in ({"a": 7}, [("times", {"a": 6}, "1"), ("times", {"a": 7}, "no number")]), (
        {"a": 6, "round": True}, [("times", {"a": 6, "round": True}, "no number")]
    ):  # fmt: skip
        [row] = read_responses(write("f.jsonl", {**root, "type": "GENERATION"}, {**tool, "input": sent}))
        assert calls(row) == expected


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        (PHOENIX, (0, "attributes", "tool")),
        (PHOENIX, (0, "span_kind")),
        (PHOENIX, (1, "attributes", "input")),
        (OBSERVATIONS, (1, "type")),
        (OBSERVATIONS, (1, "traceId")),
        (MLFLOW, (0, "data", "spans", 0, "attributes")),
        (SDK, (1, "attributes", "gen_ai.tool.name")),
        (TRACES["OTLP spans"][0], (0, "resourceSpans", 0, "scopeSpans", 0, "spans", 1, "attributes", 1, "value")),
    ],
)
def test_trace_with_a_span_whose_value_has_another_type_is_an_error(write: Write, rows: Any, path: Any) -> None:
    rows = copy.deepcopy(rows)
    holder = rows
    for key in path[:-1]:
        holder = holder[key]
    for value in (True, ["x"]):
        holder[path[-1]] = value
        assert not [row for row in read(write("f.jsonl", *rows)) if row[:2] == ("t1", ANSWER)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([sdk("t1", "s1", None, genai("chat"))], "without content.*CAPTURE_MESSAGE_CONTENT"),
        ([SDK[-1]], "no span of a language model"),
        ([{"datasetId": "d", "id": "i", "input": TASK, "expectedOutput": "42"}], "Langfuse dataset.*references"),
    ],
)
def test_file_without_answers_is_refused_with_the_reason(write: Write, values: list[Any], words: str) -> None:
    with pytest.raises(ResponsesError, match=words):
        list(read_responses(write("f.jsonl", *values)))


def test_row_that_is_no_span_is_an_error_and_so_are_traces_that_may_lack_it(write: Write) -> None:
    rows = read(
        write(
            "f.jsonl",
            "{",
            SDK[0],
            {"response": "It is 41."},
            *SDK[1:],
            {**SDK[0], "context": 3},
            "[]",
            {**SDK[0], "context": {"trace_id": "", "span_id": "s9"}},
        )
    )
    for row_id, error, _ in rows:
        if row_id in ("t1", "t2"):
            assert "another row of the file cannot be read, which may be a call of this trace" in str(error)
    assert [(row[0], str(row[1])[:30]) for row in rows if row[0] not in ("t1", "t2")] == [
        ("1", "line 1 is not JSON: Expecting "),
        ("3", "line 3 is no row of OpenTeleme"),
        ("10", "line 10 is no row of OpenTelem"),
        ("11", "line 11 is list, not an object"),
        ("12", "line 12 is no row of OpenTelem"),
    ]


def test_row_of_a_known_trace_that_cannot_be_read_makes_only_that_trace_an_error(write: Write) -> None:
    damaged = {**PHOENIX[1], "attributes": 5}
    assert PHOENIX[1]["context"]["trace_id"] == PHOENIX_ROWS[0][0]
    rows = read(write("f.jsonl", PHOENIX[0], damaged, *PHOENIX[2:]))
    assert [row for row in rows if row[0] in {row_id for row_id, *_ in PHOENIX_ROWS[1:]}] == PHOENIX_ROWS[1:]
    assert "which may be a call of this trace" in str(dict(row[:2] for row in rows)[PHOENIX_ROWS[0][0]])


def test_messages_of_phoenix_that_pandas_wrote_in_the_form_of_python_are_read(write: Write) -> None:
    rows = [flat(row) for row in PHOENIX[:3]]
    key = "attributes.llm.output_messages"
    rows[1] |= {"attributes.openinference.span.kind": "LLM", "span_kind": "LLM"}
    rows[1][key] = str([{"message": {"role": "assistant", "content": "It's 43."}}])
    assert read(write("f.jsonl", *rows))[0][1] == "It's 43."
    for damaged in ("[{'message': ", "q9 text"):
        rows[1][key] = damaged
        assert "another row of the file cannot be read" in str(read(write("f.jsonl", *rows))[0][1])


def test_malformed_content_is_an_error_of_its_trace(write: Write) -> None:
    unknown = {"role": "assistant", "parts": [{"type": "hologram"}]}
    broken = [{"spans": [3]}, {"spans": [{"span_id": "s", "attributes": 3}]}]
    for row in (
        sdk("t1", "s1", None, genai("chat", [USER], [unknown])),
        *({**MLFLOW[0], "data": data} for data in broken),
    ):
        [only] = read_responses(write("f.jsonl", row))
        assert only.submission is None
    cycle = [langfuse("t1", "s1", "s2", "SPAN", "a", output="x"), langfuse("t1", "s2", "s1", "SPAN", "b", output="y")]
    assert [row[1] for row in read(write("f.jsonl", *cycle))] == ["row t1: has no answer: its root span has no output"]


def test_spans_of_too_many_mixed_traces_are_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_OPEN_SPANS", 5)
    assert len(read(write("f.jsonl", *SDK))) == 2
    monkeypatch.setattr(traces, "MAX_OPEN_SPANS", 3)
    path = write(
        "f.jsonl", *({**row, "context": {"trace_id": str(i % 3), "span_id": str(i)}} for i, row in enumerate(SDK))
    )
    with pytest.raises(ResponsesError, match="more than 3 spans of traces that are mixed"):
        list(read_responses(path))


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "traceId": "t", "type": "chat", "startTime": "9:00", "response": ANSWER},
        {"id": "a", "timestamp": "9:00", "input": TASK, "output": ANSWER},
        {"trace_id": "t", "trace": "t", "request": TASK, "response": ANSWER},
        {"trace": "t", "observations": ["a"], "response": ANSWER},
        {"parent_id": None, "span_kind": "LLM", "context": ["a passage"], "attributes": {}, "response": ANSWER},
        {"info": {"trace_id": "t"}, "data": [], "response": ANSWER},
    ],
)
def test_row_of_a_users_own_with_similar_columns_is_not_claimed(row: dict[str, Any]) -> None:
    assert find_row_format(row) is None


def test_response_column_reads_the_rows_as_they_are(write: Write) -> None:
    path = write("f.json", LANGFUSE_DOCUMENT)
    assert read(path, response_column="trace.id") == [("1", "t1", None)]


def langsmith(run_id: str, kind: str = "chain", **fields: Any) -> dict[str, Any]:
    own = {"id": run_id, "trace_id": "r", "name": "agent", "run_type": kind, "inputs": {"question": TASK}}
    parent = None if run_id == "r" else "r"
    return {**own, "start_time": "2026-01-01", "parent_run_id": parent, "error": None, "outputs": None, **fields}


LAST = {"type": "ai", "content": ANSWER}
LANGSMITH_TOOL = {"name": "times", "inputs": {"input": "{'a': 6}"}, "outputs": {"output": "42"}}
LANGSMITH_REPLY = {
    "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
    "kwargs": {"content": "", "type": "ai", "tool_calls": [{"name": "times", "args": {"a": 6}, "id": "c"}]},
}  # fmt: skip
LANGSMITH_MODEL = {"inputs": {}, "outputs": {"generations": [[{"text": "", "message": LANGSMITH_REPLY}]]}}


@pytest.mark.parametrize("outputs", [{"messages": [LAST]}, {"answer": ANSWER}, {"messages": [
    {"type": "human", "content": TASK}, LAST]}])  # fmt: skip
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("t", "tool", LANGSMITH_TOOL)], [("times", {"a": 6}, "42")]),
        ([("t", "tool", {**LANGSMITH_TOOL, "parent_run_id": "x"}), ("m", "llm", LANGSMITH_MODEL)],
         [("times", {"a": 6}, "42")]),
        ([("m", "llm", LANGSMITH_MODEL)], [("times", {"a": 6}, None)]),
        ([], None),
    ],
)  # fmt: skip
def test_tool_runs_of_langsmith_are_the_calls_of_their_root_run(
    write: Write, outputs: dict[str, Any], rows: list[Any], expected: Any
) -> None:
    steps = [langsmith(run_id, kind, **fields) for run_id, kind, fields in rows]
    within = langsmith("r", outputs=outputs, child_runs=steps)
    for path in (write("f.jsonl", langsmith("r", outputs=outputs), *steps), write("g.json", within)):
        (row,) = read_responses(path)
        assert row.submission
        assert (row.submission.response, row.submission.query) == (ANSWER, TASK)
        assert calls(row) == expected


def test_structured_response_of_a_run_is_the_answer(write: Write) -> None:
    state = {"messages": [{"type": "human", "content": TASK}, LAST], "structured_response": {"product": 42}}
    assert read(write("f.jsonl", langsmith("r", outputs=state))) == [("r", '{"product": 42}', TASK)]


def test_file_with_parts_of_runs_only_is_refused(write: Write) -> None:
    with pytest.raises(ResponsesError, match="only parts of runs and no whole run"):
        list(read_responses(write("f.jsonl", langsmith("m", "llm", outputs={"text": "a step"}))))


@pytest.mark.parametrize(
    ("row", "has_trajectory"),
    [
        ({"inputs.q": TASK, "outputs.messages": [{"role": "user", "content": TASK}, LAST]}, False),
        ({"id": "s", "conversations": [{"from": "human", "value": TASK}, {"from": "gpt", "value": ANSWER}]}, False),
        ({"user_input": [{"type": "human", "content": TASK}, {"type": "ai", "content": ANSWER}]}, False),
        ({"custom_id": "a", "response": {"status_code": 200, "body": {"choices": [{"message": LAST}]}}}, True),
        ({"messages": [{"role": "user", "content": TASK}, LAST]}, True),
    ],
)
def test_conversation_that_may_lack_calls_is_no_trajectory_without_one(
    write: Write, row: dict[str, Any], has_trajectory: bool
) -> None:
    (read_row,) = read_responses(write("f.jsonl", row))
    assert read_row.submission
    assert read_row.submission.response == ANSWER
    assert (read_row.submission.trajectory is not None) == has_trajectory


def test_steps_after_a_row_that_is_none_are_refused_and_not_graded(write: Write) -> None:
    first, *others = OBSERVATIONS
    damaged = {name: value for name, value in first.items() if name != "id"}
    with pytest.raises(ResponsesError, match="has rows of Langfuse observations, and the first row is not one"):
        list(read_responses(write("f.jsonl", {**damaged, "output": "a step"}, *others)))
