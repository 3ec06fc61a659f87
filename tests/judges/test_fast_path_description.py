"""Who sends the requests of a model, in one line: right for each source of models and each setting."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rubric_integrations.judges import LMJudge, ModelSettings
from rubric_integrations.judges import fast_path as module
from rubric_integrations.judges.fast_path import describe_path
from rubric_integrations.judges.models.names import lm_from_fn, lm_from_name
from tests.fakes import FakeModel
from tests.judges.questions import BINARY, Listener, question_about
from tests.openai_server import OpenAIServer, Reply

URL = "http://localhost:1/v1"
LIBRARY = f"sent by this library to {URL}"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in os.environ:
        if name.lower().endswith(("_api_key", "_api_base", "_base_url", "_proxy", "ollama_host")):
            monkeypatch.delenv(name)


def lm(model: str = "openai/mock", **settings: Any) -> dspy.LM:
    chosen: dict[str, Any] = {"model_type": "chat", "api_base": URL, "api_key": "k", "cache": False, **settings}
    return dspy.LM(model, **chosen)


class Engine:
    def complete(self, request: Any) -> Any:
        raise NotImplementedError


class Mine(dspy.LM):
    pass


PATHS: dict[str, tuple[Callable[[], dspy.BaseLM], str]] = {
    "name": (lambda: lm_from_name("openai/mock", ModelSettings(api_base=URL)), LIBRARY),
    "name at its provider": (
        lambda: lm_from_name("groq/mock", ModelSettings(api_key="k")),
        "sent by this library to https://api.groq.com/openai/v1",
    ),
    "secret in the URL": (
        lambda: lm(api_base="http://me:S3CRET@localhost:1/v1"), "sent by this library to http://localhost:1/v1",
    ),
    "dspy.LM": (lm, LIBRARY),
    "Anthropic": (
        lambda: lm("anthropic/claude-sonnet-4-5"), f"{LIBRARY}, rendered by DSPy, because its protocol is not OpenAI's",
    ),
    "callbacks": (
        lambda: lm(callbacks=[Listener()]), f"{LIBRARY}, rendered by DSPy, because callbacks are set",
    ),
    "headers": (
        lambda: lm_from_name("openai/mock", ModelSettings(api_base=URL, headers={"X-Team": "a"})),
        f"sent by LiteLLM to {URL}, because `headers` are set",
    ),
    "organization": (lambda: lm(organization="o"), f"sent by LiteLLM to {URL}, because `organization` is set"),
    "another provider": (
        lambda: lm_from_name("mistral/m"), "sent by LiteLLM, because DSPy has no client for this provider",
    ),
    "engine of LiteLLM": (lambda: lm(engine="litellm"), f"sent by LiteLLM to {URL}, because `engine` is 'litellm'"),
    "responses": (lambda: lm(model_type="responses"), f"sent by DSPy to {URL}, because `model_type` is 'responses'"),
    "cache": (lambda: lm(cache=True), f"sent by DSPy to {URL}, because its DSPy cache is on"),
    "engine": (lambda: dspy.LM("mine/m", engine=Engine()), "sent by your engine Engine"),
    "class": (lambda: Mine("openai/mock"), "sent by your LM Mine"),
    "function": (lambda: lm_from_fn(FakeModel("")), "sent by your function"),
    "LangChain": (
        lambda: LMJudge(ChatOpenAI(model="m", base_url=URL, api_key=SecretStr("k"))).lm,
        f"sent by LangChain's ChatOpenAI to {URL}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "path"), PATHS.values(), ids=PATHS)
def test_path_names_the_sender_the_server_and_the_reason(make: Callable[[], dspy.BaseLM], path: str) -> None:
    assert describe_path(make()) == path


def test_missing_key_is_a_reason_in_one_line() -> None:
    described = describe_path(dspy.LM("groq/mock", model_type="chat", cache=False))
    assert described.startswith("sent by DSPy, because ")
    assert "GROQ_API_KEY" in described
    assert "\n" not in described


@pytest.mark.parametrize(
    ("model", "variable", "value", "url"),
    [
        ("openai/mock", "OPENAI_BASE_URL", URL, URL),
        ("openai/mock", "OPENAI_API_BASE", URL, URL),
        ("hosted_vllm/mock", "HOSTED_VLLM_API_BASE", URL, URL),
        ("ollama_chat/mock", "OLLAMA_HOST", "localhost:1", URL),
        ("ollama_chat/mock", "OLLAMA_API_BASE", "http://localhost:1", URL),
        ("ollama/mock", "OLLAMA_API_BASE", "http://localhost:1", URL),
    ],
)
def test_path_of_a_server_of_the_environment_is_that_of_an_argument(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str, value: str, url: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert describe_path(lm_from_name(model)) == f"sent by this library to {url}"


def test_proxy_is_a_reason_for_another_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "localhost")
    assert describe_path(lm()) == LIBRARY
    reason = "because the environment sets a proxy"
    assert describe_path(lm(api_base="http://other/v1")) == f"sent by DSPy to http://other/v1, {reason}"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other/v1")
    assert describe_path(lm(api_base=None)) == f"sent by LiteLLM to http://other/v1, {reason}"


def test_dspy_without_the_classes_that_are_needed_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fast_path_problem", lambda: "DSPy 9.9 lacks a class")
    assert describe_path(lm()) == f"sent by DSPy to {URL}, because DSPy 9.9 lacks a class"


SENT: dict[str, dict[str, Any]] = {
    "this library": {},
    "LiteLLM": {"extra_headers": {"x-team": "a"}},
    "DSPy": {"cache": True},
}


@pytest.mark.parametrize("sender", SENT)
async def test_sender_that_is_named_is_the_one_that_sends(server: OpenAIServer, sent: list[bytes], sender: str) -> None:
    server.script = lambda _call: Reply("MET")
    judge = LMJudge(lm(api_base=server.url, **SENT[sender]), framework_cache=True)
    assert describe_path(judge.lm).startswith(f"sent by {sender} to {server.url}")
    assert (await judge.judge(question_about(BINARY, sender))).verdict == "MET"
    # The requests of this library, and all requests.
    assert (len(sent), len(server.calls)) == (int(sender == "this library"), 1)
