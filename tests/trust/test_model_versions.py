"""Whether names of models name a version, and how the models that replies name are described."""

from __future__ import annotations

import json

import pytest

from rubric_integrations.scoring.report import EXPENSIVE
from rubric_integrations.trust.model_versions import (
    names_other_model,
    replies_text,
    unversioned_models,
    version_in_name,
)

VERSION, NO_VERSION, NOT_KNOWN = "names a version", "names no version", "not known"
NAMES = {
    VERSION: """
        openai/gpt-5-2025-08-07 openai/gpt-4o-2024-08-06 gpt-4o-2024-08-06 openai/gpt-4-0613 openai/gpt-3.5-turbo-1106
        openai/ft:gpt-4o-mini-2024-07-18:me::abc openai/o3-mini-2025-01-31 anthropic/claude-3-5-sonnet-20241022
        claude-sonnet-4-5-20250929 anthropic/claude-sonnet-4-20250514 anthropic/claude-opus-4-6 claude-sonnet-5
        vertex_ai/claude-sonnet-4-5@20250929 openrouter/anthropic/claude-sonnet-4.6
        bedrock/anthropic.claude-3-haiku-20240307-v1:0 anthropic.claude-3-haiku-20240307-v1:0
        bedrock/us.anthropic.claude-sonnet-4-6 bedrock/us.meta.llama3-1-70b-instruct-v1:0 amazon.nova-pro-v1:0
        bedrock/openai.gpt-oss-120b-1:0 gemini/gemini-1.5-pro-002 gemini/gemini-2.5-flash-preview-09-25
        gemini-2.5-flash-preview-09-2025 gemini/gemini-2.5-pro-preview-05-06 vertex_ai/gemini-2.5-pro@001
        vertex_ai/gemini-2.0-flash-001 mistral/mistral-large-2411 mistral/open-mixtral-8x22b-2404
        openrouter/openai/gpt-4o-2024-08-06:online openrouter/deepseek/deepseek-chat-v3-0324
        cohere/command-r-08-2024 xai/grok-4-0709 typesafe/jev-1.13.0 together_ai/Qwen/Qwen3-235B-A22B-Instruct-2507
        moonshot/kimi-k2-0905-preview
    """,
    NO_VERSION: """
        openai/gpt-5 openai/gpt-4o gpt-4o openai/gpt-4.1-mini openai/gpt-4-32k openai/chatgpt-4o-latest openai/o3
        openai/gpt-3.5-turbo-16k anthropic/claude-sonnet-4-5 claude-sonnet-4-5 anthropic/claude-sonnet-4
        anthropic/claude-3-5-sonnet-latest anthropic/claude-3-7-sonnet bedrock/anthropic.claude-sonnet-4-5
        vertex_ai/claude-sonnet-4-5@default openrouter/openai/gpt-5-mini openrouter/anthropic/claude-sonnet-4.5
        openrouter/deepseek/deepseek-chat openrouter/auto gemini/gemini-2.5-pro vertex_ai/gemini-2.5-flash
        gemini/gemini-flash-latest mistral/open-mixtral-8x22b mistral/mistral-large-latest mistral-large xai/grok-4
        deepseek/deepseek-chat cohere/command-r perplexity/sonar-pro openai-decisions/gpt-6-luna
        ollama/llama3:latest ollama/llama3 ollama_chat/llama3.2 langchain/gpt-4o
    """,
    NOT_KNOWN: """
        mixtral-8x22b groq/mixtral-8x22b groq/llama-3.3-70b-versatile openrouter/meta-llama/llama-3.1-405b-instruct
        openrouter/openai/gpt-oss-120b:free together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo hosted_vllm/qwen3-8b
        azure/my-deployment azure/gpt-4o-2024-08-06 ollama/llama3.2:3b-instruct-q4_K_M my-model offline
        bedrock/arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc1 ""
    """,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "state"), [(model.strip('"'), state) for state, models in NAMES.items() for model in models.split()]
)
def test_name_of_a_model_is_a_version_or_an_alias_or_not_known(model: str, state: str) -> None:
    assert version_in_name(model) == version_in_name(model, "") == state


@pytest.mark.parametrize(
    ("model", "server", "state"),
    [
        ("openai/gpt-5", "https://api.openai.com/v1", NO_VERSION),
        ("openai/gpt-5", "https://eu.api.openai.com/v1", NO_VERSION),
        ("openai/gpt-5-2025-08-07", "https://api.openai.com", VERSION),
        ("langchain/claude-sonnet-4-5", "https://api.anthropic.com", NO_VERSION),
        ("openai/gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai", NO_VERSION),
        ("openai/google/gemini-2.5-pro", "https://us-central1-aiplatform.googleapis.com/v1", NO_VERSION),
        ("openai/mistral-medium", "https://api.mistral.ai/v1", NO_VERSION),
        ("openai/openai/gpt-5-mini", "https://openrouter.ai/api/v1", NO_VERSION),
        ("openai/anthropic.claude-3-haiku-20240307-v1:0", "https://bedrock-runtime.us-east-1.amazonaws.com", VERSION),
        ("openai/gpt-4o-2024-08-06", "https://mine.openai.azure.com/openai", NOT_KNOWN),
        ("openai/llama-3.3-70b-versatile", "https://api.groq.com/openai/v1", NOT_KNOWN),
        ("openai/my-own-model", "http://localhost:8000", NOT_KNOWN),
        ("openai/gpt-4o-2024-08-06", "http://localhost:8000", NOT_KNOWN),
        ("openai/gpt-5", "https://api.openai.com.attacker.example/v1", NOT_KNOWN),
        ("openai/mine-latest", "http://localhost:8000", NO_VERSION),
        ("ollama_chat/llama3.2:latest", "http://localhost:11434", NO_VERSION),
        ("ollama_chat/llama3.2", "http://localhost:11434", NO_VERSION),
        ("ollama_chat/llama3.2:3b", "http://localhost:11434", NOT_KNOWN),
    ],
)
def test_url_of_a_provider_counts_as_the_provider_and_any_other_as_a_server_of_the_user(
    model: str, server: str, state: str
) -> None:
    assert version_in_name(model, server) == state
    record = json.dumps([json.dumps([model, server, {}, "", "", ""])])
    assert unversioned_models(record) == ([model] if state == NO_VERSION else [])


def test_models_without_a_version_are_found_inside_a_cascade_and_a_named_judge_is_left_out() -> None:
    parts = ["", {}, "", "", ""]
    cheap, strong = json.dumps(["openai/gpt-5-mini", *parts]), json.dumps(["openai/gpt-5-2025-08-07", *parts])
    named = json.dumps([{"name": "strict"}, *parts])
    assert unversioned_models(json.dumps([{"cheap": [cheap, named], "strong": strong}])) == ["openai/gpt-5-mini"]
    assert unversioned_models("") == []


def test_line_break_in_the_name_of_a_model_or_judge_begins_no_line() -> None:
    assert "\n" not in replies_text({"": ("one\n::error::", "two")})
    assert "\n" not in replies_text({"a\nb": ("one",), "c": ("two",)})


def test_models_of_several_judges_are_named_with_their_judge_and_are_no_change_of_the_model() -> None:
    assert replies_text({}) == ""
    assert replies_text({"a": ("m-1",), "b": ("m-2",)}) == "the replies name the models m-1 (a) and m-2 (b)"
    both = replies_text({"": ("small-1", "small-2"), EXPENSIVE: ("large-1",)})
    assert both == "the replies of cheap judge name 2 models: small-1, small-2: not one model judged the run"


def test_reply_with_the_requested_name_names_no_other_model() -> None:
    assert not names_other_model({"": ("m",), "b": ("openai/gpt-5",)}, ["openai/m", "openrouter/openai/gpt-5"])
    assert names_other_model({"": ("m", "m-2")}, ["openai/m"])
    assert not names_other_model({}, [])
