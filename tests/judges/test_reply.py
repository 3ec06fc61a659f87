"""Replies are read and priced as DSPy reads and prices them, plain or not, and an unreadable one fails alike."""

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

from rubric_integrations import Criterion, Submission
from rubric_integrations.judges._direct import capture, reply
from rubric_integrations.judges._direct.http import HttpReply
from rubric_integrations.judges._direct.reply import ReplyReader
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.prompts.signatures import JudgeCriterion
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeFailure
from tests.openai_server import OpenAIServer
from tests.openai_server import Reply as Answer

# Priced by the token; priced higher above 200,000; priced by nobody; a provider that counts thinking apart.
MODELS = ("openai/gpt-4o-mini", "openai/gpt-5-mini", "openai/gpt-5.4", "openai/mock", "xai/grok-3-mini")


async def reader_for(model: str) -> ReplyReader:
    lm = dspy.LM(model, api_key="k", api_base="http://127.0.0.1:9/v1", cache=False)
    inputs = dict.fromkeys(JudgeCriterion.input_fields, "x")
    request = await capture.capture_request(dspy.Predict(JudgeCriterion), lm, JudgeCriterion, [], inputs)
    assert request is not None
    return request.reader


async def told(reader: ReplyReader, body: bytes) -> Any:
    try:
        completion = await reader.read(HttpReply(200, "OK", {}, body))
    except Exception as error:  # noqa: BLE001 -- which one is what is compared
        return type(error)
    return completion.text, completion.spend


def read_nothing(_body: bytes) -> None:
    """Leave every reply to DSPy."""


async def assert_read_alike(model: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    reader = await reader_for(model)
    found = await told(reader, body)
    with monkeypatch.context() as patch:
        patch.setattr(reply, "_parse_plain", read_nothing)
        assert found == await told(reader, body)
    return found


COUNTS = st.integers(0, 3000) | st.sampled_from([250_000, None, -1, "7", 2.0, True])
TEXTS = st.text(max_size=20) | st.sampled_from(['{"verdict": "MET"}', "\u2028\x00", "", None, 5, [], ["a"]])


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Replies, most of them plain, and any part of them odd."""
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
    reply: dict[str, Any] = {"id": "x", "model": "gpt-4o-mini-2024-07-18", "choices": [choice], "usage": usage}
    if odd:
        calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}, {"function": {}}, 5]
        choice |= draw(st.sampled_from([{}, {"finish_reason": "length"}, {"finish_reason": 5}, {"logprobs": {}}]))
        message |= draw(st.sampled_from([{}, {"tool_calls": [calls[0]]}, {"tool_calls": calls}, {"refusal": "no"}]))
        tiers = [{"service_tier": tier} for tier in ("default", "flex", "priority", "other", None)]
        more = [{}, {"error": {"message": "no"}}, {"error": None}, {"model": None}, {"usage": None}, {"choices": []}]
        reply |= draw(st.sampled_from([*more, *tiers, {"choices": [choice, choice]}, {"model": "m2"}]))
    return reply


@given(st.sampled_from(MODELS), bodies())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_reply_is_read_and_priced_as_dspy_does(
    monkeypatch: pytest.MonkeyPatch, model: str, body: dict[str, Any]
) -> None:
    await assert_read_alike(model, json.dumps(body).encode(), monkeypatch)


@given(st.sampled_from(MODELS), st.binary(max_size=40))
@example("openai/mock", b'{"model": "m", "choices": [{"message": {"content": "a"}}], "usage": NaN}')
@example("openai/mock", b"\xef\xbb\xbf{}")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_no_reply_fails_as_with_dspy(monkeypatch: pytest.MonkeyPatch, model: str, body: bytes) -> None:
    await assert_read_alike(model, body, monkeypatch)


PLAIN: dict[str, Any] = {
    "model": "gpt-4o-mini",
    "choices": [{"message": {"content": "yes"}}],
    "usage": {"prompt_tokens": 1500, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 1024}},
}


async def test_the_price_of_a_plain_reply_takes_one_look_at_dspys_list(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = await reader_for("openai/gpt-4o-mini")
    body = json.dumps(PLAIN).encode()
    text, spend = await assert_read_alike("openai/gpt-4o-mini", body, monkeypatch)
    assert text == "yes"
    assert spend.cost is not None
    assert spend.cost > 0

    def look(*_: object, **__: object) -> None:
        raise AssertionError("DSPy's list was looked at again")

    monkeypatch.setattr(costs, "model_info", look)
    monkeypatch.setattr("dspy._vendor.lm15.providers.openai_chat.OpenAIChatLM.parse_response", look)
    assert await told(reader, body) == ("yes", spend)


async def test_a_dspy_that_reads_otherwise_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM

    real: Any = OpenAIChatLM.parse_response

    def shouting(target: Any, request: Any, response: Any) -> Any:
        said = response.body.replace(b'"yes"', b'"YES"').replace(b"{\\", b" {\\")
        return real(target, request, dataclasses.replace(response, body=said))

    monkeypatch.setattr(OpenAIChatLM, "parse_response", shouting)
    reader = await reader_for("openai/gpt-4o-mini")
    assert (await told(reader, json.dumps(PLAIN).encode())) == ("YES", ANY)


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "openai/mock"])
async def test_a_field_that_is_there_twice_is_seen_though_dspy_would_write_it_once(
    server: OpenAIServer, model: str
) -> None:
    server.script = lambda _call: Answer(text='{"explanation": "It says \\"a", "verdict": "UNMET", "verdict": "MET"}')
    lm = dspy.LM(model, api_key="k", api_base=server.url, cache=False)
    with pytest.raises(JudgeFailure, match="twice"):
        await LMJudge(lm).judge(Question(Submission(response="r"), Criterion(requirement="c")))
