"""A text about which the judge gives no verdict fails alone, in every host, with default settings."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from rubric_integrations.graders import scheduler
from rubric_integrations.graders.endpoint import LOST_CALLS, MAX_FAILED_SUBMISSIONS
from rubric_integrations.judges import LMJudge
from rubric_integrations.langchain import RubricRunnable
from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.training import RubricReward
from tests.cli.commands import read_lines, run
from tests.dspy.programs import run_gepa, run_random_search, task_lm
from tests.openai_server import Call, OpenAIServer, Reply
from tests.server.serving import serving

RUBRIC = Rubric.from_dict([{"name": f"c{n}", "weight": 1, "requirement": f"Fulfils rule {n}"} for n in range(5)])
REFUSAL = "I'm sorry, I can't help with that."
# Of the replies about one text of 30: a refusal in prose, nothing, and the beginning of an answer.
FAULTS = {
    "refusing": Reply(text=REFUSAL),
    "empty": Reply(text=""),
    "cut": Reply(text='{"explanation": "It', finish_reason="length"),
}
ROWS = 60


def number_in(call: Call) -> int:
    return int(re.findall(r"text (\d+)", call.prompt)[-1])


def script(fault: Reply) -> Callable[[Call], Reply]:
    return lambda call: fault if number_in(call) % 30 == 7 else Reply()


def texts(count: int = ROWS) -> list[str]:
    return [f"text {number}" for number in range(count)]


def judge_at(server: OpenAIServer) -> LMJudge:
    return LMJudge("openai/mock", api_base=server.url)


@pytest.mark.parametrize("fault", [Reply(drop=True), Reply(status=503)])
@pytest.mark.parametrize("max_concurrency", [1, 64])
def test_text_whose_calls_are_lost_fails_alone_and_before_an_outage_would(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, fault: Reply, max_concurrency: int
) -> None:
    def short_wait(_failures: int) -> float:
        return 0.02

    # In place of up to 20 seconds between two attempts.
    monkeypatch.setattr(scheduler, "_backoff", short_wait)
    server.script = script(fault)
    rows = grade_many(texts(), RUBRIC, PerCriterionGrader(judge_at(server)), max_concurrency=max_concurrency)
    failed = [graded.row.id for graded in rows if graded.judge_error]
    assert (failed, rows.summary.graded, rows.summary.stopped) == (["8", "38"], ROWS - 2, None)
    assert max(Counter((number_in(call), call.criterion) for call in server.calls).values()) <= 2 * LOST_CALLS


@pytest.mark.parametrize(
    ("fault", "max_concurrency"), [*((fault, 8) for fault in FAULTS), ("refusing", 1), ("refusing", 64)]
)
def test_one_text_of_thirty_fails_alone_in_grade_many(server: OpenAIServer, fault: str, max_concurrency: int) -> None:
    server.script = script(FAULTS[fault])
    rows = grade_many(texts(), RUBRIC, PerCriterionGrader(judge_at(server)), max_concurrency=max_concurrency)
    failed = [graded.row.id for graded in rows if graded.judge_error]
    assert (failed, rows.summary.graded, rows.summary.stopped) == (["8", "38"], ROWS - 2, None)


def test_refused_text_is_requested_once_more_and_its_reply_is_quoted(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text=REFUSAL)
    rubric = Rubric.from_dict([{"requirement": "Fulfils rule 1"}])
    [graded] = grade_many(["text"], rubric, PerCriterionGrader(judge_at(server)))
    assert graded.judge_error == f'`c1` was not judged: parse: the judge gave no verdict: "{REFUSAL}"'
    assert len(server.calls) == 2


class Program(dspy.Module):
    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_text_of_thirty_fails_alone_in_dspy(server: OpenAIServer, fault: str) -> None:
    server.script = script(FAULTS[fault])
    devset = [dspy.Example(question=text).with_inputs("question") for text in texts()]
    metric = RubricMetric(RUBRIC, judge=judge_at(server))
    evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=8, display_progress=False)
    evaluate(Program())
    assert (metric.summary()["failed"], metric.summary()["gradings"]) == (2, ROWS)


@pytest.mark.optimizers
@pytest.mark.parametrize("optimize", [run_gepa, run_random_search])
def test_optimizer_goes_on_after_texts_without_a_verdict(server: OpenAIServer, optimize: Callable[..., Any]) -> None:
    # One of the four answers of the student is refused, whichever its criterion.
    server.script = lambda call: Reply(text=REFUSAL) if "It is 8" in call.prompt else Reply()
    metric, lm = RubricMetric(RUBRIC, judge=judge_at(server)), task_lm()
    with dspy.context(lm=lm):
        optimize(metric, lm)
    assert 0 < metric.summary()["failed"] < metric.summary()["gradings"]


async def test_one_completion_of_four_fails_alone_in_every_training_step(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(text=REFUSAL) if number_in(call) % 4 == 3 else Reply()
    reward = RubricReward(RUBRIC, judge_at(server))
    for step in range(10):
        completions = [f"text {4 * step + number}" for number in range(4)]
        assert await reward(["q"] * 4, completions) == [1.0, 1.0, 1.0, None]


def test_one_text_of_thirty_fails_alone_in_langchain(server: OpenAIServer) -> None:
    server.script = script(FAULTS["refusing"])
    runnable = RubricRunnable(RUBRIC, judge_at(server))
    results = runnable.batch([{"output": text} for text in texts()], return_exceptions=True)
    assert [index for index, result in enumerate(results) if isinstance(result, Exception)] == [7, 37]


async def test_one_text_of_thirty_fails_alone_on_a_server(server: OpenAIServer) -> None:
    server.script = script(FAULTS["refusing"])
    async with serving(RUBRIC, PerCriterionGrader(judge_at(server))) as service:
        statuses = [(await service.post("/grade", {"response": text})).status for text in texts()]
    assert [index for index, status in enumerate(statuses) if status != 200] == [7, 37]


def test_command_grades_all_other_rows_and_a_second_run_too(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = script(FAULTS["refusing"])
    (tmp_path / "rubric.json").write_text(RUBRIC.to_json())
    lines = [json.dumps({"id": text, "response": text}) for text in texts()]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    arguments = ["grade", tmp_path / "rubric.json", tmp_path / "rows.jsonl", "--out", tmp_path / "run.jsonl",
                 "--judge", "openai/mock", "--api-base", server.url]  # fmt: skip
    for options in ([], ["--resume"]):
        result = run(*arguments, *options)
        assert result.exit_code == 3
        assert f"{ROWS - 2} of {ROWS} graded" in result.stdout
        assert f'the judge gave no verdict: "{REFUSAL}"' in result.stderr
        rows = [line for line in read_lines(tmp_path / "run.jsonl") if line.get("id")]
        assert [row["id"] for row in rows if row["score"] is None] == ["text 7", "text 37"]


def test_judge_that_answers_everything_in_prose_ends_a_run(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text=REFUSAL)
    rows = grade_many(texts(300), RUBRIC, PerCriterionGrader(judge_at(server)))
    assert all(graded.judge_error for graded in rows)
    assert str(rows.summary.stopped) == f'the last 20 submissions failed: the judge gave no verdict: "{REFUSAL}"'


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_that_failed_last_time_are_graded_after_the_others(
    server: OpenAIServer, tmp_path: Path, ordered: bool
) -> None:
    """Otherwise, thirty refused texts at the beginning of a file would end each run at the same place."""
    server.script = lambda call: Reply(text=REFUSAL) if number_in(call) < 30 else Reply()
    grader = PerCriterionGrader(judge_at(server))

    def grade() -> list[str]:
        rows = [{"id": f"row {number}", "response": text} for number, text in enumerate(texts())]
        run = grade_many(rows, RUBRIC, grader, ledger=tmp_path / "run.sqlite", max_concurrency=4, ordered=ordered)
        return [graded.row.id for graded in run if graded.judge_error is None]

    assert grade() == []
    graded = grade()
    assert sorted(graded) == sorted(f"row {number}" for number in range(30, ROWS))
    sent = len(server.calls)
    server.script = lambda _call: Reply()
    assert len(grade()) == ROWS
    assert {number_in(call) for call in server.calls[sent:]} == set(range(30))


def test_row_that_failed_is_not_waited_for_by_more_rows_than_fit_into_memory(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rubric_integrations.runs.run.MAX_WAITING_ROWS", 4)
    server.script = lambda call: Reply(text=REFUSAL) if number_in(call) == 0 else Reply()
    read = 0

    def count_rows() -> Iterator[str]:
        nonlocal read
        for read, text in enumerate(texts(40), start=1):  # noqa: B007 -- the test reads it
            yield text

    for _ in range(2):
        grader = PerCriterionGrader(judge_at(server))
        rows = grade_many(count_rows(), RUBRIC, grader, ledger=tmp_path / "a", max_concurrency=1)
        results = iter(rows)
        assert next(results).row.id == "1"
        # Two under way, four that wait for the first, and the one that is read next.
        assert read <= 2 + 4 + 1
        assert [graded.row.id for graded in results] == [str(number) for number in range(2, 41)]
        assert rows.summary.failed == 1


def test_judge_that_dies_midway_ends_a_run_which_a_second_one_completes(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply() if call.number < 500 else Reply(text=REFUSAL)
    with Ledger(tmp_path / "run.sqlite") as ledger:
        rows = grade_many(texts(300), RUBRIC, PerCriterionGrader(judge_at(server)), ledger=ledger)
        graded = sum(graded.judge_error is None for graded in rows)
        assert 90 <= graded <= 100
        assert rows.summary.judge_is_unusable
        server.script = lambda _call: Reply()
        again = grade_many(texts(300), RUBRIC, PerCriterionGrader(judge_at(server)), ledger=ledger)
        assert [graded.score for graded in again] == [1.0] * 300


def test_judge_that_answers_in_prose_ends_a_dspy_run(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text=REFUSAL)
    metric = RubricMetric(RUBRIC, judge=judge_at(server))
    devset = [dspy.Example(question=text).with_inputs("question") for text in texts(100)]
    evaluate = dspy.Evaluate(
        devset=devset, metric=metric, num_threads=4, display_progress=False, max_errors=1_000, failure_score=0
    )
    with pytest.raises(JudgeOutage, match=r"the last 20 submissions failed: .*the judge gave no verdict"):
        evaluate(Program())
    # Of those in the four threads, some end after the run.
    assert abs(metric.summary()["failed"] - MAX_FAILED_SUBMISSIONS) <= 4
