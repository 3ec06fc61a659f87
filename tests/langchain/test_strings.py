"""`RubricStringEvaluator` and `RubricPairwiseStringEvaluator` of `langchain_classic.evaluation`."""

from __future__ import annotations

import asyncio

import pytest

from rubric_integrations.langchain import RubricPairwiseStringEvaluator, RubricStringEvaluator
from tests.langchain.helpers import SOURCE_RUBRIC, chat_model, source_script
from tests.langchain.test_runnable import RunRecorder
from tests.openai_server import OpenAIServer


def test_string_evaluator_properties_declare_optional_arguments() -> None:
    evaluator = RubricStringEvaluator(SOURCE_RUBRIC, judge="offline")
    assert evaluator.evaluation_name == "rubric"
    assert not evaluator.requires_input
    assert not evaluator.requires_reference


def test_string_evaluator_text_returns_score_value_and_reasoning(server: OpenAIServer) -> None:
    evaluator = RubricStringEvaluator(SOURCE_RUBRIC, judge=chat_model(server, source_script))
    result = evaluator.evaluate_strings(prediction="none", input="q", reference="r")
    assert (result["score"], result["value"]) == (0.4, "not passed")
    assert "sourced: UNMET: as scripted" in result["reasoning"]
    assert asyncio.run(evaluator.aevaluate_strings(prediction="source: a"))["value"] == "passed"


@pytest.mark.parametrize("method", ["evaluate_strings", "aevaluate_strings"])
def test_string_evaluators_pass_callbacks_on_to_the_judge(server: OpenAIServer, method: str) -> None:
    judge, recorder, pairwise_recorder = chat_model(server, source_script), RunRecorder(), RunRecorder()
    evaluator, pairwise = (
        kind(SOURCE_RUBRIC, judge=judge) for kind in (RubricStringEvaluator, RubricPairwiseStringEvaluator)
    )
    one, two = {"prediction": "a", "callbacks": [recorder]}, {"prediction_b": "b", "callbacks": [pairwise_recorder]}
    result = getattr(evaluator, method)(**one)
    pair = getattr(pairwise, method.replace("strings", "string_pairs"))(**one | two)

    async def wait() -> None:
        await result
        await pair

    if method == "aevaluate_strings":
        asyncio.run(wait())
    assert [run[1] for run in recorder.select("chain")] == ["rubric"]
    assert (len(recorder.select("model")), len(pairwise_recorder.select("model"))) == (3, 6)


def test_string_evaluator_empty_text_raises() -> None:
    with pytest.raises(ValueError, match="nothing to grade"):
        RubricStringEvaluator(SOURCE_RUBRIC, judge="offline").evaluate_strings(prediction=" ")


@pytest.mark.parametrize(
    ("first", "second", "margin", "score", "value"),
    [
        ("source: a", "b", 0.0, 1.0, "A"),
        ("a", "source: b", 0.0, 0.0, "B"),
        ("a", "b", 0.0, 0.5, None),
        ("source: a", "b", 0.6, 0.5, None),
    ],
)
def test_pairwise_string_evaluator_swapped_texts_give_the_complement(
    server: OpenAIServer, first: str, second: str, margin: float, score: float, value: str | None
) -> None:
    judge = chat_model(server, source_script)
    evaluator = RubricPairwiseStringEvaluator(SOURCE_RUBRIC, judge=judge, tie_margin=margin)
    result = evaluator.evaluate_string_pairs(prediction=first, prediction_b=second, input="q")
    assert (result["score"], result["value"]) == (score, value)
    swapped = asyncio.run(evaluator.aevaluate_string_pairs(prediction=second, prediction_b=first, input="q"))
    assert swapped["score"] == 1 - score
