"""Submissions and a rubric whose right verdicts and scores are known, and a judge without I/O."""

from __future__ import annotations

import asyncio

from rubric_integrations import Criterion, Rubric
from rubric_integrations.judges import Question
from rubric_integrations.scoring import Judgment, Spend
from tests.openai_server import Call

CRITERION_COUNT = 12
RUBRIC = Rubric([Criterion(name=f"k{i}", weight=i + 1, requirement=f"requirement {i}") for i in range(CRITERION_COUNT)])
SMALL_RUBRIC = Rubric([Criterion(requirement=f"r{i}") for i in range(3)])


def texts(count: int) -> list[str]:
    return [f"submission number {i} says so" for i in range(count)]


def is_met(submission: int, criterion: int) -> bool:
    return (submission * 7 + criterion * 3) % 5 != 0


def verdict(call: Call) -> str:
    """The verdict on the submission and the criterion of a request, the same for each request."""
    return "MET" if is_met(*key_of(call)) else "UNMET"


def key_of(call: Call) -> tuple[int, int]:
    submission = int(call.prompt.split("submission number ")[1].split()[0])
    return submission, int(call.criterion.removeprefix("requirement "))


def score(submission: int) -> float:
    """The score of a submission by `RUBRIC`."""
    met = sum(i + 1 for i in range(CRITERION_COUNT) if is_met(submission, i))
    return met / sum(range(1, CRITERION_COUNT + 1))


class InstantJudge:
    """A judge without I/O: MET unless the response has the word "bad". It counts its calls."""

    def __init__(self, cost: float | None = 0.0):
        self.calls = 0
        self.cost = cost

    def fingerprint(self) -> str:
        return "instant"

    async def judge(self, question: Question) -> Judgment:
        self.calls += 1
        await asyncio.sleep(0)
        met = "bad" not in question.submission.response
        return Judgment(verdict="MET" if met else "UNMET", value=float(met), spend=Spend(calls=1, cost=self.cost))
