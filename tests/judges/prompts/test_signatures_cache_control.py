"""Cache breakpoints for Anthropic: where they are set, and how the tokens that the cache served are counted."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement=f"Names river {number}") for number in range(3)])
LONG = Submission(response="The Nile is long. " * 300, query="Which rivers?")


def anthropic_script(call: Call) -> Reply:
    """Answer MET in the form of Anthropic's API; every call after the first reads 1500 tokens from the cache."""
    numbers = [1, 2] if "judgments" in str(call.body) else []
    judgments = [{"id": number, "explanation": "", "answer": "MET"} for number in numbers]
    reply = {"judgments": judgments} if numbers else {"explanation": "so", "verdict": "MET"}
    usage = {"input_tokens": 40, "output_tokens": 20, "cache_read_input_tokens": 1500 if call.number else 0}
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": call.body["model"],
        "content": [{"type": "text", "text": json.dumps(reply)}],
        "stop_reason": "end_turn",
        "usage": {**usage, "cache_creation_input_tokens": 0 if call.number else 1500},
    }
    return Reply(raw=json.dumps(body).encode())


def claude(server: OpenAIServer, **settings: Any) -> dspy.LM:
    server.script = anthropic_script
    return dspy.LM("anthropic/claude-sonnet-4-5", api_base=server.url, api_key="k", cache=False, **settings)


def cached_texts(call: Call) -> list[str]:
    """Return the text blocks that end with a breakpoint."""
    blocks = [block for message in call.body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [block["text"] for block in blocks if "cache_control" in block]


def full_text(call: Call) -> str:
    blocks = [block for message in call.body["messages"] for block in message["content"]]
    return "\n\n".join(block["text"] for block in blocks)


def test_run_sets_a_breakpoint_where_the_questions_begin_to_differ(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(claude(server))
    whole = RUBRIC.grade_sync(LONG, grader=grader)
    single_grade = {full_text(call) for call in server.calls}
    assert [cached_texts(call) for call in server.calls] == [[], [], []]
    server.calls.clear()
    (graded,) = list(grade_many([LONG], RUBRIC, grader))
    assert {full_text(call) for call in server.calls} == single_grade
    (shared,) = {text for call in server.calls for text in cached_texts(call)}
    assert shared.startswith("[[ ## query ## ]]")
    assert shared.endswith(">")
    assert "The Nile is long." in shared
    assert "Names river" not in shared
    assert graded.report
    assert graded.report.score == whole.score == 1.0
    assert graded.report.token_usage is not None
    assert graded.report.token_usage.cached_tokens == 3000
    assert graded.report.token_usage.prompt_tokens == 3 * 1540
    # The prices of DSPy's list, for a million tokens: $3 sent, $3.75 written, $0.30 read and $15 received.
    assert graded.report.cost == pytest.approx((120 * 3 + 1500 * 3.75 + 3000 * 0.3 + 60 * 15) / 1e6)


def test_breakpoint_is_set_where_a_rubric_is_split_into_several_calls(server: OpenAIServer) -> None:
    grader = PerCriterionOneShotGrader(claude(server), max_criteria_per_call=2, on_failure="abstain", max_retries=0)
    list(grade_many([LONG], RUBRIC, grader, max_concurrency=1))
    assert {len(cached_texts(call)) for call in server.calls} == {1}
    server.calls.clear()
    list(grade_many([LONG], RUBRIC, PerCriterionOneShotGrader(claude(server), on_failure="abstain", max_retries=0)))
    assert [cached_texts(call) for call in server.calls[:1]] == [[]]


def test_no_breakpoint_is_set_for_a_short_text_a_single_call_or_a_users_own_setting(server: OpenAIServer) -> None:
    list(grade_many([Submission(response="Nile.")], RUBRIC, PerCriterionGrader(claude(server))))
    list(grade_many([LONG], Rubric(RUBRIC.criteria[:1]), PerCriterionGrader(claude(server))))
    own = claude(server, prompt_cache=dspy.lm15.CacheConfig(mode="off"))
    list(grade_many([LONG], RUBRIC, PerCriterionGrader(own)))
    assert [cached_texts(call) for call in server.calls] == [[]] * 7


def test_breakpoint_that_the_route_does_not_support_is_left_out(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    real = dspy.LM.acall

    async def acall(self: dspy.LM, *args: Any, **options: Any) -> Any:
        nonlocal refused
        if "prompt_cache" in options:
            refused += 1
            raise dspy.utils.exceptions.LMUnsupportedFeatureError("no bridge")
        return await real(self, *args, **options)

    monkeypatch.setattr(dspy.LM, "acall", acall)
    (graded,) = list(grade_many([LONG], RUBRIC, PerCriterionGrader(claude(server)), max_concurrency=1))
    assert graded.score == 1.0
    assert refused == len(server.calls) == 3
