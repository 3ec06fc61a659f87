"""Prompts that are longer than the model reads: refused by us where the limit is known, or by the provider."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dspy.clients import model_metadata
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import JudgeError, PerCriterionGrader, grade_many
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.models.limits import fewest_tokens
from tests.graders.rubrics import ONE
from tests.openai_server import OpenAIServer, Reply

GRADERS = [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader]


def limit_model(monkeypatch: pytest.MonkeyPatch, limit: object) -> None:
    info: Any = {"max_input_tokens": limit}
    monkeypatch.setattr(model_metadata, "model_info", lambda *_names, **_options: info)  # pyright: ignore[reportUnknownLambdaType]


@pytest.mark.parametrize("grader_type", GRADERS)
def test_prompt_beyond_a_known_limit_fails_before_a_call(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, grader_type: type[Grader]
) -> None:
    limit_model(monkeypatch, 12_000)
    judge = LMJudge(f"openai/known-{grader_type.__name__}", api_base=server.url)
    report = ONE.grade_sync("word " * 20_000, grader=grader_type(judge, on_failure="abstain"))
    numbers = re.search(r"at least ([\d,]+) tokens, ([\d,]+) more than the 12,000", report.error or "")
    assert numbers is not None
    tokens, excess = (int(number.replace(",", "")) for number in numbers.groups())
    assert tokens == excess + 12_000
    assert 20_000 <= tokens < 20_300
    assert "TextLimits(step_limit=...)" in (report.error or "")
    assert (report.spend.calls, server.calls) == (0, [])


@pytest.mark.parametrize(
    ("limit", "text"),
    [(12_000, "word " * 9_000), (12_000, "x" * 99_000), (None, "word " * 20_000), (0, "word " * 20_000)],
)
def test_prompt_that_may_fit_is_sent(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, limit: object, text: str
) -> None:
    limit_model(monkeypatch, limit)
    judge = LMJudge(f"openai/may-fit-{limit}-{text[:5].strip()}", api_base=server.url)
    assert ONE.grade_sync(text, grader=PerCriterionGrader(judge)).score == 1.0
    assert len(server.calls) == 1


def test_no_price_list_is_loaded_for_the_limit(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from rubric_integrations.judges.models import limits

    monkeypatch.setattr(limits, "_list_is_loaded", False)
    monkeypatch.setattr(model_metadata, "_load", lambda: pytest.fail("the list would be fetched"))
    lm = LMJudge("openai/gpt-4o", api_base=server.url).lm
    assert limits.known_limit(lm) is None


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_fewest_tokens_is_at_most_a_token_for_a_run_of_characters(text: str) -> None:
    assert fewest_tokens(text) <= (len(text) + 1) // 2
    assert fewest_tokens("don't naïve \N{GRINNING FACE}x-y_z") == 5


REFUSALS = [
    {"code": "context_length_exceeded", "message": "This model's maximum context length is 4096 tokens."},
    {"code": 400, "message": "This model's maximum context length is 4096 tokens. However, you requested 9000."},
    {"code": 400, "message": "the request exceeds the available context size, try increasing it"},
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusal_of_the_provider_is_about_this_text_and_says_what_to_do(
    server: OpenAIServer, refusal: dict[str, object]
) -> None:
    body = json.dumps({"error": {**refusal, "type": "invalid_request_error"}}).encode()
    server.script = lambda call: Reply(status=400, raw=body) if "too long" in call.prompt else Reply()
    rows = list(
        grade_many(
            ["too long 1", "too long 2", "short"], ONE, PerCriterionGrader(LMJudge("openai/m", api_base=server.url))
        )
    )
    assert [row.score for row in rows] == [None, None, 1.0]
    for row in rows[:2]:
        assert str(refusal["message"]).rstrip(".") in (row.judge_error or "")
        assert "TextLimits(step_limit=...)" in (row.judge_error or "")


def test_refusal_that_a_function_raises_says_what_to_do() -> None:
    async def generate(system_prompt: str, user_prompt: str) -> str:
        error: Any = RuntimeError("prompt is too long: 200001 tokens > 200000 maximum")
        error.status_code = 400
        raise error

    with pytest.raises(JudgeError, match=r"prompt is too long.*TextLimits\(step_limit=\.\.\.\)"):
        ONE.grade_sync("text", grader=PerCriterionGrader(generate_fn=generate))
