"""The totals and rows that a metric records of its grades."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.dspy.history import MetricHistory
from rubric_integrations.reporting import report_page
from rubric_integrations.scoring import EvaluationReport, Spend, TokenUsage
from rubric_integrations.submission import Submission
from rubric_integrations.trust import compare_runs
from tests.dspy.programs import (
    DEVSET,
    EXPECTED_SCORES,
    RUBRIC,
    Student,
    judge_at,
    judge_script,
    metric_at,
    student_lm,
)
from tests.openai_server import OpenAIServer, Reply


def test_summary_after_an_evaluation_equals_what_the_server_counted(metric: RubricMetric, server: OpenAIServer) -> None:
    with dspy.context(lm=student_lm()):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=4, display_progress=False)(Student())
    summary = metric.summary()
    assert (summary["gradings"], summary["passed"], summary["failed"], summary["cached"]) == (4, 2, 0, 0)
    assert summary["calls"] == len(server.calls) == 8  # two of three criteria; the third is a check
    assert summary["tokens"] == sum(
        len(call.prompt) // 4 + len(judge_script(call).content) // 4 for call in server.calls
    )
    assert summary["mean_coverage"] == 1.0


def test_summary_of_a_score_without_assessment_counts_it_as_undefined(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("CANNOT_ASSESS")
    metric = metric_at(server, Rubric([Criterion(requirement="a")]))
    score = metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (float(score), bool(score), score.coverage, metric.summary()["undefined"]) == (0.0, False, 0.0, 1)


def test_summary_with_a_call_of_unknown_tokens_and_price_has_no_totals() -> None:
    history = MetricHistory(size=2)
    submission = Submission(response="x")
    known = Spend(calls=1, usage=TokenUsage(prompt_tokens=3, completion_tokens=4), cost=0.5)
    for spend in (known, Spend(calls=1, usage=None, cost=None)):
        report = EvaluationReport(
            score=1.0, raw_score=1.0, passed=True, complete=True, coverage=1.0, spend=spend, report=()
        )
        history.add(Rubric([Criterion(requirement="a")]), submission, report)
    assert [(row["tokens"], row["cost"]) for row in history.rows()] == [(7, 0.5), (None, None)]
    summary = history.summary()
    assert (summary["calls"], summary["tokens"], summary["cost"]) == (2, None, None)


def test_evaluation_becomes_a_run_file_like_any_other(
    metric: RubricMetric, server: OpenAIServer, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(ValueError, match="has graded nothing yet"):
        metric.to_run(path)
    server.script = lambda call: judge_script(call) if "Product 3?" not in call.prompt else Reply(status=400)
    with dspy.context(lm=student_lm()):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=4, display_progress=False, max_errors=9)(Student())
    run = metric.to_run(path)
    assert (run.rubric, run.pass_mark, len(run.rows)) == (RUBRIC.name, RUBRIC.pass_mark, 4)
    scores = {row.submission.query: row.report.score for row in run.rows if row.submission and row.report}
    expected: list[float | None] = list(EXPECTED_SCORES)
    expected[3] = None
    assert scores == {f"Product {n}?": score for n, score in enumerate(expected)}
    assert [row.is_graded for row in run.rows if row.submission and row.submission.query == "Product 3?"] == [False]
    assert compare_runs(run, run).inputs == 3
    assert report_page([run])
    with pytest.raises(FileExistsError, match="overwrite=True"):
        metric.to_run(path)
    assert metric.to_run(path, overwrite=True).row_keys() == run.row_keys()


def test_history_has_a_row_for_each_computed_grade_up_to_the_cache_size(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = metric_at(server, cache_size=2)
    for answer in ("It is 6.", "No.", "No.", "It is 8, or so I would think."):
        metric(DEVSET[0], dspy.Prediction(answer=answer))
    assert [row["response"] for row in metric.history] == ["No.", "It is 8, or so I would think."]
    row: Any = metric.history[0]
    assert (row["query"], row["score"], row["passed"], row["unmet"]) == ("Product 0?", 0.2, False, ["right"])
    assert (row["calls"], row["error"]) == (2, None)


def test_sixteen_threads_count_every_token_and_leave_nothing_in_dspys_histories(
    server: OpenAIServer, recwarn: pytest.WarningsRecorder
) -> None:
    criteria = [Criterion(name=f"k{i}", requirement=f"Requirement {i}") for i in range(10)]
    judge = judge_at(server)
    metric = RubricMetric(Rubric(criteria), grader=PerCriterionGrader(judge))
    devset = [dspy.Example(question=f"Question {i}?").with_inputs("question") for i in range(200)]

    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"Answer to {question}")

    def evaluate(examples: list[dspy.Example]) -> float:
        run = dspy.Evaluate(devset=examples, metric=metric, num_threads=16, display_progress=False)
        return run(Echo()).score

    trace, history = len(dspy.settings.trace), len(GLOBAL_HISTORY)
    assert evaluate(devset) == 100.0
    assert evaluate(devset[-50:]) == 100.0
    summary = metric.summary()
    assert (summary["gradings"], summary["cached"]) == (200, 50)
    assert summary["calls"] == len(server.calls) == 2000
    completion_tokens = len(Reply().content) // 4
    assert summary["tokens"] == sum(len(call.prompt) // 4 + completion_tokens for call in server.calls)
    assert not [warning for warning in recwarn if "event loop" in str(warning.message)]
    # DSPy's own histories would grow by 43 MB per 4,000 calls.
    assert (len(dspy.settings.trace), len(GLOBAL_HISTORY), judge.lm.history) == (trace, history, [])
    assert len(metric.history) == 200
