"""The reply of a provider is graded by its answer, as a row, a file and a Python object, and never as JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import create_model

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.submission import Submission, read_responses
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.dialects.replies import PROVIDERS, provider_of
from rubric_integrations.submission.inputs import Row, as_row, as_submission
from tests.submission.dialects.replies import ANSWER, EXCHANGES, NO_ANSWERS, QUESTION, REFUSED_FORMS, completion

RUBRIC = Rubric.from_dict([
    {"weight": 2, "requirement": "Promises a refund", "check": {"contains": "refund"}},
    {"weight": 1, "requirement": "Has no ids", "check": {"not_contains": '"'}},
])  # fmt: skip


def as_object(value: Any) -> Any:
    """Return data as the pydantic objects of an SDK, of which our package imports none."""
    if isinstance(value, list | tuple):
        return [as_object(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = {name: (Any, as_object(item)) for name, item in cast("dict[str, Any]", value).items()}
    return create_model("Object", **cast("Any", fields))()


def in_file(folder: Path, name: str, value: Any) -> Any:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")
    (row,) = read_responses(folder / name)
    return row


WAYS: dict[str, Callable[[Path, Any, Any], Any]] = {
    "row of a file": lambda folder, request, reply: in_file(
        folder, "f.jsonl", {"id": "a", "request": request, "response": reply}
    ),
    "file": lambda folder, request, reply: in_file(folder, "f.json", reply),
    "line of a file": lambda folder, request, reply: in_file(folder, "f.jsonl", reply),
    "row": lambda folder, request, reply: as_row({"id": "a", "request": request, "response": reply}, 1),
    "dictionary": lambda folder, request, reply: reply,
    "object": lambda folder, request, reply: as_object(reply),
    "row with an object": lambda folder, request, reply: as_row({"response": as_object(reply)}, 1),
}


def test_every_provider_has_an_exchange() -> None:
    assert set(PROVIDERS) - {"error"} == set(EXCHANGES)
    for name, exchange in EXCHANGES.items():
        for reply in (exchange.reply, exchange.call):
            assert (provider_of(reply), provider_of(as_object(reply)), dialect_of(reply)) == (name, name, "reply")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_reply_of_every_provider_has_the_same_score_in_every_way(name: str, way: str, tmp_path: Path) -> None:
    request, reply, _ = EXCHANGES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = WAYS[way](tmp_path, request, reply)
        graded: Any = value.submission if isinstance(value, Row) else value
        submission = as_submission(graded)
    assert submission.response == ANSWER
    assert (QUESTION in (submission.query or "")) == way.startswith("row of") or way == "row"
    assert RUBRIC.grade_sync(graded, PerCriterionGrader(judge="offline")).score == 1.0


@pytest.mark.parametrize("name", EXCHANGES)
def test_call_in_the_reply_of_every_provider_is_a_step(name: str, tmp_path: Path) -> None:
    request, _, reply = EXCHANGES[name]
    for way, wrap in WAYS.items():
        value = {"messages": wrap(tmp_path, request, reply), "respond": "trajectory"}
        if "row" in way or "file" in way:
            with pytest.warns(UserWarning, match="ends without an answer"):
                value = wrap(tmp_path, request, reply).submission
        trajectory = as_submission(value).trajectory
        assert trajectory, way
        assert [(call.name, call.arguments) for call in trajectory.calls] == [("pay", {"order": 7})]


def test_calls_in_the_request_of_a_reply_are_steps() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "done"},
    ]
    reply = completion({"content": ANSWER})
    names = ("messages", "input", "inputs", "prompt", "request_body")
    rows = [{name: messages, "output": reply} for name in names]
    for row in [*rows, {"request": {"body": {"messages": messages}}, "answer": reply}]:
        submission = as_submission(row)
        assert submission.trajectory
        assert [call.name for call in submission.trajectory.calls] == ["pay"]
        assert (submission.response, (submission.query or "").count(QUESTION)) == (ANSWER, 1)
    # A task that is not a request is kept, and so is a text beside the request.
    assert as_submission({"input": "Hi.", "output": reply}).query == "Hi."
    assert (as_submission({"query": "Hi.", "request": messages, "output": reply}).query or "").startswith("Hi.\n\n{")


def refusal(value: Any) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        as_submission(value)
    return str(error.value)


@pytest.mark.parametrize(("form", "value"), REFUSED_FORMS)
def test_form_of_a_provider_is_refused_by_name_with_what_to_do(form: str, value: Any, tmp_path: Path) -> None:
    assert f"has {form}, which no reader knows: " in refusal(value)
    assert "convert it to a text or remove it" not in refusal(value)
    assert form in refusal({"response": value})
    for row in (
        as_row(value, 1),
        as_row({"id": "a", "response": value}, 1),
        in_file(tmp_path, "a.jsonl", {"output": value}),
    ):
        assert row.submission is None
        assert form in (row.error or "")
    if isinstance(value, dict):
        # An object with a role and a content is one message of chat.
        assert "content" in value or form in refusal(as_object(value))
        assert form in (in_file(tmp_path, "a.json", value).error or "")


@pytest.mark.parametrize(("problem", "value"), NO_ANSWERS)
def test_reply_without_an_answer_is_an_error_that_says_why(problem: str, value: Any, tmp_path: Path) -> None:
    assert problem in refusal(value)
    for row in (as_row({"response": value}, 1), in_file(tmp_path, "a.jsonl", {"id": 1, "response": value})):
        assert problem in (row.error or "")
    assert problem in (in_file(tmp_path, "a.json", value).error or "")


@pytest.mark.parametrize("place", ["raw", "body", "result"])
def test_reply_beside_other_data_is_refused_with_its_place(place: str, tmp_path: Path) -> None:
    for name, exchange in EXCHANGES.items():
        data = {place: exchange.reply, "score": 3}
        error = f"`{place}` is a reply of {name} beside other data"
        assert error in refusal(data)
        assert error in refusal(as_object(data))
        assert f"`steps.0.{place}`" in refusal({"steps": [data]})
        assert error in (as_row({"id": 1, "response": data}, 1).error or "")
        with pytest.raises(ValueError, match=place):
            in_file(tmp_path, "a.json", data)
        (tmp_path / "b.jsonl").write_text(json.dumps({"id": 1, "response": data}), encoding="utf-8")
        (row,) = read_responses(tmp_path / "b.jsonl", response_column=f"response.{place}")
        assert row.submission
        assert row.submission.response == ANSWER


def test_choices_of_a_reply_in_a_file_are_rows(tmp_path: Path) -> None:
    choices = [choice for text in "ab" for choice in completion({"content": text})["choices"]]
    (tmp_path / "f.jsonl").write_text(json.dumps(completion({}, choices=choices)), encoding="utf-8")
    rows = [(row.id, row.submission and row.submission.response) for row in read_responses(tmp_path / "f.jsonl")]
    assert rows == [("c1-choice1", "a"), ("c1-choice2", "b")]


def test_texts_of_a_reply_outside_of_its_content_are_graded() -> None:
    refused = completion({"content": None, "refusal": "I cannot pay."})
    assert as_submission(refused).response == "I cannot pay."
    legacy = {
        "id": "c",
        "object": "text_completion",
        "choices": [{"text": ANSWER, "index": 0, "finish_reason": "stop"}],
    }
    assert as_submission(legacy).response == ANSWER


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_reply_that_was_cut_off_is_graded_with_a_warning(reason: str) -> None:
    reply = completion({"content": ANSWER})
    reply["choices"][0]["finish_reason"] = reason
    with pytest.warns(UserWarning, match=f"a reply ended by '{reason}'"):
        assert as_submission(reply).response == ANSWER


def test_log_of_litellm_has_its_tasks_and_its_errors(tmp_path: Path) -> None:
    request, reply, _ = EXCHANGES["OpenAI (chat completion)"]
    shared = {"call_type": "acompletion", "messages": request["messages"], "model_parameters": {}, "hidden_params": {}}
    rows = [
        {"id": "a", "status": "success", "response": reply, "error_str": None, **shared},
        {"id": "b", "status": "failure", "response": None, "error_str": "429 rate limit", **shared},
    ]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    first, second = read_responses(tmp_path / "f.jsonl")
    assert first.submission == as_row({"id": "a", "response": reply, "request": request}, 1).submission
    assert second.error == "row b: has no answer: 429 rate limit"


OWN: list[dict[str, Any]] = [
    {"stem": "Which?", "choices": ["a", "b"], "correct": "a"},
    {"choices": [{"text": "Yes", "index": 1}, {"text": "No", "index": 2}]},
    {"choices": [{"message": "Pick me", "index": 0}]},
    {"candidates": [{"name": "Ann", "content": "A CV."}], "model": "m"},
    {"message": {"text": "Hi"}, "done": True, "model": "m"},
    {"message": {"role": "host", "content": "Hi"}, "subject": "Party"},
    {"type": "message", "role": "assistant", "body": "Hi"},
    {"object": "response", "verb": "give"},
    {"output_format": {"message": {"content": []}}, "usage": "daily"},
    {"error": "not found"},
    {"error": {"message": "late", "code": 3}, "orders": [1]},
    {"status": {"state": "Texas"}, "id": "a1"},
    {"events": [{"author": "Ann", "title": "Party"}]},
    {"blocks": [{"text": "a"}], "role": "assistant manager"},
    {"role": "Hamlet", "parts": [{"text": "To be"}]},
    {"conversation": [{"speaker": "Ann", "text": "Hi"}]},
    {"type": "message_start", "title": "Hi"},
    {"model": "T-800", "done": False, "message": "Come with me"},
    {"parts": [{"text": "a"}, {"text": "b"}]},
]


@pytest.mark.parametrize("data", OWN)
def test_own_json_with_a_key_of_a_reply_is_graded_as_json(data: dict[str, Any]) -> None:
    assert provider_of(data) is None
    assert dialect_of(data) is None
    for value in ({"id": 1, "response": data}, {"response": {"deep": data}}):
        row = as_row(value, 1)
        assert row.submission
        assert json.loads(row.submission.response) in (data, {"deep": data})
    if "id" not in data:
        assert json.loads(as_submission(data).response) == data


@pytest.mark.parametrize("data", OWN)
def test_own_answer_with_a_key_of_a_reply_is_its_answer(data: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_submission({**data, "answer": ANSWER}) == Submission(response=ANSWER)
