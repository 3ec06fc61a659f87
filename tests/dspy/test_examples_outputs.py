"""The outputs of a program that are graded: those it declares, without its reasoning and its trajectory."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from rubric_integrations import Fields, PerCriterionGrader, Rubric
from rubric_integrations.dspy import MisnamedField, RubricMetric
from rubric_integrations.formats.registry import as_rubric
from rubric_integrations.judges import lm_from_fn
from tests.fakes import FakeJudge

SAYS_42 = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
EXAMPLE = dspy.Example(question="6 x 7?").with_inputs("question")


def graded_text(pred: Any) -> str:
    """The text that a metric grades of a prediction."""
    metric = RubricMetric(SAYS_42, judge="offline")
    metric(EXAMPLE, pred)
    return metric.history[-1]["response"]


def grade_prediction(rubric: Any, grader: PerCriterionGrader, pred: Any) -> float | None:
    """The score of a prediction without DSPy's metric."""
    return as_rubric(rubric).grade_sync(pred, grader).score


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


@pytest.mark.parametrize(
    "outputs",
    [
        {"answer": "", "sources": ""},
        {"answers": []},
        {"answer": None, "sources": ["", " "]},
        {"answer": "\n", "meta": {}},
    ],
)
def test_program_with_several_empty_outputs_has_nothing_to_grade(outputs: dict[str, Any]) -> None:
    judge = FakeJudge("MET")
    metric = RubricMetric([{"requirement": "Is right"}], judge)
    score = metric(EXAMPLE, dspy.Prediction(reasoning="It is 42.", **outputs))
    assert (float(score), score.passed, judge.questions) == (0.0, False, [])
    assert metric.summary()["nothing_to_grade"] == 1
    with pytest.raises(ValueError, match="`response` is empty"):
        grade_prediction([{"requirement": "Is right"}], PerCriterionGrader(judge), dspy.Prediction(**outputs))


def test_output_that_is_zero_or_false_is_graded() -> None:
    assert graded_text(dspy.Prediction(count=0)) == "0"
    assert graded_text(dspy.Prediction(found=False, rows=[])) == "found: false\n\nrows: []"


class Retriever(dspy.Module):
    """A program that answers from passages, as tutorials write it."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(context=["The margin was 42%."], reasoning="...", answer="I do not know.")


@pytest.mark.parametrize("name", ["context", "passages", "documents"])
def test_retrieved_passages_are_shown_to_the_judge_and_not_graded(name: str) -> None:
    judge = FakeJudge("MET")
    RubricMetric([{"requirement": "Is right"}], judge)(
        EXAMPLE, dspy.Prediction(answer="No.", **{name: ["42", {"n": 1}]})
    )
    submission = judge.questions[0].submission
    assert (submission.response, submission.context) == ("No.", ("42", '{"n": 1}'))


def test_program_with_retrieval_is_not_right_by_its_passages() -> None:
    metric = RubricMetric(SAYS_42, judge="offline")
    result = dspy.Evaluate(devset=[EXAMPLE], metric=metric, display_progress=False)(Retriever())
    assert (result.score, metric.history[0]["response"]) == (0.0, "I do not know.")
    assert grade_prediction(SAYS_42, PerCriterionGrader("offline"), Retriever()(question="6 x 7?")) == 0.0


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"passages": ["a", "42"]}, '["a", "42"]'),
        ({"context": "In 42.", "answer": "A"}, "context: In 42.\n\nanswer: A"),
    ],
)
def test_passages_are_graded_if_they_are_the_only_output_or_a_text(outputs: dict[str, Any], text: str) -> None:
    assert graded_text(dspy.Prediction(**outputs)) == text


def test_response_that_is_named_may_be_a_list_of_passages() -> None:
    metric = RubricMetric(SAYS_42, judge="offline", fields=Fields(response="context"))
    metric(EXAMPLE, dspy.Prediction(context=["42"], answer="A"))
    assert metric.history[0]["response"] == '["42"]'


def _gold(example: Any) -> Any:
    return example.gold


def _both(example: Any, prediction: Any) -> Any:
    return [*example.gold, *prediction.retrieved]


OUTPUTS = {"retrieved": ["b"], "notes": "n", "answer": "A"}
ALL = 'retrieved: ["b"]\n\nnotes: n\n\nanswer: A'


@pytest.mark.parametrize(
    ("context", "documents", "response"),
    [
        ("retrieved", ("b",), "notes: n\n\nanswer: A"),
        ("notes", ("n",), 'retrieved: ["b"]\n\nanswer: A'),
        ("gold", ("g",), ALL),
        (_gold, ("g",), ALL),
        (_both, ("g", "b"), ALL),
    ],
)
def test_context_is_a_field_of_the_example_or_the_prediction_or_a_function_of_both(
    context: Any, documents: tuple[str, ...], response: str
) -> None:
    judge = FakeJudge("MET")
    example = dspy.Example(question="6 x 7?", gold=["g"]).with_inputs("question")
    RubricMetric([{"requirement": "Is right"}], judge, context=context)(example, dspy.Prediction(**OUTPUTS))
    submission = judge.questions[0].submission
    assert (submission.context, submission.response) == (documents, response)


@pytest.mark.parametrize("context", [_gold, _both])
def test_context_function_that_reads_a_missing_field_is_a_misnamed_field(context: Any) -> None:
    metric = RubricMetric(SAYS_42, judge="offline", context=context)
    with pytest.raises(MisnamedField, match=r"the function `context` reads a field that does not exist.*'answer'"):
        metric(EXAMPLE, dspy.Prediction(answer="A"))


def test_context_that_neither_has_names_the_fields_of_both() -> None:
    metric = RubricMetric(SAYS_42, judge="offline", context="passage")
    with pytest.raises(
        MisnamedField, match=r"`context` names the field 'passage', but there are only .*'answer'.*'question'"
    ):
        metric(EXAMPLE, dspy.Prediction(answer="A"))


def test_retrieved_passages_do_not_change_the_id_of_a_row() -> None:
    metric = RubricMetric(SAYS_42, judge="offline")
    for passages in (["a"], ["b"]):
        metric(EXAMPLE, dspy.Prediction(context=passages, answer=f"It is 42, by {passages}"))
    assert len({row.id for row in metric.graded}) == 1
