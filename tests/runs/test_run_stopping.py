"""Runs that end before their last submission, because a rule has decided."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.runs import Graded, LedgerError
from rubric_integrations.runs.run import RowWindow
from rubric_integrations.scoring import Judgment
from rubric_integrations.trust import SequentialGate
from tests.runs.scripted import InstantJudge

RUBRIC = Rubric([Criterion(requirement="Is good")])
PERFECT = 20  # as many perfect scores as a sequential gate at 0.8 needs


class Recorder:
    """A rule that records the scores, and stops at a number of them."""

    def __init__(self, stop_after: int):
        self.scores: list[float | None] = []
        self.stop_after = stop_after

    def __call__(self, score: float | None) -> str | None:
        self.scores.append(score)
        return "enough" if len(self.scores) == self.stop_after else None


class UnevenJudge(InstantJudge):
    """Answers about "slow" responses last, fails on "broken" ones, and reports a limit if "out of budget"."""

    async def judge(self, question: Question) -> Judgment:
        response = question.submission.response
        for _ in range(50 if "slow" in response else 0):
            await asyncio.sleep(0)
        if "broken" in response:
            raise ValueError("no answer")
        if "out of budget" in response:
            raise RunStopped("`max_calls` is reached")
        return await super().judge(question)


@pytest.mark.parametrize(("text", "decision", "needed"), [("good", "pass", PERFECT), ("bad", "fail", 3)])
def test_sequential_gate_ends_an_endless_run_and_says_why(text: str, decision: str, needed: int) -> None:
    gate = SequentialGate(0.8)
    endless = (f"{text} {number}" for number in count())
    run = grade_many(endless, RUBRIC, PerCriterionGrader(InstantJudge()), max_concurrency=2, stop_when=gate)
    results = list(run)
    assert (gate.decision, gate.count) == (decision, needed)
    assert needed <= len(results) <= needed + 2 * 2
    side = "above" if decision == "pass" else "below"
    reason = f"{decision} after {needed} submissions: the mean score is {side} 0.8 (alpha 0.05)"
    assert run.summary.stopped == reason


@pytest.mark.parametrize("ordered", [True, False])
async def test_rule_gets_scores_in_the_order_of_the_submissions_whichever_finishes_first(ordered: bool) -> None:
    submissions = ["slow and bad", "good", "broken", {"response": ""}, "bad", "good"]
    rule = Recorder(stop_after=99)
    grader = PerCriterionGrader(UnevenJudge(), max_retries=0)
    run = grade_many(submissions, RUBRIC, grader, ordered=ordered, stop_when=rule)
    finished = [graded.row.id async for graded in run]
    assert (finished[0] == "1") is ordered
    assert rule.scores == [0.0, 1.0, None, None, 0.0, 1.0]
    assert run.summary.stopped is None


def test_row_that_a_failure_policy_scored_has_no_score_for_the_rule() -> None:
    rule = Recorder(stop_after=1)
    grader = PerCriterionGrader(UnevenJudge(), max_retries=0, on_failure="worst_case")
    run = grade_many(["broken"], RUBRIC, grader, stop_when=rule)
    assert [graded.score for graded in run] == [0.0]
    assert rule.scores == [None]


def test_resumed_run_passes_stored_scores_on_again_without_a_call(tmp_path: Path) -> None:
    judge, ledger = InstantJudge(), tmp_path / "run.sqlite"

    def run_over(texts: Iterator[str], gate: SequentialGate) -> list[float | None]:
        run = grade_many(texts, RUBRIC, PerCriterionGrader(judge), ledger=ledger, max_concurrency=1, stop_when=gate)
        return [graded.score for graded in run]

    first, second = SequentialGate(0.8), SequentialGate(0.8)
    run_over((f"good {number}" for number in range(12)), first)
    assert (first.decision, judge.calls) == ("inconclusive", 12)
    results = run_over((f"good {number}" for number in count()), second)
    assert (second.decision, second.count) == ("pass", PERFECT)
    assert judge.calls == len(results)


def test_second_iteration_does_not_count_scores_twice(tmp_path: Path) -> None:
    gate = SequentialGate(0.8)
    texts = [f"good {number}" for number in range(12)]
    run = grade_many(texts, RUBRIC, PerCriterionGrader(InstantJudge()), ledger=tmp_path / "run.sqlite", stop_when=gate)
    assert len(list(run)) == len(list(run)) == gate.count == 12
    assert gate.decision == "inconclusive"


def test_limit_that_comes_first_leaves_the_gate_undecided() -> None:
    gate = SequentialGate(0.8)
    texts = (f"good {number}" for number in count())
    run = grade_many(texts, RUBRIC, PerCriterionGrader(InstantJudge()), max_calls=10, stop_when=gate)
    assert len(list(run)) == gate.count == 10
    assert gate.decision == "inconclusive"
    assert run.summary.stopped is not None
    assert "max_calls" in run.summary.stopped


def test_decision_stays_the_reason_if_a_limit_stops_a_row_under_way() -> None:
    rule = Recorder(stop_after=1)
    run = grade_many(["good", "slow and out of budget"], RUBRIC, PerCriterionGrader(UnevenJudge()), stop_when=rule)
    assert [graded.score for graded in run] == [1.0]
    assert (run.summary.stopped, rule.scores) == ("enough", [1.0])


def test_error_of_a_rule_ends_the_run() -> None:
    def broken(score: float | None) -> str | None:
        raise ZeroDivisionError(f"cannot use {score}")

    run = grade_many(["good"], RUBRIC, PerCriterionGrader(InstantJudge()), stop_when=broken)
    with pytest.raises(ZeroDivisionError, match=r"cannot use 1\.0"):
        list(run)


def test_interrupted_run_leaves_the_gate_undecided() -> None:
    gate = SequentialGate(0.8)

    def interrupted() -> Iterator[str]:
        yield from (f"good {number}" for number in range(10))
        raise KeyboardInterrupt

    run = grade_many(interrupted(), RUBRIC, PerCriterionGrader(InstantJudge()), max_concurrency=1, stop_when=gate)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    assert gate.decision == "inconclusive"
    assert gate.count <= 10


def test_gate_counts_a_missing_score_as_zero_for_a_pass_and_as_one_for_a_failure() -> None:
    def count_until_decided(scores: list[float | None]) -> tuple[str, int]:
        gate = SequentialGate(0.8)
        for score in scores:
            if gate.add(score) != "inconclusive":
                break
        return gate.decision, gate.count

    assert count_until_decided([1.0] * 60) == ("pass", PERFECT)
    with_missing = count_until_decided([None, *[1.0] * 60])
    assert with_missing == count_until_decided([0.0, *[1.0] * 60])
    assert with_missing[1] > PERFECT
    assert count_until_decided([None, *[0.0] * 60]) == count_until_decided([1.0, *[0.0] * 60])
    assert count_until_decided([None] * 500) == ("inconclusive", 500)


async def test_rows_that_fail_at_the_same_time_raise_once_and_are_not_reported_by_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(number: int) -> Graded:
        raise LedgerError(f"error {number}")

    window = RowWindow(4, 1000, ordered=True)
    for number in range(4):
        window.start(partial(fail, number))
    await asyncio.sleep(0.01)

    with pytest.raises(LedgerError, match="error 0"):
        _ = [task.result() for task in window.take()]
    await window.cancel()
    del window
    gc.collect()
    assert "never retrieved" not in caplog.text
