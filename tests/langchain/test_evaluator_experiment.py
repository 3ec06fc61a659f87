"""Corrected and raw figures in LangSmith: `source_info` of feedback, and the corrected mean of an experiment."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langsmith import aevaluate, evaluate
from langsmith.schemas import Example

from rubric_integrations import Fields, Rubric, Submission
from rubric_integrations.langchain import RubricEvaluator, offline_client
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import Sampled
from tests.langchain.test_evaluator_tracing import RecordingClient

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")

RUBRIC = Rubric.from_dict(
    [
        {"name": "kind", "weight": 3, "requirement": "Is kind", "tags": ["tone"]},
        {"name": "brief", "weight": 1, "requirement": "Is brief", "check": {"max_words": 9}},
    ]
)
COUNT = 80
KEY = "rubric.score.corrected"


def text_of(number: int) -> str:
    """A text of which three quarters are kind in truth; the judge finds half of the rude ones."""
    return f"{'kind' if number % 4 else f'rude {number % 8 // 4}'} text {number}"


async def lenient(system: str, user: str) -> str:
    return json.dumps({"explanation": "so", "verdict": "UNMET" if "rude 0" in user else "MET"})


def target(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"output": text_of(inputs["number"])}


async def async_target(inputs: dict[str, Any]) -> dict[str, Any]:
    return target(inputs)


def examples(count: int) -> list[Example]:
    return [Example(id=uuid.uuid4(), inputs={"number": number, "question": "How?"}) for number in range(count)]


def label(numbers: Sequence[int], sampled: Sampled = "random") -> list[LabelledJudgment]:
    return [
        LabelledJudgment(
            submission=Submission(response=text_of(number), query="How?"),
            criterion=RUBRIC.criteria[0],
            verdict="MET" if number % 4 else "UNMET",
            sampled=sampled,
        )
        for number in numbers
    ]


def run_experiment(
    evaluator: RubricEvaluator,
    labels: list[LabelledJudgment],
    function: str = "evaluate",
    cluster: Callable[[str], str] | None = None,
) -> Any:
    settings: dict[str, Any] = {
        "data": examples(COUNT),
        "evaluators": [evaluator],
        "summary_evaluators": [evaluator.corrected_mean(labels, cluster=cluster)],
        "client": offline_client(),
        "upload_results": False,
    }
    results: Any = (
        asyncio.run(aevaluate(async_target, **settings)) if function == "aevaluate" else evaluate(target, **settings)
    )
    (summary,) = results._summary_results["results"]
    return summary


@pytest.mark.parametrize("function", ["evaluate", "aevaluate"])
def test_experiment_gets_the_mean_that_people_would_give_beside_the_judges(function: str) -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=lenient, fields=Fields(query="question"))
    summary = run_experiment(evaluator, label(range(0, COUNT, 2)) + label(range(1, COUNT, 4)), function)
    source, truth, by_judge = summary.evaluator_info, 0.75 * 0.75 + 0.25, 0.875 * 0.75 + 0.25
    assert (summary.key, source["corrected"], source["labelled"]) == (KEY, True, 60)
    assert source["judge_score"] == pytest.approx(by_judge)
    assert source["low"] < truth < source["high"]
    assert summary.score < by_judge
    assert summary.comment.startswith(f"{summary.score:.3f} [")
    assert summary.comment.split("; ")[0].endswith("by human labels, 0.906 by the judge")


def test_corrected_mean_of_runs_in_one_group_has_no_interval() -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=lenient, fields=Fields(query="question"))
    summary = run_experiment(evaluator, label(range(30)), cluster=lambda _: "one document")
    assert (summary.score is None, summary.evaluator_info["low"]) == (False, None)
    assert "too few groups (1)" in summary.comment


@pytest.mark.parametrize(
    ("labels", "comment"),
    [
        (label([1, 2, 3, 4], "chosen"), "not corrected: every label is `chosen` (4 in all)"),
        ([], "not corrected: none of the 0 labels belongs to a judgment"),
    ],
    ids=["chosen", "none"],
)
def test_labels_that_do_not_measure_the_judge_give_an_error_row(labels: list[LabelledJudgment], comment: str) -> None:
    summary = run_experiment(RubricEvaluator(RUBRIC, judge=lenient, fields=Fields(query="question")), labels)
    assert (summary.key, summary.score, summary.extra) == (KEY, None, {"error": True})
    assert summary.comment.startswith(comment)


def test_source_info_of_feedback_tells_corrected_from_raw_and_names_the_judge() -> None:
    client = RecordingClient()
    evaluator = RubricEvaluator(RUBRIC, judge=lenient, fields=Fields(query="question"))
    corrected_mean = evaluator.corrected_mean(label(range(30)))
    data = examples(30)
    list(evaluate(target, data=data, evaluators=[evaluator], summary_evaluators=[corrected_mean], client=client))
    sources = {feedback["key"]: feedback["source_info"] for feedback in client.logged}
    assert {key: source["corrected"] for key, source in sources.items()} == {
        "rubric": False, "rubric.tag.tone": False, "rubric.kind": False, "rubric.brief": False, KEY: True,
    }  # fmt: skip
    assert {source["judge"] for source in sources.values()} == {"generate_fn/lenient"}
    assert sum(feedback["key"] == KEY for feedback in client.logged) == 1
    assert len([feedback for feedback in client.logged if feedback.get("project_id")]) == 1


def test_evaluator_collects_grades_only_for_a_corrected_mean() -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=lenient, fields=Fields(query="question"))
    results: Any = evaluate(
        target, data=examples(3), evaluators=[evaluator], client=offline_client(), upload_results=False
    )
    assert len(list(results)) == 3
    assert evaluator._graded is None  # pyright: ignore[reportPrivateUsage]
