"""Labelled judgments as few-shot examples of a judge, and as its trainset."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Scale, Submission
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, as_example
from rubric_integrations.scoring import LabelledJudgment
from tests.fakes import FakeModel
from tests.judges.questions import CLEAR, MET_REPLY, judge_at, question_about
from tests.openai_server import OpenAIServer, Reply

ONE = Criterion(requirement="r")


def labelled(text: str, verdict: str, criterion: Criterion = ONE) -> LabelledJudgment:
    return LabelledJudgment(submission=Submission(response=text), criterion=criterion, verdict=verdict, reason="why")


EXAMPLES = [
    labelled("good text", "MET"),
    labelled("bad text", "UNMET"),
    labelled("the graded text", "MET"),
    labelled("choice text", "clear", CLEAR),
]


def test_examples_of_the_criterions_kind_are_turns_before_the_question(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url, examples=EXAMPLES))
    Rubric([ONE]).grade_sync("the graded text", grader=grader)
    roles = [message["role"] for message in server.calls[0].body["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert server.calls[0].prompt.count("the graded text") == 1
    assert '"explanation": "why"' in server.calls[0].prompt
    server.script = lambda _call: Reply(text='{"explanation": "e", "choice": "A"}')
    Rubric([CLEAR]).grade_sync("text", grader=grader)
    assert "choice text" in server.calls[1].prompt
    assert '"choice": "C"' in server.calls[1].prompt


@pytest.mark.parametrize(("max_examples", "shown"), [(4, 3), (2, 2), (1, 1), (0, 0)])
async def test_examples_are_at_most_as_many_as_the_limit(max_examples: int, shown: int) -> None:
    examples = [labelled("a", "MET"), labelled("b", "MET"), labelled("c", "UNMET")]
    model, later = FakeModel(MET_REPLY), FakeModel(MET_REPLY)
    await LMJudge(model, examples=examples, max_examples=max_examples).judge(question_about(ONE))
    await LMJudge(later).with_examples(examples, max_examples).judge(question_about(ONE))
    assert model.prompts[0][1].count("[assistant]") == later.prompts[0][1].count("[assistant]") == shown


@pytest.mark.parametrize("max_examples", [-1, True])
def test_max_examples_out_of_range_is_refused(max_examples: int) -> None:
    with pytest.raises(ValueError, match="`max_examples` must be at least 0"):
        LMJudge("openai/mock", max_examples=max_examples)


@pytest.mark.parametrize("grader", [PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_examples_with_a_grader_that_cannot_show_them_are_refused(grader: Any) -> None:
    with pytest.raises(ValueError, match="examples"):
        grader(LMJudge("openai/mock", examples=EXAMPLES))


@pytest.mark.parametrize(
    ("criterion", "verdict", "field", "label"),
    [
        (ONE, "MET", "verdict", "MET"),
        (Criterion(requirement="tone", options=[Option(label="warm", value=1), Option(label="cold", value=0)]),
         "cold", "choice", "B"),
        (Criterion(requirement="depth", scale=Scale(min=0, max=10)), "7", "score", "7"),
    ],
)  # fmt: skip
def test_labelled_judgment_of_any_kind_is_a_call_of_the_judge(
    server: OpenAIServer, criterion: Criterion, verdict: str, field: str, label: str
) -> None:
    example = as_example(LabelledJudgment(submission=Submission(response="So."), criterion=criterion, verdict=verdict))
    assert example[field] == label
    server.script = lambda _call: Reply(text=json.dumps({"explanation": "so", field: label}))
    assert str(judge_at(server)(**example.inputs())[field]).removesuffix(".0") == label
