"""The evaluator in a real pydantic-evals dataset: scores, labels, failures, and the YAML file of the dataset."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pydantic_evals", reason="pydantic-evals is not installed")

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EvaluatorContext
from pydantic_evals.otel import SpanTree
from pydantic_evals.reporting import EvaluationReport

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.pydantic_evals import RubricEvaluator
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, judge, make_grader
from tests.hosts.tables import print_arrivals

SAYS_42 = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]
RESPONSES = {row.id: row.response for row in ROWS}
AnyDataset = Dataset[Any, Any, Any]


def evaluate(evaluator: RubricEvaluator, *cases: Case[Any, Any, Any], output: Any = None) -> EvaluationReport:
    """Evaluate cases whose task returns the response with the name of the case, or always the same output."""

    def task(inputs: Any) -> Any:
        return RESPONSES[inputs["id"]] if output is None else output

    dataset = AnyDataset(name="test", cases=list(cases), evaluators=[evaluator])
    return dataset.evaluate_sync(task, progress=False)


def six_cases() -> list[Case[Any, Any, Any]]:
    return [Case(name=row.id, inputs={"id": row.id, "question": QUERY}) for row in ROWS]


def test_six_responses_have_their_scores_a_label_and_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    report = evaluate(RubricEvaluator(RUBRIC, grader=make_grader()), *six_cases())
    cases = {case.name: case for case in report.cases}
    scores = {name: {key: score.value for key, score in case.scores.items()} for name, case in cases.items()}
    labels = {name: {key: label.value for key, label in case.labels.items()} for name, case in cases.items()}
    for row in ROWS:
        assert scores[row.id].get("rubric") == (row.score if row.score is None else pytest.approx(row.score))
    assert scores["rude"]["rubric.rude"] == 0.0
    assert labels["unclear"] == {"rubric.right": "CANNOT_ASSESS"}
    [failure] = cases["failing"].evaluator_failures
    assert failure.error_type == "JudgeError"
    assert "`right` was not judged" in failure.error_message
    assert scores["failing"] == labels["failing"] == {}
    passed = {name: [result.value for result in case.assertions.values()] for name, case in cases.items()}
    assert passed == {
        "right": [True], "rude": [False], "wrong": [False], "empty-handed": [False], "unclear": [True], "failing": [],
    }  # fmt: skip
    averages = report.averages()
    assert averages is not None
    assert averages.scores == pytest.approx(
        {"rubric": 0.6, "rubric.right": 0.5, "rubric.sourced": 0.8, "rubric.rude": 0.6}
    )
    arrivals = {name: {**scores[name], **labels[name]} for name in scores}
    arrivals["failing"] = {"rubric": f"EvaluatorFailure ({failure.error_type})"}
    with capsys.disabled():
        print_arrivals("pydantic-evals", arrivals)


def test_reason_of_the_judge_is_with_the_score_of_its_criterion() -> None:
    report = evaluate(RubricEvaluator(RUBRIC, grader=make_grader()), six_cases()[1])
    scores = report.cases[0].scores
    assert scores["rubric.rude"].reason == "compared the words"
    assert scores["rubric"].reason == "not passed; coverage 100%; unmet: rude"


def test_dataset_written_to_yaml_and_read_back_grades_by_the_same_rubrics(tmp_path: Path) -> None:
    (tmp_path / "rubric.json").write_text(json.dumps(SAYS_42))
    evaluators = [
        RubricEvaluator(tmp_path / "rubric.json", "offline"),
        RubricEvaluator(RUBRIC, "offline", name="data"),
        RubricEvaluator(SAYS_42, "offline", name="list"),
    ]
    case: Case[Any, Any, Any] = Case(name="product", inputs="6 x 7?")
    path = tmp_path / "dataset.yaml"
    types = [RubricEvaluator]
    AnyDataset(name="d", cases=[case], evaluators=evaluators).to_file(path, custom_evaluator_types=types)
    assert "grader" not in path.read_text()
    dataset = AnyDataset.from_file(path, custom_evaluator_types=types)
    assert [getattr(evaluator, "name", "") for evaluator in dataset.evaluators] == ["rubric", "data", "list"]
    result = dataset.evaluate_sync(lambda _: "It is 42.", progress=False).cases[0]
    assert result.evaluator_failures == []
    assert result.scores["rubric.answer"].value == result.scores["list.answer"].value == 1.0
    assert result.labels["data.right"].value == "CANNOT_ASSESS"


def test_dataset_file_of_an_evaluator_with_a_grader_is_refused_when_it_is_read(tmp_path: Path) -> None:
    evaluator = RubricEvaluator(SAYS_42, grader=PerCriterionGrader("offline"))
    path = tmp_path / "dataset.yaml"
    dataset = AnyDataset(name="d", cases=[], evaluators=[evaluator])
    dataset.to_file(path, custom_evaluator_types=[RubricEvaluator])
    with pytest.raises(ExceptionGroup) as errors:
        AnyDataset.from_file(path, custom_evaluator_types=[RubricEvaluator])
    assert "`RubricEvaluator` needs either `judge`" in str(errors.value.exceptions[0])


class Metadata(NamedTuple):
    """Metadata that is no mapping."""

    rubric: Any


@pytest.mark.parametrize("metadata", [{"rubric": SAYS_42}, Metadata(SAYS_42), {"rubric": json.dumps(SAYS_42)}])
def test_case_with_a_rubric_of_its_own_is_graded_by_both(metadata: Any) -> None:
    shared = [{"name": "brief", "requirement": "Is brief", "check": {"max_words": 5}}]
    case: Case[Any, Any, Any] = Case(name="product", inputs="6 x 7?", metadata=metadata)
    report = evaluate(RubricEvaluator(shared, "offline"), case, output="It is 41.")
    assert {key: score.value for key, score in report.cases[0].scores.items()} == {
        "rubric": 0.5, "rubric.brief": 1.0, "rubric.answer": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "message"),
    [(None, "has no `rubric`"), ({"rubric": [{"weight": 1}]}, "requirement"), ({"rubric": "tone"}, "names none")],
)
def test_case_without_a_valid_rubric_is_a_failure_of_the_evaluator(metadata: Any, message: str) -> None:
    case: Case[Any, Any, Any] = Case(name="product", inputs="6 x 7?", metadata=metadata)
    report = evaluate(RubricEvaluator(judge="offline"), case, output="It is 42.")
    [failure] = report.cases[0].evaluator_failures
    assert message in failure.error_message


@pytest.mark.parametrize(
    "output",
    [
        "It is 42.",
        {"answer": "It is 42."},
        [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}],
        {"messages": [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}]},
        {"product": 42, "steps": ["6 + 6"]},
        "\ud83d 42",
    ],
)
def test_output_of_any_type_is_graded(output: Any) -> None:
    report = evaluate(RubricEvaluator(SAYS_42, "offline"), Case(name="product", inputs="6 x 7?"), output=output)
    assert report.cases[0].scores["rubric"].value == 1.0


@pytest.mark.parametrize("output", ["", " \n", {"answer": ""}, []])
def test_empty_output_is_a_failure_of_the_evaluator_and_no_score(output: Any) -> None:
    report = evaluate(RubricEvaluator(SAYS_42, "offline"), Case(name="product", inputs="6 x 7?"), output=output)
    [failure] = report.cases[0].evaluator_failures
    assert failure.error_type == "ValueError"
    assert report.cases[0].scores == {}


def test_inputs_and_the_expected_output_reach_the_judge_as_task_and_reference() -> None:
    prompts: list[str] = []

    async def recording_judge(system: str, user: str) -> str:
        prompts.append(user)
        return await judge(system, user)

    case: Case[Any, Any, Any] = Case(name="c", inputs={"question": QUERY}, expected_output="It was 8.4%.")
    evaluate(RubricEvaluator(RUBRIC, recording_judge), case, output="About 8%.")
    assert all(QUERY in prompt and "It was 8.4%." in prompt and "{" not in prompt.split(QUERY)[0] for prompt in prompts)


def test_error_of_a_criterion_that_the_grader_tolerates_is_a_label_and_no_number() -> None:
    grader = PerCriterionGrader(judge, max_retries=0, on_failure="abstain")
    report = evaluate(RubricEvaluator(RUBRIC, grader=grader), six_cases()[-1])
    assert report.cases[0].scores == report.cases[0].assertions == {}
    assert {key: label.value for key, label in report.cases[0].labels.items()} == {
        "rubric": "CANNOT_ASSESS", "rubric.right": "JUDGE_FAILED", "rubric.sourced": "JUDGE_FAILED",
        "rubric.rude": "JUDGE_FAILED",
    }  # fmt: skip


def test_cases_graded_side_by_side_stay_below_the_cap_of_the_grader() -> None:
    active, most = 0, 0

    async def slow_judge(system: str, user: str) -> str:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.01)
        active -= 1
        return await judge(system, user)

    grader = PerCriterionGrader(slow_judge, limits=CallLimits(max_concurrency=2))
    report = evaluate(RubricEvaluator(RUBRIC, grader=grader), *six_cases()[:5])
    assert most == 2
    assert all(not case.evaluator_failures for case in report.cases)


def test_evaluators_of_one_judge_share_their_grader() -> None:
    def grader_of(evaluator: RubricEvaluator) -> Grader:
        return evaluator._grader  # pyright: ignore[reportPrivateUsage]

    first, second = RubricEvaluator(SAYS_42, "offline"), RubricEvaluator(RUBRIC, "offline")
    assert grader_of(first) is grader_of(second)


async def test_evaluator_without_a_dataset_grades_one_context() -> None:
    context = EvaluatorContext[Any, Any, Any](
        name=None, inputs=QUERY, metadata=None, expected_output=None, output="It is 42.", duration=0.0,
        _span_tree=SpanTree(), attributes={}, metrics={},
    )  # fmt: skip
    results = await RubricEvaluator(SAYS_42, "offline", name="grade").evaluate(context)
    assert list(results) == ["grade", "grade.answer", "grade_passed"]
