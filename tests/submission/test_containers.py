"""Result files of other tools: every row with its id, and no object with rows that is graded as one response."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import ResponsesError, Row, Submission, read_responses
from rubric_integrations.submission.containers import DOCUMENTS
from rubric_integrations.submission.inputs import as_row
from rubric_integrations.submission.tool_rows import ROW_FORMATS, find_row_format
from tests.submission.conversations import CHAT
from tests.submission.traces import TRACES

Write = Callable[..., Path]

TWO = [{"id": "a", "response": "It is 42.", "query": "6 x 7?"}, {"id": "b", "response": "It is 41."}]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, *values: Any) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(value if isinstance(value, str) else json.dumps(value) for value in values))
        return path

    return write_file


def read(path: Path, **options: Any) -> list[tuple[str, str | None, str | None]]:
    """Return the id, the response and the task of each row; the error is the response of a row that has one."""
    rows = list(read_responses(path, **options))
    return [
        (row.id, row.submission.response, row.submission.query) if row.submission else (row.id, row.error, None)
        for row in rows
    ]


# Objects that contain rows.


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"data": TWO}, "data"),
        ({"run": {"name": "x", "answers": TWO}}, "run.answers"),
        ({"outputs": TWO}, "outputs"),
        ({"meta": [{"a": [{"b": 1}, {"c": 2}]}]}, "meta.0.a"),
        ({"products": [{"name": "a"}, {"name": "b"}], "more": {"tags": [{"x": 1}] * 3}}, "products"),
    ],
)
def test_object_with_a_list_of_objects_is_refused_with_its_path(write: Write, data: Any, place: str) -> None:
    with pytest.raises(ResponsesError, match=rf"f\.json: is one object .*`{place}` \(2\).*`--rows {place}`"):
        list(read_responses(write("f.json", data)))
    text = write("f.txt", data)
    assert read(text) == [("f", text.read_text(), None)]


def test_rows_option_names_the_list(write: Write) -> None:
    path = write("f.json", {"runs": [{"answers": TWO}], "other": TWO})
    assert read(path, rows="runs.0.answers") == [("a", "It is 42.", "6 x 7?"), ("b", "It is 41.", None)]
    with pytest.raises(ResponsesError, match=r"has no `run`.*no key 'run'"):
        list(read_responses(path, rows="run"))
    with pytest.raises(ResponsesError, match=r"has no list at `runs\.0`.*dict"):
        list(read_responses(path, rows="runs.0"))
    with pytest.raises(ResponsesError, match=r"`rows` \(`--rows`\) is for \.json"):
        list(read_responses(write("f.jsonl", TWO[0]), rows="runs"))


def test_rows_by_their_ids_are_refused(write: Write) -> None:
    with pytest.raises(ResponsesError, match="is one object with 2 rows by their ids: write a list"):
        list(read_responses(write("f.json", {"a": TWO[0], "b": {**TWO[1], "query": "q"}})))


@pytest.mark.parametrize(
    ("data", "response", "query"),
    [
        ({**TWO[0], "id": "f", "metadata": {"steps": [{"a": 1}, {"a": 2}]}}, "It is 42.", "6 x 7?"),
        ({"answer": "It is 42.", "sources": [{"url": "a"}, {"url": "b"}]}, "It is 42.", None),
        ({"messages": CHAT}, Submission.from_messages(CHAT).response, Submission.from_messages(CHAT).query),
        ({"response": CHAT}, Submission.from_messages(CHAT).response, Submission.from_messages(CHAT).query),
        ({"total": 42}, '{"total": 42}', None),
        ({"answer": 42}, '{"answer": 42}', None),
        ({"products": [{"name": "a"}]}, '{"products": [{"name": "a"}]}', None),
        ({"sales": {"1": 3, "2": 4}, "costs": {"1": 2, "2": 2}}, None, None),
        ({"2025": {"0": 3}, "2026": {"0": 4}, "more": 1}, None, None),
        ({"columns": ["a", "b"], "data": [[1, 2]]}, None, None),
        ({"lines": ["a", "b"]}, '{"lines": ["a", "b"]}', None),
    ],
)  # fmt: skip
def test_object_that_is_one_row_or_one_response_is_read(
    write: Write, data: Any, response: str | None, query: str | None
) -> None:
    assert read(write("f.json", data)) == [("f", response or json.dumps(data), query)]


@pytest.mark.parametrize("more", [{"id": "a"}, {"query": "6 x 7?"}, {"reference": "42"}])
def test_number_beside_a_task_an_id_or_a_reference_is_a_response(write: Write, more: dict[str, str]) -> None:
    ((_, response, _),) = read(write("f.json", {"response": 42, **more}))
    assert response == "42"


def test_mapping_in_python_is_read_as_before() -> None:
    for value in ({"data": TWO}, {"results": {"results": TWO}, "evalId": "e"}):
        assert as_row(value, 1) == Row("1", Submission(response=json.dumps(value)))


def test_json_file_that_is_cut_off_is_refused(write: Write) -> None:
    with pytest.raises(ResponsesError, match=r"f\.json: is not JSON: .*`\.txt` file"):
        list(read_responses(write("f.json", json.dumps({"data": TWO})[:-5])))
    assert read(write("t.json", "It is 42.")) == [("t", "It is 42.", None)]


ROWS = [("a", "It is 42.", "6 x 7?"), ("b", "It is 41.", None)]
PANDAS = {
    "split": {"columns": ["id", "response", "query"], "index": [0, 1], "data": [["a", "It is 42.", "6 x 7?"],
                                                                               ["b", "It is 41.", None]]},
    "columns": {"id": {"0": "a", "1": "b"}, "response": {"0": "It is 42.", "1": "It is 41."},
                "query": {"0": "6 x 7?", "1": None}},
    "table": {"schema": {"fields": [], "pandas_version": "1.4.0"}, "data": TWO},
}  # fmt: skip


@pytest.mark.parametrize("orient", PANDAS)
def test_json_of_pandas_is_read_as_its_rows(write: Write, orient: str) -> None:
    assert read(write("f.json", PANDAS[orient])) == ROWS


@pytest.mark.parametrize("orient", ["split", "columns", "table"])
def test_json_that_pandas_wrote_is_read_as_its_rows(tmp_path: Path, orient: Any) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(TWO).to_json(tmp_path / "f.json", orient=orient)
    assert read(tmp_path / "f.json") == ROWS


@pytest.mark.parametrize("other", ["query", "model"])
def test_json_of_pandas_with_texts_as_index_is_refused_unless_it_is_one_row(write: Write, other: str) -> None:
    table = {"response": {"a": "It is 42.", "b": "It is 41."}, other: {"a": "x", "b": "y"}}
    with pytest.raises(ResponsesError, match=r"pandas table with the index \['a', 'b'\].*orient='records'"):
        list(read_responses(write("f.json", table)))
    response = table["response"]
    row = {"response": response, "metadata": {"a": "x", "b": "y"}}
    answers = [
        read(write("f.json", {**row, "metadata": {"a": "x"}})),
        read(write("f.json", [row])),
        read(write("f.jsonl", row)),
        read(write("f.json", row), response_column="response"),
    ]
    assert [[answer for _, answer, _ in read_back] for read_back in answers] == [[json.dumps(response)]] * 4


def test_json_of_pandas_with_another_name_of_the_response_asks_for_it(write: Write) -> None:
    path = write("f.json", {"Final": {"0": "It is 42."}, "nr": {"0": 1}})
    with pytest.raises(ResponsesError, match=r"has no `response` column \(its columns are \['Final', 'nr'\]\)"):
        list(read_responses(path))
    assert read(path, response_column="Final", id_column="nr") == [("1", "It is 42.", None)]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("f.traj", {"trajectory": [], "history": [], "info": {}}, "SWE-agent.*--response-column history"),
        ("f.json", {"testCases": [], "metricsScores": []}, "deepeval without test cases"),
        ("f.json", {"version": 2, "eval": {}, "plan": {}, "status": "error"}, "Inspect log without samples"),
        ("f.json", {"info": {"agent_info": {}}, "tasks": [{"id": "a"}]}, "in the folder `simulations` beside it"),
        ("f.json", {"info": {"agent_info": {}}, "tasks": [], "simulations": []}, "in the folder `simulations`"),
        ("f.jsonl", {"custom_id": "a", "method": "POST", "url": "/v1", "body": {}}, "input of an OpenAI batch"),
        ("f.jsonl", {"question": "q", "example_a": 1, "pred_a": 2, "example_b": 1, "pred_b": 2},
         "several outputs.*--response-column pred_a --reference-column example_a"),
        ("f.jsonl", {"dataset_id": "d", "inputs": {}, "outputs": {"a": "b"}}, "LangSmith dataset"),
        ("f.jsonl", {"doc_id": 0, "doc": {}, "resps": [[["-1.2", "False"]]] * 2,
                     "arguments": {"gen_args_0": {}, "gen_args_1": {}}}, "multiple choice"),
    ],
)  # fmt: skip
def test_file_of_a_tool_that_is_not_read_is_refused_by_its_name(write: Write, name: str, data: Any, words: str) -> None:
    with pytest.raises(ResponsesError, match=words):
        list(read_responses(write(name, data)))


def test_part_of_an_object_that_is_named_is_graded(write: Write) -> None:
    path = write("f.traj", {"trajectory": [], "history": CHAT, "info": {"submission": "diff --git a b"}})
    assert read(path, response_column="info.submission") == [("f", "diff --git a b", None)]
    [row] = read_responses(path, response_column="history")
    assert row.submission == Submission.from_messages(CHAT)


@pytest.mark.parametrize(("column", "response"), [("history", "Done."), ("info.submission", "diff --git a b")])
def test_steps_of_swe_agent_beside_its_history_do_not_stop_the_options_that_read_it(
    write: Write, column: str, response: str
) -> None:
    command = {"role": "assistant", "agent": "main", "content": "Looking.", "thought": "Looking.", "action": "ls"}
    history = [{"role": "user", "agent": "main", "content": "Fix it."}, command,
               {"role": "user", "agent": "main", "content": "a.py"},
               {"role": "assistant", "agent": "main", "content": "Done.", "thought": "", "action": ""}]  # fmt: skip
    step = {"action": "ls", "observation": "a.py", "response": "Looking.", "thought": "Looking.", "state": {}}
    path = write("f.traj", {"trajectory": [step], "history": history, "info": {"submission": "diff --git a b"}})
    (row,) = read_responses(path, response_column=column)
    assert row.submission is not None
    assert row.submission.response == response
    assert row.submission.trajectory is not None
    assert [(call.name, call.result) for call in row.submission.trajectory.calls] == [("bash", "a.py")]


def test_events_of_one_run_in_json_lines_are_refused_with_the_way_to_read_them(write: Write) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    events = [{"kind": "ConversationStateUpdateEvent", "source": "environment", "id": "a", "key": "stats", "value": {}},
              {"kind": "MessageEvent", "source": "agent", "id": "b", "llm_message": message}]  # fmt: skip
    with pytest.raises(ResponsesError, match=r"one conversation \(openhands_sdk\): write .* in a `\.json` file"):
        list(read_responses(write("events.jsonl", *events)))
    assert read(write("events.json", events)) == [("events", "Done.", None)]
    with pytest.raises(ResponsesError, match="or name it by `response_column`"):
        list(read_responses(write("rows.jsonl", {"role": "user", "content": "6 x 7?"})))


# Rows of tools.


def promptfoo(test: int, prompt: int, **fields: Any) -> dict[str, Any]:
    case = {"vars": {"topic": "sums"}, "description": "a sum"}
    shared = {"prompt": {"raw": "6 x 7?", "label": "p"}, "provider": {"id": "echo"}, "vars": {"topic": "sums"}}
    return {"id": f"u{test}{prompt}", "testIdx": test, "promptIdx": prompt, "testCase": case, "failureReason": 0,
            "success": True, "score": 1, **shared, **fields}  # fmt: skip


PROMPTFOO = [
    promptfoo(0, 0, response={"output": "It is 42."}),
    promptfoo(0, 1, response={"output": {"total": 42}}, failureReason=1, error="assertion failed"),
    promptfoo(1, 0, failureReason=2, error="401 Unauthorized"),
]
PROMPTFOO_ROWS = [
    ("test0-prompt0", "It is 42.", "6 x 7?"),
    ("test0-prompt1", '{"total": 42}', "6 x 7?"),
    ("test1-prompt0", "row test1-prompt0: has no answer: 401 Unauthorized", None),
]
MESSAGE = {"role": "assistant", "content": "It is 42."}
OPENAI = [
    {"id": "r1", "custom_id": "a", "error": None,
     "response": {"status_code": 200, "body": {"model": "m", "choices": [{"index": 0, "message": MESSAGE}]}}},
    {"id": "r2", "custom_id": "b", "response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}},
    {"id": "r3", "custom_id": "c", "response": None, "error": {"code": "batch_expired", "message": "too late"}},
    {"id": "r4", "custom_id": "d", "error": None, "response": {"status_code": 200, "body": {"choices": [
        {"message": MESSAGE}, {"message": {"role": "assistant", "content": "41."}}]}}},
    {"id": "r5", "custom_id": "e", "error": None, "response": {"status_code": 200, "body": {"output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42."}]}]}}},
    {"id": "r6", "custom_id": "f", "error": None, "response": {"status_code": 200, "body": {"object": "list"}}},
]  # fmt: skip
OPENAI_ROWS = [
    ("a", "It is 42.", None),
    ("b", "row b: has no answer: slow down", None),
    ("c", "row c: has no answer: too late", None),
    ("d-choice1", "It is 42.", None),
    ("d-choice2", "41.", None),
    ("e", "42.", None),
    ("f", "row f: has no answer: its body is `list`, without `choices` or `output`", None),
]
ANTHROPIC = [
    {"custom_id": "a", "result": {"type": "succeeded", "message": {"content": [{"type": "text", "text": "42."}]}}},
    {"custom_id": "b", "result": {"type": "errored", "error": {"type": "error", "error": {"message": "overloaded"}}}},
    {"custom_id": "c", "result": {"type": "expired"}},
    {"custom_id": "d", "result": {"type": "succeeded", "message": {"content": [], "stop_reason": "refusal"}}},
]
ANTHROPIC_ROWS = [
    ("a", "42.", None),
    ("b", "row b: has no answer: overloaded", None),
    ("c", "row c: has no answer: the request is expired", None),
    ("d", "row d: has no answer: stop_reason 'refusal'", None),
]
USER = {"role": "user", "content": "6 x 7?"}


def sample(sample_id: Any, epoch: int, **fields: Any) -> dict[str, Any]:
    output = {"model": "m", "choices": [{"message": MESSAGE}]}
    return {"id": sample_id, "epoch": epoch, "input": "6 x 7?", "target": "42", "messages": [USER, MESSAGE],
            "output": output, **fields}  # fmt: skip


INSPECT = [
    sample(1, 1),
    sample(1, 2, messages=[USER, {"role": "assistant", "content": "attachment://h"}], attachments={"h": "It is 41."}),
    sample("x/y", 1, output={"choices": []}, messages=[USER], error={"message": "timed out"}),
]
USER_TASK = '{"role": "user", "content": "6 x 7?"}'
INSPECT_ROWS = [
    ("1", "It is 42.", USER_TASK),
    ("1-epoch2", "It is 41.", USER_TASK),
    ("x/y", "row x/y: has no answer: timed out", None),
]


def run(run_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": run_id, "name": "chain", "run_type": "chain", "inputs": {"question": "6 x 7?"},
            "start_time": "2026-01-01", "trace_id": run_id, "parent_run_id": None, "error": None, **fields}  # fmt: skip


LANGSMITH = [
    run("a", outputs={"result": "It is 42."}),
    run("a1", outputs={"text": "a step"}, parent_run_id="a", trace_id="a"),
    run("b", outputs={"answer": "It is 41.", "tokens": 3}),
    run("c", outputs=None, error="KeyError('x')"),
    run("d", outputs={"first": "1", "second": "2"}),
    run("e", outputs={"messages": [USER, MESSAGE]}),
]
LANGSMITH_ROWS = [
    ("a", "It is 42.", "6 x 7?"),
    ("b", "It is 41.", "6 x 7?"),
    ("c", "row c: has no answer: KeyError('x')", None),
    ("d", "row d: has no answer: it has several outputs (outputs.first, outputs.second): name the one to grade by "
     "`response_column` (`--response-column outputs.first`)", None),
    ("e", "It is 42.", "6 x 7?"),
]  # fmt: skip
RAGAS = [
    {"user_input": "6 x 7?", "response": "It is 42.", "retrieved_contexts": ["a table"], "faithfulness": 1.0},
    {"user_input": [{"type": "human", "content": "6 x 7?"},
                    {"type": "ai", "content": "", "tool_calls": [{"name": "times", "args": {"a": 6}}]},
                    {"type": "tool", "content": "42"}, {"type": "ai", "content": "It is 42."}]},
]  # fmt: skip
LM_EVAL = [
    {"doc_id": 0, "doc": {}, "target": "42", "arguments": {"gen_args_0": {"arg_0": "6 x 7?"}}, "resps": [["42."]],
     "filter": name, "filtered_resps": ["42"]} for name in ("strict-match", "flexible-extract")
]  # fmt: skip
MT_BENCH = [
    {"question_id": 81, "model_id": "m", "choices": [{"index": 0, "turns": ["one", "two"]}]},
    {"question_id": 82, "model_id": "m", "choices": [{"turns": ["x"]}, {"turns": ["$ERROR$"]}]},
]
MT_BENCH_ROWS = [
    ("81-turn1", "one", None),
    ("81-turn2", "two", None),
    ("82-choice1-turn1", "x", None),
    ("82-choice2-turn1", "row 82-choice2-turn1: has no answer: FastChat wrote an error", None),
]
SHAREGPT = [{"id": "s", "conversations": [{"from": "human", "value": "6 x 7?"}, {"from": "gpt", "value": "42."}]}]
ALPACA_EVAL = [{"instruction": "6 x 7?", "output": "42.", "generator": "m"}]
DSPY = [{"question": "6 x 7?", "example_answer": "42", "reasoning": "sum", "pred_answer": "It is 42.", "metric": 1.0}]
FRAME = [{"inputs.question": "6 x 7?", "outputs.text": "42.", "error": None, "reference.a": "42", "id": "r"}]
LOOKED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "look"}}]}
TRAJECTORY = [USER, LOOKED, {"role": "tool", "tool_call_id": "c", "content": "Error: no table"}]


def tau_bench(task: int, trial: int, **fields: Any) -> dict[str, Any]:
    return {"task_id": task, "reward": 0.0, "info": {"task": {"user_id": "u"}}, "traj": TRAJECTORY, "trial": trial,
            **fields}  # fmt: skip


def tau2(task: str, trial: int | None, **fields: Any) -> dict[str, Any]:
    return {"id": "u", "task_id": task, "trial": trial, "start_time": "9:00", "termination_reason": "max_steps",
            "messages": [USER, MESSAGE], "reward_info": {"reward": 1.0}, **fields}  # fmt: skip


TAU_BENCH = [tau_bench(0, 0), tau_bench(0, 1), tau_bench(1, 0, traj=[], info={"error": "RateLimitError"})]
TAU_STEPS = """{"step": 1, "role": "user", "content": "6 x 7?"}
{"step": 2, "role": "assistant", "content": "", "tool_calls": [{"name": "look", "result": "Error: no table", \
"is_error": true}]}"""
TAU_BENCH_ROWS = [
    ("0-trial0", TAU_STEPS, None),
    ("0-trial1", TAU_STEPS, None),
    ("1-trial0", "row 1-trial0: has no answer: RateLimitError", None),
]
TAU2 = [
    tau2("a", 0),
    tau2("a", 1, messages=[], termination_reason="infrastructure_error"),
    tau2("b", None, messages=[], ticks=[{"tick_id": 0}]),
]
TAU2_STEPS = """{"step": 1, "role": "user", "content": "6 x 7?"}
{"step": 2, "role": "assistant", "content": "It is 42."}"""
TAU2_ROWS = [
    ("a-trial0", TAU2_STEPS, None),
    ("a-trial1", "row a-trial1: has no answer: it ended by 'infrastructure_error'", None),
    ("b", "row b: has no answer: it is a voice simulation (`ticks`), which no reader reads", None),
]

ALPACA_ANNOTATIONS = [
    {
        "instruction": "6 x 7?",
        "output_1": "It is 41.",
        "generator_1": "baseline",
        "preference": 2.0,
        "output_2": "It is 42.",
        "generator_2": "model",
        "annotator": "a",
        "dataset": "d",
    }
]
SCORED = {"success": True, "metricsData": [{"name": "M", "score": 1.0}]}
TIMES = {"name": "times", "type": "FUNCTION", "inputParameters": {"a": 6}, "output": 42}
DEEPEVAL = [
    {"name": "test_case_0", "input": "6 x 7?", "actualOutput": "It is 42.", "expectedOutput": "42", "order": 0,
     "retrievalContext": ["a table"], "toolsCalled": [TIMES], **SCORED},
    {"name": "test_case_1", "input": "7 x 6?", "order": 1, **SCORED},
    {"name": "conversational_test_case_0", **SCORED, "turns": [
        {"role": "user", "content": "6 x 7?", "order": 0},
        {"role": "assistant", "content": "It is 42.", "order": 1, "toolsCalled": [TIMES]}]},
]  # fmt: skip
CALLED = (
    '{"role": "assistant", "content": "", "tool_calls": [{"name": "times", "arguments": {"a": 6}, "result": "42"}]}'
)
DEEPEVAL_ROWS = [
    ("test_case_0", "It is 42.", "6 x 7?"),
    ("test_case_1", "row test_case_1: has no answer: it has no actual output", None),
    ("conversational_test_case_0", "It is 42.", f"{USER_TASK}\n{CALLED}"),
]


def event(number: int, sample_id: str, kind: str, **data: Any) -> dict[str, Any]:
    return {"run_id": "r", "event_id": number, "sample_id": sample_id, "type": kind, "data": data, "created_by": "",
            "created_at": "2026-01-01"}  # fmt: skip


def evals_spec(cls: str) -> dict[str, Any]:
    return {"spec": {"run_id": "r", "eval_name": "e.dev.v0", "run_config": {"eval_spec": {"cls": cls}}}}


EVALS = [
    evals_spec("evals.elsuite.basic.match:Match"),
    {"final_report": {"accuracy": 1.0}, "run_id": "r"},
    event(0, "e.dev.0", "sampling", prompt=[USER], sampled=["It is 42."], model="m"),
    event(1, "e.dev.0", "match", correct=True, expected="42"),
    event(2, "e.dev.1", "sampling", prompt="6 x 7?", sampled="It is 41."),
    event(3, "e.dev.2", "error", type="ValueError", message="timed out"),
]
EVALS_ROWS = [
    ("e.dev.0", "It is 42.", USER_TASK),
    ("e.dev.1", "It is 41.", "6 x 7?"),
    ("e.dev.2", "row e.dev.2: has no answer: timed out", None),
]


def openhands(instance: str, history: list[Any], error: str | None = None) -> dict[str, Any]:
    return {"instance_id": instance, "test_result": {"git_patch": "diff"}, "instruction": "Fix it.", "history": history,
            "metadata": {"agent_class": "CodeActAgent"}, "metrics": {}, "error": error, "instance": {}}  # fmt: skip


OPENHANDS = [
    openhands("org__repo-1", [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "Fix it."}},
        {"id": 1, "source": "agent", "action": "finish", "args": {"final_thought": "Done."}},
    ]),
    openhands("org__repo-2", [], "RuntimeError: no disk"),
]  # fmt: skip
OPENHANDS_ROWS = [
    ("org__repo-1", "Done.", '{"role": "user", "content": "Fix it."}'),
    ("org__repo-2", "row org__repo-2: has no answer: RuntimeError: no disk", None),
]

FORMATS: dict[str, tuple[list[Any], list[Any]]] = {
    "promptfoo results": (PROMPTFOO, PROMPTFOO_ROWS),
    "OpenAI batch": (OPENAI, OPENAI_ROWS),
    "Anthropic batch": (ANTHROPIC, ANTHROPIC_ROWS),
    "Inspect log": (INSPECT, INSPECT_ROWS),
    "LangSmith runs": (LANGSMITH, LANGSMITH_ROWS),
    "LangSmith experiment": (FRAME, [("r", "42.", "6 x 7?")]),
    "ragas results": (RAGAS[:1], [("1", "It is 42.", "6 x 7?")]),
    "lm-eval samples": (LM_EVAL, [("0", "42.", "6 x 7?")]),
    "MT-bench answers": (MT_BENCH, MT_BENCH_ROWS),
    "ShareGPT": (SHAREGPT, [("s", "42.", '{"role": "user", "content": "6 x 7?"}')]),
    "DSPy evaluation": (DSPY, [("1", "It is 42.", "6 x 7?")]),
    "AlpacaEval annotations": (ALPACA_ANNOTATIONS, [("1", "It is 42.", "6 x 7?")]),
    "deepeval test run": (DEEPEVAL, DEEPEVAL_ROWS),
    "openai/evals log": (EVALS, EVALS_ROWS),
    **TRACES,
    "tau-bench results": (TAU_BENCH, TAU_BENCH_ROWS),
    "tau2 results": (TAU2, TAU2_ROWS),
    "OpenHands output": (OPENHANDS, OPENHANDS_ROWS),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_rows_of_a_tool_are_read_with_ids_and_errors(write: Write, name: str, suffix: str) -> None:
    rows, expected = FORMATS[name]
    path = write("f.jsonl", *rows) if suffix == ".jsonl" else write("f.json", rows)
    assert read(path) == expected


def test_every_row_is_of_one_format_only() -> None:
    for name, (rows, _) in FORMATS.items():
        for row in rows:
            assert [known.name for known in ROW_FORMATS if known.matches(row)] == [name]
            # A trace may be a file of its own.
            assert {document.name for document in DOCUMENTS if document.matches(row)} <= {name}


@pytest.mark.parametrize(
    "row",
    [
        {"custom_id": "a", "response": "It is 42.", "result": "fine"},
        {"custom_id": "a", "response": {"text": "It is 42."}},
        {"id": "a", "epoch": 1, "input": "6 x 7?", "output": "It is 42."},
        {"question_id": 3, "choices": ["A", "B"], "answer": "A"},
        {"user_input": "6 x 7?", "answer": "It is 42."},
        {"run_type": "nightly", "inputs": "6 x 7?", "outputs": "It is 42."},
        {"response": "It is 42.", "conversations": 3, "doc_id": 1, "resps": 2},
        {"answer": "It is 42.", "pred_answer": "x", "example_answer": "y"},
        *({**row, "response": "It is 42."} for row in (SHAREGPT[0], MT_BENCH[0], LM_EVAL[0], FRAME[0])),
        {"run_type": "nightly", "inputs": "6 x 7?", "start_time": "9:00", "response": "It is 42."},
        *ALPACA_EVAL,
        {"instruction": "6 x 7?", "output_1": "It is 41.", "output_2": "It is 42.", "preference": 2},
        {"name": "a", "input": "6 x 7?", "metricsData": [], "answer": "It is 42."},
        {"spec": "a sum", "answer": "It is 42."},
        {"run_id": "r", "event_id": 1, "sample_id": "a", "type": "sampling", "answer": "It is 42."},
        {"[1] text": "It is 42.", "Status": "PASS", "Score": "1", "Comment": ""},
        tau_bench(0, 0, response="It is 42."),
        tau_bench(0, 0, traj="a file"),
        tau2("a", 0, response="It is 42."),
        {"task_id": "a", "messages": [USER, MESSAGE], "termination_reason": "done"},
    ],
)
def test_row_of_a_users_own_with_similar_columns_is_not_claimed(row: dict[str, Any]) -> None:
    assert find_row_format(row) is None


def test_promptfoo_and_inspect_documents_are_read_as_their_rows(write: Write) -> None:
    data = {"evalId": "e", "results": {"version": 3, "prompts": [{}, {}], "results": PROMPTFOO}, "config": {}}
    assert read(write("f.json", data)) == PROMPTFOO_ROWS
    log = {"version": 2, "status": "success", "eval": {}, "plan": {}, "samples": INSPECT}
    assert read(write("log.json", log)) == INSPECT_ROWS


@pytest.mark.parametrize("compression", ["deflate", "zstandard"])
def test_inspect_eval_file_is_read_as_its_samples(tmp_path: Path, compression: str) -> None:
    members = {"header.json": b"{}"}
    members |= {f"samples/{row['id']}_epoch_{row['epoch']}.json": json.dumps(row).encode() for row in INSPECT}
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    if compression == "zstandard":
        path.write_bytes(zstandard_archive(members))
    assert read(path) == INSPECT_ROWS


def zstandard_archive(members: dict[str, bytes]) -> bytes:
    """Return a ZIP archive whose members are compressed by method 93, which `zipfile` does not write."""
    zstandard = pytest.importorskip("zstandard")
    packed = {name: zstandard.ZstdCompressor().compress(content) for name, content in members.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in packed.items():
            archive.writestr(name, content)
        offset = archive.start_dir
    data = bytearray(buffer.getvalue())
    for content in members.values():
        entry = data.index(b"PK\x01\x02", offset)
        data[entry + 10 : entry + 12] = (93).to_bytes(2, "little")
        data[entry + 24 : entry + 28] = len(content).to_bytes(4, "little")
        offset = entry + 4
    return bytes(data)


def test_ragas_row_has_its_documents_and_its_calls(write: Write) -> None:
    single, chat = (next(iter(read_responses(write("f.jsonl", row)))) for row in RAGAS)
    assert single.submission
    assert single.submission.context == ("a table",)
    assert single.metadata == {"faithfulness": 1.0}
    assert chat.submission
    assert chat.submission.trajectory
    assert [(call.name, call.result) for step in chat.submission.trajectory.steps for call in step.calls] == [
        ("times", "42")
    ]


def test_references_of_tools_are_read(write: Write) -> None:
    for rows, reference in ((INSPECT, "42"), (LM_EVAL, "42"), (DSPY, "42"), (FRAME, "42"), (DEEPEVAL, "42")):
        first = next(iter(read_responses(write("f.jsonl", rows[0]))))
        assert first.submission
        assert first.submission.reference == reference


def test_alpaca_eval_outputs_are_plain_rows(write: Write) -> None:
    assert read(write("f.json", ALPACA_EVAL)) == [("1", "42.", "6 x 7?")]


def test_same_answer_of_two_filters_is_read_once_and_another_one_is_refused(write: Write) -> None:
    assert len(read(write("f.jsonl", *LM_EVAL, *LM_EVAL))) == 1
    other = {**LM_EVAL[0], "resps": [["41."]]}
    with pytest.raises(ResponsesError, match="the `id` '0' is on line 1 and line 3"):
        list(read_responses(write("f.jsonl", *LM_EVAL, other)))


def test_row_in_another_form_than_the_first_is_an_error(write: Write) -> None:
    broken = {"custom_id": "x", "response": {"body": {"choices": [3]}}}
    rows = read(write("f.jsonl", OPENAI[0], TWO[0], broken))
    assert [row[0] for row in rows] == ["a", "2", "3"]
    assert all("is no row of OpenAI batch" in str(row[1]) for row in rows[1:])
    # The first row decides: a later one is neither read in another way, nor graded with all that a tool wrote.
    [_, later] = read(write("g.jsonl", {"response": "It is 42."}, PROMPTFOO[0]))
    assert "line 2 is a row of promptfoo results, and the first row is not" in str(later[1])
    own = {"user_input": "6 x 7?", "response": "It is 41."}
    assert read(write("h.jsonl", {"response": "It is 42."}, own))[1] == ("2", "It is 41.", None)


@pytest.mark.parametrize(
    "data",
    [
        {**PANDAS["split"], "data": [["a", "It is 42.", "6 x 7?"], ["b"]]},
        {**PANDAS["split"], "columns": None},
        {**PANDAS["columns"], "response": 5},
        {**PANDAS["columns"], "query": None},
        {"evalId": "e", "results": {"version": 3}},
    ],
)
def test_damaged_table_or_document_is_refused(write: Write, data: Any) -> None:
    with pytest.raises(ResponsesError):
        read(write("f.json", data))


def test_sample_or_run_without_its_conversation_has_no_answer(write: Write) -> None:
    errors = [
        row[1] for row in read(write("f.jsonl", {**INSPECT[0], "messages": 5}, {**INSPECT[1], "attachments": {}}))
    ]
    assert errors[0] == "row 1: has no answer: its `messages` cannot be read"
    assert "'attachment://h', which is not in the `attachments`" in str(errors[1])
    [(_, error, _)] = read(write("g.jsonl", run("a", outputs={"messages": [USER, {"role": 5}]})))
    assert error == "row a: has no answer: its `outputs.messages` cannot be read"


def test_file_without_tasks_warns_unless_a_task_is_named(write: Write, recwarn: pytest.WarningsRecorder) -> None:
    path = write("f.jsonl", OPENAI[0])
    assert read(path, query="6 x 7?") == [("a", "It is 42.", "6 x 7?")]
    assert not recwarn
    with pytest.warns(UserWarning, match="OpenAI batch, whose tasks are in the input file"):
        read(path)


def test_path_names_a_column_of_any_other_file(write: Write) -> None:
    named = {"response_column": "response.body.choices.0.message.content", "id_column": "custom_id"}
    rows = read(write("f.jsonl", OPENAI[1], OPENAI[0]), **named)
    assert rows[1] == ("a", "It is 42.", None)
    assert "row b has no column 'response.body.choices.0.message.content'" in str(rows[0][1])
    # A column that has the dotted name itself is preferred.
    flat = {"a.b": "It is 42.", "a": {"b": "It is 41."}, "meta": {"task": "6 x 7?"}}
    path = write("g.jsonl", flat)
    assert read(path, response_column="a.b", query_column="meta.task") == [("1", "It is 42.", "6 x 7?")]
    with pytest.raises(ResponsesError, match=r"has no column 'a\.c'"):
        read(path, response_column="a.c")


def test_path_names_another_column_of_the_rows_of_a_tool(write: Write) -> None:
    path = write("f.jsonl", *PROMPTFOO[:2])
    assert [row[::2] for row in read(path, query_column="vars.topic")] == [
        ("test0-prompt0", "sums"),
        ("test0-prompt1", "sums"),
    ]


def test_table_of_a_tool_is_read_from_csv(write: Write) -> None:
    frame = write("f.csv", "inputs.question,outputs.text,error,id\n6 x 7?,It is 42.,,r\n7 x 6?,,ValueError,s\n")
    assert read(frame) == [("r", "It is 42.", "6 x 7?"), ("s", "row s: has no answer: ValueError", None)]
    ragas = write("g.csv", "user_input,retrieved_contexts,response\n6 x 7?,\"['a, b', 'c']\",It is 42.\n")
    [row] = read_responses(ragas)
    assert row.submission
    assert row.submission.context == ("a, b", "c")
    # `EvaluationDataset.to_csv` writes conversations as Python.
    chat = "[{'content': '6 x 7?', 'type': 'human'}, {'content': '42.', 'type': 'ai', 'tool_calls': None}]"
    assert read(write("chat.csv", f'user_input,reference\n"{chat}",42\n')) == [
        ("1", "42.", '{"role": "user", "content": "6 x 7?"}')
    ]


def test_path_into_a_column_of_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([{"id": "a", "out": {"text": "It is 42."}, "vector": [1.0]}])
    parquet.write_table(table, tmp_path / "f.parquet")
    assert read(tmp_path / "f.parquet", response_column="out.text") == [("a", "It is 42.", None)]
    runs = pyarrow.Table.from_pylist([{**row, "outputs": json.dumps(row["outputs"])} for row in LANGSMITH[:2]])
    parquet.write_table(runs, tmp_path / "r.parquet")
    assert read(tmp_path / "r.parquet") == LANGSMITH_ROWS[:1]


# What is graded of conversations.


def test_whole_result_file_of_tau2_is_read_as_its_simulations(write: Write) -> None:
    path = write("f.json", {"timestamp": "x", "info": {}, "tasks": [{"id": "a"}, {"id": "b"}], "simulations": TAU2})
    assert read(path) == TAU2_ROWS


def test_raw_data_of_tau2_is_not_read_twice(write: Write) -> None:
    call = {"id": "c", "name": "look", "arguments": {}, "requestor": "assistant"}
    raw = {"message": {"tool_calls": [{"id": "c", "function": {"name": "look"}}]}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "raw_data": raw}
    (row,) = read_responses(write("f.jsonl", tau2("a", 0, messages=[USER, message])))
    assert row.submission is not None
    assert row.submission.trajectory is not None
    assert [call.name for call in row.submission.trajectory.calls] == ["look"]
    assert row.metadata == {"task_id": "a", "trial": 0, "termination_reason": "max_steps", "reward": 1.0}


def test_results_of_tau_bench_are_graded_as_a_whole_unless_respond_is_named(
    write: Write, recwarn: pytest.WarningsRecorder
) -> None:
    path = write("f.json", [tau_bench(0, 0), tau_bench(0, 1, traj=[*TRAJECTORY, MESSAGE])])
    whole = read(path)
    assert whole[1][1] == TAU_STEPS + '\n{"step": 3, "role": "assistant", "content": "It is 42."}'
    (warning,) = recwarn
    assert "by respond='trajectory'; name another by `respond` (`--respond`)" in str(warning.message)
    recwarn.clear()
    assert "is of the role 'tool'" in str(read(path, respond="last")[0][1])
    assert read(path, respond="last")[1][1] == "It is 42."
    assert read(path, respond="trajectory") == whole
    assert read(path, respond="transcript")[0][1] == TAU_STEPS.replace('"step": 1, ', "").replace('"step": 2, ', "")
    assert not recwarn
    # The status of a result, which tau-bench does not write.
    (row, _) = read_responses(path, respond="trajectory")
    assert row.submission is not None
    assert row.submission.trajectory is not None
    assert row.submission.trajectory.calls[0].is_error


def test_run_of_an_agent_without_an_answer_is_graded_as_a_whole_with_a_warning(
    write: Write, recwarn: pytest.WarningsRecorder
) -> None:
    stopped = {"id": "a", "messages": TRAJECTORY}
    path = write("f.jsonl", stopped, {"id": "b", "messages": [*TRAJECTORY, MESSAGE]})
    (first, second) = read(path)
    assert str(first[1]).startswith('{"step": 1, ')
    assert second[1] == "It is 42."
    (warning,) = recwarn
    assert "ends without an answer: it is graded as a whole" in str(warning.message)
    recwarn.clear()
    assert "is of the role 'tool'" in str(read(path, respond="last")[0][1])
    assert "is of the role 'tool'" in str(read(write("g.jsonl", {**stopped, "respond": "last"}))[0][1])
    # Without a call it is a chat, of which nothing is an answer.
    chat = write("h.jsonl", {"id": "a", "messages": [USER, MESSAGE, USER]})
    assert "is of the role 'user'" in str(read(chat)[0][1])
    assert str(read(chat, respond="transcript")[0][1]).startswith('{"role": ')
    assert not recwarn
    with pytest.raises(ValueError, match="`respond` must be 'last', 'transcript' or 'trajectory', got 'all'"):
        read(path, respond="all")


def test_respond_of_a_file_holds_for_a_trajectory_beside_a_response_and_not_for_a_text(write: Write) -> None:
    row = {"id": "a", "response": "It is 42.", "trajectory": TRAJECTORY}
    (beside, text) = read(write("f.jsonl", row, {"id": "b", "response": "It is 41."}), respond="trajectory")
    assert str(beside[1]).endswith('{"step": 3, "role": "assistant", "content": "It is 42."}')
    assert text[1] == "It is 41."


@pytest.mark.parametrize(
    "document",
    [
        {"output": "x", "state": "success", "steps": [
            {"task": "q"}, {"step_number": 1, "model_output": "I do.", "tool_calls": [], "error": None},
            {"step_number": 2, "model_output": "", "error": None, "tool_calls": [
                {"id": "c", "function": {"name": "look", "arguments": {}}}], "observations": "x",
             "action_output": "It is 42.", "is_final_answer": True}]},
        {"trajectory_format": "mini-swe-agent-1", "messages": [
            USER, {"role": "assistant", "content": "```bash\nls\n```"}, {"role": "user", "content": "a.txt"},
            {"role": "exit", "content": "It is 42.", "extra": {"exit_status": "Submitted"}}]},
    ],
)  # fmt: skip
def test_file_of_an_agents_run_is_graded_with_its_calls(write: Write, document: dict[str, Any]) -> None:
    (row,) = read_responses(write("run.json", document))
    assert row.submission is not None
    assert row.submission.trajectory is not None
    assert (row.id, row.submission.response, len(row.submission.trajectory.calls)) == ("run", "It is 42.", 1)


def test_sample_of_inspect_without_an_output_has_no_answer(write: Write) -> None:
    failed = {"id": 1, "epoch": 4, "input": "6 x 7?", "target": "42", "files": [], "setup": "x", "messages": [USER]}
    log = {"version": 2, "status": "success", "eval": {}, "plan": {}, "samples": [failed]}
    error = "row 1-epoch4: has no answer: its `output` has no choices"
    assert read(write("f.json", log)) == read(write("f.jsonl", failed)) == [("1-epoch4", error, None)]
    own = {name: failed[name] for name in ("id", "epoch", "input", "target")} | {"messages": CHAT}
    assert read(write("g.jsonl", own))[0][1] == Submission.from_messages(CHAT).response


def test_output_that_is_nan_is_no_answer(write: Write) -> None:
    rows = [promptfoo(0, 0, response={"output": float("nan")}), promptfoo(0, 1, response={"output": 42.5})]
    assert [answer for _, answer, _ in read(write("f.jsonl", *rows))] == [
        "row test0-prompt0: has no answer: no reason is recorded", "42.5"
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_list_of_objects_without_responses_can_be_graded_as_a_text(write: Write, suffix: str) -> None:
    manifest = [{"apiVersion": "v1", "kind": "Service"}, {"apiVersion": "v1", "kind": "Pod"}]
    with pytest.raises(ResponsesError, match=r"has no `response` column .*save it as a `\.txt` file"):
        list(read_responses(write(f"f{suffix}", manifest)))


def test_openai_result_with_an_error_and_a_body_is_an_error(write: Write) -> None:
    body = {"choices": [{"message": MESSAGE}]}
    row = {"id": "r", "custom_id": "a", "error": {"message": "cut off"}, "response": {"status_code": 200, "body": body}}
    [only] = read_responses(write("f.jsonl", row))
    assert (only.submission, only.error) == (None, "row a: has no answer: cut off")
