"""The texts that are read from an example and a prediction."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, Fields, Rubric
from rubric_integrations.dspy import MisnamedField, RubricMetric
from tests.dspy.programs import DEVSET, Student, metric_at, student_lm
from tests.openai_server import OpenAIServer

ONE_CRITERION = Rubric([Criterion(requirement="a")])


def last_prompt(server: OpenAIServer) -> str:
    return server.calls[-1].prompt


def test_default_fields_are_the_inputs_and_the_outputs_without_reasoning(server: OpenAIServer) -> None:
    metric = metric_at(server, ONE_CRITERION)
    example = dspy.Example(question="Q", context=["one", "two"], answer="gold").with_inputs("question", "context")
    metric(example, dspy.Prediction(reasoning="because", answer="A", sources={"n": 1}))
    prompt = last_prompt(server)
    assert 'question: Q\n\ncontext: ["one", "two"]' in prompt
    assert 'answer: A\n\nsources: {"n": 1}' in prompt
    assert "because" not in prompt
    assert "gold" not in prompt


def test_default_fields_with_one_input_and_one_output_have_no_labels(server: OpenAIServer) -> None:
    metric = metric_at(server, ONE_CRITERION)
    metric(dspy.Example(question="Q").with_inputs("question"), dspy.Prediction(reasoning="because", answer="A"))
    assert "\nQ\n" in last_prompt(server)
    assert "\nA\n" in last_prompt(server)


def test_default_fields_with_a_plain_text_prediction_grade_the_text(server: OpenAIServer) -> None:
    metric = metric_at(server, ONE_CRITERION)
    metric(dspy.Example(question="Q"), "plain text")
    assert "plain text" in last_prompt(server)


def _upper_case(pred: Any) -> str:
    return pred.answer.upper()


def test_fields_by_name_and_by_function_are_graded_alone(server: OpenAIServer) -> None:
    metric = metric_at(server, ONE_CRITERION, fields=Fields(query="question", response=_upper_case, reference="gold"))
    example = dspy.Example(question="Q", gold="exemplar", other="o").with_inputs("question", "other")
    metric(example, dspy.Prediction(answer="abc", note="n"))
    prompt = last_prompt(server)
    for text in ("\nQ\n", "\nABC\n", "\nexemplar\n"):
        assert text in prompt
    assert "\no\n" not in prompt


def test_field_that_is_missing_raises_with_the_names_that_exist(server: OpenAIServer) -> None:
    example = dspy.Example(question="Q").with_inputs("question")
    with pytest.raises(MisnamedField, match=r"`response` names the field 'missing'.*'answer'"):
        metric_at(server, ONE_CRITERION, fields=Fields(response="missing"))(example, dspy.Prediction(answer="abc"))


def test_field_that_is_missing_ends_an_evaluation_without_a_score(server: OpenAIServer) -> None:
    metric = metric_at(server, fields=Fields(response="reply"))
    message = r"`response` names the field 'reply', but there are only \['answer'\]"
    with pytest.raises(MisnamedField, match=message):
        metric(DEVSET[0], dspy.Prediction(answer="It is 6."))
    with dspy.context(lm=student_lm()), pytest.raises(MisnamedField, match=message):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(Student())
    assert server.calls == []


def _read_attribute(source: Any) -> Any:
    return source.task


def _read_key(source: Any) -> Any:
    return source["task"]


def _read_attribute_in_an_expression(source: Any) -> Any:
    return source.task.upper()


def _look_up_answer(pred: Any) -> Any:
    return {"A": "B"}[pred.answer]


@pytest.mark.parametrize(
    "settings",
    [
        {"query": _read_attribute},
        {"query": _read_key},
        {"reference": _read_attribute_in_an_expression},
        {"response": _read_attribute},
        {"response": _read_key},
    ],
)
def test_function_that_reads_a_missing_field_ends_an_evaluation(server: OpenAIServer, settings: Any) -> None:
    metric = metric_at(server, fields=Fields(**settings))
    message = rf"the function `{next(iter(settings))}` reads .*'task'.* only \['answer'"
    with dspy.context(lm=student_lm()), pytest.raises(MisnamedField, match=message):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(Student())
    assert server.calls == []


@pytest.mark.parametrize("response", [_upper_case, _look_up_answer])
def test_function_that_fails_on_the_value_of_a_field_raises_its_own_error(server: OpenAIServer, response: Any) -> None:
    with pytest.raises((AttributeError, KeyError)):
        metric_at(server, ONE_CRITERION, fields=Fields(response=response))(DEVSET[0], dspy.Prediction(answer=None))


@pytest.mark.parametrize("pred", [None, dspy.Prediction(answer=""), dspy.Prediction(answer=None), dspy.Prediction()])
def test_prediction_that_is_empty_scores_zero_without_a_call(server: OpenAIServer, pred: Any) -> None:
    metric = metric_at(server, ONE_CRITERION)
    score = metric(DEVSET[0], pred)
    assert (float(score), bool(score), len(server.calls)) == (0.0, False, 0)
    assert "raised" in score.feedback or "empty" in score.feedback
    assert metric.summary()["nothing_to_grade"] == 1


def test_prediction_of_nan_is_graded_as_text(metric: RubricMetric) -> None:
    # The text "nan" is brief, and neither right nor rude.
    assert float(metric(DEVSET[0], dspy.Prediction(answer=float("nan")))) == 0.2
