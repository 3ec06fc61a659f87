"""Model names and their options: what reaches the wire, and what is refused."""

from __future__ import annotations

import json
import traceback
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, ModelSettings, as_judge
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import judge_with
from tests.judges.questions import MET_REPLY, judge_one, question_about
from tests.openai_server import Call, OpenAIServer, Reply

# The name of each option in a request; DSPy uses the one that replaces `max_tokens` in OpenAI's protocol.
WIRE_NAMES = {
    "temperature": "temperature",
    "max_tokens": "max_completion_tokens",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
    "service_tier": "service_tier",
}


@pytest.mark.parametrize(
    ("option", "value"), [("temperature", 0.5), ("temperature", 0), ("max_tokens", 77), ("seed", 3),
                          ("reasoning_effort", "low"), ("service_tier", "flex")],
)  # fmt: skip
async def test_option_reaches_the_request_and_no_other_does(server: OpenAIServer, option: str, value: Any) -> None:
    settings: dict[str, Any] = {option: value}
    await judge_with("openai/mock", api_base=server.url, **settings).judge(question_about())
    assert server.calls[0].body[WIRE_NAMES[option]] == value
    others = set(server.calls[0].body) - {"model", "messages", "response_format", "temperature"}
    assert others == {WIRE_NAMES[option]} - {"temperature"}


@pytest.mark.parametrize("model", ["openai/mock", "openai/gpt-4o-mini", "openai/gpt-5-chat-latest", "gpt-4.1"])
async def test_temperature_is_0_by_default_and_other_options_are_absent(server: OpenAIServer, model: str) -> None:
    await LMJudge(model, api_base=server.url).judge(question_about())
    assert set(server.calls[0].body) - {"response_format"} == {"model", "messages", "temperature"}
    assert server.calls[0].body["temperature"] == 0


@pytest.mark.parametrize(
    ("model", "settings"),
    [("openai/gpt-5-mini", {}), ("openai/gpt-5.1", {}), ("openai/o3-mini", {}),
     ("openai/mock", {"reasoning_effort": "low"})],
)  # fmt: skip
async def test_reasoning_model_gets_no_temperature_by_default(
    server: OpenAIServer, model: str, settings: dict[str, Any]
) -> None:
    await judge_with(model, api_base=server.url, **settings).judge(question_about())
    assert "temperature" not in server.calls[0].body


async def test_model_that_is_configured_already_keeps_its_own_temperature(server: OpenAIServer) -> None:
    lm = dspy.LM("openai/mock", api_base=server.url, api_key="k")
    await LMJudge(lm).judge(question_about())
    await LMJudge(lm.copy(temperature=0.7)).judge(question_about())
    assert [call.body.get("temperature") for call in server.calls] == [None, 0.7]


async def test_key_is_the_argument_the_environment_variable_or_a_placeholder(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await LMJudge("openai/mock", api_base=server.url).judge(question_about())
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    await LMJudge("openai/mock", api_base=server.url).judge(question_about())
    await LMJudge("openai/mock", api_base=server.url, api_key="from-argument").judge(question_about())
    keys = [call.headers["authorization"].removeprefix("Bearer ") for call in server.calls]
    assert keys == ["none", "from-environment", "from-argument"]


async def test_request_to_a_known_model_contains_the_schema_and_has_a_price(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(LMJudge("openai/gpt-5-mini", api_base=server.url))
    report = await Rubric([Criterion(requirement="a")]).grade("It was 8.4%.", grader=grader)
    schema = server.calls[0].body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["verdict"]["enum"] == ["MET", "UNMET", "CANNOT_ASSESS"]
    assert list(schema["properties"]) == ["explanation", "verdict"]
    assert report.cost is not None
    assert report.cost > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -1}, "`temperature` must be at least 0, got -1"),
        ({"temperature": float("nan")}, "`temperature` must be at least 0"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, got 0"),
    ],
)
def test_option_out_of_range_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LMJudge("openai/mock", settings=ModelSettings(**settings))


def test_settings_that_dspy_refuses_for_a_model_are_a_value_error_too() -> None:
    with pytest.raises(ValueError, match=r"'openai/gpt-5-mini'.*temperature=1\.0"):
        LMJudge("openai/gpt-5-mini", temperature=0.5, settings=ModelSettings(max_tokens=20))


@pytest.mark.parametrize(("name", "words"), [(" ", "empty model name"), ("openai/", "no model id")])
def test_name_without_a_model_is_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_judge(name)


@pytest.mark.parametrize(("model", "words"), [("openai/gpt-5-mini", "no API key"), ("nonsense/foo", "nonsense/foo")])
async def test_unknown_provider_or_missing_key_is_one_clear_line(model: str, words: str) -> None:
    with pytest.raises(JudgeError, match=words) as error:
        await Rubric([Criterion(requirement="a")]).grade("text", grader=PerCriterionGrader(model))
    assert len(str(error.value).splitlines()) == 1


async def test_name_without_options_makes_a_fingerprint_that_can_be_read() -> None:
    assert json.loads(LMJudge("openai/mock").fingerprint() or "")[0] == "openai/mock"


async def test_headers_are_sent_with_the_key(server: OpenAIServer) -> None:
    judge = LMJudge(
        "openai/mock",
        api_base=server.url,
        api_key="k",
        settings=ModelSettings(headers={"X-Team": "evals", "X-Budget": "7"}),
    )
    assert (await judge.judge(question_about())).verdict == "MET"
    headers = server.calls[0].headers
    assert (headers["x-team"], headers["x-budget"], headers["authorization"]) == ("evals", "7", "Bearer k")


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X Team": "S3CRET"}, "`headers` has the name 'X Team'"),
        ({"": "S3CRET"}, "`headers` has the name ''"),
        ({"X-Team": "S3CRET\r\nHost: evil"}, "the value of 'X-Team' must be"),
        ({"X-Team": "S3CRET \u20ac"}, "the value of 'X-Team' must be"),
        ({"X-Team": ""}, "the value of 'X-Team' must be"),
    ],
)
def test_header_that_cannot_be_sent_is_refused_without_its_value(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        LMJudge("openai/mock", settings=ModelSettings(headers=headers))
    assert "S3CRET" not in str(error.value)


def test_repr_of_options_contains_no_secret() -> None:
    options = ModelSettings(api_base="http://h/v1", api_key="S3CRET", headers={"X-Team": "S3CRET"})
    assert "S3CRET" not in repr(options) + repr(LMJudge("openai/mock", settings=options))


@pytest.mark.parametrize("headers", [None, {"X-Token": "S3CRET"}])
async def test_failure_does_not_repeat_a_secret_that_the_server_quotes(
    server: OpenAIServer, headers: dict[str, str] | None
) -> None:
    server.script = lambda _call: Reply(status=401, raw=b'{"error": {"message": "bad key S3CRET, see the docs"}}')
    judge = LMJudge("openai/mock", api_base=server.url, api_key="S3CRET", settings=ModelSettings(headers=headers))
    with pytest.raises(JudgeFailure, match=r"bad key \*\*\*, see the docs") as error:
        await judge.judge(question_about())
    assert "S3CRET" not in "".join(traceback.format_exception(error.value))


def ollama(call: Call) -> Reply:
    """Respond as an Ollama server: in its own protocol, and in OpenAI's under `/v1`."""
    if call.path == "/v1/chat/completions":
        return Reply("MET")
    texts = {
        "/api/chat": {"message": {"role": "assistant", "content": MET_REPLY}},
        "/api/generate": {"response": MET_REPLY},
    }
    if call.path not in texts:
        return Reply(head=b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    counts = {"prompt_eval_count": 9, "eval_count": 3, "created_at": "2026-01-01T00:00:00Z"}
    body = json.dumps({"model": "llama3.2", **texts[call.path], **counts, "done": True, "done_reason": "stop"}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Reply(head=head + body)


OLLAMA_PATHS = {"ollama": "/api/generate", "ollama_chat": "/api/chat"}
OLLAMA_VARIABLES = ("OLLAMA_API_BASE", "OLLAMA_HOST")


@pytest.mark.parametrize("headers", [None, {"X-Team": "a"}], ids=["no headers", "headers"])
@pytest.mark.parametrize("address", ["{url}/v1", "{url}", "OLLAMA_API_BASE={url}/v1", "OLLAMA_HOST=0.0.0.0:{port}"])
@pytest.mark.parametrize("prefix", OLLAMA_PATHS)
def test_ollama_server_is_found_at_each_of_its_addresses(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, prefix: str, address: str, headers: dict[str, str] | None
) -> None:
    server.script = ollama
    for name in OLLAMA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    url = server.url.removesuffix("/v1")
    variable, separator, value = address.format(url=url, port=url.rpartition(":")[2]).rpartition("=")
    if separator:
        monkeypatch.setenv(variable, value)
    judge = LMJudge(
        f"{prefix}/llama3.2", api_base=None if separator else value, settings=ModelSettings(headers=headers)
    )
    assert judge_one(judge).verdict == "MET"
    paths = {call.path for call in server.calls}
    if headers:
        # LiteLLM also asks an Ollama server for what the model can do.
        assert paths - {"/api/show", "/v1/api/show"} == {OLLAMA_PATHS[prefix]}
    else:
        assert paths == {"/v1/chat/completions"}


def test_ollama_server_of_an_argument_goes_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "gpu")
    assert LMJudge("ollama_chat/m").lm.kwargs["api_base"] == "http://gpu:11434/v1"
    monkeypatch.setenv("OLLAMA_API_BASE", "https://box/ollama")
    assert LMJudge("ollama_chat/m").lm.kwargs["api_base"] == "https://box/ollama/v1"
    assert LMJudge("ollama_chat/m", api_base="http://here:1/").lm.kwargs["api_base"] == "http://here:1/v1"
    # The server of a model with another prefix is the one that the user names.
    assert LMJudge("openai/m", api_base="http://here:1").lm.kwargs["api_base"] == "http://here:1"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("[::]", "http://[::1]:11434/v1"),
        ("gpu:8080", "http://gpu:8080/v1"),
        ("http://gpu:8080/", "http://gpu:8080/v1"),
        ("https://gpu", "https://gpu/v1"),
        ("https://gpu/ollama", "https://gpu/ollama/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.delenv("OLLAMA_API_BASE", raising=False)
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert LMJudge("ollama/m").lm.kwargs["api_base"] == url


@pytest.mark.parametrize(("name", "value"), [("OLLAMA_API_BASE", "gpu:11434"), ("OLLAMA_HOST", "gpu:x")])
def test_ollama_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("OLLAMA_API_BASE", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        LMJudge("ollama/m")
