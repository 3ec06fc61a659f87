"""LangChain chat models as judges: errors and retries, structured output, token usage, rate limits, fingerprints."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import Runnable, RunnableLambda

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.scoring import JudgeFailure, Spend
from tests.judges.questions import BINARY, MET_REPLY, REPEATED_VERDICT, UNMET_REPLY, question_about
from tests.langchain.helpers import SOURCE_RUBRIC, chat_model, source_script
from tests.openai_server import OpenAIServer, Reply

ONE_CRITERION = Rubric([BINARY])


def test_chat_model_temporary_errors_are_retried(server: OpenAIServer) -> None:
    replies = [Reply(status=429, retry_after=0.01), Reply(status=500), Reply(text="What a nice text."), Reply("MET")]
    model = chat_model(server, lambda call: replies[min(call.number, 3)])
    assert ONE_CRITERION.grade_sync("text", grader=PerCriterionGrader(model, max_retries=3)).score == 1.0
    assert len(server.calls) == 4


@pytest.mark.parametrize(
    ("reply", "kind"), [(Reply(status=401), "config"), (Reply(text='{"verdict": "MAYBE"}'), "parse")]
)
def test_chat_model_permanent_error_raises_with_its_kind(server: OpenAIServer, reply: Reply, kind: str) -> None:
    model = chat_model(server, lambda _call: reply)
    with pytest.raises(JudgeError, match=kind):
        ONE_CRITERION.grade_sync("text", grader=PerCriterionGrader(model, max_retries=0))


def test_chat_model_request_contains_a_schema_and_usage_is_counted(server: OpenAIServer) -> None:
    report = SOURCE_RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(chat_model(server, source_script)))
    schema = server.calls[0].body["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"explanation", "verdict"}
    assert report.spend.calls == len(server.calls) == 3
    tokens_of_a_reply = len(Reply("UNMET").content) // 4
    usage = report.token_usage
    assert usage
    assert usage.prompt_tokens == sum(len(call.prompt) // 4 for call in server.calls)
    assert 0 < usage.completion_tokens <= 3 * tokens_of_a_reply


def test_chat_model_rate_limiter_delays_the_calls(server: OpenAIServer) -> None:
    limiter = InMemoryRateLimiter(requests_per_second=50, check_every_n_seconds=0.005, max_bucket_size=1)
    model = chat_model(server, source_script, rate_limiter=limiter)
    start = time.monotonic()
    report = SOURCE_RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(model))
    assert report.score == 1.0
    assert time.monotonic() - start >= 2 / 50  # the second and the third call each wait for 1/50 s


def test_chat_model_fingerprint_depends_on_settings_and_hides_the_key(server: OpenAIServer) -> None:
    cold, warm = (as_judge(chat_model(server, temperature=temperature)) for temperature in (0.0, 0.7))
    same = as_judge(chat_model(server, temperature=0.0))
    assert cold.fingerprint() == same.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]
    assert cold.fingerprint() != warm.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]
    assert "none" not in cold.fingerprint()  # pyright: ignore[reportAttributeAccessIssue]


def test_chat_model_without_structured_output_reply_is_parsed_from_text() -> None:
    reply = AIMessage(
        '{"explanation": "so", "verdict": "MET"}',
        usage_metadata={
            "input_tokens": 9,
            "output_tokens": 2,
            "total_tokens": 11,
            "input_token_details": {"cache_read": 4},
        },
    )
    model = FakeMessagesListChatModel(responses=[reply])
    report = ONE_CRITERION.grade_sync("a", grader=PerCriterionGrader(model))
    assert report.score == 1.0
    usage = report.token_usage
    assert usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (9, 2, 4)


def test_chat_model_that_reports_no_usage_has_unknown_tokens() -> None:
    model = FakeMessagesListChatModel(responses=[AIMessage(MET_REPLY)])
    report = ONE_CRITERION.grade_sync("a", grader=PerCriterionGrader(model))
    assert (report.spend, report.token_usage) == (Spend(calls=1, usage=None, cost=None), None)


class StructuredModel(FakeMessagesListChatModel):
    """A chat model with structured output, which reports a parsed value of its own beside each message."""

    def with_structured_output(self, schema: Any, *, include_raw: bool = False, **kwargs: Any) -> Runnable[Any, Any]:
        assert include_raw

        def parse(message: Any) -> dict[str, Any]:
            return {"raw": message, "parsed": {"explanation": "repaired", "verdict": "MET"}, "parsing_error": None}

        return self | RunnableLambda(parse)


def tool_call(**arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "Judgment", "args": arguments, "id": "1"}])


async def test_parsed_value_of_langchain_is_never_used() -> None:
    judgment = await LMJudge(StructuredModel(responses=[AIMessage(UNMET_REPLY)])).judge(question_about())
    assert (judgment.verdict, judgment.reason) == ("UNMET", "x")


class ToolModel(FakeMessagesListChatModel):
    """A chat model that gives structured output by the arguments of a tool, which may be strict."""

    is_strict: bool
    methods: tuple[str, ...] = ("function_calling",)

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, method: str = "function_calling", **kwargs: Any
    ) -> Runnable[Any, Any]:
        if method not in self.methods:
            raise ValueError(method)
        function = {"name": "Judgment", "parameters": schema, "strict": self.is_strict}
        return self.bind(
            **({"tools": [{"type": "function", "function": function}]} if method == "function_calling" else {})
        )


async def test_arguments_of_a_strict_tool_are_read() -> None:
    model = ToolModel(responses=[tool_call(explanation="so", verdict="UNMET")], is_strict=True)
    assert (await LMJudge(model).judge(question_about())).verdict == "UNMET"


@pytest.mark.parametrize("methods", [("function_calling",), ("function_calling", "json_schema")])
async def test_tool_that_is_not_strict_is_not_used_and_the_text_is_read(methods: tuple[str, ...]) -> None:
    model = ToolModel(responses=[AIMessage(REPEATED_VERDICT), AIMessage(MET_REPLY)], is_strict=False, methods=methods)
    judge = LMJudge(model)
    with pytest.raises(JudgeFailure, match="one field twice"):
        await judge.judge(question_about())
    assert (await judge.judge(question_about())).verdict == "MET"


async def test_arguments_of_an_unknown_tool_are_no_answer_and_the_next_request_has_no_tool() -> None:
    # LangChain hands on parsed arguments, in which a verdict that was there twice is there once.
    replies: list[BaseMessage] = [tool_call(explanation="so", verdict="MET"), AIMessage(f"Here it is:\n{UNMET_REPLY}")]
    judge = LMJudge(StructuredModel(responses=replies))
    with pytest.raises(JudgeFailure) as failure:
        await judge.judge(question_about())
    assert (failure.value.kind, failure.value.retryable) == ("parse", True)
    assert (await judge.judge(question_about())).verdict == "UNMET"


@pytest.mark.parametrize(
    "message",
    [
        AIMessage('{"explanation": "cut off", "verdict": "M'),
        AIMessage(REPEATED_VERDICT),
        AIMessage("I think it is met."),
        tool_call(explanation="so", verdict="MAYBE"),
        tool_call(explanation="no verdict"),
    ],
    ids=["cut off", "repeated verdict", "prose", "wrong tool argument", "missing tool argument"],
)
async def test_reply_that_langchain_would_repair_is_a_parse_failure(message: AIMessage) -> None:
    with pytest.raises(JudgeFailure) as failure:
        await LMJudge(StructuredModel(responses=[message])).judge(question_about())
    assert failure.value.kind == "parse"


async def test_tool_arguments_that_are_cut_off_are_a_parse_failure(server: OpenAIServer) -> None:
    arguments = '{"explanation": "x", "verdict": "M'
    body = {
        "id": "x",
        "model": "mock",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "Judgment", "arguments": arguments}}
                    ],
                },
            }
        ],
    }
    model = chat_model(server, lambda _call: Reply(raw=json.dumps(body).encode()))
    with pytest.raises(JudgeFailure) as failure:
        await LMJudge(model).judge(question_about())
    assert failure.value.kind == "parse"
