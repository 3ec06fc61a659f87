"""What a ledger of any kind records beside judgments: submissions, graders, and what runs have spent."""

from __future__ import annotations

import asyncio

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges.spend import NOTHING, Allowance, Claim, Shares
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


async def test_parts_of_a_run_are_granted_what_the_others_have_not_claimed(address: str) -> None:
    name, limit = "r \x00 \ud83d", Allowance(10, 2.0)

    async def claim(store: RunLedger, part: str, spent: Allowance, wanted: Allowance) -> Shares:
        made = Claim(spent, wanted, limit)
        shares = await store.claim_spend(name, part, made)
        assert shares.own == made.granted(shares.others)
        return shares

    with open_ledger(address) as ledger, open_ledger(address) as other:
        await other.claim_spend("another run", "a", Claim(Allowance(50, 50.0), Allowance(50, 50.0)))
        assert await claim(ledger, "a", NOTHING, Allowance(4, 0.5)) == (Allowance(4, 0.5), NOTHING)
        assert await claim(other, "b", NOTHING, Allowance(8, 0.25)) == (Allowance(6, 0.25), Allowance(4, 0.5))
        assert (await claim(ledger, "a", Allowance(2, 0.75), Allowance(5, 9.0))).own == Allowance(4, 1.75)
        # What was spent counts beyond the limits, too, and what is given back is free for the others.
        assert (await claim(other, "b", Allowance(9, 0.25), Allowance(9, 0.25))).own == Allowance(9, 0.25)
        assert (await claim(other, "b", Allowance(1, 0.25), Allowance(1, 0.25))).own == Allowance(1, 0.25)
        assert (await claim(ledger, "a", Allowance(4, 1.0), Allowance(20, 1.0))).own == Allowance(9, 1.0)
        unlimited = await ledger.claim_spend(name, "c", Claim(NOTHING, Allowance(5, 3.0)))
        assert unlimited == (Allowance(5, 3.0), Allowance(10, 1.25))


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
        total = await ledger.claim_spend("r", "spectator", Claim(NOTHING, NOTHING))
    assert judge.calls == total.others.calls == 20
    assert all("`max_calls` of 20 is reached" in (run.summary.stopped or "") for run in runs)


def test_named_run_needs_a_ledger_that_counts() -> None:
    grader = PerCriterionGrader(InstantJudge())
    with pytest.raises(ValueError, match="`run` 'nightly' needs a `ledger`"):
        grade_many(["a"], SMALL_RUBRIC, grader, run="nightly")
