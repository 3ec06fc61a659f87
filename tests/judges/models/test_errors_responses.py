"""Error responses of servers that do not speak the provider's form: FastAPI, web pages, and a wrong base URL."""

from __future__ import annotations

import importlib
import json
from typing import Any

import httpx
import openai
import pytest
import requests
from dspy.utils.exceptions import LMServerError, LMTransportError
from langchain_openai import ChatOpenAI

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.judges.models.errors import failure_of_call
from rubric_integrations.judges.models.responses import ErrorResponse, describe_response, server_message
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.scoring.judgment import NO_SPEND
from tests.judges.questions import BINARY, judge_at, question_about
from tests.openai_server import OpenAIServer, Reply

PATHS = ["fast", "DSPy", "probabilities"]
VALIDATION = [
    {"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "Field required", "input": {"a": "the prompt"}},
    {"type": "int_type", "loc": ["body", "seed"], "msg": "Input should be a valid integer", "input": "x"},
]
READ = "body.messages.0.role: Field required; body.seed: Input should be a valid integer"
PAGE = b"<!doctype html>\n<html><head><title>Open\n WebUI</title></head><body><h1>Hi</h1></body></html>"
WRONG_URL = "it may lack `/v1` at its end, or have it twice"


def judge_by(path: str, server: OpenAIServer) -> LMJudge:
    return LMJudge(judge_at(server, fast=path != "DSPy", timeout=None).lm, confidence=path == "probabilities")


async def failure_of(judge: Any) -> JudgeFailure:
    with pytest.raises(JudgeFailure) as failure:
        await judge.judge(question_about(BINARY))
    assert len(str(failure.value).splitlines()) == 1
    return failure.value


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (Reply(status=400, raw=body(detail="the context is full")), "config", "HTTP 400: the context is full"),
        (Reply(status=422, raw=body(detail=VALIDATION)), "config", f"HTTP 422: {READ}"),
        (Reply(status=401, raw=body(detail="Not authenticated")), "config", "HTTP 401: Not authenticated"),
        (Reply(status=500, raw=body(detail="CUDA out of memory")), "transport", "HTTP 500: CUDA out of memory"),
        (Reply(status=400, raw=body(detail={"message": "no"})), "config", "HTTP 400: no"),
        (Reply(status=400, raw=body(object="error", message="bad seed", code=400)), "config", "HTTP 400: bad seed"),
        (Reply(status=404, raw=body(message="The model `m` does not exist.")), "config", "The model `m` does not"),
        (Reply(status=400, raw=b"{}"), "config", "HTTP 400: {}"),
        (Reply(status=400, raw=b""), "config", "HTTP 400"),
        (Reply(status=502, raw=PAGE), "transport", "HTTP 502: a web page in place of JSON ('Open WebUI')"),
    ],
)
async def test_message_of_an_error_response_is_named_on_every_path(
    server: OpenAIServer, path: str, reply: Reply, kind: str, message: str
) -> None:
    server.script = lambda _call: reply
    failure = await failure_of(judge_by(path, server))
    assert message in failure.message
    assert failure.message.startswith("[openai/mock] ")
    assert (failure.kind, failure.retryable) == (kind, kind == "transport")
    assert WRONG_URL not in failure.message
    assert "the prompt" not in failure.message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "raw", [body(error={"message": "Wrong key.", "code": "invalid_api_key"}), b"", body(error="no")]
)
async def test_refused_key_has_its_status_and_whether_a_key_was_sent(
    server: OpenAIServer, path: str, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda _call: Reply(status=401, raw=raw)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    failure = await failure_of(judge_by(path, server))
    assert failure.message.startswith("[openai/mock] HTTP 401")
    assert failure.message.count("401") == 1
    assert failure.message.endswith("A key was sent: check that it is this server's")
    failure = await failure_of(LMJudge("openai/mock", api_base=server.url))
    assert "No key was sent: pass it as `api_key` (`--api-key` in the shell)" in failure.message
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    failure = await failure_of(LMJudge("openai/mock", api_base=server.url))
    assert failure.message.endswith("The key of OPENAI_API_KEY was sent: check that it is this server's")
    assert "canary" not in failure.message


async def test_missing_key_names_the_variable_and_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    failure = await failure_of(LMJudge("openai/gpt-5-mini"))
    assert "Set OPENAI_API_KEY in the environment, or pass `api_key` (`--api-key` in the shell)" in failure.message


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("No module named 'google'", "pip install google-auth"),
        ("No module named 'vertexai'", "pip install google-cloud-aiplatform"),
        ("No module named 'boto3'", "pip install boto3"),
        ("No module named 'botocore.auth'", "pip install boto3"),
        ("Your default credentials were not found.", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("BedrockException Invalid Authentication - Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_missing_package_or_credential_of_a_cloud_names_what_to_set(reason: str, remedy: str) -> None:
    for error in (LMTransportError(f"litellm.APIConnectionError: {reason}", model="m"), ModuleNotFoundError(reason)):
        failure = failure_of_call(error, NO_SPEND, {}, about_reply=False)
        assert (failure.kind, failure.unreachable) == ("config", True)
        assert remedy in failure.message


def test_connection_error_of_litellm_is_unreachable() -> None:
    text = "litellm.InternalServerError: InternalServerError: Litellm_proxyException - Connection error."
    failure = failure_of_call(LMServerError(text, model="litellm_proxy/m"), NO_SPEND, {}, about_reply=False)
    assert (failure.kind, failure.unreachable) == ("transport", True)


@pytest.mark.processes
def test_server_that_litellm_does_not_reach_is_unreachable_and_a_missing_key_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    importlib.import_module("litellm")
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    text = "litellm.InternalServerError: MistralException - Cannot connect to host api.mistral.ai:443"
    error = LMServerError(text, model="mistral/mistral-small-latest")
    failure = failure_of_call(error, NO_SPEND, {}, about_reply=False)
    assert (failure.kind, failure.unreachable) == ("transport", True)
    assert "MISTRAL_API_KEY is not set either" in failure.message
    monkeypatch.setenv("MISTRAL_API_KEY", "key")
    assert "MISTRAL_API_KEY" not in failure_of_call(error, NO_SPEND, {}, about_reply=False).message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=404, raw=body(detail="Not Found")),
        Reply(status=404, raw=b"<html><body>404 page not found</body></html>"),
        Reply(status=404, raw=b"404 page not found"),
        Reply(status=404, raw=b""),
        Reply(status=404, raw=body(error={"message": "Invalid URL (POST /v1/v1/chat/completions)", "type": "x"})),
        Reply(status=405, raw=body(detail="Method Not Allowed")),
    ],
)
async def test_wrong_base_url_is_named_on_every_path(server: OpenAIServer, path: str, reply: Reply) -> None:
    server.script = lambda _call: reply
    failure = await failure_of(judge_by(path, server))
    assert WRONG_URL in failure.message
    assert f"`api_base` ({server.url!r})" in failure.message
    assert f"HTTP {reply.status}" in failure.message
    assert (failure.kind, failure.retryable) == ("config", False)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("raw", [PAGE, b"null", b"", b"[]", b"\xff\xfe", b'{"choices": [', b"[" * 100_000, b"1" * 5000])
async def test_success_without_a_readable_reply_is_a_transport_failure(
    server: OpenAIServer, path: str, raw: bytes
) -> None:
    server.script = lambda _call: Reply(raw=raw)
    failure = await failure_of(judge_by(path, server))
    assert (failure.kind, failure.retryable) == ("transport", True)
    assert "HTTP 200" in failure.message
    assert (WRONG_URL in failure.message) == (raw == PAGE)


async def test_page_of_a_proxy_that_restarts_is_requested_again(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(raw=PAGE) if call.number == 0 else Reply()
    report = await Rubric([BINARY]).grade("x", grader=PerCriterionGrader(judge_at(server)))
    assert (report.score, len(server.calls)) == (1.0, 2)


def test_message_about_a_base_url_hides_its_password_and_query() -> None:
    message = describe_response(ErrorResponse(404, b""), "http://user:secret@host:80/v1?key=secret")
    assert "`api_base` ('http://host:80/v1')" in message


@pytest.mark.parametrize("path", PATHS)
async def test_model_that_the_server_does_not_have_is_no_wrong_base_url(server: OpenAIServer, path: str) -> None:
    error = {"message": "The model `x` does not exist", "code": "model_not_found"}
    server.script = lambda _call: Reply(status=404, raw=body(error=error))
    failure = await failure_of(judge_by(path, server))
    assert failure.message == "[openai/mock] The model `x` does not exist"


@pytest.mark.parametrize("path", ["fast", "DSPy"])
async def test_format_that_a_validation_error_refuses_steps_down(server: OpenAIServer, path: str) -> None:
    refused = [{"loc": ["body", "response_format"], "msg": "Extra inputs are not permitted"}]
    server.script = lambda call: (
        Reply(status=422, raw=body(detail=refused)) if call.body.get("response_format") else Reply("MET")
    )
    assert (await judge_by(path, server).judge(question_about(BINARY))).verdict == "MET"


async def with_httpx(url: str) -> str:
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{url}/chat/completions", json={"model": "m", "messages": []})
        return response.raise_for_status().text


async def with_requests(url: str) -> str:
    response = requests.post(f"{url}/chat/completions", json={"model": "m", "messages": []}, timeout=5)  # noqa: ASYNC210
    response.raise_for_status()
    return response.text


async def with_openai(url: str) -> str:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        return completion.choices[0].message.content or ""


@pytest.mark.parametrize("client", [with_httpx, with_requests, with_openai])
async def test_message_of_an_error_response_to_a_users_client_is_named(server: OpenAIServer, client: Any) -> None:
    async def generate(system_prompt: str, user_prompt: str) -> str:
        return await client(server.url)

    server.script = lambda _call: Reply(status=422, raw=body(detail=VALIDATION))
    failure = await failure_of(as_judge(generate))
    assert ("Field required" in failure.message, failure.kind) == (True, "config")
    server.script = lambda _call: Reply(status=404, raw=body(detail="Not Found"))
    failure = await failure_of(as_judge(generate))
    assert (WRONG_URL in failure.message, failure.kind) == (True, "config")


async def test_message_of_an_error_response_to_a_chat_model_is_named(server: OpenAIServer) -> None:
    judge = as_judge(ChatOpenAI(model="m", base_url=server.url, api_key="k", max_retries=0))  # pyright: ignore[reportArgumentType]
    server.script = lambda _call: Reply(status=422, raw=body(detail=VALIDATION))
    assert "Field required" in (await failure_of(judge)).message
    server.script = lambda _call: Reply(status=404, raw=body(detail="Not Found"))
    assert WRONG_URL in (await failure_of(judge)).message
    server.script = lambda _call: Reply(raw=PAGE)
    failure = await failure_of(judge)
    assert (WRONG_URL in failure.message, failure.kind) == (True, "transport")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b'{"detail": []}',
        b'{"detail": [1, {"loc": 3}]}',
        b'{"detail": null}',
        b"\xff\xfe",
        b"[" * 20,
        b'{"error":' * 20,
        b"<html><",
    ],
)
def test_message_of_any_body_is_one_short_line(text: bytes) -> None:
    assert len(server_message(text).splitlines()) <= 1
    assert len(server_message(text * 1000)) <= 300
