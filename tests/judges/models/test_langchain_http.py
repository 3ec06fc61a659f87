"""What the HTTP clients of LangChain chat models do not do for a judge: follow redirects, read without a limit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import httpx
import openai
import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import ConfigDict, Field, PrivateAttr

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.models import langchain_http
from rubric_integrations.judges.models.langchain_http import guarded
from rubric_integrations.scoring import JudgeFailure
from tests.judges.questions import BINARY, MET_REPLY, question_about
from tests.langchain.helpers import chat_model
from tests.openai_server import OpenAIServer, Reply

PAGE = b"<!doctype html><html><head><title>Bad gateway</title></head><body></body></html>"


@pytest.mark.parametrize("is_compressed", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
async def test_reply_beyond_the_limit_is_a_transport_failure(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, is_compressed: bool, streaming: bool
) -> None:
    monkeypatch.setattr(langchain_http, "MAX_REPLY_BYTES", 100_000)
    raw = b" " * 5_000_000
    headers = (("Content-Encoding", "gzip"),) if is_compressed else ()
    body = gzip.compress(raw) if is_compressed else raw
    with pytest.raises(JudgeFailure, match="larger than 100,000 bytes") as failure:
        await LMJudge(chat_model(server, lambda _call: Reply(raw=body, headers=headers), streaming=streaming)).judge(
            question_about()
        )
    assert (failure.value.kind, failure.value.retryable) == ("transport", True)


async def test_reply_that_is_compressed_twice_is_refused_before_it_is_unpacked(server: OpenAIServer) -> None:
    headers = (("Content-Encoding", "gzip, gzip"),)
    body = gzip.compress(gzip.compress(b" " * 1_000))
    with pytest.raises(JudgeFailure, match="'gzip, gzip'") as failure:
        await LMJudge(chat_model(server, lambda _call: Reply(raw=body, headers=headers))).judge(question_about())
    assert (failure.value.kind, failure.value.retryable) == ("transport", True)


async def test_reply_that_is_compressed_once_is_read(server: OpenAIServer) -> None:
    message = {"role": "assistant", "content": MET_REPLY}
    body = json.dumps({"model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
    headers = (("Content-Encoding", "gzip"),)
    model = chat_model(server, lambda _call: Reply(raw=gzip.compress(body), headers=headers))
    assert (await LMJudge(model).judge(question_about())).verdict == "MET"


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
@pytest.mark.parametrize("raw", [PAGE, b"null", b"", b"[]", b"\xff\xfe", b'{"choices": ['])
async def test_success_without_a_readable_reply_is_a_transport_failure(
    server: OpenAIServer, raw: bytes, kind: str
) -> None:
    model = chat_model(server, lambda _call: Reply(head=response(raw, kind)))
    with pytest.raises(JudgeFailure, match="HTTP 200") as failure:
        await LMJudge(model).judge(question_about())
    assert (failure.value.kind, failure.value.retryable) == ("transport", True)
    assert len(str(failure.value).splitlines()) == 1


def response(body: bytes, kind: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_page_of_a_proxy_that_restarts_is_requested_again(server: OpenAIServer) -> None:
    model = chat_model(server, lambda call: Reply() if call.number else Reply(raw=PAGE))
    assert Rubric([BINARY]).grade_sync("x", grader=PerCriterionGrader(model)).score == 1.0
    assert len(server.calls) == 2


class ModelWithClient(FakeMessagesListChatModel):
    """A chat model that keeps its clients as `ChatAnthropic` does: the SDK's, made when they are first used."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    url: str
    responses: list[Any] = Field(default_factory=list)

    @cached_property
    def _client(self) -> Any:
        return openai.OpenAI(base_url=self.url, api_key="k", max_retries=0)

    def send(self) -> object:
        return self._client.chat.completions.create(model="m", messages=[])


class ModelWithResource(ModelWithClient):
    """A chat model that keeps a part of an SDK's client, as `ChatGroq` does."""

    client: Any = None

    def model_post_init(self, context: Any) -> None:
        self.client = openai.OpenAI(base_url=self.url, api_key="k", max_retries=0).chat.completions

    def send(self) -> object:
        return self.client.create(model="m", messages=[])


class ModelWithHttpx(ModelWithClient):
    """A chat model that uses httpx itself, as `ChatMistralAI` does."""

    client: Any = None

    def model_post_init(self, context: Any) -> None:
        self.client = httpx.Client(base_url=self.url, follow_redirects=True)

    def send(self) -> object:
        return self.client.post("/chat/completions", json={"model": "m", "messages": []}).raise_for_status()


class Wrapper:
    def __init__(self, url: str):
        self._client = httpx.Client(base_url=url, follow_redirects=True)


class ModelWithWrapper(FakeMessagesListChatModel):
    """A chat model that has a client around one of httpx in a private attribute, as `ChatOllama` does."""

    url: str
    responses: list[Any] = Field(default_factory=list)
    _client: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = Wrapper(self.url)

    def send(self) -> object:
        return self._client._client.post("/chat/completions", json={"model": "m", "messages": []}).raise_for_status()


def openai_model(url: str) -> Any:
    return ChatOpenAI(model="m", base_url=url, api_key="k", max_retries=0)  # pyright: ignore[reportArgumentType]


def send(model: Any) -> object:
    return model.send() if hasattr(model, "send") else model.invoke("x")


MODELS: list[Callable[[str], Any]] = [
    openai_model,
    *(
        lambda url, kind=kind: kind(url=url)
        for kind in (ModelWithClient, ModelWithResource, ModelWithHttpx, ModelWithWrapper)
    ),
]


@pytest.mark.parametrize("make", MODELS)
def test_no_client_follows_a_redirect_and_the_users_own_is_as_it_was(
    server: OpenAIServer, make: Callable[[str], Any]
) -> None:
    with OpenAIServer() as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}/chat/completions\r\nContent-Length: 0\r\n\r\n".encode()
        server.script = lambda _call: Reply(head=moved)
        model = make(server.url)
        with pytest.raises(Exception, match="307"):
            send(guarded(model))
        assert (len(server.calls), len(other.calls)) == (1, 0)
        send(model)
        assert len(other.calls) == 1


def test_model_without_a_known_client_is_returned_as_it_is() -> None:
    model = FakeMessagesListChatModel(responses=[AIMessage(MET_REPLY)])
    assert guarded(model) is model
