"""The exploration of a grade: the requests to the explorer, and the submission as judges see it afterwards."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

from rubric_integrations._util.event_loop import run_in_thread
from rubric_integrations.graders.scheduler import CallLimiter
from rubric_integrations.graders.settings import TextLimits
from rubric_integrations.judges.exploration import ExplorationLoop, ExplorationRequest, ExplorationTask, ExplorerReply
from rubric_integrations.judges.protocol import Judge, Retries, answer, innermost
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure
from rubric_integrations.scoring.report import EvaluationReport, Exploration
from rubric_integrations.submission.step_lines import count_characters
from rubric_integrations.submission.submission import Submission, has_numbered_steps


class GradeExploration:
    """The exploration of one submission, which all criteria and all rounds of its grade share.

    After a lost request, a later round continues with the open request.

    Args:
        submission: The submission.

    Attributes:
        submission: The submission that is graded, with its complete trajectory.
        shown: The submission as judges see it. It is the same object if nothing was explored.
    """

    def __init__(self, submission: Submission):
        self.submission = self.shown = submission
        self._loop: ExplorationLoop | None = None
        self._is_prepared = False
        self._failure: JudgeFailure | None = None

    async def run(
        self,
        explorer: Judge,
        limits: TextLimits,
        limiter: CallLimiter,
        task: tuple[str, Sequence[Criterion]],
        retries: Retries,
    ) -> JudgeFailure | None:
        """Explore the trajectory, unless this has been done or is not needed.

        Args:
            explorer: The explorer, whose calls are limited.
            limits: The limits on texts, with the settings of the exploration.
            limiter: Repeats failed requests.
            task: The rubric's instructions, and the criteria and conditions that need a judge.
            retries: How often a request is repeated in this round.

        Returns:
            The failure of the exploration, which is a failure of all criteria that need a judge. None if there is none.
        """
        if self.submission.trajectory is None:
            return None
        if not self._is_prepared:
            self._loop = await run_in_thread(partial(_make_loop, self.submission, limits, *task))
            self._is_prepared = True
        if self._loop is None or self.shown is not self.submission:
            return None
        if self._failure is not None and self._failure.repeats is not None:
            return self._failure
        try:
            await self._explore(self._loop, explorer, limiter, retries)
        except JudgeFailure as failure:
            self._failure = _failure_of_all(failure)
            return self._failure
        return None

    async def _explore(self, loop: ExplorationLoop, explorer: Judge, limiter: CallLimiter, retries: Retries) -> None:
        """Make the open requests, and replace the submission that judges see.

        Raises:
            JudgeFailure: A request has no reply, or nothing was submitted.
        """
        while (request := loop.next_request(retries)) is not None:
            reply: ExplorerReply | JudgeFailure
            reply, _ = await limiter.outcome(partial(answer, explorer, request), retries)
            if isinstance(reply, JudgeFailure):
                raise reply
            # A search reads the complete trajectory.
            await run_in_thread(partial(loop.take, reply))
        try:
            self.shown = await run_in_thread(lambda: self.submission.with_selection(loop.selected()))
        except JudgeFailure as failure:
            if limiter.refusals is not None:
                # The next grade of the same text would make all requests again.
                first = ExplorationRequest(loop.task, (), 0)
                limiter.refusals.add(innermost(explorer), first, failure, retries)
            raise

    def add_to(self, report: EvaluationReport) -> EvaluationReport:
        """Add the share of the trajectory that was shown to a report. Return it unchanged if nothing was explored."""
        loop, trajectory = self._loop, self.shown.trajectory
        if loop is None or trajectory is None or self.shown is self.submission:
            return report
        tools = loop.tools
        exploration = Exploration(
            steps=len(trajectory.steps),
            total_steps=len(loop.task.trajectory.steps),
            characters=tools.characters,
            total_characters=loop.task.characters,
            requests=loop.requests,
            absent=tools.absent,
            ran_out=not tools.is_finished,
        )
        return report.model_copy(update={"exploration": exploration})


def _make_loop(
    submission: Submission, limits: TextLimits, guidelines: str, criteria: Sequence[Criterion]
) -> ExplorationLoop | None:
    """Make the loop of an exploration. None if the trajectory is short, or if judges do not see it."""
    trajectory, explorer = submission.trajectory, limits.explorer
    if trajectory is None or explorer is None or not criteria:
        return None
    if sum(map(count_characters, trajectory.steps)) <= limits.explore_above:
        return None
    if not has_numbered_steps(submission.without_conversation(), criteria):
        return None
    task = ExplorationTask(submission, guidelines, criteria)
    # Computed here, in a thread, because they read the complete trajectory.
    _ = task.texts, task.characters
    return ExplorationLoop(task, explorer.limits)


def _failure_of_all(failure: JudgeFailure) -> JudgeFailure:
    """Return a failed exploration as the failure of each criterion. Its spend is counted once, in the grade."""
    copied: Any = copy.copy(failure)
    message = f"the trajectory could not be explored: {failure.message}"
    copied.message, copied.args, copied.spend = message, (f"{failure.kind}: {message}",), NO_SPEND
    return copied
