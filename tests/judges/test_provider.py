"""Replies are read and priced as DSPy reads and prices them, and those that it cannot read fail in the same way."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from unittest.mock import ANY

import dspy
import pytest
from dspy.clients import costs
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rubric_integrations.judges import provider as provider_module
from rubric_integrations.judges.fast_path import record_request
from rubric_integrations.judges.http import HttpReply
from rubric_integrations.judges.prompts.signatures import JudgeCriterion
from rubric_integrations.judges.protocol import RequestForm
from rubric_integrations.judges.provider import ReplyReader, provider_of
from rubric_integrations.scoring import Judgment
from tests.judges.questions import MET_REPLY, judge_at, question_about
from tests.openai_server import OpenAIServer
from tests.openai_server import Reply as Answer

# Two with a price for each token; one whose price rises above 200,000 tokens; one without a price; and one whose
# provider counts the tokens of its thinking apart.
MODELS = ("openai/gpt-4o-mini", "openai/gpt-5-mini", "openai/gpt-5.4", "openai/mock", "xai/grok-3-mini")


async def reader_for(model: str) -> ReplyReader:
    lm = dspy.LM(model, api_key="k", api_base="http://127.0.0.1:9/v1", cache=False)
    inputs = dict.fromkeys(JudgeCriterion.input_fields, "x")
    request = await record_request(dspy.Predict(JudgeCriterion), lm, JudgeCriterion, [], inputs)
    provider = provider_of(lm)
    assert provider is not None
    return ReplyReader(provider, request)


async def result_of(reader: ReplyReader, body: bytes) -> Any:
    """Return the text of a reply, why it ended and its spend; or the class of the error."""
    try:
        completion = await reader.read(HttpReply(200, "OK", {}, body), dspy.LM("openai/m"))
    except Exception as error:  # noqa: BLE001 -- the test compares which error it is
        return type(error)
    # Where the server gives no reason, DSPy assumes `stop`, and the short way reports that it is unknown.
    return completion.text, completion.finish_reason or "stop", completion.spend


def parse_nothing(_body: bytes) -> None:
    """Parse no reply, so that DSPy reads every one."""


async def read_both_ways(model: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read a reply, check that DSPy alone reads the same, and return the result."""
    reader = await reader_for(model)
    result = await result_of(reader, body)
    with monkeypatch.context() as patch:
        patch.setattr(provider_module, "_parse_plain", parse_nothing)
        assert result == await result_of(reader, body)
    return result


COUNTS = st.integers(0, 3000) | st.sampled_from([250_000, None, -1, "7", 2.0, True])
TEXTS = st.text(max_size=20) | st.sampled_from(['{"verdict": "MET"}', "\u2028\x00", "", None, 5, [], ["a"]])


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Draw replies, most of which are plain; in the others any part may be unusual."""
    odd = draw(st.integers(0, 3)) == 0
    usage: Any = {
        "prompt_tokens": draw(COUNTS) if odd else 1500,
        "completion_tokens": draw(COUNTS) if odd else 70,
        **draw(st.sampled_from([{}, {"total_tokens": 1570}])),
        **draw(st.sampled_from([{}, {"prompt_tokens_details": None}])),
    }
    if draw(st.booleans()):
        names = ["cached_tokens", "cache_write_tokens", "audio_tokens"] if odd else ["cached_tokens"]
        usage["prompt_tokens_details"] = {name: draw(COUNTS if odd else st.integers(0, 1500)) for name in names}
    if draw(st.booleans()):
        names = ["reasoning_tokens", "audio_tokens"] if odd else ["reasoning_tokens"]
        usage["completion_tokens_details"] = {name: draw(COUNTS if odd else st.integers(0, 70)) for name in names}
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXTS if odd else st.text(max_size=20))}
    if draw(st.booleans()):
        message |= draw(st.sampled_from([{"refusal": None, "annotations": []}, {"reasoning_content": "hm"}]))
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    http: dict[str, Any] = {"id": "x", "model": "gpt-4o-mini-2024-07-18", "choices": [choice], "usage": usage}
    if odd:
        calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}, {"function": {}}, 5]
        choice |= draw(st.sampled_from([{}, {"finish_reason": "length"}, {"finish_reason": 5}, {"logprobs": {}}]))
        message |= draw(st.sampled_from([{}, {"tool_calls": [calls[0]]}, {"tool_calls": calls}, {"refusal": "no"}]))
        tiers = [{"service_tier": tier} for tier in ("default", "flex", "priority", "other", None)]
        more = [{}, {"error": {"message": "no"}}, {"error": None}, {"model": None}, {"usage": None}, {"choices": []}]
        http |= draw(st.sampled_from([*more, *tiers, {"choices": [choice, choice]}, {"model": "m2"}]))
    return http


@pytest.mark.wire
@given(st.sampled_from(MODELS), bodies())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_reply_is_read_and_priced_as_by_dspy(
    monkeypatch: pytest.MonkeyPatch, model: str, body: dict[str, Any]
) -> None:
    await read_both_ways(model, json.dumps(body).encode(), monkeypatch)


@given(st.sampled_from(MODELS), st.binary(max_size=40))
@example("openai/mock", b'{"model": "m", "choices": [{"message": {"content": "a"}}], "usage": NaN}')
@example("openai/mock", b"\xef\xbb\xbf{}")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_body_that_is_no_reply_fails_as_with_dspy(
    monkeypatch: pytest.MonkeyPatch, model: str, body: bytes
) -> None:
    await read_both_ways(model, body, monkeypatch)


PLAIN: dict[str, Any] = {
    "model": "gpt-4o-mini",
    "choices": [{"message": {"content": "yes"}}],
    "usage": {"prompt_tokens": 1500, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 1024}},
}


async def test_price_of_a_model_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = await reader_for("openai/gpt-4o-mini")
    body = json.dumps(PLAIN).encode()
    text, finish_reason, spend = await result_of(reader, body)
    assert text == "yes"
    assert spend.cost is not None
    assert spend.cost > 0

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("DSPy's price list or parser was used again")

    monkeypatch.setattr(costs, "model_info", refuse)
    monkeypatch.setattr(dspy.lm15.OpenAIChatLM, "parse_response", refuse)
    assert await result_of(reader, body) == ("yes", finish_reason, spend)


async def test_dspy_that_reads_the_specimen_otherwise_reads_every_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = dspy.lm15.OpenAIChatLM
    real: Any = client.parse_response

    def parse_in_capitals(target: Any, request: Any, response: Any) -> Any:
        body = response.body.replace(b'"yes"', b'"YES"').replace(b"{\\", b" {\\")
        return real(target, request, dataclasses.replace(response, body=body))

    monkeypatch.setattr(client, "parse_response", parse_in_capitals)
    reader = await reader_for("openai/gpt-4o-mini")
    assert (await result_of(reader, json.dumps(PLAIN).encode())) == ("YES", ANY, ANY)


async def test_reply_in_parts_with_reasoning_is_read_as_by_dspy(server: OpenAIServer, sent: list[bytes]) -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": [{"type": "text", "text": MET_REPLY}],
    }
    body = {"id": "x", "model": "m", "choices": [{"message": message}], "usage": {"prompt_tokens": 5}}
    server.script = lambda _call: Answer(raw=json.dumps(body).encode())
    judgments: list[Judgment] = []
    for fast in (True, False):
        judge = judge_at(server, fast=fast)
        judge.use_request_form(RequestForm("text"))  # DSPy reads no parts in the reply to a JSON Schema
        judgments.append(await judge.judge(question_about()))
    assert judgments[0] == judgments[1]
    assert judgments[0].verdict == "MET"
    assert len(sent) == 1
