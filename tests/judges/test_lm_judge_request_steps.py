"""The public steps of a model judge: the request of a question, and the judgment of a reply."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, Scale, Submission
from rubric_integrations.judges import LMJudge, Question, lm_from_fn
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.submission import Attachment
from tests.fakes import FakeModel
from tests.openai_server import OpenAIServer

IMAGE = Attachment(data=b"\x89PNG", mime_type="image/png", name="chart.png")
QUESTIONS = {
    "binary": Question(Submission(response="It is 42.", query="What is it?"), Criterion(requirement="States 42")),
    "options": Question(
        Submission(response="It is 42."),
        Criterion(requirement="Clear?", options=[Option(label="no", value=0), Option(label="yes", value=1)]),
    ),
    "scale": Question(Submission(response="é 🎉"), Criterion(requirement="Good?", scale=Scale(min=0, max=10))),
    "image": Question(Submission(response="A chart.", attachments=(IMAGE,)), Criterion(requirement="Shows a bar")),
}


def anthropic_reply(verdict: str, **changes: Any) -> bytes:
    text = json.dumps({"explanation": "as scripted", "verdict": verdict})
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    message = {"type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn"}
    return json.dumps({**message, "content": [{"type": "text", "text": text}], "usage": usage, **changes}).encode()


@pytest.mark.parametrize("name", QUESTIONS)
async def test_prepared_request_has_the_bytes_that_the_judge_sends(name: str) -> None:
    with OpenAIServer() as server:
        judge, question = LMJudge("openai/gpt-4o", api_base=server.url), QUESTIONS[name]
        request = await judge.prepare_request(question)
        assert not server.calls
        with suppress(JudgeFailure):  # the scripted reply is no answer to all kinds of criteria
            await judge.judge(question)
        assert request.url == f"{server.url}/chat/completions"
    assert [call.raw for call in server.calls] == [request.body]


async def test_read_reply_makes_the_judgment_of_the_direct_call() -> None:
    question = QUESTIONS["binary"]
    with OpenAIServer() as server:
        judge = LMJudge("openai/gpt-4o", api_base=server.url)
        judgment = await judge.judge(question)
        message = {"role": "assistant", "content": '{"explanation": "as scripted", "verdict": "MET"}'}
        usage = judgment.spend.usage
        assert usage
        body = {
            "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens},
        }
        assert await judge.read_reply(question, json.dumps(body).encode()) == judgment
        assert len(server.calls) == 1


@pytest.mark.parametrize("name", QUESTIONS)
async def test_prepared_request_is_made_for_anthropic(name: str) -> None:
    judge = LMJudge("anthropic/claude-sonnet-4-5", api_key="sk-secret")
    request = await judge.prepare_request(QUESTIONS[name])
    assert (request.protocol, request.url) == ("anthropic", "https://api.anthropic.com/v1/messages")
    assert json.loads(request.body)["model"] == "claude-sonnet-4-5"
    assert "sk-secret" not in repr(request)
    assert b"sk-secret" not in request.body


async def test_read_reply_of_anthropic_has_the_verdict_and_the_tokens() -> None:
    judge = LMJudge("anthropic/claude-sonnet-4-5", api_key="sk-1")
    judgment = await judge.read_reply(QUESTIONS["binary"], anthropic_reply("UNMET"))
    assert (judgment.verdict, judgment.value, judgment.reason) == ("UNMET", 0.0, "as scripted")
    assert judgment.spend.usage
    assert judgment.spend.usage.prompt_tokens == 1_000


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (anthropic_reply("PERHAPS"), 200, "parse"),
        (anthropic_reply("MET", stop_reason="max_tokens"), 200, "parse"),
        (b"", 200, "transport"),
        (b"{", 200, "transport"),
        (b"A" * 1_000_000, 200, "transport"),
        (b'{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}', 400, "config"),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}', 529, "transport"),
    ],
)
async def test_read_reply_of_a_bad_response_is_a_failure(body: bytes, status: int, kind: str) -> None:
    judge = LMJudge("anthropic/claude-sonnet-4-5", api_key="sk-1")
    with pytest.raises(JudgeFailure) as raised:
        await judge.read_reply(QUESTIONS["binary"], body, status=status)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        (LMJudge(lm_from_fn(FakeModel("MET"), fingerprint="fake")), "OpenAI's protocol"),
        (LMJudge("gemini/gemini-2.5-flash", api_key="sk-1"), "OpenAI's protocol"),
        (LMJudge("openai/gpt-4o", api_key="sk-1", confidence=True), "`confidence`"),
    ],
)
async def test_prepared_request_of_another_model_is_refused(judge: LMJudge, reason: str) -> None:
    with pytest.raises(JudgeFailure, match=reason) as raised:
        await judge.prepare_request(QUESTIONS["binary"])
    assert raised.value.kind == "config"
