"""Graders that obtain an answer to each criterion, in whatever number of calls: the panel, its order, the report."""

from __future__ import annotations

import asyncio
import hashlib
import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.computed import computed_answers, is_computed
from rubric_integrations.graders.long_texts import shown_to_judges
from rubric_integrations.graders.panel import PanelMember
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.conditions import has_checks, questions
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.applicability import applicable_criteria, voting_criterion
from rubric_integrations.scoring.criterion_report import votes_for
from rubric_integrations.scoring.voting import vote_is_decided
from rubric_integrations.submission.submission import Submission

T = TypeVar("T")


class CriterionGrader(Grader):
    """A grader that obtains an answer to each criterion. A subclass implements `ask`, the calls to one judge.

    Attributes:
        may_leave_open: Whether a criterion that no judge was asked about is left open; if not, it is a failure.
        asks_conditions_first: Whether a criterion with a condition (`applies_when`) is asked about only after the
            condition, and only if it holds; if not, both are asked at once, and the other answer is not used.
    """

    may_leave_open = False
    asks_conditions_first = True

    @abstractmethod
    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, indices: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about the questions with these indices: criteria, or conditions (see `rubric.conditions`).

        Make each of them with `question`.
        """

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers to the criteria that are not computed, in the order of the panel."""
        all_questions = questions(rubric.criteria)
        indices = [index for index, question in enumerate(all_questions) if not is_computed(question, submission)]
        if all(criterion.applies_when is None for criterion in rubric.criteria):
            return await self.ask_panel(rubric, submission, indices)
        indices.sort(key=lambda index: index < len(rubric))  # conditions first
        computed = await self.run_checks(rubric, submission)

        def ready(panel: Sequence[JudgeAnswers], *, while_open: bool = False) -> list[int]:
            applicable = applicable_criteria(rubric, panel, computed, self.policies, while_open=while_open)
            return [index for index in indices if index >= len(rubric) or index in applicable]

        first = ready([], while_open=not self.asks_conditions_first)
        panel = await self.ask_panel(rubric, submission, first)
        later = [index for index in ready(panel) if index not in first]
        if not later:
            return panel
        if self.stops_at_first_failure and any(isinstance(o, JudgeFailure) for o in panel[0].outcomes.values()):
            cancelled = JudgeFailure("cancelled", "another criterion had failed")
            return [panel[0].merged(JudgeAnswers(dict.fromkeys(later, cancelled)))]
        more = await self.ask_panel(rubric, submission, later)
        return [answers.merged(others) for answers, others in zip(panel, more, strict=True)]

    async def ask_panel(self, rubric: Rubric, submission: Submission, indices: Sequence[int]) -> list[JudgeAnswers]:
        """Ask each judge about those of these criteria that it may answer (see `Criterion.judge`).

        The judges are asked at the same time, or one after another (`voting.sequential`).
        """

        async def ask(member: PanelMember, indices: Sequence[int]) -> JudgeAnswers:
            own = [index for index in indices if member.may_answer(rubric, index)]
            if not own:
                return JudgeAnswers({}, member.name, member.weight)
            return await self.ask(member, rubric, submission, own)

        if not self.voting.sequential:
            return list(await asyncio.gather(*(ask(member, indices) for member in self.panel)))
        panel: list[JudgeAnswers] = []
        for position, member in enumerate(self.panel):
            waiting = [later.weight for later in self.panel[position:]]
            undecided = [index for index in indices if not self._is_decided(rubric, index, panel, waiting)]
            panel.append(await ask(member, undecided))
        return panel

    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[JudgeAnswers]) -> EvaluationReport:
        """Turn the judges' answers, and those of the checks, into the report."""
        computed = computed_answers(rubric, submission)
        return aggregate_answers(rubric, answers, computed, self.policies, may_leave_open=self.may_leave_open)

    async def run_checks(self, rubric: Rubric, submission: Submission) -> JudgeAnswers:
        """Compute the answers that no judge gives; in a thread if there are checks, because some take a second."""
        if not has_checks(rubric.criteria):
            return computed_answers(rubric, submission)
        return await asyncio.to_thread(computed_answers, rubric, submission)

    def question(
        self,
        rubric: Rubric,
        submission: Submission,
        index: int,
        member: PanelMember,
        batch: Sequence[int] = (),
    ) -> Question:
        """Make the question about one criterion, with its options in the order in which the judge sees them.

        Args:
            rubric: The rubric.
            submission: The submission.
            index: The criterion's index in the rubric, or the index of a condition among the rubric's questions.
            member: The judge that is asked.
            batch: The indices of all criteria of the same request, if it contains several.
        """
        all_questions = questions(rubric.criteria) if max(index, *batch, 0) >= len(rubric) else rubric.criteria
        criterion = all_questions[index]
        options = criterion.options or ()
        if options and self.options.shuffle:
            options = shuffle_options(options, self.options.seed, submission.response, index, member.name)
        is_part = len(batch or (index,)) < len(rubric)
        shown = shown_to_judges(submission, self.call_limiter.limits)
        return Question(
            shown,
            criterion,
            rubric.instructions,
            options,
            self.options.may_abstain,
            batch_criteria=tuple(all_questions[other] for other in batch),
            warm_prompt_cache=(self.warm_up is not None or self.may_leave_open) and is_part,
            whole_response=submission.response if shown is not submission else None,
        )

    @property
    def stops_at_first_failure(self) -> bool:
        """Whether the first failure ends the grade, so that the calls under way are cancelled."""
        return self.policies.on_failure == "raise" and len(self.panel) == 1

    def _is_decided(self, rubric: Rubric, index: int, panel: Sequence[JudgeAnswers], waiting: Sequence[float]) -> bool:
        criterion = voting_criterion(rubric, index)
        votes = [vote for vote in votes_for(index, panel) if vote.error is None]
        return vote_is_decided(criterion, votes, waiting, self.policies.strategy_for(criterion))


def shuffle_options(options: Sequence[T], seed: int, text: str, index: int, judge: str) -> tuple[T, ...]:
    """Shuffle options in an order that depends on the seed, the text, the criterion's index and the judge's name.

    It is the order of `autorubric` 1.6, so that its recorded runs can be repeated.
    """
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    key = int(hashlib.sha256(f"{seed}:{digest}:{index}:{judge}".encode()).hexdigest()[:16], 16) % 2**31
    shuffled = list(options)
    random.Random(key).shuffle(shuffled)  # noqa: S311 -- an order, not a secret
    return tuple(shuffled)
