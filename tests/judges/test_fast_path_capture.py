"""Captured requests: prices, providers and failures are the same on the fast path and through DSPy."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations.scoring import JudgeFailure
from tests.judges.questions import judge_at, question_about
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "openai/gpt-5-mini", "deepseek/x"])
async def test_price_and_request_of_a_provider_equal_those_of_dspy(
    server: OpenAIServer, sent: list[bytes], model: str
) -> None:
    judges = [judge_at(server, fast=fast, model=model) for fast in (True, False)]
    judgments = [await judge.judge(question_about()) for judge in judges]
    assert len(sent) == 1
    assert judgments[0] == judgments[1]
    assert server.calls[0].raw == server.calls[1].raw
    assert (judgments[0].spend.cost is not None) == ("gpt" in model)


FAULTS = {
    "429": Reply(status=429, retry_after=7),
    "500": Reply(status=500),
    "401": Reply(status=401),
    "400": Reply(status=400),
    "dropped": Reply(drop=True),
    "no JSON": Reply(text="MET"),
    "empty": Reply(text=""),
    "null": Reply(raw=b"null"),
    "HTML": Reply(raw=b"<html>"),
    "error in 200": Reply(raw=b'{"error": {"message": "overloaded", "code": "server_error"}}'),
    "no choices": Reply(raw=b'{"id": "x", "model": "m", "choices": []}'),
    "two choices": Reply(raw=b'{"id": "x", "model": "m", "choices": [{}, {}]}'),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_is_the_same_failure_on_both_paths(server: OpenAIServer, sent: list[bytes], fault: str) -> None:
    server.script = lambda _call: FAULTS[fault]
    failures: list[Any] = []
    for fast in (True, False):
        with pytest.raises(JudgeFailure) as caught:
            await judge_at(server, fast=fast).judge(question_about())
        failure = caught.value
        failures.append((failure.kind, failure.retryable, failure.retry_after, failure.rate_limited, failure.spend))
    assert len(sent) == 1
    # DSPy's own client does not say that a reply was there.
    assert failures[0] == failures[1] or (fault, failures[1][0]) == ("null", "config")
