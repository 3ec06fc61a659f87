"""Runs over many submissions: streams of every kind, order, limits, faults and a full disk."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, RubricError, Submission, grade_many
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge, ModelSettings, Question
from rubric_integrations.runs import Ledger, LedgerError
from rubric_integrations.runs import run as runner
from rubric_integrations.scoring import Judgment
from tests.openai_server import Call, OpenAIServer, Reply
from tests.runs.scripted import CRITERION_COUNT, RUBRIC, SMALL_RUBRIC, InstantJudge, key_of, score, texts, verdict

FAULTS: dict[str, Reply] = {
    "500": Reply(status=500),
    "malformed": Reply(text="The verdict, I would say, is MET."),
    "truncated": Reply(text='{"explanation": "as scripted", "verd'),
    "enum": Reply(text='{"explanation": "so", "verdict": "MAYBE"}'),
    "drop": Reply(drop=True),
    "429": Reply(status=429, retry_after=0.01),
    "hang": Reply(delay=30),
}


# A hang costs a whole timeout, which must be long enough for a slow machine: hence so few of them.
HANG_RATE, MOST_HANGS = 0.01, 2


@pytest.mark.simulation
def test_run_with_every_fault_gets_each_right_judgment_once(
    server: OpenAIServer, tmp_path: Path, record_property: Any
) -> None:
    chance, hits, answered = random.Random(5), Counter[str](), Counter[tuple[int, int]]()
    rates = dict.fromkeys(FAULTS, 0.2) | {"hang": HANG_RATE}

    def script(call: Call) -> Reply:
        for name, fault in FAULTS.items():
            if chance.random() < rates[name] and (name != "hang" or hits[name] < MOST_HANGS):
                hits[name] += 1
                return fault
        answered[key_of(call)] += 1
        return Reply(verdict(call))

    server.script = script
    judge = LMJudge("openai/m", api_base=server.url)
    grader = PerCriterionGrader(judge, max_retries=80, limits=CallLimits(timeout=3.0))
    run = grade_many(texts(25), RUBRIC, grader, ledger=tmp_path / "run.sqlite", max_concurrency=12)
    scores = [graded.score for graded in run]
    assert scores == pytest.approx([score(i) for i in range(25)])
    assert (len(answered), set(answered.values())) == (300, {1})
    assert min(hits.values()) > 0
    assert set(hits) == set(FAULTS)
    faults = ", ".join(f"{count} {name}" for name, count in hits.items())
    record_property("shown", f"faults at 20% each: 300 of 300 judgments, none twice, through {faults}")


@pytest.mark.simulation
def test_run_whose_server_often_hangs_gets_each_judgment(server: OpenAIServer) -> None:
    chance = random.Random(5)
    server.script = lambda call: Reply(delay=30) if chance.random() < 0.2 else Reply(verdict(call))
    judge = LMJudge("openai/m", api_base=server.url)
    grader = PerCriterionGrader(judge, limits=CallLimits(timeout=1.0))
    run = grade_many(texts(12), RUBRIC, grader)
    assert [graded.score for graded in run] == pytest.approx([score(i) for i in range(12)])
    hung = len(server.calls) - 12 * CRITERION_COUNT
    assert hung > 20
    assert run.summary.spend.calls == len(server.calls)


def test_endless_submissions_are_read_only_as_fast_as_they_are_graded() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield f"text {read}"

    run = grade_many(endless(), SMALL_RUBRIC, PerCriterionGrader(InstantJudge()), max_concurrency=4)
    for graded in run:
        if graded.row.id == "50":
            break
    assert read <= 50 + 2 * 4
    assert run.summary.submissions == 50


async def test_async_submissions_of_every_form_are_iterated_with_async_for() -> None:
    async def submissions() -> AsyncGenerator[Any]:
        for item in ["good", {"output": "bad", "id": "x"}, " ", Submission(response="good"), 7,
                     [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]]:  # fmt: skip
            yield item

    run = grade_many(submissions(), SMALL_RUBRIC, PerCriterionGrader(InstantJudge()))
    results = [(graded.row.id, graded.score, graded.row.error) async for graded in run]
    assert [(row_id, score) for row_id, score, _ in results] == [
        ("1", 1.0), ("x", 0.0), ("3", None), ("4", 1.0), ("5", None), ("6", 0.0)
    ]  # fmt: skip
    assert "nothing to grade" in str(results[2][2])
    assert "int" in str(results[4][2])
    summary = run.summary
    assert (summary.submissions, summary.graded, summary.ungradable, summary.mean_score) == (6, 4, 2, 0.5)


@pytest.mark.parametrize(("ordered", "first"), [(True, "1"), (False, "2")])
def test_results_come_in_order_or_as_soon_as_they_are_ready(ordered: bool, first: str) -> None:
    class SlowJudge(InstantJudge):
        async def judge(self, question: Question) -> Judgment:
            await asyncio.sleep(0.1 if "slow" in question.submission.response else 0)
            return await super().judge(question)

    grader = PerCriterionGrader(SlowJudge())
    results = list(grade_many(["slow", "quick", "quick"], SMALL_RUBRIC, grader, ordered=ordered))
    assert results[0].row.id == first
    assert sorted(graded.row.id for graded in results) == ["1", "2", "3"]


async def test_row_that_hangs_does_not_hold_up_the_rows_after_it() -> None:
    release, answered = asyncio.Event(), list[str]()

    class HangingJudge(InstantJudge):
        async def judge(self, question: Question) -> Judgment:
            if "number 3 " in question.submission.response:
                await release.wait()
            answered.append(question.submission.response)
            if len(set(answered)) == 59:
                release.set()
            return await super().judge(question)

    run = grade_many(texts(60), SMALL_RUBRIC, PerCriterionGrader(HangingJudge()), max_concurrency=4)
    assert [graded.row.id async for graded in run] == [str(number) for number in range(1, 61)]


def test_finished_rows_behind_one_that_hangs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_WAITING_ROWS", 10)
    read, peak = 0, 0

    class SlowFirst(InstantJudge):
        async def judge(self, question: Question) -> Judgment:
            nonlocal peak
            if "number 0 " in question.submission.response:
                await asyncio.sleep(0.2)
                peak = read
            return await super().judge(question)

    def counted() -> Iterator[str]:
        nonlocal read
        for text in texts(100):
            read += 1
            yield text

    run = grade_many(counted(), SMALL_RUBRIC, PerCriterionGrader(SlowFirst()), max_concurrency=4)
    assert len(list(run)) == 100
    assert peak <= 10 + 2 * 4 + 1


def test_rows_that_were_read_before_their_source_fails_are_graded() -> None:
    def failing() -> Iterator[str]:
        yield from texts(20)
        raise OSError("the share is gone")

    run = grade_many(failing(), SMALL_RUBRIC, PerCriterionGrader(InstantJudge()))
    ids: list[str] = []
    with pytest.raises(OSError, match="the share is gone"):
        ids.extend(graded.row.id for graded in run)
    assert run.summary.graded == 20


def test_max_cost_ends_a_run_before_a_call_would_exceed_it(tmp_path: Path) -> None:
    judge, path = InstantJudge(cost=0.01), tmp_path / "l.sqlite"
    run = grade_many(texts(100), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=path, max_cost=0.905)
    results = list(run)
    assert judge.calls == 90
    assert run.summary.spend.cost == pytest.approx(0.9)
    assert "`max_cost` of $0.905 is reached" in str(run.summary.stopped)
    # No incomplete grade is yielded.
    assert all(graded.score == 1.0 for graded in results)
    resumed = grade_many(texts(100), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=path)
    assert len(list(resumed)) == 100
    assert (judge.calls, resumed.summary.reused, resumed.summary.stopped) == (300, 90, None)


def priced_reply(sent: int, received: int) -> Reply:
    body = {
        "model": "gpt-4.1",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": Reply().content}}],
        "usage": {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received},
    }
    return Reply(raw=json.dumps(body).encode())


@pytest.mark.parametrize("grows", [True, False])
def test_max_cost_holds_though_calls_become_more_expensive_or_cheaper(server: OpenAIServer, grows: bool) -> None:
    def script(call: Call) -> Reply:
        share = min(1.0, call.number / 40)
        return priced_reply(1_000, round(2_000 * (share if grows else 1 - share)))

    server.script = script
    grader = PerCriterionGrader(
        LMJudge("openai/gpt-4.1", api_base=server.url, settings=ModelSettings(max_tokens=2_000))
    )
    run = grade_many(texts(200), SMALL_RUBRIC, grader, max_cost=0.5)
    list(run)
    assert run.summary.spend.cost is not None
    assert 0.4 < run.summary.spend.cost <= 0.5
    assert "`max_cost` of $0.5 is reached" in str(run.summary.stopped)


def test_max_cost_of_a_model_without_a_known_price_is_refused_before_a_call(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(LMJudge("openai/my-own", api_base=server.url))
    run = grade_many(texts(3), SMALL_RUBRIC, grader, max_cost=0.5)
    assert list(run) == []
    assert "use `max_calls`" in str(run.summary.stopped)
    assert server.calls == []


@pytest.mark.parametrize(("max_calls", "done", "calls"), [(7, 2, 7), (3, 1, 3), (2, 0, 2), (24, 8, 24), (100, 8, 24)])
def test_run_finishes_row_by_row_near_a_limit(max_calls: int, done: int, calls: int) -> None:
    judge = InstantJudge(cost=0.01)
    run = grade_many(texts(8), SMALL_RUBRIC, PerCriterionGrader(judge), max_calls=max_calls)
    assert [graded.score for graded in run] == [1.0] * done
    assert judge.calls == run.summary.spend.calls == calls
    judge.calls = 0
    run = grade_many(texts(8), SMALL_RUBRIC, PerCriterionGrader(judge), max_cost=max_calls * 0.01)
    assert [graded.score for graded in run] == [1.0] * done
    assert judge.calls == calls


def test_rows_are_graded_at_the_same_time_far_from_a_limit() -> None:
    class WatchedJudge(InstantJudge):
        under_way = peak = 0

        async def judge(self, question: Question) -> Judgment:
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
            await asyncio.sleep(0.002)
            self.under_way -= 1
            return await super().judge(question)

    judge = WatchedJudge()
    run = grade_many(texts(40), SMALL_RUBRIC, PerCriterionGrader(judge), max_concurrency=16, max_calls=130)
    assert len(list(run)) == 40
    assert judge.peak > 2 * len(SMALL_RUBRIC)  # row by row, it would be the criteria of one


def test_limit_lets_a_run_finish_whose_judgments_are_stored(tmp_path: Path) -> None:
    judge, path = InstantJudge(), tmp_path / "l.sqlite"
    assert len(list(grade_many(texts(6), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=path))) == 6
    run = grade_many(texts(6), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=path, max_calls=0)
    assert [graded.score for graded in run] == [1.0] * 6
    assert (judge.calls, run.summary.stopped) == (18, None)


def test_call_that_timed_out_is_counted_and_its_cost_is_unknown(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(delay=5) if call.number == 1 else Reply()
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url), limits=CallLimits(timeout=0.5))
    run = grade_many(texts(3), SMALL_RUBRIC, grader)
    assert [graded.score for graded in run] == [1.0] * 3
    assert run.summary.spend.calls == len(server.calls) == 10
    assert (run.summary.spend.cost, run.summary.spend.is_lower_bound) == (None, True)


def test_full_disk_ends_the_run_at_once_and_loses_no_stored_judgment(tmp_path: Path) -> None:
    judge = InstantJudge()
    with Ledger(tmp_path / "run.sqlite") as ledger:
        with ledger._file.working() as db:  # pyright: ignore[reportPrivateUsage]
            db.execute("PRAGMA max_page_count = 40")
        run = grade_many(texts(5000), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=ledger, max_concurrency=4)
        with pytest.raises(LedgerError, match=r"full.*the judgments so far are stored"):
            list(run)
        stored = len(ledger)
    # A judgment is stored after its call has freed its slot: lost are at most those of the rows under way.
    assert 0 < stored <= judge.calls <= stored + 2 * 4 * len(SMALL_RUBRIC)


def test_first_call_of_a_submission_is_answered_before_the_others_are_sent() -> None:
    """A provider caches the shared beginning of prompts only once it has answered the first of them."""

    class WatchedJudge(InstantJudge):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.answered = Counter[str](), Counter[str]()
            self.under_way = self.peak = 0

        async def judge(self, question: Question) -> Judgment:
            text = question.submission.response
            assert not self.begun[text] or self.answered[text]
            self.begun[text] += 1
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
            await asyncio.sleep(0.005)
            self.under_way -= 1
            self.answered[text] += 1
            return await super().judge(question)

    judge = WatchedJudge()
    run = grade_many(texts(8), RUBRIC, PerCriterionGrader(judge), max_concurrency=16)
    assert all(graded.score == 1.0 for graded in run)
    assert set(judge.begun.values()) == {12}
    # The calls of other submissions use the slots meanwhile.
    assert judge.peak > 2 * len(SMALL_RUBRIC)  # row by row, it would be the criteria of one


def test_run_iterated_twice_gets_its_judgments_from_the_ledger_and_counts_on(tmp_path: Path) -> None:
    judge = InstantJudge()
    run = grade_many(["good", "bad"], SMALL_RUBRIC, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite")
    assert [graded.score for graded in run] == [graded.score for graded in run] == [1.0, 0.0]
    assert (judge.calls, run.summary.submissions, run.summary.spend.calls) == (6, 4, 6)


def test_invalid_arguments_of_a_run_are_refused() -> None:
    grader = PerCriterionGrader(InstantJudge())
    with pytest.raises(TypeError, match="got one str"):
        grade_many("a text", SMALL_RUBRIC, grader)
    with pytest.raises(ValueError, match="`max_concurrency`"):
        grade_many([], SMALL_RUBRIC, grader, max_concurrency=0)
    with pytest.raises(ValueError, match="`max_cost`"):
        grade_many([], SMALL_RUBRIC, grader, max_cost=-1)


def test_run_without_submissions_has_no_results() -> None:
    assert list(grade_many([], SMALL_RUBRIC, PerCriterionGrader(InstantJudge()))) == []


def test_grade_many_accepts_the_path_of_a_rubric_a_list_or_a_dictionary(tmp_path: Path) -> None:
    criteria = [{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}]
    path = tmp_path / "rubric.yaml"
    path.write_text("- {weight: 1, requirement: Says 42, check: {number: 42}}\n", encoding="utf-8")
    grader = PerCriterionGrader("offline")
    for rubric in (path, str(path), criteria, {"criteria": criteria, "name": "R"}):
        assert [graded.score for graded in grade_many(["It is 42.", "No."], rubric, grader)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("rubric", "error", "words"),
    [
        ("missing.yaml", RubricError, r"missing\.yaml"),
        ([{"weight": 1, "requirment": "Says 42"}], RubricError, "requirment"),
        (42, TypeError, "`rubric` must be a Rubric, the path"),
    ],
)
def test_grade_many_refuses_what_is_no_rubric_before_it_reads_a_submission(
    rubric: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        grade_many(["It is 42."], rubric, PerCriterionGrader("offline"))
