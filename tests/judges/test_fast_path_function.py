"""A judge given as a function: the template gives it the prompts of DSPy, and its replies and errors are read alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dspy.utils.callback import BaseCallback
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Rubric, Scale, Submission
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.judges.fast_path import FunctionTemplate, TemplateCache
from rubric_integrations.scoring import JudgeFailure, Judgment, LabelledJudgment
from tests.fakes import FakeModel

CRITERIA = [
    Criterion(requirement="Says 42"),
    Criterion(requirement="Is rude", weight=-1),
    Criterion(requirement="How clear?", options=[Option(label="clear", value=1), Option(label="muddled", value=0)]),
    Criterion(requirement="How sound?", scale=Scale(min=0, max=10)),
]
REPLY = '{"explanation": "a", "verdict": "MET", "choice": "A", "score": 3, "judgments": [], "overall_score": 5}'
LABEL = LabelledJudgment(submission=Submission(response="It is 41."), criterion=CRITERIA[0], verdict="UNMET")


class Listener(BaseCallback):
    """Makes each request go through DSPy."""

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        pass


async def outcomes(reply: str | Exception, questions: list[Question], *, through_dspy: bool, **options: Any) -> Any:
    model = FakeModel(reply)
    judge, results = LMJudge(model, **options), list[Any]()
    judge.lm.callbacks.extend([Listener()] if through_dspy else [])
    for question in questions:
        try:
            results.append((await judge.judge(question)).model_dump())
        except JudgeFailure as failure:
            results.append(vars(failure))
    try:
        results.append((await judge.judge_batch(dict(enumerate(questions, 1)))).spend)
    except JudgeFailure as failure:
        results.append(vars(failure))
    try:
        overall = await judge.judge_overall(questions[0].submission, Rubric([each.criterion for each in questions]))
        results.append(overall)
    except JudgeFailure as failure:
        results.append(vars(failure))
    templates = [each for cache in judge._caller._templates.values() for each in cache.templates.values()]  # pyright: ignore[reportPrivateUsage]
    assert all(isinstance(each, FunctionTemplate) for each in templates)
    assert bool(templates) != through_dspy
    return model.prompts, results


def questions_about(text: str, query: str | None) -> list[Question]:
    return [Question(Submission(response=text, query=query), criterion) for criterion in CRITERIA]


TEXTS = st.text(max_size=60) | st.sampled_from(
    ["[[ ## verdict ## ]]", "{x}", "\\1 \\g<0>", "\r\n a \t", "\ud800", "\x00", " x ", "<data 1>", "é \U0001f600"]
)


@pytest.mark.wire
@settings(max_examples=40, deadline=None)
@given(text=TEXTS.filter(str.strip), query=st.none() | TEXTS, has_examples=st.booleans())
def test_function_gets_the_prompts_of_dspy_and_its_reply_is_read_alike(
    text: str, query: str | None, has_examples: bool
) -> None:
    examples = [LABEL] if has_examples else []
    both = [
        asyncio.run(outcomes(REPLY, questions_about(text, query), through_dspy=through_dspy, examples=examples))
        for through_dspy in (False, True)
    ]
    assert both[0] == both[1]


class RateLimitError(Exception):
    status_code = 429


class ContentFilterFinishReasonError(Exception):
    pass


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot help.", "{}", REPLY.replace("MET", "MAYBE"), RateLimitError("slow down"), TimeoutError("late"),
     ConnectionError("gone"), ValueError("wrong"), KeyError("x"), ContentFilterFinishReasonError("filtered"),
     JudgeFailure("parse", "mine", about_text=True)],
)  # fmt: skip
async def test_replies_and_errors_are_the_same_as_through_dspy(reply: str | Exception) -> None:
    questions = questions_about("It is 42.", "6 x 7?")
    assert await outcomes(reply, questions, through_dspy=False) == await outcomes(reply, questions, through_dspy=True)


async def test_function_that_returns_no_text_fails_alike() -> None:
    questions = questions_about("It is 42.", None)
    reply: Any = 42
    assert await outcomes(reply, questions, through_dspy=False) == await outcomes(reply, questions, through_dspy=True)


def test_judgments_of_functions_make_one_template_for_each_form() -> None:
    judge = LMJudge(FakeModel(REPLY))
    questions = [question for text in ("a", "b", "c") for question in questions_about(text, None)]
    judgments = [asyncio.run(judge.judge(question)) for question in questions]
    assert all(isinstance(judgment, Judgment) for judgment in judgments)
    caches: list[TemplateCache] = list(judge._caller._templates.values())  # pyright: ignore[reportPrivateUsage]
    assert sum(len(cache.templates) for cache in caches) == 3  # binary, options and scale
