"""The scorer in a real `mlflow.genai.evaluate`: assessments, errors, means, and names that MLflow refuses."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge
from rubric_integrations.mlflow import RubricScorer
from tests.fakes import FakeJudge
from tests.hosts.six_responses import OUTPUTS, QUERY, ROWS, RUBRIC, judge, make_grader
from tests.hosts.tables import COLUMNS, print_arrivals
from tests.openai_server import Call, OpenAIServer, Reply

SAYS_42 = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]


def always_met(call: Call) -> Reply:
    return Reply("MET")


def row(outputs: Any, expectations: dict[str, Any] | None = None) -> dict[str, Any]:
    values = {"inputs": {"question": QUERY}, "outputs": outputs}
    return values if expectations is None else {**values, "expectations": expectations}


def evaluate(mlflow: Any, rows: list[dict[str, Any]], scorer: RubricScorer) -> tuple[dict[str, float], list[Any]]:
    """Return the metrics, and the assessments of each row by name, as they are in MLflow's database."""
    result = mlflow.genai.evaluate(data=rows, scorers=[scorer])
    by_response: dict[Any, dict[str, Any]] = {}
    for trace in mlflow.search_traces(run_id=result.run_id, return_type="list"):
        # MLflow switches its tracing of DSPy on, so that the first call of a judge may have a trace, too.
        if trace.info.assessments:
            outputs = trace.data.spans[0].outputs
            by_response[str(outputs)] = {assessment.name: assessment for assessment in trace.info.assessments}
    assert len(by_response) == len(rows)
    return result.metrics, [by_response[str(values["outputs"])] for values in rows]


def test_six_responses_have_their_scores_a_label_and_an_error(mlflow: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scorer = RubricScorer(RUBRIC, grader=make_grader())
    metrics, assessed = evaluate(mlflow, [row(response) for _, response, _ in ROWS], scorer)
    assert metrics == pytest.approx(
        {"rubric/mean": 0.6, "rubric.right/mean": 0.5, "rubric.sourced/mean": 0.8, "rubric.rude/mean": 0.6}
    )
    by_id = {ROWS[number].id: assessments for number, assessments in enumerate(assessed)}
    for expected in ROWS:
        value = by_id[expected.id]["rubric"].value
        assert value == (expected.score if expected.score is None else pytest.approx(expected.score))
    rude = by_id["rude"]
    assert rude["rubric.rude"].value == 0.0
    assert rude["rubric.rude"].rationale == "compared the words"
    assert rude["rubric.rude"].source.source_type == "LLM_JUDGE"
    assert rude["rubric"].metadata["passed"] == "False"
    assert rude["rubric"].metadata["coverage"] == "1.0"
    unclear = by_id["unclear"]["rubric.right"]
    assert (unclear.value, unclear.error) == ("CANNOT_ASSESS", None)
    for name in COLUMNS:
        failed = by_id["failing"][name]
        assert failed.value is None
        assert failed.error.error_code == "JUDGE_FAILED"
    assert "`right` was not judged" in by_id["failing"]["rubric"].error.error_message
    arrivals = {
        name: {column: "error JUDGE_FAILED" if (cell := cells[column]).error else cell.value for column in COLUMNS}
        for name, cells in by_id.items()
    }
    with capsys.disabled():
        print_arrivals("MLflow", arrivals)


def test_judgments_before_the_failure_remain_beside_the_error(mlflow: Any) -> None:
    async def failing_once(system: str, user: str) -> str:
        return "no answer" if "Names a source" in user.partition("## kind ##")[2] else await judge(system, user)

    grader = PerCriterionGrader(failing_once, max_retries=0, on_failure="abstain")
    metrics, [cells] = evaluate(mlflow, [row(ROWS[0].response)], RubricScorer(RUBRIC, grader=grader))
    assert cells["rubric.sourced"].error.error_code == "JUDGE_FAILED"
    assert {name: cells[name].value for name in ("rubric.right", "rubric.rude")} == {
        "rubric.right": 1.0, "rubric.rude": 1.0,
    }  # fmt: skip
    assert "rubric.sourced/mean" not in metrics


def test_row_with_a_rubric_of_its_own_is_graded_by_both_and_its_reference_reaches_the_judge(mlflow: Any) -> None:
    prompts: list[str] = []

    async def recording_judge(system: str, user: str) -> str:
        prompts.append(user)
        return await judge(system, user)

    rows = [row({"answer": "It is 42."}, {"criteria": SAYS_42, "expected_response": "Forty-two."})]
    metrics, _ = evaluate(mlflow, rows, RubricScorer(RUBRIC, recording_judge))
    assert metrics["rubric.answer/mean"] == 1.0
    assert "rubric.right/mean" in metrics
    assert all("Forty-two." in prompt and QUERY in prompt for prompt in prompts)


def test_row_that_cannot_be_graded_is_an_error_and_no_score(mlflow: Any) -> None:
    rows = [row(""), row("It is 42."), row("It is 41.", {"criteria": [{"weight": 1}]})]
    metrics, cells = evaluate(mlflow, rows, RubricScorer(SAYS_42, "offline"))
    assert metrics["rubric/mean"] == 1.0
    assert [cell["rubric"].value for cell in cells] == [None, 1.0, None]
    assert [cell["rubric"].error is None for cell in cells] == [False, True, False]


@pytest.mark.filterwarnings("ignore:.*is graded", "ignore:an input has")
@pytest.mark.parametrize("form", OUTPUTS)
def test_output_in_every_form_is_graded_by_the_same_text_as_in_other_hosts(mlflow: Any, form: str) -> None:
    fake, (output, text) = FakeJudge("MET"), OUTPUTS[form]
    scorer = RubricScorer([{"requirement": "Gives the right figure"}], grader=PerCriterionGrader(fake))
    if text is None:
        with pytest.raises(ValueError, match="response"):
            scorer(inputs={"question": QUERY}, outputs=output)
    else:
        scorer(inputs={"question": QUERY}, outputs=output)
    assert [question.submission.response for question in fake.questions] == ([] if text is None else [text])


def test_conversation_as_output_is_graded_by_its_last_answer(mlflow: Any) -> None:
    messages = [{"role": "user", "content": "41?"}, {"role": "assistant", "content": "It is 42."}]
    metrics, _ = evaluate(mlflow, [row({"messages": messages})], RubricScorer(SAYS_42, "offline"))
    assert metrics["rubric/mean"] == 1.0


def test_names_with_characters_that_mlflow_refuses_are_metrics_with_underscores(mlflow: Any) -> None:
    names = ["cites § 3? (yes)", "a/../b:c", "l'été", "1" * 200]
    rubric = Rubric([Criterion(name=name, requirement="Names a source") for name in names])
    metrics, _ = evaluate(mlflow, [row(ROWS[0].response)], RubricScorer(rubric, judge, name="über/all"))
    assert set(metrics) == {
        "über_all/mean", "über_all.cites _ 3_ _yes_/mean", "über_all.a_.._b_c/mean", "über_all.l_été/mean",
        f"über_all.{'1' * 200}/mean",
    }  # fmt: skip


def test_names_that_would_be_one_metric_are_refused(mlflow: Any) -> None:
    rubric = Rubric([Criterion(name=name, requirement="Names a source") for name in ("a?", "a!")])
    with pytest.raises(ValueError, match="'a\\?' and 'a!' have the same name in MLflow"):
        RubricScorer(rubric, judge)
    scorer = RubricScorer([{"name": "a?", "requirement": "Says 42", "check": {"number": 42}}], "offline")
    own = [{"name": "a!", "requirement": "Says 42", "check": {"number": 42}}]
    _, [cells] = evaluate(mlflow, [row("It is 42.", {"criteria": own})], scorer)
    assert "have the same name in MLflow" in cells["rubric"].error.error_message


def test_grade_that_is_slower_than_the_time_limit_of_mlflow_is_not_given_up(
    mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    base: Any = pytest.importorskip("mlflow.genai.scorers.base")
    assert base.DEFAULT_SCORER_TIMEOUT > 0
    monkeypatch.setattr(base, "DEFAULT_SCORER_TIMEOUT", 0.01)

    async def slow_judge(system: str, user: str) -> str:
        await asyncio.sleep(0.2)
        return await judge(system, user)

    metrics, _ = evaluate(mlflow, [row(ROWS[0].response)], RubricScorer(RUBRIC, slow_judge))
    assert metrics["rubric/mean"] == 1.0


def test_requests_of_the_judge_are_not_recorded_as_traces_of_the_program(mlflow: Any) -> None:
    with OpenAIServer(always_met) as server:
        grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url, api_key="unused"))
        rows = [row(f"{number}: {ROWS[0].response}") for number in range(4)]
        before = len(mlflow.search_traces(return_type="list", max_results=1000))
        evaluate(mlflow, rows, RubricScorer(RUBRIC, grader=grader))
        mlflow.flush_trace_async_logging()
    assert len(mlflow.search_traces(return_type="list", max_results=1000)) - before == len(rows)


def test_rows_graded_in_threads_stay_below_the_cap_of_the_grader(mlflow: Any) -> None:
    active, most = 0, 0

    async def slow_judge(system: str, user: str) -> str:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.05)
        active -= 1
        return await judge(system, user)

    grader = PerCriterionGrader(slow_judge, limits=CallLimits(max_concurrency=2))
    rows = [row(response) for _, response, score in ROWS if score is not None]
    metrics, _ = evaluate(mlflow, rows, RubricScorer(RUBRIC, grader=grader))
    assert most == 2
    assert not math.isnan(metrics["rubric/mean"])


def test_abstention_about_the_whole_is_a_label_and_no_number(mlflow: Any) -> None:
    rubric = Rubric([Criterion(name="right", requirement="Gives the right figure")])
    rows = [row(response) for name, response, _ in ROWS if name in {"right", "unclear"}]
    metrics, cells = evaluate(mlflow, rows, RubricScorer(rubric, judge))
    assert metrics == {"rubric/mean": 1.0, "rubric.right/mean": 1.0}
    assert [cell["rubric"].value for cell in cells] == [1.0, "CANNOT_ASSESS"]
