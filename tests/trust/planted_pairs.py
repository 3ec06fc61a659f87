"""Pairs of answers with a planted preference, a scripted model that proposes criteria, and a judge that reads words."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rubric_integrations.judges import Question
from rubric_integrations.rubric.criterion import CONDITION_PREFIX
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge

LIMIT, DOCTOR, VAGUE, ANSWER, BOB = (
    "States a daily limit in grams",
    "Advises to ask a doctor",
    "Leaves the amount to the reader",
    "Begins with the word Answer",
    "Praises Bob",
)
_WORDS = {LIMIT: "at most", DOCTOR: "doctor", VAGUE: "as you like", ANSWER: "Answer", BOB: "Bob"}

_DOCTOR = " Ask a doctor first."

Proposal = dict[str, Any]
Model = Callable[[str, str], Awaitable[str]]


def planted_pairs(count: int = 120) -> list[dict[str, Any]]:
    """Return pairs of which the better answer states a limit, and often names a doctor."""
    return [
        {
            "id": f"p{number}",
            "query": f"Question {number}?",
            "better": f"Answer {number}: take at most {number} g a day."
            + (" Ask a doctor first." if number % 3 else ""),
            "worse": f"Answer {number}: as you like, number {number}." + ("" if number % 7 else " Ask a doctor first."),
        }
        for number in range(count)
    ]


def proposal(requirement: str, quote: str, kind: str = "requirement", name: str = "") -> Proposal:
    return {"name": name or requirement, "requirement": requirement, "kind": kind, "quote": quote}


def reply_of(*proposals: Proposal) -> str:
    return json.dumps({"proposals": proposals})


class PlantedProposer:
    """An async function as a model: it proposes good, constant, redundant and invented criteria with real quotes.

    Args:
        further: Further proposals, at the beginning of each reply.

    Attributes:
        prompts: The user prompt of each call.
    """

    def __init__(self, *further: Proposal):
        self.further = further
        self.prompts: list[str] = []

    async def __call__(self, system_prompt: str, user_prompt: str) -> str:
        self.prompts.append(user_prompt)
        limit, vague = (
            match[0] if (match := re.search(pattern, user_prompt)) else "no such quote at all"
            for pattern in (r"take at most \d+ g a day", r"as you like, number \d+")
        )
        return reply_of(
            *self.further,
            proposal(LIMIT, limit, name="limit"),
            proposal(DOCTOR, "Ask a doctor first.", name="doctor"),
            proposal(VAGUE, vague, "penalty", name="vague"),
            proposal(ANSWER, limit),
            proposal(BOB, limit),
            proposal("Is invented", "stands nowhere at all"),
        )


def reads_words(words: dict[str, str] | None = None, fails_on: Sequence[str] = ()) -> ScriptedJudge:
    """Return a judge that says MET if the response contains the word of a criterion, and that fails on some."""
    known = {**_WORDS, **(words or {})}

    def answer(question: Question) -> Any:
        requirement = question.criterion.requirement.removeprefix(CONDITION_PREFIX)
        if requirement in fails_on:
            return JudgeFailure("transport", "no reply")
        return "MET" if known[requirement] in question.submission.response else "UNMET"

    return ScriptedJudge(answer)
