"""Async functions as models: what they receive, what they may return, and that their tokens are unknown."""

from __future__ import annotations

import json

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import LMJudge, as_judge, lm_from_fn
from rubric_integrations.scoring import JudgeFailure, LabelledJudgment, Spend
from tests.fakes import FakeModel
from tests.judges.questions import BINARY, MET_REPLY, NILE, SUBMISSION, UNMET_REPLY, judge_one, question_about


def test_function_that_is_not_async_or_returns_no_text_is_named() -> None:
    def not_async(system: str, user: str) -> str:
        return UNMET_REPLY

    async def not_text(system: str, user: str) -> object:
        return {"verdict": "MET"}

    for function, words in [(not_async, "must be async"), (not_text, "returned dict")]:
        with pytest.raises(JudgeFailure, match=words) as error:
            judge_one(as_judge(function))  # pyright: ignore[reportArgumentType]
        assert error.value.kind == "config"


async def test_function_receives_few_shot_examples_as_turns_of_one_text() -> None:
    model = FakeModel(MET_REPLY)
    example = LabelledJudgment(submission=SUBMISSION, criterion=BINARY, verdict="UNMET", reason="why")
    await LMJudge(model, examples=[example]).judge(question_about(BINARY))
    assert "[user]\n" in model.prompts[0][1]
    reply = model.prompts[0][1].split("[assistant]\n")[1].split("\n\n[user]")[0]
    assert json.loads(reply) == {"explanation": "why", "verdict": "UNMET"}


def test_function_usage_and_cost_are_unknown_and_not_zero() -> None:
    rubric = Rubric([Criterion(requirement="a"), Criterion(requirement="b")])
    report = rubric.grade_sync("text", grader=PerCriterionGrader(generate_fn=FakeModel(MET_REPLY)))
    assert report.spend == Spend(calls=2, usage=None, cost=None)
    assert (report.token_usage, report.spend.total_tokens, report.cost) == (None, None, None)


def test_function_usage_is_unknown_in_the_summary_of_a_run() -> None:
    run = grade_many([NILE], Rubric([BINARY]), PerCriterionGrader(generate_fn=FakeModel(MET_REPLY)))
    assert [graded.score for graded in run] == [1.0]
    assert run.summary.spend == Spend(calls=1, usage=None, cost=None)
    assert run.summary.spend.total_tokens is None


async def test_failed_call_of_a_function_counts_as_a_call() -> None:
    with pytest.raises(JudgeFailure) as error:
        await as_judge(FakeModel("no JSON")).judge(question_about())
    assert error.value.spend == Spend(calls=1, usage=None, cost=None)


def test_lm_of_a_function_is_named_after_it() -> None:
    async def my_model(system_prompt: str, user_prompt: str) -> str:
        return MET_REPLY

    assert lm_from_fn(my_model).model == "generate_fn/my_model"
