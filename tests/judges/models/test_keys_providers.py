"""The providers of docs/providers.md: a missing credential, and one that the provider refuses, name the variable."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from typing import Any

import pytest
from dspy.utils.exceptions import LMAuthError

from docs.providers import PROVIDERS, Provider
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.decision_judge import decision_judge_of
from rubric_integrations.judges.decisions import is_decision_model
from rubric_integrations.judges.models.errors import failure_from_error
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.scoring.judgment import NO_SPEND
from tests.judges.questions import question_about
from tests.openai_server import OpenAIServer, Reply

# How each provider refuses a wrong credential, by the prefix of its models.
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "openai": (401, {"error": {"message": "Incorrect API key provided: example.", "code": "invalid_api_key"}}),
    "azure": (401, {"error": {"code": "401", "message": "Access denied due to invalid subscription key."}}),
    "anthropic": (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
    "gemini": (400, {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}),
    "bedrock": (403, {"message": "The security token included in the request is invalid."}),
    "mistral": (401, {"message": "Unauthorized", "request_id": "1"}),
    "groq": (401, {"error": {"message": "Invalid API Key", "code": "invalid_api_key"}}),
    "openrouter": (401, {"error": {"message": "User not found.", "code": 401}}),
    "hosted_vllm": (401, {"error": "Unauthorized"}),
    "ollama_chat": (401, {"error": "unauthorized"}),
    "typesafe": (401, {"error": {"message": "Invalid API key"}}),
    "openai-decisions": (401, {"error": {"message": "Incorrect API key provided: example."}}),
}
# The variables with a key for servers that need none by default.
SERVER_KEYS = {"hosted_vllm": "HOSTED_VLLM_API_KEY", "ollama_chat": "OLLAMA_API_KEY"}


def prefix_of(provider: Provider) -> str:
    return provider.model.partition("/")[0]


def name_of(provider: Provider) -> str:
    return provider.name


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in os.environ:
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL", "_ENDPOINT")) or name.startswith(("AWS_", "GOOGLE_")):
            monkeypatch.delenv(name)
    # The AWS SDK would look for credentials in files, and on a server that only machines of the cloud have.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)


async def failure_of(provider: Provider, api_base: str | None = None) -> JudgeFailure:
    make = decision_judge_of if is_decision_model(provider.model) else LMJudge
    with pytest.raises(JudgeFailure) as failure:
        await make(provider.model, api_base=api_base).judge(question_about())
    return failure.value


# Mistral is left out: LiteLLM sends its request without a key, to the internet.
MISSING = [each for each in PROVIDERS if each.variables and not each.api_base and prefix_of(each) != "mistral"]


@pytest.mark.parametrize("provider", MISSING, ids=name_of)
async def test_missing_credential_is_a_failure_that_names_its_variable_without_a_request(provider: Provider) -> None:
    if prefix_of(provider) == "vertex_ai" and find_spec("google") is not None:
        pytest.skip("Google's package would look for credentials on a server of its cloud")
    failure = await failure_of(provider)
    assert failure.kind == "config"
    names = [*provider.variables, *(f"pip install {package}" for package in provider.packages)]
    assert any(name in failure.message for name in names), failure.message


WRONG = [provider for provider in PROVIDERS if prefix_of(provider) in REFUSALS]


@pytest.mark.parametrize("provider", WRONG, ids=name_of)
async def test_credential_that_the_provider_refuses_is_a_failure_that_names_its_variable(
    provider: Provider, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = prefix_of(provider)
    if prefix == "bedrock":
        pytest.importorskip("boto3")
    variables = provider.variables or {SERVER_KEYS[prefix]: "example-key"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status, body = REFUSALS[prefix]
    server.script = lambda _call: Reply(status=status, raw=json.dumps(body).encode())
    failure = await failure_of(provider, server.url)
    assert (failure.kind, len(server.calls)) == ("config", 1)
    assert "example-key" not in failure.message
    if prefix == "bedrock":
        assert "AWS_ACCESS_KEY_ID" in failure.message
        assert "api_key" not in failure.message
    elif prefix != "gemini":  # its own message names the key
        sent = f"The key of {next(iter(variables))} was sent"
        assert sent in failure.message or "A key was sent" in failure.message


def test_every_provider_of_the_table_has_a_refusal_or_needs_a_cloud() -> None:
    assert {prefix_of(provider) for provider in PROVIDERS} - REFUSALS.keys() == {"vertex_ai"}


def test_vertex_credentials_that_are_refused_name_those_of_google() -> None:
    error = LMAuthError(
        "Request had invalid authentication credentials.", model="vertex_ai/gemini-2.5-flash", status=401
    )
    message = failure_from_error(error, NO_SPEND, {}).message
    assert "gcloud auth application-default login" in message
    assert "api_key" not in message
