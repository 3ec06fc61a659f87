"""The outputs of a program that are graded: those it declares, without its reasoning and its trajectory."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from rubric_integrations import Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import lm_from_fn

SAYS_42 = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
EXAMPLE = dspy.Example(question="6 x 7?").with_inputs("question")


def graded_text(pred: Any) -> str:
    """The text that a metric grades of a prediction."""
    metric = RubricMetric(SAYS_42, judge="offline")
    metric(EXAMPLE, pred)
    return metric.history[-1]["response"]


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def agent_lm(answer: str) -> Any:
    """Calls the tool, ends the loop, and answers with the text."""
    turns = iter(
        [
            {"next_thought": "I need it.", "next_tool_name": "multiply", "next_tool_args": '{"a": 6, "b": 7}'},
            {"next_thought": "Done.", "next_tool_name": "finish", "next_tool_args": "{}"},
            {"reasoning": "I saw 42.", "answer": answer},
        ]
    )

    async def reply(system: str, user: str) -> str:
        return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in next(turns).items())

    return lm_from_fn(reply)


@pytest.mark.parametrize(("answer", "score"), [("I do not know.", 0.0), ("It is 42.", 1.0)])
def test_react_is_graded_by_its_answer_and_not_by_what_a_tool_returned(answer: str, score: float) -> None:
    metric = RubricMetric(SAYS_42, judge="offline")
    with dspy.context(lm=agent_lm(answer)):
        signature: Any = "question -> answer"
        pred = dspy.ReAct(signature, tools=[multiply])(question="6 x 7?")
    assert pred.trajectory["observation_0"] == 42
    assert float(metric(EXAMPLE, pred)) == score
    assert metric.history[0]["response"] == answer


def test_bookkeeping_of_every_dspy_module_is_not_graded() -> None:
    from dspy.predict.avatar.models import ActionOutput

    step = ActionOutput(tool_name="multiply", tool_input_query="6, 7", tool_output="42")
    for bookkeeping in (
        {"reasoning": "42"},  # ChainOfThought, ProgramOfThought
        {"reasoning": dspy.Reasoning(content="42")},
        {"thoughts": dspy.Reasoning(content="42")},
        {"rationale": "42"},  # MultiChainComparison
        {"trajectory": {"code_output_0": "42"}, "reasoning": "42"},  # CodeAct, ReAct
        {"trajectory": [{"output": "42"}], "final_reasoning": "42"},  # RLM
        {"history": dspy.History(messages=[{"observation": "42"}]), "termination_reason": "submit"},  # ReActV2
        {"actions": [step]},  # Avatar
    ):
        assert graded_text(dspy.Prediction(**bookkeeping, answer="No idea.")) == "No idea.", bookkeeping


def test_declared_outputs_named_like_bookkeeping_are_graded() -> None:
    assert graded_text(dspy.Prediction(reasoning="It is 42.")) == "It is 42."
    assert (
        graded_text(dspy.Prediction(history="Founded in 1942.", answer="A")) == "history: Founded in 1942.\n\nanswer: A"
    )
    assert graded_text(dspy.Prediction(actions=["go", "stop"])) == '["go", "stop"]'


class Answer(BaseModel):
    value: int


@pytest.mark.parametrize(
    ("pred", "text"),
    [
        ({"reasoning": "42", "answer": "No"}, "No"),
        (Answer(value=42), '{"value": 42}'),
        (["a", "b"], '["a", "b"]'),
        ([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}], "42"),
        (42, "42"),
    ],
)
def test_program_that_returns_no_prediction_is_graded_by_its_value(pred: Any, text: str) -> None:
    assert graded_text(pred) == text


def test_program_with_nothing_but_reasoning_and_an_empty_answer_has_nothing_to_grade() -> None:
    metric = RubricMetric(SAYS_42, judge="offline")
    assert float(metric(EXAMPLE, dspy.Prediction(reasoning="It is 42.", answer=""))) == 0.0
    assert metric.summary()["nothing_to_grade"] == 1
    assert json.dumps(metric.history) == "[]"
