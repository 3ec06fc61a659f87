"""`FieldSelector`: which values of inputs and outputs become the submission."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from rubric_integrations import Rubric
from rubric_integrations.langchain import RubricEvaluator
from rubric_integrations.langchain.fields import FieldSelector
from tests.fakes import FakeModel
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, number_script, number_text
from tests.openai_server import OpenAIServer


def get_deep_text(outputs: Any) -> str:
    return outputs["deep"]["text"]


@pytest.mark.parametrize(
    ("settings", "outputs", "response"),
    [
        ({}, {"output": "a", "other": "b"}, "a"),
        ({}, {"only": "a"}, "a"),
        ({"output_key": "other"}, {"output": "a", "other": "b"}, "b"),
        ({"output_key": get_deep_text}, {"deep": {"text": "c"}}, "c"),
        ({}, {"output": {"n": 1}}, '{"n": 1}'),
        ({}, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "final"}]}, "final"),
        ({}, {"output": AIMessage("the text")}, "the text"),
    ],
)
def test_selected_output_is_what_the_judge_sees(settings: Any, outputs: Any, response: str) -> None:
    model = FakeModel('{"explanation": "so", "verdict": "MET"}')
    rubric = Rubric(NUMBER_RUBRIC.criteria[:1])
    RubricEvaluator(rubric, judge=model, **settings)(inputs={"a": "x", "b": "y"}, outputs=outputs)
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


def test_missing_or_ambiguous_output_key_raises() -> None:
    with pytest.raises(ValueError, match=r"`output_key` is 'text', but there are only \['output'\]"):
        FieldSelector(output_key="text").select({}, {"output": "a"}, None)
    with pytest.raises(ValueError, match=r"the outputs are \['a', 'b'\]: set `output_key`"):
        RubricEvaluator(NUMBER_RUBRIC, judge="offline")(outputs={"a": "1", "b": "2"})
