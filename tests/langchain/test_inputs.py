"""`FieldSelector`: which values of inputs and outputs become the submission."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import dspy
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from pydantic import BaseModel

from rubric_integrations import Fields, PerCriterionGrader, Rubric
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable
from rubric_integrations.langchain.inputs import FieldSelector
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.predictions import prediction_fields
from tests.fakes import FakeJudge, FakeModel
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, number_script, number_text
from tests.openai_server import OpenAIServer


class Product(BaseModel):
    value: int
    unit: str = "m"


@dataclass
class Length:
    value: int


def get_deep_text(outputs: Any) -> str:
    return outputs["deep"]["text"]


@pytest.mark.parametrize(
    ("settings", "outputs", "response"),
    [
        ({}, {"output": "a", "other": "b"}, "a"),
        ({}, {"only": "a"}, '{"only": "a"}'),
        ({"response": "other"}, {"output": "a", "other": "b"}, "b"),
        ({"response": get_deep_text}, {"deep": {"text": "c"}}, "c"),
        ({}, {"output": {"n": 1}}, '{"n": 1}'),
        ({}, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "final"}]}, "final"),
        ({}, {"output": AIMessage("the text")}, "the text"),
        ({}, AIMessageChunk(content="the text"), "the text"),
        ({}, {"role": "assistant", "content": "the text"}, "the text"),
        ({}, AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "the text"}]), "the text"),
        ({}, {"messages": [("user", "q"), ("ai", "the text")]}, "the text"),
        ({}, {"messages": [HumanMessage("q"), AIMessage("the text")], "todos": [], "n": 1}, "the text"),
        ({}, {"output": {"messages": [HumanMessage("q"), AIMessage("the text")], "n": 1}}, "the text"),
        ({}, ChatPromptValue(messages=[HumanMessage("q"), AIMessage("the text")]), "the text"),
        ({}, {"output": Product(value=42)}, '{"value": 42, "unit": "m"}'),
        ({}, {"output": [Product(value=42)]}, '[{"value": 42, "unit": "m"}]'),
        ({}, Length(42), '{"value": 42}'),
        ({"response": "structured_response"}, {"structured_response": Length(42), "n": 1}, '{"value": 42}'),
        ({}, {"messages": [("user", "q"), ("ai", "a")], "structured_response": Length(42)}, '{"value": 42}'),
        ({}, {"messages": [("user", "q"), ("ai", "the text")], "structured_response": None}, "the text"),
    ],
)
def test_selected_output_is_what_the_judge_sees(settings: Any, outputs: Any, response: str) -> None:
    model = FakeModel('{"explanation": "so", "verdict": "MET"}')
    rubric = Rubric(NUMBER_RUBRIC.criteria[:1])
    RubricEvaluator(rubric, judge=model, fields=Fields(**settings))(inputs={"a": "x", "b": "y"}, outputs=outputs)
    assert f"\n{response}\n</data" in model.prompts[0][1]


def test_inputs_without_a_usual_name_become_json() -> None:
    submission = FieldSelector().select({"a": "x", "b": "y"}, "response", None)
    assert submission is not None
    assert submission.query == '{"a": "x", "b": "y"}'
    assert submission.reference is None


def test_conversation_that_begins_with_the_inputs_is_shown_once(server: OpenAIServer) -> None:
    question = {"role": "user", "content": "Which number?"}
    answer = {"role": "assistant", "content": number_text(6)}
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))
    assert evaluator(inputs={"messages": [question]}, outputs={"messages": [question, answer]})["score"] == 1.0
    assert server.calls[0].prompt.count("Which number?") == 1


def test_missing_output_key_raises() -> None:
    with pytest.raises(ValueError, match=r"`Fields.response` is 'text', but there are only \['output'\]"):
        FieldSelector(output_key="text").select({}, {"output": "a"}, None)


@pytest.mark.parametrize("value", [Product(value=42), [Product(value=42)], {"a": Length(42)}, {"b", "a"}, 42, True])
def test_typed_output_has_the_same_text_as_in_dspy(value: Any) -> None:
    submission = FieldSelector().select({}, {"output": value}, {"output": value})
    assert submission is not None
    assert submission.response == submission.reference == value_text(value)
    assert prediction_fields(dspy.Prediction(answer=value))["response"] == value_text(value)


def test_structured_response_has_the_conversation_before_it_as_its_task() -> None:
    call: Any = {"name": "Length", "args": {"value": 42}, "id": "c"}
    messages = [HumanMessage("How long?"), AIMessage("", tool_calls=[call]), ToolMessage("done", tool_call_id="c")]
    state = {"messages": messages, "structured_response": Length(42)}
    submission = FieldSelector().select({"question": "ignored"}, state, None)
    assert submission is not None
    assert (submission.response, submission.query) == ('{"value": 42}', '{"role": "user", "content": "How long?"}')
    selected = FieldSelector(input_key="question").select({"question": "How far?"}, state, None)
    assert selected is not None
    assert selected.query == "How far?"


@pytest.mark.parametrize(
    ("task", "query"),
    [
        (HumanMessage("q"), "q"),
        ([("user", "q")], '{"role": "user", "content": "q"}'),
        (ChatPromptValue(messages=[HumanMessage("q")]), '{"role": "user", "content": "q"}'),
        (StringPromptValue(text="q"), "q"),
        ({"messages": [("user", "q")]}, '{"role": "user", "content": "q"}'),
        ({"topic": "t", "history": [HumanMessage("q")]}, '{"topic": "t", "history": ["q"]}'),
    ],
)
def test_input_in_any_form_of_langchain_becomes_text(task: Any, query: str) -> None:
    submission = FieldSelector().select({"input": task}, "response", None)
    assert submission is not None
    assert submission.query == query


@pytest.mark.parametrize("outputs", [AIMessage(""), {"messages": []}, {"output": {"messages": []}}, " "])
def test_output_without_text_is_none(outputs: Any) -> None:
    assert FieldSelector().select({}, outputs, None) is None


def test_context_key_selects_documents_of_inputs_outputs_or_references() -> None:
    select = FieldSelector(context_key="documents").select
    for place in range(3):
        sources: list[Any] = [{"question": "q"}, {"answer": "a"}, {"expected": "e"}]
        sources[place]["documents"] = [Document(page_content="The Nile."), "The Rhine."]
        submission = select(*sources)
        assert submission is not None
        assert (submission.response, submission.context) == ("a", ("The Nile.", "The Rhine."))
    chosen = FieldSelector(context_key=operator.itemgetter("passages")).select({"q": "q", "passages": "p"}, "a", None)
    assert chosen is not None
    assert chosen.context == ("p",)
    with pytest.raises(
        ValueError, match=r"`Fields.context` is 'documents', but there are only \['answer', 'question'\]"
    ):
        select({"question": "q"}, {"answer": "a"}, None)


def test_context_of_the_input_of_a_runnable_reaches_the_judge() -> None:
    judge = FakeJudge("MET")
    runnable = RubricRunnable(Rubric.from_dict([{"requirement": "x"}]), judge)
    runnable.invoke({"output": "a", "context": [Document(page_content="The Nile.")]})
    assert judge.questions[0].submission.context == ("The Nile.",)


def test_documents_of_the_outputs_are_context_and_not_graded() -> None:
    outputs = {"finding": "It was 9%.", "context": ["It was 8.4%."]}
    submission = FieldSelector().select({"question": "q"}, outputs, None)
    assert submission is not None
    assert (submission.response, submission.context) == ('{"finding": "It was 9%."}', ("It was 8.4%.",))
    named = {"finding": "It was 9%.", "retrieved": ["It was 8.4%."]}
    submission = FieldSelector(context_key="retrieved").select({"question": "q"}, named, None)
    assert submission is not None
    assert (submission.response, submission.context) == ('{"finding": "It was 9%."}', ("It was 8.4%.",))


def test_prediction_after_a_chain_brings_its_passages() -> None:
    judge = FakeJudge("MET")
    grader = PerCriterionGrader(judge)
    RubricRunnable([{"requirement": "x"}], grader=grader).invoke({"output": dspy.Prediction(context=["p"], answer="a")})
    submission = judge.questions[0].submission
    assert (submission.response, submission.context) == ("a", ("p",))
