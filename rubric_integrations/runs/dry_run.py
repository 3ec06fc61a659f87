"""`count_calls`: the number and the highest cost of the calls that a grade would make, without making any.

The grader itself decides about its questions. Each judge is replaced by one that counts its requests. It answers
conditions with MET and abstains from all other questions, because these answers lead to the largest number of calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, NamedTuple, cast

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.text import counted
from rubric_integrations.graders import Grader
from rubric_integrations.graders.scheduler import highest_request_cost
from rubric_integrations.judges.composite import CompositeJudge
from rubric_integrations.judges.offline import OfflineJudge
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    OverallResult,
    Question,
    Request,
    RequestWrapper,
    innermost,
)
from rubric_integrations.judges.spend import Prices, PriceUnknown, SpendLimit
from rubric_integrations.judges.store import Lease, LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger import RunLedger, use_ledger
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, to_judgment
from rubric_integrations.scoring.report import JudgeError
from rubric_integrations.submission.submission import Submission


class PlannedCalls(NamedTuple):
    """The calls that a grade would make, without retries. A grade may need fewer, such as of a condition that is false.

    Attributes:
        calls: The largest number of calls to models.
        cost: The highest cost of these calls in US dollars, if no reply has more than 2,000 tokens. `max_cost` reserves
            as much for the first call of a run. None if the price of a call is unknown.
        stored: The number of answers that are already in the ledger.
    """

    calls: int
    cost: float | None
    stored: int

    def joined(self, other: PlannedCalls) -> PlannedCalls:
        """Return the sums of both plans."""
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return PlannedCalls(self.calls + other.calls, cost, self.stored + other.stored)

    def summary(self) -> str:
        """Return the figures as a short text.

        Example:
            >>> PlannedCalls(12, 0.0345, 4).summary()
            'at most 12 calls for at most $0.0345; 4 answers are in the ledger'
        """
        price = "of an unknown price" if self.cost is None else f"for at most ${self.cost:.4f}"
        stored = f"; {counted(self.stored, 'answer is', 'answers are')} in the ledger" if self.stored else ""
        return f"at most {counted(self.calls, 'call')}{f' {price}' if self.calls else ''}{stored}"


def count_calls(
    rows: Sequence[tuple[Submission, Rubric]],
    grader: Grader,
    *,
    repeats: int = 1,
    ledger: LedgerLike | None = None,
    prices: Prices | None = None,
) -> PlannedCalls:
    """Count the calls that grades would make, and compute their highest cost. No model is called.

    Args:
        rows: Pairs of a submission and its rubric.
        grader: The grader.
        repeats: How often each row would be graded.
        ledger: The ledger of the answers. It is only read.
        prices: The prices of models (see `grade_many`).

    Raises:
        LedgerError: (a ValueError) The ledger cannot be used.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> from rubric_integrations.testing import ScriptedJudge
        >>> rubric = Rubric([{"requirement": "Is kind"}, {"requirement": "Says 42", "check": {"number": 42}}])
        >>> count_calls([(Submission(response="42"), rubric)], PerCriterionGrader(ScriptedJudge())).calls
        1
    """
    count = _Count(prices)
    counting = grader.with_judges([_counting(judge, count) for judge in grader.without_cache().judges])
    with use_ledger(ledger) if ledger is not None else nullcontext() as store:
        for number in range(repeats):
            stored = counting
            if isinstance(store, RunLedger):
                stored = counting.with_store(_ReadOnlyStore(store, count), number)
            for submission, rubric in rows:
                try:
                    run_sync(stored.grade(rubric, submission))
                except JudgeError:
                    continue  # a check failed, which needs no call
    return PlannedCalls(count.calls, count.cost, count.stored)


class _Count:
    """The calls, the cost and the stored answers so far."""

    def __init__(self, prices: Prices | None):
        self.limit = SpendLimit(prices=prices)
        self.calls = self.stored = 0
        self.cost: float | None = 0.0

    def add(self, judge: Judge, request: Request) -> None:
        """Count a request, and add its highest cost."""
        if isinstance(judge, OfflineJudge):
            return
        self.calls += 1
        try:
            cost = highest_request_cost(judge, request, self.limit)
        except PriceUnknown:
            cost = None
        self.cost = None if cost is None or self.cost is None else self.cost + cost


def _counting(judge: Judge, count: _Count) -> Judge:
    if isinstance(judge, CompositeJudge):
        return judge.with_members(lambda member: _counting(member, count))
    return _CountingJudge(judge, count)


class _CountingJudge(RequestWrapper):
    """A judge that counts the requests to another judge, which it does not call."""

    def __init__(self, judge: Judge, count: _Count):
        super().__init__(judge)
        self._count = count

    async def answer(self, request: Request) -> Any:
        """Count a request. Answer it as described in the docstring of the module."""
        prepare: Any = getattr(innermost(self), "prepare", None)
        if callable(prepare):
            await cast("Awaitable[None]", prepare())
        self._count.add(innermost(self), request)
        if request.question is not None:
            return _assumed(request.question)
        if request.questions is not None:
            return BatchResult({number: _assumed(each) for number, each in request.questions.items()}, {}, NO_SPEND)
        return OverallResult(0.0, "", NO_SPEND, neutralized=False)


def _assumed(question: Question) -> Judgment:
    return to_judgment(question.criterion, "MET" if question.criterion.is_condition else "CANNOT_ASSESS")


class _ReadOnlyStore:
    """The store of a ledger's judgments that stores none.

    Args:
        ledger: The ledger.
        count: Counts the judgments that the ledger has.
    """

    def __init__(self, ledger: RunLedger, count: _Count):
        self._ledger, self._count = ledger, count

    def lease(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Lease]:
        """Look up judgments, without a lease."""
        stored = self._ledger.lookup(keys)
        self._count.stored += len(stored)
        return _lookup(stored)


@asynccontextmanager
async def _lookup(stored: Mapping[str, Judgment]) -> AsyncGenerator[Lease]:
    yield _Lookup(stored)


class _Lookup:
    """The judgments that a ledger has for some keys. New ones are dropped."""

    def __init__(self, stored: Mapping[str, Judgment]):
        self.stored = stored

    def is_held(self) -> bool:
        """Return True, because nothing is leased."""
        return True

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        """Return the judgments without storing them."""
        return judgments

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """Record nothing."""
