"""What a ledger of any kind records beside judgments: submissions, graders, and what runs have spent."""

from __future__ import annotations

import asyncio

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.results import Spend
from rubric_integrations.runs import Run, RunLedger, open_ledger, rescore
from rubric_integrations.submission import Attachment
from tests.runs.scripted import SMALL_RUBRIC, InstantJudge, texts

OWN = Rubric([Criterion(requirement="own \x00 \ud83d", weight=2)])


def test_ledger_of_each_kind_has_the_protocol_of_a_run(address: str) -> None:
    with open_ledger(address) as ledger:
        assert isinstance(ledger, RunLedger)
        assert ledger
        assert len(ledger) == 0


def test_submissions_come_back_in_their_order_with_files_and_rubrics(address: str) -> None:
    image = Attachment(data=b"\x89PNG\r\n\x1a\n" + bytes(50), mime_type="image/png", name="a.png")
    submissions = [
        Submission(response="plain \x00 \ud83d – 😀"),
        Submission(response="with a file", attachments=(image,)),
        Submission(response="with the same file", attachments=(image,)),
    ]
    with open_ledger(address) as ledger:
        for number, submission in enumerate(submissions):
            ledger.record_submission(f"row {number} \x00 \ud83d", submission, OWN if number else None)
        # The rubric of the last time counts, and a submission is recorded once.
        ledger.record_submission("row 0 \x00 \ud83d", submissions[0], OWN)
        ledger.record_submission("row 1 \x00 \ud83d", submissions[1])
    with open_ledger(address) as ledger:
        rows = list(ledger.submissions())
    assert [submission for _, submission in rows] == submissions
    assert [row.rubric and Rubric.from_json(row.rubric) for row, _ in rows] == [OWN, None, OWN]
    assert [row.id[:5] for row, _ in rows] == ["row 0", "row 1", "row 2"]


def test_latest_grader_is_the_one_that_was_recorded_last(address: str) -> None:
    with open_ledger(address) as ledger:
        assert ledger.latest_grader() is None
        for name in ("a", "b", "a"):
            ledger.record_grader({"grader": name, "text": "\x00 \ud83d"})
        assert ledger.latest_grader() == {"grader": "a", "text": "\x00 \ud83d"}


def test_run_at_an_address_is_resumed_and_rescored_there(address: str) -> None:
    judge = InstantJudge()
    for reused in (0, 15):
        run = grade_many(texts(5), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=address)
        assert [graded.score for graded in run] == [1.0] * 5
        assert (judge.calls, run.summary.reused) == (15, reused)
    assert [result.score for result in rescore(address, SMALL_RUBRIC)] == [1.0] * 5


async def test_spend_of_parts_is_summed_by_run_and_a_part_counts_with_its_last_record(address: str) -> None:
    with open_ledger(address) as ledger, open_ledger(address) as other:
        await ledger.exchange_spend("r \x00 \ud83d", "a", Spend(calls=2, cost=0.5))
        await other.exchange_spend("another", "a", Spend(calls=50, cost=50.0))
        await ledger.exchange_spend("r \x00 \ud83d", "a", Spend(calls=3, cost=0.75))
        total = await other.exchange_spend("r \x00 \ud83d", "b", Spend(calls=1, cost=None))
        assert (total.calls, total.cost) == (4, 0.75)


def test_limit_of_a_named_run_counts_what_earlier_processes_have_spent(address: str) -> None:
    judge = InstantJudge(cost=0.125)

    def run(name: str | None, first: int, **limits: float) -> int:
        before = judge.calls
        rows = [f"{first} {text}" for text in texts(4)]
        graded = grade_many(rows, SMALL_RUBRIC, PerCriterionGrader(judge), ledger=address, run=name, **limits)  # pyright: ignore[reportArgumentType]
        list(graded)
        assert bool(graded.summary.stopped) == (judge.calls - before < 12)
        return judge.calls - before

    assert run("nightly", 0, max_calls=18) == 12
    assert run("nightly", 1, max_calls=18) == 6
    assert run("nightly", 2, max_calls=18) == 0
    assert run("nightly", 3, max_cost=18 * 0.125 + 0.25) == 2
    assert run("weekly", 4, max_calls=18) == 12
    assert run(None, 5, max_calls=18) == 12


async def test_limit_of_a_named_run_holds_for_parts_that_spend_at_the_same_time(address: str) -> None:
    judge = InstantJudge()
    with open_ledger(address) as ledger, open_ledger(address) as other:
        runs = [
            grade_many(
                (f"{number} {text}" for text in texts(40)), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=store,
                max_calls=20, run="r", max_concurrency=2,
            )
            for number, store in enumerate((ledger, other))
        ]  # fmt: skip

        async def consume(run: Run) -> None:
            async for _ in run:
                pass

        await asyncio.gather(*map(consume, runs))
        total = await ledger.exchange_spend("r", "spectator", Spend())
    # Each part may start calls for a tenth of a second before it knows of those of the other.
    assert 20 <= judge.calls == total.calls <= 40
    assert all("`max_calls` of 20 is reached" in (run.summary.stopped or "") for run in runs)


def test_named_run_needs_a_ledger_that_counts() -> None:
    grader = PerCriterionGrader(InstantJudge())
    with pytest.raises(ValueError, match="`run` 'nightly' needs a `ledger`"):
        grade_many(["a"], SMALL_RUBRIC, grader, run="nightly")
