"""LangChain chat models as judges: errors and retries, structured output, token usage, rate limits, fingerprints."""

from __future__ import annotations

import time

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.rate_limiters import InMemoryRateLimiter

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.judges import as_judge
from tests.langchain.helpers import SOURCE_RUBRIC, chat_model, source_script
from tests.openai_server import OpenAIServer, Reply

ONE_CRITERION = Rubric([Criterion(requirement="a")])


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
