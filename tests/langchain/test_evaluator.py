"""`RubricEvaluator`: feedback for LangSmith runs, and calls with keywords as an openevals evaluator."""

from __future__ import annotations

from typing import Any

import pytest
from langsmith import evaluate

from rubric_integrations import JudgeError, PerCriterionGrader
from rubric_integrations.langchain import RubricEvaluator, offline_client
from tests.langchain.helpers import (
    NUMBER_RUBRIC,
    chat_model,
    make_examples,
    make_run,
    number_script,
    number_target,
    number_text,
)
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")


@pytest.mark.parametrize(
    ("outputs", "error", "comment"),
    [
        ({"output": None}, None, "the target returned nothing"),
        (None, "Boom", "the target failed: Boom"),
        ({"output": " "}, None, "the target returned nothing"),
    ],
)
def test_evaluator_failed_target_gets_no_score(
    server: OpenAIServer, outputs: Any, error: str | None, comment: str
) -> None:
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server))
    results = evaluator.evaluate_run(make_run(outputs, error)).get("results", [])
    assert [(result.key, result.score) for result in results] == [("rubric", None)]
    assert comment in str(results[0].comment)
    assert server.calls == []


def test_evaluator_failing_judge_gives_an_error_row_without_score(server: OpenAIServer) -> None:
    model = chat_model(server, lambda call: Reply(status=500) if "source" in call.criterion else Reply("MET"))
    evaluator = RubricEvaluator(NUMBER_RUBRIC, grader=PerCriterionGrader(model, max_retries=0))
    rows: Any = evaluate(
        number_target, data=make_examples(1), evaluators=[evaluator], upload_results=False, client=offline_client()
    )
    results = {result.key: result for result in next(iter(rows))["evaluation_results"]["results"]}
    assert results["rubric"].score is None
    assert results["rubric.sourced"].score is None
    assert results["rubric"].extra == results["rubric.sourced"].extra == {"error": True}
    assert "not graded" in results["rubric"].comment


def test_evaluator_called_with_keywords_returns_the_dict_of_openevals(server: OpenAIServer) -> None:
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))
    result = evaluator(
        inputs={"question": "2 x 3?"}, outputs=number_text(6), reference_outputs="6", rubric_notes="ignored"
    )
    assert (result["key"], result["score"]) == ("rubric", 1.0)
    assert "passed" in result["comment"]
    assert [row["key"] for row in result["metadata"]["criteria"]] == ["rubric.right", "rubric.sourced", "rubric.rude"]


def test_evaluator_inside_a_users_function_scores_every_example(server: OpenAIServer) -> None:
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))

    def evaluate_output(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return evaluator(inputs=inputs, outputs=outputs, reference_outputs=reference_outputs)

    rows: Any = evaluate(
        number_target,
        data=make_examples(2),
        evaluators=[evaluate_output],
        upload_results=False,
        client=offline_client(),
    )
    scores = {row["example"].inputs["number"]: row["evaluation_results"]["results"][0].score for row in rows}
    assert scores == {0: 1.0, 1: 0.0}


def test_evaluator_called_without_text_or_with_a_failing_judge_raises(server: OpenAIServer) -> None:
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, lambda _call: Reply(status=401)))
    with pytest.raises(ValueError, match="nothing to grade"):
        evaluator(outputs={})
    with pytest.raises(JudgeError):
        evaluator(outputs=number_text(6))


async def test_evaluator_inside_a_running_event_loop_grades(server: OpenAIServer) -> None:
    model = chat_model(server, number_script)
    evaluator = RubricEvaluator(lambda inputs: NUMBER_RUBRIC, judge=model, name="grade")
    assert evaluator(inputs={}, outputs={"answer": number_text(6)})["score"] == 1.0
    assert (await evaluator.acall(outputs=number_text(6)))["metadata"]["criteria"][0]["key"] == "grade.right"


def test_evaluator_feedback_keys_list_the_criteria_of_a_fixed_rubric() -> None:
    assert RubricEvaluator(NUMBER_RUBRIC, judge="offline").feedback_keys == [
        "rubric",
        "rubric.right",
        "rubric.sourced",
        "rubric.rude",
    ]
    varying = RubricEvaluator(lambda inputs: NUMBER_RUBRIC, judge="offline", name="grade")
    assert varying.feedback_keys == ["grade"]
