"""What the HTTP clients of LangChain chat models do not do for a judge: follow redirects, read without a limit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import httpx2
import openai
import pytest
from dspy import lm15
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import ConfigDict, Field, PrivateAttr

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.models import langchain_http
from rubric_integrations.judges.models.errors import to_lm_error
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


class ModelOfServer(FakeMessagesListChatModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    url: str
    responses: list[Any] = Field(default_factory=list)


class ModelWithClient(ModelOfServer):
    """A chat model that keeps its clients as `ChatAnthropic` does: the SDK's, made when they are first used."""

    @cached_property
    def _client(self) -> Any:
        return openai.OpenAI(base_url=self.url, api_key="k", max_retries=0)

    def send(self) -> object:
        return self._client.chat.completions.create(model="m", messages=[])


class ModelWithResource(ModelOfServer):
    """A chat model that keeps a part of an SDK's client, as `ChatGroq` does."""

    client: Any = None

    def model_post_init(self, context: Any) -> None:
        self.client = openai.OpenAI(base_url=self.url, api_key="k", max_retries=0).chat.completions

    def send(self) -> object:
        return self.client.create(model="m", messages=[])


class ModelWithHttpClient(ModelOfServer):
    """A chat model that uses an HTTP library itself, as `ChatMistralAI` does."""

    library: Any
    client: Any = None

    def model_post_init(self, context: Any) -> None:
        self.client = self.library.Client(base_url=self.url, follow_redirects=True)

    def send(self) -> object:
        return self.client.post("/chat/completions", json={"model": "m", "messages": []}).raise_for_status()


class Wrapper:
    def __init__(self, client: Any):
        self._client = client


class ModelWithWrapper(ModelOfServer):
    """A chat model that has a client around one of an HTTP library in a private attribute, as `ChatOllama` does."""

    library: Any
    _client: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._client = Wrapper(self.library.Client(base_url=self.url, follow_redirects=True))

    def send(self) -> object:
        return self._client._client.post("/chat/completions", json={"model": "m", "messages": []}).raise_for_status()


class SDK:
    """An SDK's client, as the SDKs of OpenAI, Anthropic and Groq have it, on any HTTP library."""

    def __init__(self, http_client: Any):
        self._client = http_client

    def with_options(self, *, http_client: Any) -> SDK:
        return SDK(http_client)


class Resource:
    """A part of an SDK's client. As in the SDKs, it needs a client."""

    def __init__(self, client: Any):
        self._client, self._post = client, client._client.post


class ModelWithResourceOfLibrary(ModelWithHttpClient):
    """A chat model that keeps a part of an SDK's client, whose SDK is based on the library."""

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self.client = Resource(SDK(self.client))

    def send(self) -> object:
        return self.client._post("/chat/completions", json={"model": "m", "messages": []}).raise_for_status()


def openai_model(url: str) -> Any:
    return ChatOpenAI(model="m", base_url=url, api_key="k", max_retries=0)  # pyright: ignore[reportArgumentType]


def send(model: Any) -> object:
    return model.send() if hasattr(model, "send") else model.invoke("x")


LIBRARIES = [httpx, httpx2]
MODELS: list[Callable[[str], Any]] = [
    openai_model,
    lambda url: ModelWithClient(url=url),
    lambda url: ModelWithResource(url=url),
    *(
        lambda url, kind=kind, library=library: kind(url=url, library=library)
        for kind in (ModelWithHttpClient, ModelWithWrapper, ModelWithResourceOfLibrary)
        for library in LIBRARIES
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


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(raw=b" " * 200_000), "ReadError"),
        (Reply(raw=b"x", headers=(("Content-Encoding", "br"),)), "DecodingError"),
        (Reply(raw=PAGE), "RemoteProtocolError"),
    ],
)
async def test_refused_reply_is_an_error_of_the_clients_own_library(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, library: Any, reply: Reply, error: str
) -> None:
    monkeypatch.setattr(langchain_http, "MAX_REPLY_BYTES", 100_000)
    server.script = lambda _call: reply
    model: Any = guarded(ModelWithHttpClient(url=server.url, library=library))
    with pytest.raises(getattr(library, error)):
        send(model)
    async with library.AsyncClient(base_url=server.url) as client:
        other: Any = guarded(ModelWithHttpClient(url=server.url, library=library).model_copy(update={"client": client}))
        with pytest.raises(getattr(library, error)) as caught:
            await other.client.post("/chat/completions", json={"model": "m", "messages": []})
    assert isinstance(to_lm_error(caught.value), lm15.TransportError)


def test_model_with_a_mock_as_its_client_is_returned_as_it_is() -> None:
    model = ModelOfServer(url="http://127.0.0.1:1")
    object.__setattr__(model, "client", MagicMock())
    assert guarded(model) is model


def test_model_whose_client_is_of_an_unknown_library_is_returned_as_it_is() -> None:
    class Client:
        def __init__(self, **settings: Any):
            self.post = settings

    library = SimpleNamespace(Client=Client)
    model = ModelWithResourceOfLibrary(url="http://127.0.0.1:1", library=library)
    assert guarded(model) is model
