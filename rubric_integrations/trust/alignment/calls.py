"""Counts, limits and stores the model calls of an alignment, by candidates and by the model that proposes prompts.

The module also compares two judges on the same labels, by submission.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, cast

import dspy
from dspy import lm15
from dspy.utils.exceptions import DSPyError

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders.scheduler import CallLimiter, LimitedJudge
from rubric_integrations.graders.settings import CallLimits, with_retries
from rubric_integrations.judges.engines import ModelCapabilities, engine_pair
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models.errors import (
    FINISH_REASON,
    completion_from_history,
    completion_of_response,
    failure_from_client_error,
    failure_from_error,
    is_unanswered,
)
from rubric_integrations.judges.models.keys import CONNECTION_SETTINGS
from rubric_integrations.judges.models.limits import highest_cost, load_prices
from rubric_integrations.judges.models.names import settings_of, with_async_call, without_framework_cache
from rubric_integrations.judges.protocol import Judge, Question, RunStopped, fingerprint_of
from rubric_integrations.judges.spend import SpendLimit, SpendLimitReached
from rubric_integrations.judges.store import JudgmentStore, StoredJudge, StoreError
from rubric_integrations.scoring.judgment import (
    NO_SPEND,
    UNANSWERED_CALL,
    UNKNOWN_CALL,
    JudgeFailure,
    Judgment,
    Spend,
    total_spend,
)
from rubric_integrations.trust.alignment.keeping import LabelledQuestion


class AlignmentError(Exception):
    """Raised if an alignment ended early. No result is kept, and the judge is unchanged.

    Args:
        message: The reason why the alignment ended.
        spend: The calls, tokens and cost until the end.
        limit_reached: Whether `max_cost` or `max_calls` ended the alignment.

    Attributes:
        spend: The calls, tokens and cost until the end.
        limit_reached: Whether `max_cost` or `max_calls` ended the alignment.
    """

    def __init__(self, message: str, spend: Spend, *, limit_reached: bool = False):
        super().__init__(message)
        self.spend, self.limit_reached = spend, limit_reached

    def __reduce__(self) -> Any:
        return AlignmentError, (str(self), self.spend), vars(self)


class AlignmentStopped(BaseException):
    """Raised within an optimizer to end it.

    It is not an `Exception`, because DSPy catches every `Exception` of a program and gives the program the score 0. The
    optimizer would then finish, and report an outage or a spend limit as bad prompts.

    Args:
        reason: The reason why no further call can be made.

    Attributes:
        limit_reached: Whether the reason is `max_cost` or `max_calls`.
    """

    def __init__(self, reason: object):
        super().__init__(str(reason))
        self.limit_reached = isinstance(reason, SpendLimitReached)


class AlignmentCalls:
    """Makes the model calls of an alignment: counts them, limits them, repeats failed ones, and stores their results.

    Args:
        judge: The original judge. Candidates use the same model.
        store: The store of judgments and proposals, or None if the judge has no fingerprint.
        max_calls: The largest number of calls, or None for no limit.
        max_cost: The highest cost in US dollars, or None for no limit.
        max_concurrency: The largest number of concurrent calls.

    Attributes:
        store: The store of judgments and proposals, or None.

    Raises:
        TypeError: There is a store, but the judge has no fingerprint.
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
        self._limiter = CallLimiter(limits, in_run=True, spend_limit=self._spend_limit)
        # Candidates share its state of the endpoint, such as an outage.
        self._limited = LimitedJudge(judge, self._limiter)
        self._replay_limiter = CallLimiter(with_retries(limits, 0), in_run=True)
        self._not_counted = LimitedJudge(judge, self._replay_limiter)
        self._under_way: set[asyncio.Task[Any]] = set()
        if store is not None:
            StoredJudge(judge, store)  # raises an error here and not later within an optimizer

    @property
    def spend(self) -> Spend:
        """The calls, tokens and cost until now."""
        return self._spend_limit.spend

    async def error(self, reason: object) -> AlignmentError:
        """Return the error that ends the alignment, with the reason and the total spend.

        The calls in progress are awaited first, because they also have a cost.
        """
        await asyncio.gather(*self._under_way, return_exceptions=True)
        spend = self.spend
        at_least = "at least " if spend.is_lower_bound else ""
        cost = "" if not spend.cost else f" and {at_least}${spend.cost:.4f}"
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
            is_counted: Whether the candidate's model is a `CountedModel`, which counts, limits and stores its calls
                itself.

        Raises:
            JudgeFailure: The judge failed on this question.
            AlignmentStopped: No further call can be made.
        """
        limiter = self._replay_limiter if is_counted else self._limiter
        limited: Judge = (self._not_counted if is_counted else self._limited).wrapping(judge)
        if self.store is not None and not is_counted:
            limited = StoredJudge(limited, self.store)
        with self._counted():
            try:
                judgment, _ = await limiter.call(partial(limited.judge, question))
            except JudgeFailure as failure:
                limiter.record_submission([failure], is_graded=False)
                raise
        limiter.record_submission([], is_graded=True)
        return judgment

    async def reply(
        self, model: str, key: str | None, request: Callable[[], Awaitable[Judgment]], cost: float | None
    ) -> Judgment:
        """Return a model's reply from the store, or make the call and store its reply, as a judgment.

        The store can contain only judgments. Therefore, the text of a reply is stored in the `reason` field of a
        judgment.

        Args:
            model: The name of the model.
            key: The key of the request in the store, or None for a request that is not stored.
            request: A function that makes the call.
            cost: The highest possible cost of the call in US dollars, or None if it is unknown.

        Raises:
            AlignmentStopped: No further call can be made, or the model did not reply.
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
        """Return for each question whether a judge agrees with the human answer, or None if the judge failed.

        Raises:
            AlignmentStopped: No further call can be made.
        """

        async def is_right(item: LabelledQuestion) -> bool | None:
            try:
                return item.is_right(await self.judge(judge, item.question))
            except JudgeFailure:
                return None

        tasks = [asyncio.ensure_future(is_right(item)) for item in items]
        try:
            # If a limit is reached, the calls in progress are finished and stored, because they are paid.
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            return [result for result in results if not isinstance(result, BaseException)]
        finally:
            for task in tasks:
                task.cancel()


def is_identified(judge: LMJudge) -> bool:
    """Whether a judge has a fingerprint, which is needed to store its answers.

    A judge whose model is a function without a name, such as a lambda, does not have a fingerprint.
    """
    return fingerprint_of(judge) is not None


_REPLY = "REPLY"


class _CountingEngine(ModelCapabilities):
    """Sends the requests of a `CountedModel`, and counts and stores them.

    Args:
        lm: The model.
        calls: The calls of the alignment.
        fingerprint: The fingerprint of the model, or None if it cannot be identified.
        rollout: The number with which DSPy requests another reply to the same request, or None.
    """

    def __init__(self, lm: dspy.BaseLM, calls: AlignmentCalls, fingerprint: str | None, rollout: object = None):
        super().__init__(lm)
        self._lm, self._calls, self._fingerprint, self._rollout = lm, calls, fingerprint, rollout
        # DSPy repeats a request if several replies to it are wanted. These have different keys.
        self._repeated = Counter[bytes]()

    def with_rollout(self, rollout: object) -> _CountingEngine:
        """Return an engine for a copy of the model."""
        return _CountingEngine(self._lm, self._calls, self._fingerprint, rollout)

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the response to a request."""
        return run_sync(self.acomplete(request))

    async def acomplete(self, request: lm15.Request) -> lm15.Response:
        """Return the response to a request. A reply that is in the store is not requested again."""
        # In OpenAI's protocol, whatever the model's own protocol is.
        body = lm15.OpenAIChatLM(api_key="-").build_request(request, stream=False).body
        key = None
        if self._fingerprint is not None:
            parts = [_REPLY, self._fingerprint, body.decode(), self._rollout, self._repeated[body]]
            key = sha256(json.dumps(parts, default=repr).encode()).hexdigest()
            self._repeated[body] += 1
        await load_prices(self._lm)
        send = partial(self._send, request)
        reply = await self._calls.reply(self._lm.model, key, send, highest_cost(self._lm, len(body)))
        return lm15.Response(
            id=None, model=request.model, message=lm15.Message.assistant(reply.reason), finish_reason="stop",
            usage=lm15.Usage(), provider_data={FINISH_REASON: None},
        )  # fmt: skip

    async def _send(self, request: lm15.Request) -> Judgment:
        """Send a request, and return the text of the reply as the reason of a judgment.

        Raises:
            JudgeFailure: The model did not reply.
        """
        entries: list[Mapping[str, Any]] = []
        lm = with_async_call(self._lm.copy(update_history=entries.append))
        try:
            with dspy.context(disable_history=False, track_usage=False, usage_tracker=None):
                response: lm15.Response = await lm.acall(request)
        except DSPyError as error:
            raise failure_from_error(error, _spend_of_failed(error), settings_of(self._lm)) from None
        except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
            raise failure_from_client_error(error, _spend_of_failed(error), settings_of(self._lm)) from None
        # An LM that replaces DSPy's complete call adds nothing to the history.
        spends = [completion_from_history(entry, caches=False).spend for entry in entries]
        spend = total_spend(spends) if spends else UNKNOWN_CALL
        text = completion_of_response(response).text
        return Judgment(verdict=_REPLY, value=None, reason=text, spend=spend or NO_SPEND)


class CountedModel(dspy.LM):
    """A wrapper around a model that counts its calls towards an alignment's limits, and stores its replies.

    Args:
        lm: The model.
        calls: The calls of the alignment.
    """

    def __init__(self, lm: dspy.BaseLM, calls: AlignmentCalls):
        self._counting = _CountingEngine(without_framework_cache(lm), calls, LMJudge(lm).fingerprint())
        super().__init__(
            lm.model, model_type=cast("Any", lm.model_type), cache=False, num_retries=0, **engine_pair(self._counting)
        )
        # The connection is the wrapped model's.
        self.kwargs = {name: value for name, value in lm.kwargs.items() if name not in CONNECTION_SETTINGS}

    def __deepcopy__(self, memo: object) -> CountedModel:
        return self

    def copy(self, **changes: Any) -> CountedModel:
        """Return a copy with other settings, as DSPy does."""
        rollout = changes.get("rollout_id", self.kwargs.get("rollout_id"))
        return super().copy(**engine_pair(self._counting.with_rollout(rollout)), **changes)


# With a larger share of failures, the remaining questions are not representative.
_MOST_FAILURES = 0.2


class PairedAccuracy(NamedTuple):
    """The accuracy of two judges on the same questions.

    Attributes:
        before: For each submission, the share of questions on which the first judge agrees with the human answers.
        after: For each submission in the same order, the share for the second judge.
        failures: The number of questions that are left out because a judge failed.
    """

    before: list[float]
    after: list[float]
    failures: int

    @property
    def differences(self) -> list[float]:
        """For each submission, the share for the second judge minus the share for the first judge."""
        return [after - before for before, after in zip(self.before, self.after, strict=True)]


def compare_judges(
    before: LMJudge, after: LMJudge, items: Sequence[LabelledQuestion], calls: AlignmentCalls
) -> PairedAccuracy:
    """Measure two judges on the same questions. A question on which one judge fails is left out for both.

    Raises:
        AlignmentStopped: No further call can be made, or a judge failed on more than 20 % of the questions.
    """
    answers = [run_sync(calls.measure(judge, items)) for judge in (before, after)]
    by_submission: dict[str, list[tuple[bool, bool]]] = {}
    failures = 0
    for item, first, second in zip(items, *answers, strict=True):
        if first is None or second is None:
            failures += 1
        else:
            by_submission.setdefault(item.submission, []).append((first, second))
    if failures > _MOST_FAILURES * len(items):
        raise AlignmentStopped(
            f"a judge failed on {failures:,} of {len(items):,} questions of a measurement, and the rest may be easier "
            "ones"
        )
    shares = [[sum(pair[side] for pair in pairs) / len(pairs) for pairs in by_submission.values()] for side in (0, 1)]
    return PairedAccuracy(shares[0], shares[1], failures)


def _spend_of_failed(error: Exception) -> Spend:
    return UNANSWERED_CALL if is_unanswered(error) else Spend(calls=1)
