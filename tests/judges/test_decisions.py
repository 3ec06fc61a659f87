"""The wire formats of decision models: recorded bytes, and every way in which a reply can be wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.judges.decisions import (
    PROTOCOLS,
    DecisionProtocol,
    DecisionReply,
    ErrorInReply,
    TruncatedState,
    TypedQuestion,
    UnreadableDecisions,
    split_model_name,
)
from rubric_integrations.scoring.judgment import JudgeFailure
from tests.decision_server import SNAPSHOT, USAGE, damaged, reply_to

QUESTIONS = {
    "q1": TypedQuestion("yes or no", "Names the river?", guidelines="Be fair."),
    "q2": TypedQuestion("choice", "Tone?", (("plain", None), ("ornate", "many"), ("CANNOT_ASSESS", "no idea"))),
    "q3": TypedQuestion("score", "Depth?", (("bad", None), ("ok", None), ("good", None))),
    "q4": TypedQuestion("yes or no", "Is it long?"),
}
STATE = {"task": "Which “river”?", "response": 'The "Nile"\n'}
PLAN = {"q1": 0.9, "q2": [0.7, 0.2, 0.1], "q3": [0.1, 0.2, 0.7], "q4": 0.25}
BOTH = pytest.mark.parametrize("protocol", list(PROTOCOLS))

# The bytes of the requests, recorded once. A change of them changes the answers of real servers.
SYSTEM_ONE = (
    '{"model":"jev-1.13.0","state":{"task":"Which “river”?","response":"The \\"Nile\\"\\n"},"questions":{'
    '"q1":{"type":"noul","instructions":{"guidelines":"Be fair.","question":"Names the river?"}},'
    '"q2":{"type":"choice","instructions":"Tone?","criteria":{"plain":null,"ornate":"many","CANNOT_ASSESS":"no idea"}},'
    '"q3":{"type":"score","instructions":"Depth?","criteria":["bad","ok","good"]},'
    '"q4":{"type":"noul","instructions":"Is it long?"}}}'
)
OPENAI_QUESTIONS = (
    '"questions":[{"type":"predicate","name":"q1","instructions":"Guidelines: Be fair.\\n\\nNames the river?"},'
    '{"type":"choice","name":"q2","instructions":"Tone?","choices":[{"value":"plain"},'
    '{"value":"ornate","description":"many"},{"value":"CANNOT_ASSESS","description":"no idea"}]},'
    '{"type":"score","name":"q3","instructions":"Depth?","levels":[{"label":"bad"},{"label":"ok"},{"label":"good"}]},'
    '{"type":"predicate","name":"q4","instructions":"Is it long?"}]}'
)
OPENAI_TEXT = '"{\\"task\\": \\"Which “river”?\\", \\"response\\": \\"The \\\\\\"Nile\\\\\\"\\\\n\\"}"'


def request(protocol: DecisionProtocol) -> dict[str, Any]:
    return json.loads(PROTOCOLS[protocol].encode("m", STATE, QUESTIONS))


def good(protocol: DecisionProtocol) -> dict[str, Any]:
    return reply_to(request(protocol), PLAN)


def decode(protocol: DecisionProtocol, reply: Any) -> DecisionReply:
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return PROTOCOLS[protocol].decode(body, QUESTIONS)


def answer_in(reply: dict[str, Any], name: str) -> dict[str, Any]:
    answers = reply["answers"]
    return next(answer for answer in answers if answer["name"] == name) if isinstance(answers, list) else answers[name]


def test_system_one_request_has_the_recorded_bytes() -> None:
    assert PROTOCOLS["system-one"].encode("jev-1.13.0", STATE, QUESTIONS).decode() == SYSTEM_ONE


def test_openai_request_has_the_recorded_bytes() -> None:
    body = PROTOCOLS["openai-decisions"].encode("gpt-6-luna", STATE, QUESTIONS).decode()
    assert body == f'{{"model":"gpt-6-luna","input":{OPENAI_TEXT},{OPENAI_QUESTIONS}'


def test_openai_request_with_images_has_the_recorded_bytes() -> None:
    body = PROTOCOLS["openai-decisions"].encode("gpt-6-luna", STATE, QUESTIONS, ["data:image/png;base64,AA=="]).decode()
    image = '{"type":"input_image","image_url":"data:image/png;base64,AA=="}'
    parts = f'{{"type":"input_text","text":{OPENAI_TEXT}}},{image}'
    assert body == f'{{"model":"gpt-6-luna","input":[{{"role":"user","content":[{parts}]}}],{OPENAI_QUESTIONS}'


@BOTH
def test_correct_reply_has_all_answers_the_usage_and_the_model(protocol: DecisionProtocol) -> None:
    reply = decode(protocol, good(protocol))
    assert reply.faults == {}
    assert [reply.answers[name].probabilities for name in QUESTIONS] == [
        (0.9,), (0.7, 0.2, 0.1), (0.1, 0.2, 0.7), (0.25,),
    ]  # fmt: skip
    assert [reply.answers[name].best for name in QUESTIONS] == [0, 0, 2, 0]
    assert (reply.model, reply.extra) == (SNAPSHOT, ())
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == tuple(USAGE.values())


# What no check reads: providers compute the confidence in different ways, and the others repeat the question.
UNREAD = {"confidence", "legend", "label"}


@BOTH
def test_reply_with_any_damaged_value_loses_only_its_own_answer(protocol: DecisionProtocol) -> None:
    reply, names, whole = good(protocol), list(QUESTIONS), decode(protocol, good(protocol)).answers
    count = 0
    for path, change, body in damaged(reply):
        count += 1
        try:
            decoded = decode(protocol, body)
        except UnreadableDecisions:
            # The model or the usage of a reply is not needed, but a name may not be there twice.
            assert len(path) == 1, body
            continue
        assert decoded.answers.keys() | decoded.faults.keys() == QUESTIONS.keys()
        assert not decoded.answers.keys() & decoded.faults.keys()
        for name, answer in decoded.answers.items():
            assert answer == whole[name], body
        if path[0] != "answers":
            assert decoded.faults == {}
            continue
        lost = names if len(path) == 1 else [names[path[1]] if isinstance(path[1], int) else path[1]]
        is_unread = bool(UNREAD & set(path)) and (change != "repeat" or path[-1] not in UNREAD)
        assert set(decoded.faults) == (set() if is_unread else set(lost)), body
    assert count > 400


@BOTH
@pytest.mark.parametrize(
    "body",
    [b"", b"  ", b"<html>", b"[]", b"null", b"3", b'{"answers"', b"\xff\xfe", b'{"answers": 3}', b'{"answers": null}',
     b"{}", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a": 1' + b"0" * 5000 + b"}"],
)  # fmt: skip
def test_body_that_is_no_reply_is_unreadable(protocol: DecisionProtocol, body: bytes) -> None:
    with pytest.raises(UnreadableDecisions):
        decode(protocol, body)


@BOTH
@given(body=st.binary(max_size=60))
def test_any_bytes_are_unreadable(protocol: DecisionProtocol, body: bytes) -> None:
    with pytest.raises(UnreadableDecisions):
        decode(protocol, body)


@BOTH
@pytest.mark.parametrize("place", ["usage", "reply"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("truncated", True), ("truncated", "yes"), ("state_tokens_dropped", 1), ("state_tokens_dropped", "1")],
)
def test_truncated_state_is_never_an_answer(protocol: DecisionProtocol, place: str, name: str, value: Any) -> None:
    reply = good(protocol)
    (reply["usage"] if place == "usage" else reply)[name] = value
    with pytest.raises(TruncatedState) as raised:
        decode(protocol, reply)
    assert raised.value.usage is not None


@BOTH
def test_usage_that_denies_a_cut_is_no_fault(protocol: DecisionProtocol) -> None:
    reply = good(protocol)
    reply["usage"] |= {"truncated": False, "state_tokens_dropped": 0}
    assert decode(protocol, reply).faults == {}


@BOTH
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"code": 429, "message": "slow down"}, 429, "slow down"),
        ({"code": "502", "message": "bad gateway"}, 502, "bad gateway"),
        ({"code": "overloaded"}, None, "the reply reports an error"),
        ({"status": 403, "code": "x", "message": "no"}, 403, "no"),
        ("down", None, "down"),
    ],
)
def test_error_in_a_reply_is_raised_with_its_code(
    protocol: DecisionProtocol, error: Any, code: int | None, message: str
) -> None:
    with pytest.raises(ErrorInReply) as raised:
        decode(protocol, {**good(protocol), "error": error})
    assert (raised.value.code, raised.value.message) == (code, message)


@BOTH
def test_refusal_of_one_question_is_final_and_about_the_text(protocol: DecisionProtocol) -> None:
    reply = good(protocol)
    answer = answer_in(reply, "q2")
    answer["type"] = "refusal"
    decoded = decode(protocol, reply)
    fault = decoded.faults["q2"]
    assert isinstance(fault, JudgeFailure)
    assert (fault.about_text, fault.retryable) == (True, False)
    assert decoded.answers.keys() == {"q1", "q3", "q4"}


@BOTH
def test_answer_to_a_question_that_was_not_asked_is_ignored(protocol: DecisionProtocol) -> None:
    reply = good(protocol)
    extra = {"type": "noul", "noul": 1.0}
    if isinstance(reply["answers"], list):
        reply["answers"].append({"name": "q9", **extra})
    else:
        reply["answers"]["q9"] = extra
    decoded = decode(protocol, reply)
    assert (decoded.faults, decoded.extra) == ({}, ("q9",))


def with_shares(protocol: DecisionProtocol, shares: list[float], score: float | None = None) -> dict[str, Any]:
    """Return a reply whose answers to `q2` and `q3` have these probabilities."""
    reply = reply_to(request(protocol), {"q2": shares, "q3": shares})
    if score is not None:
        answer_in(reply, "q3")["score"] = score
    return reply


@BOTH
@given(data=st.data())
def test_probabilities_of_two_decimals_pass(protocol: DecisionProtocol, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 10**6), min_size=3, max_size=3))
    exact = [weight / sum(weights) for weight in weights]
    score = round(math.fsum(index * share for index, share in enumerate(exact)), 2)
    reply = with_shares(protocol, [round(share, 2) for share in exact], score)
    assert decode(protocol, reply).faults == {}


@BOTH
@pytest.mark.parametrize("shares", [[0.9, 0.8, 0.1], [0.5, 0.2, 0.2], [0.0, 0.0, 0.0], [1.0, 0.02, 0.0]])
def test_probabilities_with_another_sum_are_a_fault(protocol: DecisionProtocol, shares: list[float]) -> None:
    faults = decode(protocol, with_shares(protocol, shares)).faults
    assert set(faults) == {"q2", "q3"}
    assert "the sum" in str(faults["q2"])


@BOTH
def test_score_that_is_not_the_mean_is_a_fault(protocol: DecisionProtocol) -> None:
    assert set(decode(protocol, with_shares(protocol, [0.1, 0.2, 0.7], 0.4)).faults) == {"q3"}


@BOTH
def test_choice_of_a_less_probable_option_is_a_fault(protocol: DecisionProtocol) -> None:
    reply = good(protocol)
    answer_in(reply, "q2")["choice"] = "ornate"
    assert set(decode(protocol, reply).faults) == {"q2"}


@BOTH
def test_choice_decides_between_equal_probabilities(protocol: DecisionProtocol) -> None:
    reply = with_shares(protocol, [0.4, 0.4, 0.2])
    answer_in(reply, "q2")["choice"] = "ornate"
    assert decode(protocol, reply).answers["q2"].best == 1


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("typesafe/jev-1.13.0", ("system-one", "jev-1.13.0")),
        ("openai-decisions/gpt-6-luna", ("openai-decisions", "gpt-6-luna")),
        ("openai/gpt-5-mini", (None, "openai/gpt-5-mini")),
        ("typesafe", (None, "typesafe")),
    ],
)
def test_model_name_is_split_at_the_prefix_of_a_protocol(name: str, parts: tuple[str | None, str]) -> None:
    assert split_model_name(name) == parts
