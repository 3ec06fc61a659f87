"""Replies that are no answer: refusals, blocked replies, replies that are cut off. The message names the cause."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import dspy
import openai
import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.scoring import JudgeFailure, Judgment, TokenUsage
from rubric_integrations.scoring.judgment import UNKNOWN_CALL
from tests.dspy35 import dspy35_boundary
from tests.fakes import FakeModel
from tests.judges.questions import ANSWER_TO_EVERYTHING, BINARY, MET_REPLY, RUBRIC, SUBMISSION, judge_at, question_about
from tests.openai_server import OpenAIServer, Reply

# The fast path, DSPy with a callback, and DSPy with probabilities; each with JSON mode and with a JSON Schema.
ROUTES: dict[str, dict[str, Any]] = {
    "fast": {},
    "fast, schema": {"model": "openai/gpt-4o-mini"},
    "DSPy": {"fast": False},
    "DSPy, schema": {"fast": False, "model": "openai/gpt-4o-mini"},
    "probabilities": {"confidence": True},
    # DSPy sends requests with such headers through LiteLLM.
    "LiteLLM": {"headers": {"x-team": "a"}},
    # Its engine returns DSPy's class of responses with DSPy 3.5, or if it is called with a request of DSPy.
    "LiteLLM, DSPy's response": {"headers": {"x-team": "a"}},
}


@pytest.fixture(autouse=True)
def _boundary(request: pytest.FixtureRequest) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    with dspy35_boundary() if parameters.get("route") == "LiteLLM, DSPy's response" else nullcontext():
        yield


def completion(content: str | None, finish_reason: str = "stop", **message: Any) -> Reply:
    body = {
        "id": "1",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7},
    }
    return Reply(raw=json.dumps(body).encode())


def judge_by(route: str, server: OpenAIServer, **settings: Any) -> LMJudge:
    options = ROUTES[route]
    chosen = {name: value for name, value in options.items() if name != "confidence"}
    parameters: dict[str, Any] = {"timeout": None, **chosen, **settings}
    judge = judge_at(server, **parameters)
    return LMJudge(judge.lm, confidence=True) if "confidence" in options else judge


class JudgeReply(BaseModel):
    verdict: str


async def failure_of(judge: Any) -> JudgeFailure:
    with pytest.raises(JudgeFailure) as failure:
        await judge.judge(question_about(BINARY))
    assert len(str(failure.value).splitlines()) == 1
    return failure.value


REFUSED = "the model refused to answer: 'I cannot help with that.'"
FILTERED = "the model's safety system or the provider's content filter stopped the reply"
CUT_OFF = "the reply was cut off at `max_tokens` (300)"
THOUGHT = "all `max_tokens` (300) were used before the answer began"

REPLIES: dict[str, tuple[Reply, str, bool]] = {
    "refusal": (completion(None, refusal="I cannot help with that."), REFUSED, True),
    "refusal beside an empty text": (completion("", refusal="I cannot help with that."), REFUSED, True),
    "refusal beside an answer": (completion(MET_REPLY, refusal="I cannot help with that."), REFUSED, True),
    "content filter": (completion(None, "content_filter"), FILTERED, False),
    "content filter within the answer": (completion('{"expl', "content_filter"), FILTERED, False),
    "content filter after the answer": (completion(MET_REPLY, "content_filter"), FILTERED, False),
    "cut off": (completion('{"explanation": "so it', "length"), CUT_OFF, True),
    "cut off after the answer": (completion(MET_REPLY, "length"), CUT_OFF, True),
    "all tokens used for thinking": (completion("", "length", reasoning_content="hm"), THOUGHT, True),
    "all tokens used, null": (completion(None, "length"), THOUGHT, True),
    "reason that is no normal end": (completion(MET_REPLY, "abort"), "the reply ended for the reason 'abort'", True),
    "empty": (completion(""), "the reply is empty", True),
    "null": (completion(None), "the reply is empty", True),
    "blank": (completion(" \n"), "the reply is empty", True),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("reply", "message", "retryable"), REPLIES.values(), ids=REPLIES)
async def test_reply_that_is_no_answer_names_its_cause_on_every_route(
    server: OpenAIServer, route: str, reply: Reply, message: str, retryable: bool
) -> None:
    server.script = lambda _call: reply
    failure = await failure_of(judge_by(route, server, max_tokens=300))
    assert message in failure.message
    assert (failure.kind, failure.retryable, failure.spend.calls) == ("parse", retryable, 1)


async def test_reply_that_is_cut_off_at_the_servers_limit_says_so(server: OpenAIServer) -> None:
    server.script = lambda _call: completion("{", "length")
    message = (await failure_of(judge_at(server))).message
    assert message.startswith("the reply was cut off at the server's limit on its length: set `max_tokens`")


def test_refusal_is_retried_and_a_content_filter_is_not(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(judge_at(server))
    server.script = lambda call: completion(None, refusal="No.") if call.number == 0 else Reply("MET")
    assert Rubric([BINARY]).grade_sync("The Nile.", grader=grader).score == 1.0
    server.calls.clear()
    server.script = lambda _call: completion(None, "content_filter")
    with pytest.raises(JudgeError, match="content filter"):
        Rubric([BINARY]).grade_sync("The Nile.", grader=grader)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("stop_reason", "text", "message"),
    [("refusal", "", FILTERED), ("refusal", "I", FILTERED), ("max_tokens", "{", CUT_OFF), ("max_tokens", "", THOUGHT)],
)
async def test_stop_reason_of_anthropic_names_its_cause(
    server: OpenAIServer, stop_reason: str, text: str, message: str
) -> None:
    content = [{"type": "text", "text": text}] if text else []
    body = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop_reason, "usage": {"input_tokens": 5, "output_tokens": 7}}  # fmt: skip
    server.script = lambda _call: Reply(raw=json.dumps(body).encode())
    url = server.url.removesuffix("/v1")
    lm = dspy.LM("anthropic/claude-sonnet-4-5", api_base=url, api_key="k", max_tokens=300, cache=False, num_retries=0)
    failure = await failure_of(LMJudge(lm))
    assert message in failure.message
    assert failure.kind == "parse"


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
@pytest.mark.parametrize("route", ROUTES)
async def test_prompt_that_a_content_filter_blocks_fails_its_text_and_not_the_judge(
    server: OpenAIServer, route: str, code: str
) -> None:
    # The form of Azure OpenAI.
    body = {"error": {"message": "The prompt triggered the content management policy.", "code": code, "status": 400}}
    server.script = lambda _call: Reply(status=400, raw=json.dumps(body).encode())
    failure = await failure_of(judge_by(route, server))
    assert FILTERED in failure.message
    assert "The prompt triggered the content management policy." in failure.message
    assert (failure.kind, failure.retryable) == ("parse", False)


async def test_empty_reply_of_a_function_says_so() -> None:
    failure = await failure_of(as_judge(FakeModel("")))
    assert (failure.kind, failure.retryable) == ("parse", True)
    assert "the reply is empty" in failure.message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (AIMessage("", additional_kwargs={"refusal": "I cannot help with that."}), REFUSED),
        (AIMessage([{"type": "refusal", "refusal": "I cannot help with that."}]), REFUSED),
        (AIMessage("", response_metadata={"stop_reason": "refusal"}), FILTERED),
        (AIMessage(MET_REPLY, response_metadata={"finish_reason": "content_filter"}), FILTERED),
        (AIMessage("", response_metadata={"finish_reason": "SAFETY"}), FILTERED),
        (AIMessage(MET_REPLY, response_metadata={"finish_reason": "length"}), "the reply was cut off"),
        (AIMessage("", response_metadata={"done_reason": "length"}), "before the answer began"),
        (AIMessage(""), "the reply is empty"),
    ],
)
async def test_message_of_a_chat_model_that_is_no_answer_names_its_cause(message: AIMessage, text: str) -> None:
    failure = await failure_of(as_judge(FakeMessagesListChatModel(responses=[message])))
    assert text in failure.message
    assert failure.kind == "parse"


@pytest.mark.parametrize(
    ("reply", "text"),
    [REPLIES[name][:2] for name in ("refusal", "content filter", "cut off", "all tokens used, null", "null")],
)
@pytest.mark.parametrize("threads", [False, True])
async def test_chat_model_of_openai_names_the_cause(
    server: OpenAIServer, reply: Reply, text: str, threads: bool
) -> None:
    server.script = lambda _call: reply
    judge = as_judge(ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="k", max_retries=0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(JudgeFailure) as failure:
        _ = run_sync(judge.judge(question_about(BINARY))) if threads else await judge.judge(question_about(BINARY))
    assert text.replace(" (300)", "").split(" `max_tokens`")[0] in failure.value.message
    assert failure.value.kind == "parse"


IMPOSSIBLE_USAGES: dict[str, Any] = {
    "negative": {"prompt_tokens": -(10**9), "completion_tokens": -5},
    "of a whole call zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "too large": {"prompt_tokens": 10**15, "completion_tokens": 5},
    "more cached": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10**7}},
    "cached negative": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -9}},
}


def judge_of_chat_model(server: OpenAIServer) -> Any:
    return as_judge(ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="k", max_retries=0))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("usage", IMPOSSIBLE_USAGES.values(), ids=IMPOSSIBLE_USAGES)
@pytest.mark.parametrize("route", ["fast", "LiteLLM", "LangChain"])
async def test_impossible_token_counts_are_unknown_and_so_is_the_cost(
    server: OpenAIServer, route: str, usage: Any
) -> None:
    body = json.loads(completion(MET_REPLY).raw or b"") | {"usage": {**usage, "total_tokens": 0}}
    server.script = lambda _call: Reply(raw=json.dumps(body).encode())
    is_chat_model = route == "LangChain"
    judge = judge_of_chat_model(server) if is_chat_model else judge_by(route, server, model="openai/gpt-4o-mini")
    judgment: Judgment = await judge.judge(question_about(BINARY))
    assert (judgment.verdict, judgment.spend) == ("MET", UNKNOWN_CALL)


async def test_token_counts_that_dspy_refuses_leave_an_answer_of_unknown_cost(server: OpenAIServer) -> None:
    body = json.loads(completion(MET_REPLY).raw or b"") | {"usage": IMPOSSIBLE_USAGES["negative"]}
    server.script = lambda _call: Reply(raw=json.dumps(body).encode())
    judgment: Judgment = await judge_by("DSPy", server).judge(question_about(BINARY))
    assert (judgment.verdict, judgment.spend) == ("MET", UNKNOWN_CALL)


async def test_whole_reply_without_a_finish_reason_is_an_answer(server: OpenAIServer) -> None:
    body = {"id": "1", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": MET_REPLY}}]}
    server.script = lambda _call: Reply(raw=json.dumps(body).encode())
    judgment: Judgment = await judge_at(server).judge(question_about(BINARY))
    assert judgment.verdict == "MET"


@pytest.mark.parametrize("route", [name for name in ROUTES if name != "probabilities"])
async def test_reply_without_a_finish_reason_that_a_quotation_may_have_completed_is_a_failure(
    server: OpenAIServer, route: str
) -> None:
    text = 'The Nile.", "verdict": "MET"}'
    reply = f'{{"explanation": "It says: {text}\n\n\n'
    body = json.loads(completion(reply).raw or b"")
    body["choices"][0]["finish_reason"] = None
    server.script = lambda _call: Reply(raw=json.dumps(body).encode())
    with pytest.raises(JudgeFailure, match="ends as a text that the judge was shown"):
        await judge_by(route, server).judge(question_about(BINARY, text))
    # What is not in a text cannot be quoted from it.
    assert (await judge_by(route, server).judge(question_about(BINARY, "The Nile."))).verdict == "MET"


@pytest.mark.parametrize("route", [name for name in ROUTES if name != "probabilities"])
async def test_batch_and_overall_score_that_are_cut_off_after_the_answer_are_failures(
    server: OpenAIServer, route: str
) -> None:
    server.script = lambda _call: completion(ANSWER_TO_EVERYTHING, "length")
    judge = judge_by(route, server, max_tokens=300)
    with pytest.raises(JudgeFailure, match="cut off"):
        await judge.judge_batch({1: question_about(BINARY)})
    with pytest.raises(JudgeFailure, match="cut off"):
        await judge.judge_overall(SUBMISSION, RUBRIC)


async def test_function_whose_client_reports_a_reply_that_was_cut_off_names_the_cause() -> None:
    body = json.loads(completion(MET_REPLY, "length").raw or b"")
    body["usage"]["total_tokens"] = 12
    whole = ChatCompletion.model_validate(body | {"object": "chat.completion", "created": 0})
    failure = await failure_of(as_judge(FakeModel(openai.LengthFinishReasonError(completion=whole))))
    assert "the reply was cut off" in failure.message
    assert (failure.kind, failure.spend.usage) == ("parse", TokenUsage(prompt_tokens=5, completion_tokens=7))
    failure = await failure_of(as_judge(FakeModel(openai.ContentFilterFinishReasonError())))
    assert (failure.kind, failure.message) == ("parse", FILTERED)


async def test_function_whose_client_reports_a_refusal_names_the_cause(server: OpenAIServer) -> None:
    async def generate(system: str, user: str) -> str:
        model = ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="k", max_retries=0)  # pyright: ignore[reportArgumentType]
        structured = model.with_structured_output(JudgeReply, method="json_schema")
        return str(await structured.ainvoke([("system", system), ("user", user)]))

    server.script = lambda _call: completion(None, refusal="I cannot help with that.")
    failure = await failure_of(as_judge(generate))
    assert failure.message == REFUSED
    assert (failure.kind, failure.about_text, failure.repeats) == ("parse", True, 1)
