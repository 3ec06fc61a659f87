"""One call about each submission is answered before the others are sent, unless that would only take time."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Mapping

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader
from rubric_integrations.graders.endpoint import AdaptiveConcurrency, WarmUp
from rubric_integrations.judges import BatchResult, Question
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.scoring.judgment import NO_SPEND
from tests.fakes import FakeBatchJudge, FakeJudge

RUBRIC = Rubric([Criterion(requirement="r0"), Criterion(requirement="r1"), Criterion(requirement="r2")])


async def used(grader: Grader) -> Grader:
    """Let the judge of a grader reply once: the first call of a new grader's first run is made alone."""
    async for _ in grade_many(["before"], RUBRIC, grader):
        pass
    return grader


@pytest.mark.parametrize("source", [list, iter])
async def test_calls_of_a_run_that_fit_under_the_limit_are_sent_at_once(source: type) -> None:
    arrived, all_arrived = 0, asyncio.Event()

    async def answer(question: Question) -> str:
        nonlocal arrived
        if question.submission.response != "before":
            arrived += 1
            if arrived == 24:
                all_arrived.set()
            async with asyncio.timeout(20):
                await all_arrived.wait()
        assert not (question.warm_prompt_cache and question.criterion.requirement != "r0" and arrived)
        return "MET"

    grader = await used(PerCriterionGrader(FakeJudge(answer)))
    run = grade_many(source([f"text {i}" for i in range(8)]), RUBRIC, grader, max_concurrency=64)
    assert [graded.score async for graded in run] == [1.0] * 8


async def test_calls_beyond_the_limit_wait_for_the_first_one_about_their_submission() -> None:
    answered, sent_before_answer = Counter[str](), 0

    async def answer(question: Question) -> str:
        nonlocal sent_before_answer
        text = question.submission.response
        sent_before_answer += question.criterion.requirement != "r0" and not answered[text]
        await asyncio.sleep(0.001)
        answered[text] += 1
        return "MET"

    grader = await used(PerCriterionGrader(FakeJudge(answer)))
    async for _ in grade_many([f"text {i}" for i in range(40)], RUBRIC, grader, max_concurrency=8):
        pass
    # At the end of the run, slots are free, and the last submissions wait for nothing.
    assert sent_before_answer <= 2 * 8


async def test_calls_for_several_criteria_that_fit_under_the_limit_are_sent_at_once() -> None:
    arrived, all_arrived = 0, asyncio.Event()

    class WaitingJudge(FakeBatchJudge):
        async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
            nonlocal arrived
            arrived += 1
            if arrived > 3:  # the run before has three
                if arrived == 3 + 6:
                    all_arrived.set()
                async with asyncio.timeout(20):
                    await all_arrived.wait()
            return BatchResult({number: Judgment(verdict="MET", value=1.0) for number in questions}, {}, NO_SPEND)

    grader = await used(PerCriterionOneShotGrader(WaitingJudge(), max_criteria_per_call=1))
    run = grade_many(["one", "two"], RUBRIC, grader, max_concurrency=64)
    assert [graded.score async for graded in run] == [1.0, 1.0]


async def test_first_call_that_fails_while_others_are_under_way_ends_the_grade() -> None:
    async def answer(question: Question) -> str:
        if question.criterion.requirement == "r1" and question.submission.response == "one":
            raise JudgeFailure("config", "no such model", about_text=True)
        return "MET"

    grader = await used(PerCriterionGrader(FakeJudge(answer), max_retries=0))
    results = [graded async for graded in grade_many(["one", "two"], RUBRIC, grader)]
    assert [graded.score for graded in results] == [None, 1.0]
    assert "no such model" in str(results[0].judge_error)


async def test_run_of_a_grader_whose_judge_has_not_replied_makes_its_first_call_alone() -> None:
    judge = FakeJudge(JudgeFailure("config", "the key is wrong"))
    grader = PerCriterionGrader(judge)
    for _ in range(2):
        run = grade_many([f"text {i}" for i in range(20)], RUBRIC, grader)
        assert {graded.score async for graded in run} == {None}
        assert run.summary.judge_is_unusable
    assert len(judge.questions) == 4


async def test_run_ends_at_the_second_refusal_although_an_earlier_run_had_replies() -> None:
    answers: list[str | Exception] = ["MET"]
    judge = FakeJudge(lambda _: answers[0])
    grader = await used(PerCriterionGrader(judge))
    answers[0] = JudgeFailure("config", "the key was revoked")
    run = grade_many([f"text {i}" for i in range(20)], RUBRIC, grader)
    assert {graded.score async for graded in run} == {None}
    assert run.summary.judge_is_unusable
    assert run.summary.failed == 1


async def test_runs_of_one_grader_share_the_limit() -> None:
    judge = FakeJudge(lambda _: asyncio.sleep(0.001, "MET"))
    grader = PerCriterionGrader(judge)

    async def run(name: str) -> None:
        async for _ in grade_many([f"{name} {i}" for i in range(20)], RUBRIC, grader, max_concurrency=4):
            pass

    await asyncio.gather(run("one"), run("two"), run("three"))
    assert judge.peak == 4


async def test_warm_up_from_a_pickle_holds_until_the_rows_end() -> None:
    warm_up: WarmUp = pickle.loads(pickle.dumps(WarmUp()))
    concurrency = AdaptiveConcurrency(3)
    first: asyncio.Task[bool] = asyncio.create_task(asyncio.sleep(3600, True))
    held = asyncio.create_task(warm_up.hold(first, 2, concurrency))
    too_many = asyncio.create_task(warm_up.hold(first, 1, concurrency))
    await asyncio.sleep(0)
    warm_up.end_rows(concurrency)
    await asyncio.sleep(0)
    assert not held.done()
    too_many.cancel()
    await asyncio.sleep(0)
    warm_up.end_rows(concurrency)
    assert await held is False
    first.cancel()
