"""Completions from DSPy's history: the model's own text, why it ended, its tokens, and the cache."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import dspy
import pytest

from rubric_integrations.judges import calling
from rubric_integrations.judges.models.errors import Completion, completion_from_history, usage_from_mapping
from rubric_integrations.scoring import JudgeFailure, Spend, TokenUsage
from tests.judges.questions import BINARY, REPEATED_VERDICT, judge_at, question_about
from tests.openai_server import OpenAIServer, Reply

# DSPy knows that the first model takes a JSON Schema. The second may be any model, and is sent one all the same.
MODELS = ("openai/gpt-4o-mini", "openai/mock")
REPEATED_ANSWER = '{"judgments": [{"id": 1, "explanation": "", "answer": "UNMET", "answer": "MET"}]}'
REPEATED_LIST = (
    '{"judgments": [{"id": 1, "explanation": "", "answer": "UNMET"}], '
    '"judgments": [{"id": 1, "explanation": "", "answer": "MET"}]}'
)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("model", MODELS)
async def test_repeated_verdict_is_a_parse_failure_on_both_paths(server: OpenAIServer, model: str, fast: bool) -> None:
    server.script = lambda _call: Reply(text=REPEATED_VERDICT)
    with pytest.raises(JudgeFailure, match="twice") as failure:
        await judge_at(server, fast=fast, model=model).judge(question_about(BINARY))
    assert (failure.value.kind, failure.value.retryable, failure.value.spend.calls) == ("parse", True, 1)
    assert "json_schema" in str(server.calls[0].body.get("response_format"))


@pytest.mark.parametrize("reply", [REPEATED_ANSWER, REPEATED_LIST])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("model", MODELS)
async def test_batch_with_a_repeated_answer_is_a_parse_failure_on_both_paths(
    server: OpenAIServer, model: str, fast: bool, reply: str
) -> None:
    server.script = lambda _call: Reply(text=reply)
    with pytest.raises(JudgeFailure, match="twice") as failure:
        await judge_at(server, fast=fast, model=model).judge_batch({1: question_about(BINARY)})
    assert failure.value.kind == "parse"


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_completion_of_the_ordinary_path_has_the_finish_reason(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    completions: list[Completion] = []

    def record(entry: Mapping[str, Any], caches: bool) -> Completion:
        completions.append(completion_from_history(entry, caches))
        return completions[-1]

    monkeypatch.setattr(calling, "completion_from_history", record)
    server.script = lambda _call: Reply("MET", finish_reason=reason)
    with nullcontext() if reason == "stop" else pytest.raises(JudgeFailure, match="cut off"):
        await judge_at(server, fast=False).judge(question_about(BINARY))
    assert [completion.finish_reason for completion in completions] == [reason]
    assert completions[0].text == Reply("MET").content


@pytest.mark.parametrize("fast", [True, False])
async def test_usage_that_a_server_reports_is_counted_and_one_that_it_omits_is_unknown(
    server: OpenAIServer, fast: bool
) -> None:
    judge = judge_at(server, fast=fast, model="openai/gpt-4o-mini")
    judgment = await judge.judge(question_about(BINARY))
    assert judgment.spend.usage is not None
    assert judgment.spend.usage.prompt_tokens == len(server.calls[0].prompt) // 4
    assert judgment.spend.usage.completion_tokens == len(Reply("MET").content) // 4
    server.script = lambda _call: Reply("MET", has_usage=False)
    assert (await judge.judge(question_about(BINARY))).spend == Spend(calls=1, usage=None, cost=None)


def test_completion_from_dspys_cache_costs_nothing() -> None:
    entry: dict[str, Any] = {"outputs": ["text"], "usage": {}, "cost": None}
    assert completion_from_history(entry, caches=True).spend == Spend()
    assert completion_from_history(entry, caches=False).spend == Spend(calls=1, usage=None, cost=None)


@pytest.mark.parametrize("cost", [-0.5, float("nan"), float("inf"), "0.5", True])
def test_cost_that_an_lm_of_a_users_own_reports_wrongly_is_unknown(cost: object) -> None:
    entry: dict[str, Any] = {"outputs": ["text"], "usage": {"prompt_tokens": 5}, "cost": cost}
    assert completion_from_history(entry, caches=True).spend == Spend(
        calls=1, usage=TokenUsage(prompt_tokens=5), cost=None
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"total_tokens": 7}, None),
        ({"prompt_tokens": 5}, TokenUsage(prompt_tokens=5)),
        ({"prompt_tokens": 5, "completion_tokens": -1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": 5, "completion_tokens_details": {"reasoning_tokens": -1}}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
            TokenUsage(prompt_tokens=5, completion_tokens=2, cached_tokens=3),
        ),
    ],
)
def test_usage_without_token_counts_is_unknown(usage: Any, expected: TokenUsage | None) -> None:
    assert usage_from_mapping(usage) == expected


TEXT = '{"verdict": "UNMET", "verdict": "MET"}'


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": TEXT}}]},
        {"output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": TEXT}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": TEXT}]},
        {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, {"text": TEXT}]}}]},
    ],
    ids=["OpenAI chat", "OpenAI responses", "Anthropic", "Gemini"],
)
def test_text_that_dspy_parsed_is_read_from_the_providers_reply(body: dict[str, Any]) -> None:
    lm15 = dspy.lm15
    message = lm15.Message(role="assistant", parts=(lm15.DataPart(value={"verdict": "MET"}),))
    response = lm15.Response(
        id=None, model="m", message=message, finish_reason="stop", usage=lm15.Usage(), provider_data=body
    )
    entry = {"response": response, "outputs": ['{"verdict": "MET"}'], "usage": None}
    assert completion_from_history(entry, caches=False).text == TEXT
