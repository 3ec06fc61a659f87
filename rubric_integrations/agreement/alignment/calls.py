"""The calls of an alignment: those of every candidate, and of the model that proposes instructions, under one limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rubric_integrations.agreement.alignment.label_sets import LabelledQuestion
from rubric_integrations.graders.limited_judge import LimitedJudge
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.protocol import Judge, Question, RunStopped, fingerprint_of
from rubric_integrations.judges.spend_limit import SpendLimit, SpendLimitReached
from rubric_integrations.judges.stored import JudgmentStore, StoredJudge, StoreError
from rubric_integrations.judges.validation import ValidatedJudge
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend

# As graders by default: a reply that cannot be read is requested twice more.
_MAX_RETRIES = 2


class AlignmentError(Exception):
    """Raised if an alignment ended early: nothing is kept, and the judge is unchanged.

    Args:
        message: Why it ended.
        spend: What the calls until then cost.
        limit_reached: Whether `max_cost` or `max_calls` ended it.

    Attributes:
        spend: What the calls until then cost.
        limit_reached: Whether `max_cost` or `max_calls` ended it.
    """

    def __init__(self, message: str, spend: Spend, *, limit_reached: bool = False):
        super().__init__(message)
        self.spend, self.limit_reached = spend, limit_reached

    def __reduce__(self) -> Any:
        return AlignmentError, (str(self), self.spend), vars(self)


class AlignmentStopped(BaseException):
    """Ends an optimizer from inside.

    It is not an `Exception`: DSPy catches every `Exception` of a program and scores the program 0, so that an optimizer
    would finish and report the outage or the spend limit as bad prompts.

    Args:
        reason: Why no further call is made.

    Attributes:
        limit_reached: Whether that is `max_cost` or `max_calls`.
    """

    def __init__(self, reason: object):
        super().__init__(str(reason))
        self.limit_reached = isinstance(reason, SpendLimitReached)


class AlignmentCalls:
    """Makes the calls of an alignment: counted where they are made, limited, retried, and stored.

    Args:
        judge: The judge before the alignment; its candidates have the same model.
        store: Where judgments and proposals are stored; None if the judge cannot be identified.
        max_calls: The most calls; None for no limit.
        max_cost: The most US dollars; None for no limit.
        max_concurrency: The most calls at the same time.

    Attributes:
        store: The store.

    Raises:
        TypeError: There is a store, and the judge cannot be identified.
        ValueError: A limit is out of range.
    """

    def __init__(
        self,
        judge: LMJudge,
        store: JudgmentStore | None,
        *,
        max_calls: int | None,
        max_cost: float | None,
        max_concurrency: int,
    ):
        self.store = store
        self._spend_limit = SpendLimit(max_calls, max_cost)
        limits = CallLimits(max_concurrency=max_concurrency)
        self._limiter = CallLimiter(_MAX_RETRIES, limits, in_run=True, spend_limit=self._spend_limit)
        # Candidates share its view of the endpoint, such as an outage.
        self._limited = LimitedJudge(ValidatedJudge(judge), self._limiter)
        self._not_counted = LimitedJudge(ValidatedJudge(judge), CallLimiter(0, limits, in_run=True))
        self._under_way: set[asyncio.Task[Any]] = set()
        if store is not None:
            StoredJudge(judge, store)  # raises at once, and not within an optimizer

    @property
    def spend(self) -> Spend:
        """What all calls until now cost."""
        return self._spend_limit.spend

    async def error(self, reason: object) -> AlignmentError:
        """Wait for the calls under way, and return the error that ends the alignment for a reason."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        spend = self.spend
        cost = "" if not spend.cost else f" and ${spend.cost:.4f}"
        ledger = "; what is in the ledger is not requested again" if self.store is not None else ""
        return AlignmentError(
            f"the alignment ended after {spend.calls:,} calls{cost}: {reason}. Nothing is kept{ledger}",
            spend,
            limit_reached=isinstance(reason, AlignmentStopped) and reason.limit_reached,
        )

    async def judge(self, judge: LMJudge, question: Question, *, is_counted: bool = False) -> Judgment:
        """Let a candidate answer a question.

        Args:
            judge: The candidate.
            question: The question.
            is_counted: Whether the calls of its model are counted, limited and stored already.

        Raises:
            JudgeFailure: There is no answer to this question, and there may be one to others.
            AlignmentStopped: No further call is made.
        """
        if is_counted:
            with self._counted():
                return await self._not_counted.wrapping(ValidatedJudge(judge)).judge(question)
        limited: Judge = self._limited.wrapping(ValidatedJudge(judge))
        if self.store is not None:
            limited = StoredJudge(limited, self.store)
        with self._counted():
            judgment, _ = await self._limiter.call(partial(limited.judge, question))
        return judgment

    async def reply(
        self, model: str, key: str | None, request: Callable[[], Awaitable[Judgment]], cost: float | None
    ) -> Judgment:
        """Make a call to a model, such as the one that proposes instructions, unless the store has its reply.

        A store holds judgments: the reply stands in place of the reason.

        Args:
            model: The name of the model.
            key: What identifies the request; None for one that is not stored.
            request: Makes the call.
            cost: The most that it can cost, in US dollars; None if that is unknown.

        Raises:
            AlignmentStopped: No further call is made, or the model did not reply.
        """
        try:
            with self._counted():
                if self.store is None or key is None:
                    return await self._spend_limit.call(request, cost)
                async with self.store.lease([key]) as lease:
                    if key in lease.stored:
                        return lease.stored[key]
                    reply = await self._spend_limit.call(request, cost)
                    return (await lease.store({key: reply}))[key]
        except JudgeFailure as failure:
            raise AlignmentStopped(f"the model {model!r} did not reply: {failure.message}") from None

    @contextmanager
    def _counted(self) -> Generator[None]:
        task = asyncio.current_task()
        if task is not None:
            self._under_way.add(task)
        try:
            yield
        except (RunStopped, StoreError) as reason:
            raise AlignmentStopped(reason) from None
        finally:
            if task is not None:
                self._under_way.discard(task)

    async def measure(self, judge: LMJudge, items: Sequence[LabelledQuestion]) -> list[bool | None]:
        """Return for each question whether a judge answers it as people do; None if it failed.

        Raises:
            AlignmentStopped: No further call is made.
        """

        async def is_right(item: LabelledQuestion) -> bool | None:
            try:
                return item.is_right(await self.judge(judge, item.question))
            except JudgeFailure:
                return None

        tasks = [asyncio.ensure_future(is_right(item)) for item in items]
        try:
            # If a limit is reached, the calls under way are paid for, and end in the ledger.
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            return [result for result in results if not isinstance(result, BaseException)]
        finally:
            for task in tasks:
                task.cancel()


def is_identified(judge: LMJudge) -> bool:
    """Whether answers of a judge can be stored: functions without a name, for example, cannot be distinguished."""
    return fingerprint_of(judge) is not None
