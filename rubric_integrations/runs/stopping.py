"""Ends a run early, once a rule such as a `SequentialGate` has decided."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rubric_integrations.runs.summary import Graded


class StopRule(Protocol):
    """What `stop_when` of `grade_many` needs: a function of one score that says whether the run may end."""

    def __call__(self, score: float | None, /) -> str | None:
        """Return why the run ends, or None if it continues.

        Args:
            score: The score of the next submission; None if it has no complete grade.
        """
        ...


class EarlyStop:
    """Passes the scores of a run to its stop rule in the order of the submissions, whichever finishes first.

    In the order in which they finish, quick answers would come first, which are no random part of the run. A row that a
    limit left ungraded ends the scores: those after it may be there only because they needed fewer calls.

    Args:
        rule: The rule; None if the run ends with its last submission.
    """

    def __init__(self, rule: StopRule | None):
        self._rule = rule
        self._positions: dict[asyncio.Task[Graded], int] = {}
        self._waiting: dict[int, float | None] = {}
        self._started = self._passed_on = 0

    def watch(self, task: asyncio.Task[Graded]) -> None:
        """Note the position of a row that starts."""
        if self._rule:
            self._positions[task] = self._started
            self._started += 1

    def reason(self, task: asyncio.Task[Graded], graded: Graded) -> str | None:
        """Return why the run ends now that a row is graded, or None if it continues."""
        if not self._rule or task not in self._positions:
            return None
        is_partial = graded.report is not None and graded.report.failed_count > 0
        self._waiting[self._positions.pop(task)] = None if is_partial else graded.score
        while self._passed_on in self._waiting:
            reason = self._rule(self._waiting.pop(self._passed_on))
            self._passed_on += 1
            if reason:
                # The rows under way still finish, but a decision that was made early must not depend on them.
                self._rule = None
                return reason
        return None
