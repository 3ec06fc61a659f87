"""A ledger of each kind keeps the replies of an explorer, which are no judgments."""

from __future__ import annotations

import asyncio

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import TextLimits
from rubric_integrations.runs import rescore
from rubric_integrations.runs.ledger import use_ledger
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.submission import Step, Trajectory
from tests.fakes import FakeExplorer, FakeJudge

LONG = Submission(
    response="Done.", trajectory=Trajectory(steps=tuple(Step(role="user", text=f"Message {n}") for n in range(1, 51)))
)
TWO = Rubric.from_dict([{"weight": 1, "requirement": "Builds it"}, {"weight": 3, "requirement": "Never deletes"}])
REPLIES = [("search", {"text": "message 7"})], [("submit", {"steps": [7]})]


def grader_of(explorer: FakeExplorer, judge: str = "j") -> PerCriterionGrader:
    answers = {"Builds it": "MET", "Never deletes": "UNMET"}
    limits = TextLimits(explorer=explorer, explore_above=100)
    return PerCriterionGrader(FakeJudge(answers, fingerprint=judge), text_limits=limits)


def test_explorations_are_replayed_and_are_not_counted(address: str) -> None:
    explorer = FakeExplorer(*REPLIES)
    for judge, reused in (("one", 0), ("two", 0), ("one", 2)):
        with use_ledger(address) as ledger:
            assert ledger is not None
            run = grade_many([LONG, LONG], TWO, grader_of(explorer, judge), ledger=ledger)
            assert [graded.score for graded in run] == [0.25, 0.25]
            # The second row reads both judgments of the first one.
            assert run.summary.reused == reused + 2
    assert len(explorer.requests) == 2
    with use_ledger(address) as ledger:
        assert len(ledger) == 4  # type: ignore[arg-type]
    (first, _) = rescore(address, TWO.model_copy(update={"criteria": TWO.criteria[:2]}))
    assert (first.score, first.missing) == (0.25, 0)
    assert first.report.exploration is not None


def test_run_that_ended_in_an_exploration_continues_with_the_open_request(address: str) -> None:
    failing = FakeExplorer(REPLIES[0], JudgeFailure("config", "no such model"))
    run = grade_many([LONG], TWO, grader_of(failing), ledger=address)
    assert [graded.score for graded in run] == [None]
    with use_ledger(address) as ledger:
        assert [failure.message for failure in ledger.failures()] == ["no such model"]  # type: ignore[union-attr]
    explorer = FakeExplorer(*REPLIES)
    assert [graded.score for graded in grade_many([LONG], TWO, grader_of(explorer), ledger=address)] == [0.25]
    assert [len(request.turns) for request in explorer.requests] == [1]


async def test_tasks_that_grade_one_text_together_make_each_request_once(address: str) -> None:
    explorer = FakeExplorer(*REPLIES)
    with use_ledger(address) as ledger:
        assert ledger is not None
        graders = [grader_of(explorer).with_store(ledger) for _ in range(6)]
        reports = await asyncio.gather(*(TWO.grade(LONG, grader=grader) for grader in graders))
    assert [report.score for report in reports] == [0.25] * 6
    assert len(explorer.requests) == 2


@pytest.mark.parametrize("reply", ["no JSON", ""])
def test_reply_that_cannot_be_read_is_replayed_as_such(address: str, reply: str) -> None:
    explorer = FakeExplorer(reply, REPLIES[1])
    for judge in ("one", "two"):
        run = grade_many([LONG], TWO, grader_of(explorer, judge), ledger=address)
        (graded,) = run
        assert graded.report is not None
        assert graded.report.exploration is not None
        assert graded.report.exploration.requests == 2
    assert len(explorer.requests) == 2
