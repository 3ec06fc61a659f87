"""Graders that ask about criteria, by whatever number of calls: the panel, its turns, and the report."""

from __future__ import annotations

import asyncio
import hashlib
import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from rubric_integrations.checks.checks import run_check
from rubric_integrations.graders.base import Grader, PanelMember
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure, Outcome
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import aggregate_answers, votes_for
from rubric_integrations.scoring.voting import vote_is_decided
from rubric_integrations.submission.submission import Submission


class CriterionGrader(Grader):
    """A grader that obtains an answer to each criterion; a subclass says in `poll` how one judge is asked.

    Attributes:
        may_leave_open: Whether a criterion that nobody was asked about is left open; else it is a failure.
    """

    may_leave_open = False

    @abstractmethod
    async def poll(
        self, member: PanelMember, rubric: Rubric, submission: Submission, wanted: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about the criteria at these places."""

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers to the criteria that have no check, in the order of the panel."""
        wanted = [index for index, criterion in enumerate(rubric.criteria) if criterion.check is None]
        return await self.vote(rubric, submission, wanted)

    async def vote(self, rubric: Rubric, submission: Submission, wanted: Sequence[int]) -> list[JudgeAnswers]:
        """Obtain each judge's answers to the criteria at these places, side by side or in turn."""
        if not self.sequential:
            return list(await asyncio.gather(*(self.poll(member, rubric, submission, wanted) for member in self.panel)))
        panel_answers: list[JudgeAnswers] = []
        for place, member in enumerate(self.panel):
            waiting = [later.weight for later in self.panel[place:]]
            undecided = [index for index in wanted if not self._decided(rubric, index, panel_answers, waiting)]
            panel_answers.append(await self.poll(member, rubric, submission, undecided))
        return panel_answers

    def aggregate(self, rubric: Rubric, submission: Submission, found: Sequence[JudgeAnswers]) -> EvaluationReport:
        """Turn the judges' answers, and those of the checks, into the report."""
        computed: dict[int, Outcome] = {}
        for index, criterion in enumerate(rubric.criteria):
            if criterion.check is not None:
                try:
                    computed[index] = run_check(criterion.check, submission)
                except JudgeFailure as failure:
                    computed[index] = failure
        return aggregate_answers(
            rubric, found, JudgeAnswers(computed, judge="check"), self.policies, self.may_leave_open
        )

    def question(
        self,
        rubric: Rubric,
        submission: Submission,
        index: int,
        member: PanelMember,
        batch_criteria: Sequence[int] = (),
    ) -> Question:
        """The question that a criterion is, with its options in the order to show them."""
        criterion = rubric.criteria[index]
        options = criterion.options or ()
        if options and self.shuffle_options:
            options = shuffled(options, self.seed, submission.response, index, member.name)
        others = tuple(rubric.criteria[place] for place in batch_criteria)
        warm_prompt_cache = (self.warm_prompt_cache or self.may_leave_open) and len(batch_criteria or (index,)) < len(
            rubric
        )
        return Question(
            submission, criterion, rubric.instructions, options, self.policies.may_abstain, others, warm_prompt_cache
        )

    @property
    def stops_at_once(self) -> bool:
        """Whether the first failure ends the grade, so that its siblings need not be paid for."""
        return self.policies.on_failure == "raise" and len(self.panel) == 1

    def _decided(
        self, rubric: Rubric, index: int, panel_answers: Sequence[JudgeAnswers], waiting: Sequence[float]
    ) -> bool:
        criterion = rubric.criteria[index]
        votes = [vote for vote in votes_for(index, panel_answers) if vote.error is None]
        return vote_is_decided(criterion, votes, waiting, self.policies.strategy(criterion))


T = TypeVar("T")


def shuffled(options: Sequence[T], seed: int, text: str, index: int, judge: str) -> tuple[T, ...]:
    """The order in which a judge is shown the options: fixed by the seed, the text, the criterion and the judge.

    It is the order of `autorubric` 1.6, so that its recorded runs can be repeated.
    """
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    key = int(hashlib.sha256(f"{seed}:{digest}:{index}:{judge}".encode()).hexdigest()[:16], 16) % 2**31
    order = list(options)
    random.Random(key).shuffle(order)  # noqa: S311 -- an order, not a secret
    return tuple(order)
