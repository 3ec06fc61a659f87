"""The errors of a user's own HTTP client are sorted by status and kind: what may pass is retried, nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest
import requests

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from tests.openai_server import OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement="Names the river")])
Client = Callable[[str], Awaitable[str]]


async def with_httpx(url: str, library: Any = httpx) -> str:
    async with library.AsyncClient() as client:
        response = await client.post(f"{url}/chat/completions", json={"model": "m", "messages": []})
        return response.raise_for_status().json()["choices"][0]["message"]["content"]


async def with_httpx2(url: str) -> str:
    return await with_httpx(url, httpx2)


async def with_aiohttp(url: str) -> str:
    body = {"model": "m", "messages": list[str]()}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as client,
        client.post(f"{url}/chat/completions", json=body) as r,
    ):
        return (await r.json())["choices"][0]["message"]["content"]


async def with_requests(url: str) -> str:
    response = requests.post(f"{url}/chat/completions", json={"model": "m", "messages": []}, timeout=5)  # noqa: ASYNC210
    response.raise_for_status()
    return response.json()["choices"][0]["message"]["content"]


async def with_openai(url: str) -> str:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        return completion.choices[0].message.content or ""


CLIENTS = [with_httpx, with_httpx2, with_aiohttp, with_requests, with_openai]


def grade(client: Client, url: str) -> EvaluationReport:
    async def generate(system_prompt: str, user_prompt: str) -> str:
        return await client(url)

    return RUBRIC.grade_sync(
        "The Nile.", grader=PerCriterionGrader(generate_fn=generate, limits=CallLimits(max_outage=0))
    )


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_status_is_retried(server: OpenAIServer, client: Client, status: int) -> None:
    server.script = lambda call: Reply(status=status) if call.number == 0 else Reply(verdict="MET")
    assert grade(client, server.url).score == 1.0
    assert len(server.calls) == 2


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_permanent_status_is_not_retried(server: OpenAIServer, client: Client, status: int) -> None:
    server.script = lambda _call: Reply(status=status)
    with pytest.raises(JudgeError, match=str(status)):
        grade(client, server.url)
    assert len(server.calls) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_dropped_connection_is_retried(server: OpenAIServer, client: Client) -> None:
    server.script = lambda call: Reply(drop=True) if call.number == 0 else Reply(verdict="MET")
    assert grade(client, server.url).score == 1.0


@pytest.mark.parametrize("client", CLIENTS)
def test_refused_connection_is_retried(client: Client) -> None:
    attempts: list[int] = []

    async def count(url: str) -> str:
        attempts.append(1)
        return await client(url)

    with pytest.raises(JudgeError, match="transport"):
        grade(count, "http://127.0.0.1:9/v1")
    assert len(attempts) == 5


@pytest.mark.parametrize(
    "error",
    [
        openai.APITimeoutError(httpx.Request("POST", "http://x")),
        openai.APIConnectionError(request=httpx.Request("POST", "http://x")),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut off"),
        httpx.DecodingError("no gzip"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("cut off"),
        httpx2.DecodingError("no gzip"),
        aiohttp.ServerTimeoutError("slow"),
        aiohttp.ClientPayloadError("cut off"),
        requests.exceptions.ChunkedEncodingError("cut off"),
        requests.exceptions.ReadTimeout("slow"),
        # httpx2 does not convert it: a connection of an event loop that has ended.
        RuntimeError("Event loop is closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_transport_error_of_a_known_client_is_retried(error: Any) -> None:
    attempts: list[int] = []

    async def generate(system_prompt: str, user_prompt: str) -> str:
        attempts.append(1)
        raise error

    with pytest.raises(JudgeError, match="transport"):
        RUBRIC.grade_sync("The Nile.", grader=PerCriterionGrader(generate_fn=generate, limits=CallLimits(max_outage=0)))
    assert len(attempts) == 5


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_retry_after_of_an_httpx_response_is_honoured(library: Any) -> None:
    from rubric_integrations.judges.models.errors import to_lm_error

    request = library.Request("POST", "http://x")
    response = library.Response(429, headers={"Retry-After": "7"}, request=request)
    error: Any = to_lm_error(library.HTTPStatusError("busy", request=request, response=response))
    assert error.retry_after == 7


def test_error_that_is_its_own_cause_is_read_to_the_end() -> None:
    from rubric_integrations.judges.models.errors import is_unanswered

    error = ValueError("wrong")
    error.__cause__ = error
    assert is_unanswered(error)
    error.__cause__ = KeyError("other")
    error.__cause__.__cause__ = error
    assert is_unanswered(error)
