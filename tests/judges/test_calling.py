"""A server that refuses the reply format or the default temperature gets a simpler request, which is remembered."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations._util.event_loop import LONG_TEXT_CHARS
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge, calling
from rubric_integrations.judges.prompts import sanitize
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import judge_with
from tests.judges.questions import MET_REPLY, Listener, question_about
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement=f"r{number}") for number in range(4)])
# A model that DSPy knows, and one that it does not know, such as any on a vLLM or Ollama server.
MODELS = ["openai/gpt-4o-mini", "openai/mock"]


def requested_format(call: Call) -> str:
    return str((call.body.get("response_format") or {"type": "none"})["type"])


def refusing(*formats: str, status: int = 400, message: str = "unknown parameter: response_format") -> Any:
    def script(call: Call) -> Reply:
        if requested_format(call) in formats:
            return Reply(status=status, raw=b'{"error": {"message": "%s"}}' % message.encode())
        return Reply(verdict="MET")

    return script


def judge_for(server: OpenAIServer, model: str, *, through_dspy: bool = False) -> LMJudge:
    callbacks: list[Any] = [Listener()] if through_dspy else []
    return LMJudge(dspy.LM(model, api_base=server.url, api_key="k", cache=False, num_retries=0, callbacks=callbacks))


@pytest.mark.parametrize("through_dspy", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_refused_schema_steps_down_to_json_mode_and_is_remembered(
    server: OpenAIServer, status: int, through_dspy: bool
) -> None:
    server.script = refusing("json_schema", status=status)
    judge = judge_for(server, MODELS[0], through_dspy=through_dspy)
    grader = PerCriterionGrader(judge)
    assert RUBRIC.grade_sync("text", grader=grader).score == 1.0
    first = len(server.calls)
    assert RUBRIC.grade_sync("another text", grader=grader).score == 1.0
    later = [requested_format(call) for call in server.calls[first:]]
    assert later == ["json_object"] * 4


@pytest.mark.parametrize("model", MODELS)
def test_refused_json_mode_steps_down_to_no_format(server: OpenAIServer, model: str) -> None:
    server.script = refusing("json_schema", "json_object")
    report = RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, model)))
    assert report.score == 1.0
    # Each refused request was a call.
    assert report.spend.calls == len(server.calls)
    server.calls.clear()
    RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, model), max_retries=0))
    assert requested_format(server.calls[-1]) == "none"


@pytest.mark.parametrize("through_dspy", [False, True])
@pytest.mark.parametrize(
    ("model", "refused", "is_read"),
    [
        (MODELS[0], (), False),
        (MODELS[0], ("json_schema",), False),
        (MODELS[0], ("json_schema", "json_object"), True),
        (MODELS[1], (), True),
    ],
    ids=["schema", "JSON mode", "refused", "may be ignored"],
)
async def test_prose_around_a_reply_is_read_only_if_the_model_need_not_honour_a_json_format(
    server: OpenAIServer, model: str, refused: tuple[str, ...], is_read: bool, through_dspy: bool
) -> None:
    refuses = refusing(*refused)
    prose = Reply(text=f"Here is my judgment:\n\n```json\n{MET_REPLY}\n```")
    server.script = lambda call: reply if (reply := refuses(call)).status == 400 else prose
    judge = judge_for(server, model, through_dspy=through_dspy)
    # The second question is sent from a template that the first one made.
    for response in ("The Nile.", "The Rhine."):
        if is_read:
            assert (await judge.judge(question_about(response=response))).verdict == "MET"
        else:
            with pytest.raises(JudgeFailure, match="not a JSON object alone"):
                await judge.judge(question_about(response=response))


def test_one_shot_request_steps_down_too(server: OpenAIServer) -> None:
    def script(call: Call) -> Reply:
        if requested_format(call) == "json_schema":
            return Reply(status=400, raw=b'{"error": {"message": "json_schema is not supported"}}')
        entries = ", ".join(f'{{"id": {n}, "explanation": "", "answer": "MET"}}' for n in range(1, 5))
        return Reply(text=f'{{"judgments": [{entries}]}}')

    server.script = script
    grader = PerCriterionOneShotGrader(judge_for(server, MODELS[0]))
    assert RUBRIC.grade_sync("text", grader=grader).score == 1.0
    assert [requested_format(call) for call in server.calls] == ["json_schema", "json_object"]


@pytest.mark.parametrize("model", MODELS)
def test_other_refusal_is_a_failure_and_is_not_sent_again(server: OpenAIServer, model: str) -> None:
    server.script = refusing("json_schema", "json_object", "none", message="the prompt is too long")
    with pytest.raises(JudgeError, match="too long"):
        Rubric([Criterion(requirement="r")]).grade_sync("text", grader=PerCriterionGrader(judge_for(server, model)))
    assert len(server.calls) == 1


UNKNOWN_MODELS = ["openai/qwen3", "hosted_vllm/qwen3", "ollama_chat/llama3.2", "openrouter/some/model"]


@pytest.mark.parametrize("model", UNKNOWN_MODELS)
def test_model_that_dspy_does_not_know_is_sent_a_json_schema(server: OpenAIServer, model: str) -> None:
    judge = LMJudge(model, api_base=server.url, api_key="k")
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge)).score == 1.0
    assert [requested_format(call) for call in server.calls] == ["json_schema"] * 4


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("message", ["unknown parameter: response_format", "failed to parse grammar"])
def test_each_format_is_refused_once_although_questions_are_asked_concurrently(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    monkeypatch.setattr(calling, "_LONGEST_REFUSAL", 60.0)
    server.script = refusing("json_schema", "json_object", status=status, message=message)
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[1]))).score == 1.0
    assert [requested_format(call) for call in server.calls] == ["json_schema", "json_object", *["none"] * 4]


def test_server_that_fails_because_of_a_format_is_sent_requests_without_one(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other requests wait until the one with the format has ended, also on a loaded machine.
    monkeypatch.setattr(calling, "_LONGEST_REFUSAL", 60.0)
    server.script = lambda call: Reply(status=500) if "response_format" in call.body else Reply(verdict="MET")
    grader = PerCriterionGrader(judge_for(server, MODELS[1]))
    assert RUBRIC.grade_sync("text", grader=grader).score == 1.0
    assert [requested_format(call) for call in server.calls] == [*["json_schema"] * 2, *["none"] * 4]


async def test_server_that_hangs_because_of_a_format_is_sent_requests_without_one(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(delay=60) if "response_format" in call.body else Reply(verdict="MET")
    judge = judge_for(server, MODELS[1])
    # A timeout cancels the task. The test does so when the server has the request: no time of its own can be too short.
    for number in (1, 2):
        hanging = asyncio.create_task(judge.judge(question_about()))
        while len(server.calls) < number:  # noqa: ASYNC110 -- the server is on another thread
            await asyncio.sleep(0.01)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
    assert (await judge.judge(question_about())).verdict == "MET"
    assert [requested_format(call) for call in server.calls] == [*["json_schema"] * 2, "none"]


def test_server_that_starts_is_sent_the_format_once_it_replies(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=503) if call.number < 5 else Reply(verdict="MET")
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[1]))).score == 1.0
    assert {requested_format(call) for call in server.calls} == {"json_schema"}


def test_slow_first_reply_does_not_hold_up_the_others(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_LONGEST_REFUSAL", 0.01)
    server.script = lambda call: Reply(verdict="MET", delay=0.5 if call.number == 0 else 0)
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[1]))).score == 1.0
    assert server.peak > 1


def test_response_format_of_the_users_own_lm_is_left_as_it_is(server: OpenAIServer) -> None:
    lm = dspy.LM(MODELS[1], api_base=server.url, api_key="k", cache=False, response_format={"type": "json_object"})
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(LMJudge(lm))).score == 1.0
    assert {requested_format(call) for call in server.calls} == {"json_object"}


def test_format_that_is_refused_in_every_form_is_a_failure(server: OpenAIServer) -> None:
    server.script = refusing("json_schema", "json_object", "none")
    with pytest.raises(JudgeError, match="response_format"):
        Rubric([Criterion(requirement="r")]).grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[0])))
    assert [requested_format(call) for call in server.calls] == ["json_schema", "json_object", "none"]


TEMPERATURE_REFUSED = (
    b'{"error": {"message": "Unsupported value: \'temperature\' does not support 0 with this model."}}'
)


def refusing_temperature(call: Call) -> Reply:
    return Reply(status=400, raw=TEMPERATURE_REFUSED) if "temperature" in call.body else Reply(verdict="MET")


def named_judge(server: OpenAIServer, *, through_dspy: bool = False, **settings: Any) -> LMJudge:
    judge = LMJudge(MODELS[0], api_base=server.url, **settings)
    if through_dspy:
        judge.lm.callbacks.append(Listener())
    return judge


@pytest.mark.parametrize("through_dspy", [False, True])
def test_refused_default_temperature_is_left_out_and_that_is_remembered(
    server: OpenAIServer, through_dspy: bool
) -> None:
    server.script = refusing_temperature
    judge = named_judge(server, through_dspy=through_dspy)
    fingerprint, grader = judge.fingerprint(), PerCriterionGrader(judge, max_retries=0)
    report = RUBRIC.grade_sync("text", grader=grader)
    assert (report.score, report.spend.calls) == (1.0, len(server.calls))
    server.calls.clear()
    assert RUBRIC.grade_sync("another text", grader=grader).score == 1.0
    assert [call.body.get("temperature") for call in server.calls] == [None] * 4
    # The key of stored judgments is the same before and after.
    assert judge.fingerprint() == fingerprint


ANTHROPIC_REPLY = json.dumps(
    {"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
     "content": [{"type": "text", "text": MET_REPLY}], "usage": {"input_tokens": 1, "output_tokens": 1}}
).encode()  # fmt: skip
ANTHROPIC_REFUSAL = b"""{"type": "error", "error": {"type": "invalid_request_error",
    "message": "`temperature` is deprecated for this model."}}"""


@pytest.mark.parametrize(
    ("model", "settings", "refusal", "reply"),
    [
        ("anthropic/claude-opus-4-7", {}, ANTHROPIC_REFUSAL, ANTHROPIC_REPLY),
        # With headers, DSPy sends the request through LiteLLM.
        ("openai/mock", {"headers": {"X-Team": "evals"}}, TEMPERATURE_REFUSED, None),
    ],
)
async def test_refused_default_temperature_is_left_out_on_every_path(
    server: OpenAIServer, model: str, settings: dict[str, Any], refusal: bytes, reply: bytes | None
) -> None:
    server.script = lambda call: (
        Reply(status=400, raw=refusal) if "temperature" in call.body else Reply(verdict="MET", raw=reply)
    )
    judgment = await judge_with(model, api_base=server.url, api_key="k", **settings).judge(question_about())
    assert judgment.verdict == "MET"
    assert [call.body.get("temperature") for call in server.calls] == [0, None]


def test_format_and_default_temperature_that_are_both_refused_are_both_left_out(server: OpenAIServer) -> None:
    refuse_format = refusing("json_schema", "json_object")
    server.script = lambda call: refusing_temperature(call) if "temperature" in call.body else refuse_format(call)
    assert RUBRIC.grade_sync("text", grader=PerCriterionGrader(named_judge(server), max_retries=0)).score == 1.0
    assert set(server.calls[-1].body) == {"model", "messages"}


def test_refused_temperature_of_the_user_is_a_failure_that_names_it(server: OpenAIServer) -> None:
    server.script = refusing_temperature
    grader = PerCriterionGrader(named_judge(server, temperature=0.0))
    with pytest.raises(JudgeError, match="'temperature' does not support 0"):
        Rubric([Criterion(requirement="r")]).grade_sync("text", grader=grader)
    assert len(server.calls) == 1


def test_refusal_that_only_repeats_the_request_does_not_change_later_requests(server: OpenAIServer) -> None:
    message = b'{"error": {"message": "too long: {temperature: 0, response_format: {type: json_schema}}"}}'
    server.script = lambda _call: Reply(status=422, raw=message)
    grader, rubric = PerCriterionGrader(named_judge(server)), Rubric([Criterion(requirement="r")])
    with pytest.raises(JudgeError, match="too long"):
        rubric.grade_sync("text", grader=grader)
    server.script = lambda _call: Reply(verdict="MET")
    server.calls.clear()
    rubric.grade_sync("short", grader=grader)
    assert (server.calls[0].body["temperature"], requested_format(server.calls[0])) == (0, "json_schema")


async def test_optimizer_can_call_a_judge_whose_server_refuses_the_default_temperature(server: OpenAIServer) -> None:
    server.script = refusing_temperature
    inputs = {"submission": "a", "kind": "requirement", "criterion": "b"}
    assert named_judge(server)(**inputs).verdict == "MET"
    judge = named_judge(server)
    assert (await judge.acall(**inputs)).verdict == "MET"
    server.calls.clear()
    await judge.acall(**inputs)
    assert len(server.calls) == 1


@pytest.mark.parametrize("through_dspy", [False, True])
@pytest.mark.parametrize(
    ("model", "reply", "searches"),
    [
        (MODELS[0], MET_REPLY, 0),
        (MODELS[1], MET_REPLY, 0),
        (MODELS[1], f"```json\n{MET_REPLY}\n```", 0),
        (MODELS[1], f"Here is my judgment:\n{MET_REPLY}", 1),
    ],
)
def test_submission_is_searched_for_verdicts_once_and_only_if_the_reply_is_more_than_an_object(
    server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
    through_dspy: bool,
    model: str,
    reply: str,
    searches: int,
) -> None:
    searched: list[str] = []
    decode = sanitize.compact_forms

    def record(text: str) -> Any:
        searched.append(text)
        return decode(text)

    monkeypatch.setattr(sanitize, "compact_forms", record)
    server.script = lambda _call: Reply(text=reply)
    # No other test has the same text, which would be in the cache.
    response = f"The Nile, as {model} read it ({through_dspy}) in a reply of {len(reply)} characters."
    grader = PerCriterionGrader(judge_for(server, model, through_dspy=through_dspy), max_retries=0)
    assert RUBRIC.grade_sync(response, grader=grader).score == 1.0
    assert searched.count(response) == searches


@pytest.mark.parametrize("through_dspy", [False, True])
def test_long_submission_is_searched_for_verdicts_in_a_thread(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, through_dspy: bool
) -> None:
    threads: set[str] = set()
    decode = sanitize.compact_forms

    def record(text: str) -> Any:
        if len(text) > LONG_TEXT_CHARS:
            threads.add(threading.current_thread().name)
        return decode(text)

    monkeypatch.setattr(sanitize, "compact_forms", record)
    server.script = lambda _call: Reply(text=f"Here is my judgment:\n{MET_REPLY}")
    judge = judge_for(server, MODELS[1], through_dspy=through_dspy)
    response = "The Nile. " * (LONG_TEXT_CHARS // 5)
    assert RUBRIC.grade_sync(response, grader=PerCriterionGrader(judge, max_retries=0)).score == 1.0
    assert threads == {"rubric-integrations-call"}
