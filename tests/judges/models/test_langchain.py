"""LangChain chat models as judges: errors and retries, structured output, token usage, rate limits, fingerprints."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import Runnable, RunnableLambda

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.scoring import JudgeFailure, Spend
from tests.judges.questions import BINARY, MET_REPLY, REPEATED_VERDICT, UNMET_REPLY, question_about
from tests.langchain.helpers import SOURCE_RUBRIC, chat_model, source_script
from tests.openai_server import Call, OpenAIServer, Reply

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


def fingerprint(model: Any) -> str:
    return as_judge(model).fingerprint()  # pyright: ignore[reportAttributeAccessIssue]


def test_bound_arguments_are_sent_and_are_part_of_the_fingerprint(server: OpenAIServer, tmp_path: Path) -> None:
    model = chat_model(server, source_script)
    models = [model, model.bind(temperature=0.1), model.bind(temperature=0.1).bind(temperature=0.7)]
    for judge in (*models, models[2]):
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            assert (
                SOURCE_RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(judge).with_store(ledger)).score == 1.0
            )
    # The last judge has found the answers of the one before it.
    assert [call.body.get("temperature") for call in server.calls] == [None] * 3 + [0.1] * 3 + [0.7] * 3
    assert (
        fingerprint(model.bind(temperature=0.7))
        == fingerprint(models[2])
        == fingerprint(chat_model(server, temperature=0.7))
    )
    # A config changes no answer.
    assert fingerprint(model.with_config(tags=["a"], callbacks=[])) == fingerprint(model)


async def test_credentials_in_bound_arguments_are_in_no_fingerprint_file_or_message(
    server: OpenAIServer, tmp_path: Path
) -> None:
    model = chat_model(server, lambda _call: Reply(text="Bearer of sk-first-1, no JSON"))
    first, second = (
        model.bind(extra_headers={"Authorization": f"Bearer {key}", "X-Team": "evals", "X-Api-Key": key})
        for key in ("sk-first-1", "sk-second-2")
    )
    assert fingerprint(first) == fingerprint(second) != fingerprint(model)
    judge = LMJudge(first)
    with pytest.raises(JudgeError) as error:
        await ONE_CRITERION.grade("a", grader=PerCriterionGrader(judge, max_retries=0))
    assert server.calls[0].headers["authorization"] == "Bearer sk-first-1"
    assert "sk-first" not in f"{error.value}{error.value.report.model_dump_json()}{fingerprint(first)}"
    server.script = lambda _call: Reply("MET")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        await ONE_CRITERION.grade("a", grader=PerCriterionGrader(judge).with_store(ledger))
    assert b"sk-first" not in (tmp_path / "ledger.sqlite").read_bytes()


def test_bound_model_can_be_pickled_with_its_arguments(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(
        chat_model(server, source_script, http_client=None, http_async_client=None).bind(seed=7)
    )
    assert SOURCE_RUBRIC.grade_sync("source: a", grader=pickle.loads(pickle.dumps(grader))).score == 1.0
    assert {call.body["seed"] for call in server.calls} == {7}


def test_binding_of_anything_else_than_a_chat_model_is_refused() -> None:
    with pytest.raises(TypeError, match="RunnableBinding"):
        as_judge(RunnableLambda(str).bind(a=1))  # pyright: ignore[reportArgumentType]


def test_arguments_of_a_tool_that_the_user_bound_are_no_answer() -> None:
    tools = [{"type": "function", "function": {"name": "Judgment", "parameters": {}}}]
    model = FakeMessagesListChatModel(responses=[tool_call(explanation="so", verdict="MET")]).bind(tools=tools)
    with pytest.raises(JudgeError, match="parse"):
        ONE_CRITERION.grade_sync("a", grader=PerCriterionGrader(model, max_retries=0))


@pytest.mark.parametrize("is_async", [True, False])
def test_streamed_judge_reports_its_tokens_and_cost(server: OpenAIServer, is_async: bool) -> None:
    grader = PerCriterionGrader(chat_model(server, source_script, streaming=True).bind(model="m"))
    run = grade_many(
        [{"id": "1", "response": "source: a"}], SOURCE_RUBRIC, grader, prices={"langchain/m": (1, 2)}, max_cost=1
    )

    async def collect() -> list[Any]:
        return [graded async for graded in run]

    report: Any = next(graded.report for graded in (asyncio.run(collect()) if is_async else run))
    assert all(call.body["stream_options"] == {"include_usage": True} for call in server.calls)
    usage, prompt_tokens = report.token_usage, sum(len(call.prompt) // 4 for call in server.calls)
    assert usage.prompt_tokens == prompt_tokens
    assert report.cost == pytest.approx((prompt_tokens + 2 * usage.completion_tokens) / 1e6)


def test_streamed_reply_that_is_cut_off_is_a_failure(server: OpenAIServer) -> None:
    model = chat_model(server, lambda _call: Reply(text='{"verdict": "MET"', finish_reason="length"), streaming=True)
    with pytest.raises(JudgeError, match="the reply was cut off"):
        ONE_CRITERION.grade_sync("a", grader=PerCriterionGrader(model, max_retries=0))


@pytest.mark.parametrize("route", ["grade", "grade_sync"])
def test_server_that_refuses_usage_in_a_stream_is_asked_without_it(server: OpenAIServer, route: str) -> None:
    def refuse(call: Call) -> Reply:
        error = b'{"error": {"message": "Unknown parameter: stream_options"}}'
        return Reply(status=400, raw=error) if "stream_options" in call.body else source_script(call)

    grader = PerCriterionGrader(chat_model(server, refuse, streaming=True))
    for _ in range(2):
        if route == "grade":
            report = asyncio.run(SOURCE_RUBRIC.grade("source: a", grader=grader))
        else:
            report = SOURCE_RUBRIC.grade_sync("source: a", grader=grader)
        assert (report.score, report.token_usage) == (1.0, None)
    assert all("stream_options" not in call.body for call in server.calls[-4:])


def test_user_who_wants_no_usage_in_a_stream_gets_none(server: OpenAIServer) -> None:
    model = chat_model(server, source_script, streaming=True, stream_usage=False)
    assert SOURCE_RUBRIC.grade_sync("source: a", grader=PerCriterionGrader(model)).score == 1.0
    assert all(call.body["stream"] and "stream_options" not in call.body for call in server.calls)


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
