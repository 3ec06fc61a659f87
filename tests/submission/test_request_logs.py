"""Logs of LiteLLM, Braintrust and Opik: their answers, their failures, and the steps that are no answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations.submission import ResponsesError, read_responses
from tests.submission.exports import ASK, REPLY, Fields, check_mutations, problem_of, written

TIME = "2026-11-28T08:00:00Z"
LOGS: dict[str, tuple[Fields, str | None, str]] = {
    "LiteLLM": ({"id": "l", "trace_id": "t", "call_type": "acompletion", "status": "success", "messages": [ASK],
                 "response": REPLY, "error_str": None, "model_parameters": {}}, "t", "error_str"),
    "Braintrust": ({"id": "b", "span_id": "1", "root_span_id": "1", "span_parents": None, "input": [ASK],
                    "span_attributes": {"type": "task"}, "output": REPLY["choices"], "error": None}, None, "error"),
    "Opik": ({"id": "o", "name": "n", "start_time": TIME, "end_time": TIME, "input": {"messages": [ASK]},
              "output": {"choices": REPLY["choices"]}, "error_info": None, "thread_id": None}, None, "error_info"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_root_of_a_log_is_a_row_and_its_failure_an_error(tmp_path: Path, name: str) -> None:
    row, group, error = LOGS[name]
    failed = {**row, "id": "f", error: {"message": "429 rate limit"}, "status": "failure"}
    good, bad = read_responses(written(tmp_path, ".jsonl", [row, failed]))
    assert good.submission is not None
    assert (good.submission.response, good.group) == ("It is 42.", group)
    assert "6 x 7?" in (good.submission.query or "")
    assert str(bad.error).startswith("row f: has no answer:")
    assert "429 rate limit" in str(bad.error)


@pytest.mark.parametrize("inner", [
    {**LOGS["Braintrust"][0], "id": "i", "span_id": "2", "span_parents": ["1"], "output": "a result"},
    {**LOGS["Opik"][0], "id": "i", "trace_id": "o", "type": "tool", "output": {"output": "a result"}},
])  # fmt: skip
@pytest.mark.parametrize("is_first", [False, True])
def test_inner_span_of_a_log_is_never_graded(tmp_path: Path, inner: Fields, is_first: bool) -> None:
    root = next(row for row, *_ in LOGS.values() if row.keys() <= inner.keys())
    with pytest.raises(ResponsesError, match=r"is a span of .*steps would be graded as answers"):
        list(read_responses(written(tmp_path, ".jsonl", [inner] if is_first else [root, inner])))


def test_litellm_request_without_a_reply_of_a_model_is_an_error(tmp_path: Path) -> None:
    row = {**LOGS["LiteLLM"][0], "call_type": "aembedding", "response": {"data": [{"embedding": [0.1]}]}}
    assert "is no reply of a model (`call_type` 'aembedding')" in problem_of(written(tmp_path, ".jsonl", [row]))


def test_reply_as_text_in_a_litellm_log_stays_a_text(tmp_path: Path) -> None:
    forged = json.dumps(REPLY)
    (row,) = read_responses(written(tmp_path, ".jsonl", [{**LOGS["LiteLLM"][0], "response": forged}]))
    assert row.submission is not None
    assert row.submission.response == forged


def test_opik_trace_with_unclear_outputs_names_the_way(tmp_path: Path) -> None:
    row = {**LOGS["Opik"][0], "input": {"q": "6 x 7?"}, "output": {"one": "It is 42.", "two": 2}}
    path = written(tmp_path, ".jsonl", [row])
    assert "name the text in the Opik trace by `response_column` (`--response-column output.one`)" in problem_of(path)
    (named,) = read_responses(path, response_column="output.one", query_column="input.q")
    assert named.submission is not None
    assert (named.submission.query, named.submission.response) == ("6 x 7?", "It is 42.")


@pytest.mark.parametrize("name", LOGS)
def test_mutated_log_has_an_error_or_one_of_its_values_as_the_answer(tmp_path: Path, name: str) -> None:
    check_mutations(tmp_path, ".jsonl", [LOGS[name][0]], seed=name)


@pytest.mark.parametrize("name", LOGS)
def test_text_that_looks_like_a_log_does_not_change_a_row(tmp_path: Path, name: str) -> None:
    row, *_ = LOGS[name]
    forged = json.dumps(row)
    replaced_texts = json.loads(forged.replace("6 x 7?", "FORGED").replace("It is 42.", "FORGED"))
    replaced = json.loads(json.dumps(replaced_texts).replace('"FORGED"', json.dumps(forged)))
    (plain,) = read_responses(written(tmp_path, ".jsonl", [replaced]))
    assert plain.submission is not None
    assert plain.submission.response == forged
    (own,) = read_responses(written(tmp_path, ".jsonl", [{"id": "a", "query": forged, "response": forged}]))
    assert own.submission is not None
    assert (own.submission.query, own.submission.response) == (forged, forged)
