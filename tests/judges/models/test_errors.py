"""The errors of clients and of DSPy as failures of a judge: their kind, and whether a retry may help."""

from __future__ import annotations

import asyncio
import json

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.judges.models.errors import first_line
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeModel
from tests.judges.questions import BINARY, judge_at, judge_one, question_about
from tests.openai_server import OpenAIServer, Reply


class StatusError(Exception):
    """An error of an SDK with an HTTP status."""

    def __init__(self, status_code: int):
        super().__init__(f"status {status_code}")
        self.status_code = status_code


class RateLimitError(Exception):
    """An error of an SDK that is recognized by its name."""

    retry_after = 7


@pytest.mark.parametrize(
    ("raised", "kind", "retryable"),
    [
        (StatusError(429), "transport", True),
        (StatusError(503), "transport", True),
        (StatusError(401), "config", False),
        (StatusError(400), "config", False),
        (RateLimitError("slow down"), "transport", True),
        (TimeoutError("late"), "transport", True),
        (ConnectionError("reset"), "transport", True),
        (KeyError("bug"), "config", False),
    ],
)
def test_exception_of_a_function_has_a_kind_and_is_retried_accordingly(
    raised: Exception, kind: str, retryable: bool
) -> None:
    with pytest.raises(JudgeFailure) as failure:
        judge_one(as_judge(FakeModel(raised)))
    assert (failure.value.kind, failure.value.retryable) == (kind, retryable)
    assert failure.value.retry_after == (7.0 if isinstance(raised, RateLimitError) else None)
    assert len(str(failure.value).splitlines()) == 1


def test_rate_limit_of_a_server_is_reported_with_the_requested_wait(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=429, retry_after=3)
    with pytest.raises(JudgeFailure) as failure:
        asyncio.run(judge_at(server).judge(question_about()))
    assert (failure.value.rate_limited, failure.value.retry_after) == (True, 3.0)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Resource Unavailable: try again later", "type": "server_error", "code": None},
        {"message": "no capacity", "type": "server_error", "code": "resource_unavailable"},
    ],
)
def test_lack_of_capacity_is_retried_and_is_no_rate_limit(server: OpenAIServer, error: dict[str, object]) -> None:
    server.script = lambda _call: Reply(status=429, raw=json.dumps({"error": error}).encode())
    with pytest.raises(JudgeFailure) as failure:
        asyncio.run(judge_at(server).judge(question_about()))
    assert (failure.value.kind, failure.value.retryable, failure.value.rate_limited) == ("transport", True, False)


async def test_refused_connection_is_one_clear_line() -> None:
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base="http://127.0.0.1:9/v1"), max_retries=0)
    with pytest.raises(JudgeError, match=r"`c1` was not judged: transport: .*127\.0\.0\.1:9") as error:
        await Rubric([BINARY]).grade("text", grader=grader)
    assert len(str(error.value).splitlines()) == 1


def test_first_line_of_an_error_without_a_message_is_its_class() -> None:
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("one\ntwo")) == "one"
