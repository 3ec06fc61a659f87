"""Which key a model that is given by its name sends, to which endpoint, and in which header."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.models.keys import key_for_endpoint
from rubric_integrations.judges.models.servers import OWN_KEY
from rubric_integrations.scoring import JudgeFailure
from tests.judges.questions import question_about
from tests.openai_server import OpenAIServer, Reply

KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in os.environ:
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(name)


async def sent_keys(server: OpenAIServer, model: str, **settings: Any) -> dict[str, str]:
    """The headers of one request that hold a key; the server refuses the request, whatever its protocol."""
    server.script = lambda _call: Reply(status=401)
    with pytest.raises(JudgeFailure):
        await LMJudge(model, api_base=server.url, **settings).judge(question_about())
    (call,) = server.calls
    return {name: call.headers[name] for name in KEY_HEADERS if name in call.headers}


# The variable that DSPy or LiteLLM documents for a provider, and the header in which its key goes out.
DOCUMENTED = [
    ("openai/gpt-5-mini", "OPENAI_API_KEY", {"authorization": "Bearer own-key"}),
    ("gpt-5-mini", "OPENAI_API_KEY", {"authorization": "Bearer own-key"}),
    ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", {"x-api-key": "own-key"}),
    ("claude-sonnet-4-5", "ANTHROPIC_API_KEY", {"x-api-key": "own-key"}),
    ("gemini/gemini-2.5-flash", "GEMINI_API_KEY", {"x-goog-api-key": "own-key"}),
    ("gemini/gemini-2.5-flash", "GOOGLE_API_KEY", {"x-goog-api-key": "own-key"}),
    ("azure/deployment", "AZURE_API_KEY", {"api-key": "own-key"}),
    ("azure/deployment", "AZURE_OPENAI_API_KEY", {"api-key": "own-key"}),
    ("deepseek/deepseek-chat", "DEEPSEEK_API_KEY", {"authorization": "Bearer own-key"}),
    ("openrouter/qwen/qwen3", "OPENROUTER_API_KEY", {"authorization": "Bearer own-key"}),
    ("moonshot/kimi-k3", "MOONSHOT_API_KEY", {"authorization": "Bearer own-key"}),
    ("hosted_vllm/qwen3", "HOSTED_VLLM_API_KEY", {"authorization": "Bearer own-key"}),
    ("ollama_chat/llama3.2", "OLLAMA_API_KEY", {"authorization": "Bearer own-key"}),
    ("together_ai/qwen3", "TOGETHERAI_API_KEY", {"authorization": "Bearer own-key"}),
]


@pytest.mark.parametrize(("model", "variable", "header"), DOCUMENTED)
async def test_key_of_the_documented_variable_is_sent_in_the_providers_header(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, model: str, variable: str, header: dict[str, str]
) -> None:
    monkeypatch.setenv(variable, "own-key")
    sent = await sent_keys(server, model)
    assert {name: sent.get(name) for name in header} == header


@pytest.mark.parametrize("model", sorted({model for model, *_ in DOCUMENTED if "gpt" not in model}))
async def test_key_of_openai_is_not_sent_for_the_model_of_another_provider(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    server.script = lambda _call: Reply(status=401)
    with pytest.raises(JudgeFailure):
        await LMJudge(model, api_base=server.url).judge(question_about())
    assert not [call for call in server.calls if "key-of-openai" in str(call.headers)]


# LiteLLM sends the key of OpenAI with the models of these providers if it finds no other.
@pytest.mark.parametrize("prefix", ["litellm_proxy", "custom_openai", "xinference", "nvidia_nim", "fireworks_ai"])
async def test_key_of_openai_is_not_sent_for_a_model_that_dspy_leaves_to_litellm(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    assert await sent_keys(server, f"{prefix}/mock") == {"authorization": "Bearer none"}
    monkeypatch.setenv(f"{prefix.upper()}_API_KEY", "own-key")
    server.calls.clear()
    assert await sent_keys(server, f"{prefix}/mock") == {"authorization": "Bearer own-key"}


def test_key_of_openai_is_left_out_of_litellms_models_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    assert key_for_endpoint("fireworks_ai/mock") == "none"  # at the provider's default endpoint too
    for prefix in ("openai", "text-completion-openai", "bedrock", "vertex_ai", "azure_ai", "lm_studio"):
        assert key_for_endpoint(f"{prefix}/mock") is None, prefix
    # DSPy leaves requests with headers to LiteLLM, and those to a server of the environment.
    assert (key_for_endpoint("moonshot/mock"), key_for_endpoint("moonshot/mock", has_headers=True)) == (None, "none")
    monkeypatch.setenv("MOONSHOT_API_BASE", "https://example.com/v1")
    assert key_for_endpoint("moonshot/mock") == "none"
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        key_for_endpoint("text-completion-openai/mock", "https://example.com/v1")


@pytest.mark.parametrize(
    ("model", "header"),
    [
        ("openai/mock", {"authorization": "Bearer none"}),
        ("anthropic/claude-sonnet-4-5", {"x-api-key": "none"}),
        ("gemini/gemini-2.5-flash", {"x-goog-api-key": "none"}),
        ("deepseek/deepseek-chat", {"authorization": "Bearer none"}),
        # Local servers, for which DSPy has a placeholder of its own.
        ("hosted_vllm/qwen3", {"authorization": "Bearer EMPTY"}),
        ("ollama_chat/llama3.2", {"authorization": "Bearer ollama"}),
    ],
)
async def test_placeholder_is_sent_where_no_key_is_found(
    server: OpenAIServer, model: str, header: dict[str, str]
) -> None:
    assert await sent_keys(server, model) == header


async def test_argument_is_sent_in_place_of_the_variable(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    assert await sent_keys(server, "openai/mock", api_key="argument") == {"authorization": "Bearer argument"}


@pytest.mark.parametrize(
    "api_base",
    ["https://api.deepseek.com/v1", "HTTPS://API.DeepSeek.com:443/v1", "https://eu.api.openai.com/v1"],
)
def test_endpoint_that_the_environment_does_not_name_gets_no_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, api_base: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key-of-deepseek")
    with pytest.raises(ValueError, match=r"`api_base` is .*OPENAI_API_KEY.*not sent.*OPENAI_BASE_URL") as error:
        LMJudge("openai/m", api_base=api_base.replace("://", "://me:password@"))
    assert "password" not in str(error.value)
    assert LMJudge("openai/m", api_base=api_base, api_key="argument").lm.kwargs["api_key"] == "argument"
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, api_base)
            assert "api_key" not in LMJudge("openai/m").lm.kwargs
            assert "api_key" not in LMJudge("openai/m", api_base=api_base).lm.kwargs


@pytest.mark.parametrize(
    ("model", "api_base", "variables"),
    [
        ("deepseek/deepseek-chat", "https://api.deepseek.com/v1", {}),
        ("openai/m", "HTTPS://API.openai.com:443/v1", {}),
        ("anthropic/m", "https://api.anthropic.com", {}),
        ("azure/d", "https://me.openai.azure.com", {"AZURE_API_BASE": "https://me.openai.azure.com"}),
        ("azure/d", "https://me.openai.azure.com", {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com"}),
    ],
)
def test_key_for_the_own_endpoint_is_left_to_dspy(
    monkeypatch: pytest.MonkeyPatch, model: str, api_base: str, variables: dict[str, str]
) -> None:
    for variable in ("OPENAI", "DEEPSEEK", "ANTHROPIC", "AZURE"):
        monkeypatch.setenv(f"{variable}_API_KEY", "key-of-provider")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert "api_key" not in LMJudge(model, api_base=api_base).lm.kwargs


GATEWAY = "https://llm.example.com/v1"


@pytest.mark.parametrize(
    ("model", "variable", "api_base"),
    [
        ("openai/m", "OPENAI_API_KEY", GATEWAY),
        ("gpt-5-mini", "OPENAI_API_KEY", GATEWAY),
        ("anthropic/m", "ANTHROPIC_API_KEY", GATEWAY),
        ("gemini/m", "GOOGLE_API_KEY", GATEWAY),
        ("azure/m", "AZURE_API_KEY", GATEWAY),
        ("together_ai/m", "TOGETHERAI_API_KEY", GATEWAY),
        ("watsonx/m", "WATSONX_API_KEY", GATEWAY),
        ("xai/m", "XAI_API_KEY", GATEWAY),
        # Hosts that resemble the provider's or this machine.
        ("openai/m", "OPENAI_API_KEY", "https://openai.com.example.com/v1"),
        ("openai/m", "OPENAI_API_KEY", "https://notopenai.com/v1"),
        ("openai/m", "OPENAI_API_KEY", "https://api.openai.com@example.com/v1"),
        ("openai/m", "OPENAI_API_KEY", "https://example.com\\@api.openai.com/v1"),
        ("openai/m", "OPENAI_API_KEY", "http://localhost.example.com/v1"),
        ("openai/m", "OPENAI_API_KEY", "http://127.example.com/v1"),
    ],
)
def test_key_of_the_environment_for_another_host_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str, api_base: str
) -> None:
    monkeypatch.setenv(variable, "key-of-provider")
    with pytest.raises(ValueError, match=rf"{variable}.*not sent.*`api_key`.*--api-key.*{OWN_KEY}") as error:
        LMJudge(model, api_base=api_base)
    assert "\n" not in str(error.value)
    assert "key-of-provider" not in str(error.value)
    assert LMJudge(model, api_base=api_base, api_key="argument").lm.kwargs["api_key"] == "argument"


def test_base_url_of_the_environment_gets_the_key_of_the_same_provider_over_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, GATEWAY)
            assert "api_key" not in LMJudge("openai/m").lm.kwargs
            with pytest.raises(ValueError, match=r"`api_base` .*ANTHROPIC_API_KEY.*not sent"):
                LMJudge("anthropic/m", api_base=GATEWAY)
            with pytest.raises(ValueError, match=r"`api_base` .*OPENAI_API_KEY.*not sent"):
                LMJudge("openai/m", api_base="https://other.example.com/v1")
            patch.setenv(variable, "http://gpu-box:8000/v1")
            with pytest.raises(ValueError, match=rf"{variable} .*OPENAI_API_KEY.*not sent over http"):
                LMJudge("openai/m")
            patch.setenv(variable, GATEWAY)
            patch.setenv(OWN_KEY, "key-of-gateway")
            assert LMJudge("openai/m").lm.kwargs["api_key"] == "key-of-gateway"


@pytest.mark.parametrize("api_base", ["http://api.openai.com/v1", "http://gpu-box:8000/v1", "http://0.0.0.0:8000/v1"])
def test_key_of_the_environment_is_not_sent_over_http(monkeypatch: pytest.MonkeyPatch, api_base: str) -> None:
    for variable in ["OPENAI_API_KEY", *([] if "openai.com" in api_base else [OWN_KEY])]:
        with monkeypatch.context() as patch:
            patch.setenv(variable, "from-environment")
            with pytest.raises(ValueError, match=rf"{variable}.*not sent.*http"):
                LMJudge("openai/m", api_base=api_base)
    assert LMJudge("openai/m", api_base=api_base, api_key="argument").lm.kwargs["api_key"] == "argument"
    assert LMJudge("openai/m", api_base=api_base).lm.kwargs["api_key"] == "none"


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1", "127.8.9.1:80", "[::1]:8000"])
def test_key_of_the_environment_is_sent_to_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    assert "api_key" not in LMJudge("openai/m", api_base=f"http://{host}/v1").lm.kwargs


def test_own_variable_is_sent_to_the_server_of_api_base_and_to_no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key-of-deepseek")
    monkeypatch.setenv(OWN_KEY, "key-of-gateway")
    assert LMJudge("openai/m", api_base=GATEWAY).lm.kwargs["api_key"] == "key-of-gateway"
    assert LMJudge("openai/m", api_base="http://localhost:1/v1").lm.kwargs["api_key"] == "key-of-gateway"
    assert "api_key" not in LMJudge("openai/m").lm.kwargs
    assert "api_key" not in LMJudge("openai/m", api_base="https://api.openai.com/v1").lm.kwargs


@pytest.mark.parametrize("model", ["hosted_vllm/qwen3", "ollama_chat/llama3.1", "openai/m"])
def test_own_variable_is_sent_to_the_default_endpoint_of_a_local_server(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    port = 11434 if "ollama" in model else 8000
    for base in (f"http://localhost:{port}/v1", f"http://127.0.0.1:{port}/v1"):
        assert LMJudge(model, api_base=base).lm.kwargs.get("api_key") != "key-of-server"
    monkeypatch.setenv(OWN_KEY, "key-of-server")
    for base in (f"http://localhost:{port}/v1", f"http://127.0.0.1:{port}/v1"):
        assert LMJudge(model, api_base=base).lm.kwargs["api_key"] == "key-of-server"


def test_own_variable_is_sent_to_ollama_where_no_url_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_KEY, "key-of-server")
    assert LMJudge("ollama_chat/llama3.1").lm.kwargs["api_key"] == "key-of-server"


async def test_base_url_of_the_environment_is_kept(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-gateway")
    await LMJudge("openai/mock").judge(question_about())
    assert server.calls[0].headers["authorization"] == "Bearer key-of-the-gateway"


@pytest.mark.parametrize(
    ("model", "settings"), [("azure/deployment", {"api_base": "http://127.0.0.1:9"}), ("fireworks_ai/m", {})]
)
async def test_key_that_litellm_does_not_find_is_a_wrong_setting_and_is_not_retried(
    model: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(JudgeFailure, match=r"Missing credentials|is not set") as failure:
        await LMJudge(model, **settings).judge(question_about())
    assert (failure.value.kind, failure.value.retryable) == ("config", False)


def own_lm(model: str, **settings: Any) -> LMJudge:
    return LMJudge(dspy.LM(model, cache=False, num_retries=0, **settings))


@pytest.mark.parametrize("name", ["api_base", "base_url"])
def test_key_of_the_environment_does_not_leave_with_an_lm_of_the_users_own(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    for url in (GATEWAY, "http://gpu-box:8000/v1"):
        with pytest.raises(ValueError, match=r"OPENAI_API_KEY.*not sent"):
            own_lm("openai/m", **{name: url})
        explicit: Any = {name: url, "api_key": "argument"}
        lm = dspy.LM("openai/m", **explicit)
        assert LMJudge(lm, framework_cache=True).lm is lm
    for url in ("http://127.0.0.1:9/v1", "https://api.openai.com/v1"):
        assert "api_key" not in own_lm("openai/m", **{name: url}).lm.kwargs
    monkeypatch.setenv(OWN_KEY, "key-of-gateway")
    assert own_lm("openai/m", **{name: GATEWAY}).lm.kwargs["api_key"] == "key-of-gateway"


class Engine:
    def complete(self, request: object) -> object:
        raise NotImplementedError


def test_engine_of_the_users_own_has_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("OPENAI_BASE_URL", GATEWAY)
    lm = dspy.LM("openai/m", engine=Engine(), cache=False)
    assert LMJudge(lm).lm is lm


@pytest.mark.parametrize("make", [LMJudge, own_lm])
@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_name_without_a_prefix_uses_the_base_url_of_its_provider(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[str], LMJudge], variable: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    plain = make("gpt-4.1")
    assert plain.lm.model == "gpt-4.1"
    monkeypatch.setenv(variable, GATEWAY)
    assert make("gpt-4.1").lm.model == "openai/gpt-4.1"
    monkeypatch.setenv(variable, GATEWAY.replace("https", "http"))
    with pytest.raises(ValueError, match=f"{variable} .*OPENAI_API_KEY.*not sent"):
        make("gpt-4.1")
    monkeypatch.setenv(variable, GATEWAY)
    monkeypatch.setenv(OWN_KEY, "key-of-gateway")
    assert make("gpt-4.1").lm.kwargs["api_key"] == "key-of-gateway"
    assert "https://llm.example.com" in str(make("gpt-4.1").fingerprint())
    assert make("gpt-4.1").fingerprint() != plain.fingerprint()


@pytest.mark.parametrize("make", [LMJudge, own_lm])
async def test_request_for_a_name_without_a_prefix_goes_to_the_base_url_of_its_provider(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], LMJudge]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-server")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    await make("gpt-4.1").judge(question_about())
    assert server.calls[0].headers["authorization"] == "Bearer key-of-the-server"
    assert server.calls[0].body["model"] == "gpt-4.1"


def test_key_of_the_environment_does_not_leave_with_a_chat_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    for url in (GATEWAY, "https://api.deepseek.com", "http://gpu-box:8000/v1", "http://api.openai.com/v1"):
        with pytest.raises(ValueError, match=r"`base_url` is .*OPENAI_API_KEY.*not sent") as error:
            LMJudge(ChatOpenAI(model="m", base_url=url))
        assert "key-of-openai" not in str(error.value)
        LMJudge(ChatOpenAI(model="m", base_url=url, api_key=SecretStr("argument")))
    for url in (None, "https://api.openai.com/v1", "http://localhost:1/v1"):
        LMJudge(ChatOpenAI(model="m", base_url=url))
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", GATEWAY)
        LMJudge(ChatOpenAI(model="m"))
        with pytest.raises(ValueError, match=r"OPENAI_API_KEY.*not sent"):
            LMJudge(ChatOpenAI(model="m", base_url="https://other.example.com/v1"))
    # The user's word that the server is to have this key.
    monkeypatch.setenv(OWN_KEY, "key-of-openai")
    LMJudge(ChatOpenAI(model="m", base_url=GATEWAY))
    with pytest.raises(ValueError, match="not sent over http"):
        LMJudge(ChatOpenAI(model="m", base_url="http://gpu-box:8000/v1"))
