"""Schedules the calls of a grader: concurrency slots, endpoint state, timeout, spend and retries.

Every answer and every error loses the secrets that a server may have quoted in it.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from rubric_integrations.graders.endpoint import (
    LONGEST_WAIT,
    AdaptiveConcurrency,
    Endpoint,
    FailureStreak,
    WrongSetting,
)
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.cascade import Cascade, is_lm_judge
from rubric_integrations.judges.credentials import is_credential, redactor
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models.limits import is_priced, prompt_bytes
from rubric_integrations.judges.models.names import NO_MODEL, is_plain_lm, judge_context, settings_of
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeWrapper,
    OverallResult,
    Request,
    RequestWrapper,
    Retries,
    RunStopped,
    answer,
    innermost,
)
from rubric_integrations.judges.spend import PRICE_UNKNOWN, PriceUnknown, SpendLimit, price_name, price_remedy
from rubric_integrations.judges.store import StoreError, check_lease
from rubric_integrations.judges.validation import validate
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import NO_SPEND, UNKNOWN_CALL, JudgeFailure, Judgment, Spend, total_spend
from rubric_integrations.submission.attachments import MAX_BYTES, Attachment
from rubric_integrations.submission.submission import Submission, shown_trajectory

T = TypeVar("T")
AnyOutcome = TypeVar("AnyOutcome", bound=Judgment | JudgeFailure)

AttemptResult: TypeAlias = tuple[T | JudgeFailure, Spend]
"""The result of a call, or its last failure, and what the failed attempts cost beside it."""

_Concurrency = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, AdaptiveConcurrency]]


class CallLimiter:
    """Limits and retries the calls of one grader.

    `call` retries: an attempt that failed is repeated up to `limits.max_retries` times. If no reply arrived (an outage,
    a rate limit, a timeout), it is repeated beyond that for `limits.max_outage` seconds. The wait between attempts
    doubles from half a second to 20, or is what the server requests.

    A single call waits in `LimitedJudge`, which uses the other attributes. A copy, and one from a pickle, has the same
    limits and knows of no calls.

    Args:
        limits: Concurrency, retries, timeout and outage. With no retries, no call is repeated, whatever failed.
        in_run: Whether the calls belong to one run, which a judge that cannot be used ends.
        spend_limit: Counts and limits the calls of a run; None for no limit.

    Attributes:
        endpoints: The state of the model behind each judge that uses this limiter.
        streak: The submissions of a run that have failed in a row; None outside of a run.
    """

    def __init__(self, limits: CallLimits, *, in_run: bool = False, spend_limit: SpendLimit | None = None):
        self.limits, self.spend_limit = limits, spend_limit
        self._max_concurrency = limits.concurrency
        self.retries = Retries(limits.max_retries, limits.outage_seconds if limits.max_retries else 0.0)
        self.streak = FailureStreak() if in_run else None
        self.endpoints: list[Endpoint] = []
        self._forget_loops()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_concurrency", "_recent")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_loops()

    def _forget_loops(self) -> None:
        # By event loop, because a semaphore belongs to one, and a grader may serve several; then by its limit.
        self._concurrency: _Concurrency = WeakKeyDictionary()
        # The loop of the last call, and its limit: a look at it costs less than one at all loops.
        self._recent: tuple[ref[asyncio.AbstractEventLoop], AdaptiveConcurrency] | None = None

    def for_run(
        self,
        max_concurrency: int | None,
        spend_limit: SpendLimit | None,
        max_outage: float | None,
        *,
        may_end: bool = True,
    ) -> CallLimiter:
        """Make a limiter for one run, with the same limits but for those that are passed.

        Unless it `may_end`, the run goes on also if its judge cannot be used.

        Runs of one grader share their slots, if they have equally many: two runs at the same time make no more calls
        than one.
        """
        changes: dict[str, Any] = {}
        if max_concurrency is not None:
            changes["max_concurrency"] = self.limits.concurrency_in(max_concurrency)
        if max_outage is not None:
            changes["max_outage"] = max_outage
        limits = CallLimits.model_validate({**self.limits.model_dump(), **changes})
        limiter = CallLimiter(limits, in_run=may_end, spend_limit=spend_limit)
        limiter._concurrency = self._concurrency
        return limiter

    def record_submission(self, failures: Sequence[JudgeFailure], *, is_graded: bool) -> None:
        """Count a submission that was graded or failed, towards the end of the run; outside of a run, do nothing.

        Args:
            failures: The failures of its judges.
            is_graded: Whether the judges have answered every question.
        """
        if self.streak is not None:
            self.streak.record(failures, is_graded=is_graded)

    def new_endpoint(self, earlier: Endpoint | None = None) -> Endpoint:
        """Return the state of another judge's model.

        Args:
            earlier: The state before this run; None if there is none.
        """
        endpoint = Endpoint(self.limits.outage_seconds, self.limits.connect_seconds, self.streak, earlier=earlier)
        self.endpoints.append(endpoint)
        return endpoint

    @property
    def down_since(self) -> float | None:
        """When the present outage began, by `time.monotonic`; None if there is none."""
        times = [endpoint.down_since for endpoint in self.endpoints]
        return min((time for time in times if time is not None), default=None)

    def reset(self) -> None:
        """Forget what was learnt about the judges' models."""
        for endpoint in self.endpoints:
            endpoint.reset()
        if self.streak is not None:
            self.streak.reset()

    @property
    def concurrency(self) -> AdaptiveConcurrency:
        """The concurrency limit of the running event loop."""
        loop, limit = asyncio.get_running_loop(), self._max_concurrency
        if (recent := self._recent) is not None and recent[0]() is loop:
            return recent[1]
        by_limit = self._concurrency.get(loop)
        if by_limit is None:
            by_limit = self._concurrency[loop] = {}
        concurrency = by_limit.get(limit)
        if concurrency is None:
            concurrency = by_limit[limit] = AdaptiveConcurrency(limit)
        self._recent = ref(loop), concurrency
        return concurrency

    def for_later_round(self, outage: float) -> CallLimiter:
        """Copy this limiter for a later round of a grade: one attempt, repeated only while no reply arrives.

        Args:
            outage: Seconds for which a request is repeated while no reply arrives.
        """
        limiter = copy.copy(self)
        limiter._concurrency, limiter.retries = self._concurrency, Retries(0, outage)
        return limiter

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Attempt a call until it succeeds or the retries are used up.

        Returns:
            The result, and what failed attempts cost.

        Raises:
            JudgeFailure: The last failure; its `spend` is that of all attempts.
        """
        result, lost = await self.outcome(attempt)
        if isinstance(result, JudgeFailure):
            raise result
        return result, lost

    async def outcome(self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None) -> AttemptResult[T]:
        """Attempt a call as `call` does, and return the last failure in place of raising it.

        Args:
            attempt: Makes the call.
            retries: How often it is repeated; None for the retries of this limiter.
        """
        failures: list[JudgeFailure] = []
        started_at = 0.0
        while True:
            try:
                result = await attempt()
            except JudgeFailure as failure:
                failures.append(failure)
                started_at = started_at or time.monotonic()
                if not failure.retryable or _is_exhausted(failures, started_at, retries or self.retries):
                    return with_spend(failure, total_spend(earlier.spend for earlier in failures[:-1])), NO_SPEND
            else:
                return result, total_spend(failure.spend for failure in failures) if failures else NO_SPEND
            requested = failures[-1].retry_after
            wait = _backoff(len(failures)) if requested is None else min(LONGEST_WAIT, max(0.0, requested))
            await asyncio.sleep(wait)


def with_spend(outcome: AnyOutcome, spend: Spend) -> AnyOutcome:
    """Add the spend of failed attempts to an outcome."""
    if not spend.calls:
        return outcome
    if isinstance(outcome, Judgment):
        return outcome.model_copy(update={"spend": outcome.spend + spend})
    failure = copy.copy(outcome)  # a judge may raise one object for every question
    failure.spend = outcome.spend + spend
    return failure


def _is_exhausted(failures: Sequence[JudgeFailure], started_at: float, retries: Retries) -> bool:
    most = failures[-1].repeats
    if most is not None and sum(failure.repeats is not None for failure in failures) > most:
        return True
    # Replies that cannot be read are counted. Lost ones are repeated for a time, and at least as often.
    if failures[-1].kind == "transport":
        return len(failures) > retries.unreadable and time.monotonic() - started_at >= retries.outage
    return sum(failure.kind != "transport" for failure in failures) > retries.unreadable


def _backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures, unless the server requests others."""
    return min(20.0, 0.5 * 2.0 ** min(failures - 1, 10)) + random.uniform(0, 0.25)  # noqa: S311 -- no secret


class Redactor:
    """Replaces the secrets of one judge, and those of the environment, in whatever it returns or raises.

    Args:
        judge: The judge. Its secrets, and those of the judges that it wraps, are the settings of its model; of a judge
            without a model, the attributes that are credentials by name. They are collected once.
    """

    def __init__(self, judge: Judge):
        layers = [judge]
        while isinstance(layers[-1], JudgeWrapper):
            layers.append(layers[-1].inner)
        self._redact = redactor({str(number): _secrets_of(layer) for number, layer in enumerate(layers)})

    def result(self, result: Any) -> Any:
        """Replace secrets in the reasons and faults of a judgment, a batch or an overall score."""
        redacted: object = result
        if isinstance(result, Judgment):
            reason = self._redact(result.reason)
            return result if reason == result.reason else result.model_copy(update={"reason": reason})
        if isinstance(result, BatchResult):
            answers = {number: self.result(answer) for number, answer in result.answers.items()}
            faults = {number: self._redact(fault) for number, fault in result.faults.items()}
            redacted = result._replace(answers=answers, faults=faults)
        elif isinstance(result, OverallResult):
            redacted = result._replace(reason=self._redact(result.reason))
        return redacted

    def failure(self, failure: JudgeFailure) -> JudgeFailure:
        """Return a failure as it is, or a copy without the secrets in its message, and without the cause with them."""
        message = self._redact(failure.message)
        if message == failure.message:
            return failure
        redacted = copy.copy(failure)
        redacted.message, redacted.args = message, (f"{failure.kind}: {message}",)
        redacted.__cause__ = None
        return redacted


def _secrets_of(judge: object) -> dict[str, Any]:
    lm: Any = getattr(judge, "lm", None)
    named = {name: value for name, value in getattr(judge, "__dict__", {}).items() if is_credential(name)}
    return settings_of(lm) if hasattr(lm, "kwargs") else named


# The most tokens of an image that we know of are 48,169 (gpt-4o-mini, high detail), and each is counted as a byte.
_IMAGE_BYTES = 50_000

# Seconds that the provider recommends for calls of the tier `flex`.
_FLEX_TIMEOUT = 900

# The parts of a submission whose size in a prompt is not that of their JSON.
_COUNTED_APART: Any = {"trajectory": True, "attachments": {"__all__": {"data"}}}


class _WithoutModel(RequestWrapper):
    """A judge with code of a user's, which must not call the model of the program that it grades."""

    async def answer(self, request: Request) -> Any:
        with judge_context(NO_MODEL):
            return await answer(self.inner, request)


def _runs_user_code(judge: object) -> bool:
    """Whether a judge may call a model of `dspy.settings`; one that sends its own requests to a server does not."""
    return type(judge) is not LMJudge or not (is_plain_lm(judge.lm) and is_priced(judge.lm))


class LimitedJudge(RequestWrapper):
    """A judge whose calls are limited, validated and redacted. It is inside of every store: a stored answer is no call.

    Any exception of the judge becomes a failure of the one question.

    Args:
        judge: The judge.
        limiter: The limits, shared by the judges of a grader.
        earlier: The same judge under the limits that these replace; None if there is none.
    """

    def __init__(self, judge: Judge, limiter: CallLimiter, earlier: LimitedJudge | None = None):
        super().__init__(judge)
        self._limiter, self._endpoint = limiter, limiter.new_endpoint(earlier._endpoint if earlier else None)
        # Made before the first call, so that it has the secrets that are set then.
        self._redactor: Redactor | None = None
        self._target = judge

    async def answer(self, request: Request) -> Any:
        """Make a call as soon as the limits allow it; validate and redact its outcome, whatever it is.

        Raises:
            JudgeFailure: The judge has no answer.
            RunStopped: The run that this call is part of ends.
        """
        redactor = self._redactor or await self._prepare()
        endpoint, limiter = self._endpoint, self._limiter
        concurrency, limit, timeout = limiter.concurrency, limiter.spend_limit, limiter.limits.timeout
        if not endpoint.has_replied:
            await endpoint.await_turn(request.submission)
        async with concurrency:
            is_single = endpoint.try_admit()
            if is_single is None:
                is_single = await endpoint.admit()
            try:
                # After the endpoint, which may hold a call until another is refused; and before the spend limit, which
                # counts a call from here on as sent.
                if concurrency.must_wait:
                    await concurrency.wait_for_server()
                outcome: Any = None
                is_sent, sent_at = False, 0.0
                reserved = (
                    0.0
                    if limit is None
                    else await (limit.start(None) if limit.max_cost is None else self._reserve(request, limit))
                )
                try:
                    # Both at the last moment: the call may have waited for its share of `max_cost` meanwhile.
                    if concurrency.must_wait:
                        await concurrency.wait_for_server()
                    check_lease()
                    is_sent, sent_at = True, time.monotonic()
                    async with asyncio.timeout(timeout):
                        result = await answer(self._target, request)
                    outcome = redactor.result(validate(request, result))
                except (RunStopped, StoreError):
                    raise
                except Exception as error:  # noqa: BLE001 -- whatever a user's own judge raises
                    outcome = redactor.failure(self._failure_of(error))
                finally:
                    if limit is not None and not is_sent:
                        limit.give_back(reserved)
                    elif limit is not None:
                        outcome = self._with_price(outcome, limit) if limit.prices else outcome
                        # Also if the call is cancelled: it was sent.
                        spend = UNKNOWN_CALL if outcome is None else outcome.spend
                        limit.end(spend, reserved, not (outcome is None or isinstance(outcome, JudgeFailure)))
                endpoint.record(outcome, request.submission)
            finally:
                if is_single:
                    endpoint.leave()
            if isinstance(outcome, JudgeFailure):
                concurrency.on_failure(outcome, sent_at)
                raise outcome
            concurrency.on_success()
            return outcome

    async def _reserve(self, request: Request, limit: SpendLimit) -> float:
        """Count a call, and reserve its cost as soon as the limits allow it.

        Raises:
            SpendLimitReached: The limits do not allow another call.
            WrongSetting: There is a `max_cost`, and the price of the call is not known.
        """
        try:
            return await limit.start(self._highest_cost(request, limit))
        except PriceUnknown:
            raise WrongSetting(price_remedy(price_name(innermost(self)))) from None

    def _highest_cost(self, request: Request, limit: SpendLimit) -> float | None:
        """Return the most that a call can cost, if its reply is as long as the limit expects.

        None for a judge without `highest_cost`, whose replies may have a cost.

        Raises:
            PriceUnknown: The price is not known.
        """
        judge: Any = innermost(self)
        price, bound = limit.prices.get(price_name(judge)), getattr(judge, "highest_cost", None)
        if price is None and not callable(bound):
            return None
        submission, criteria = request.submission, request.criteria
        text_bytes = _size_of(submission) + len(request.guidelines.encode("utf-8", "replace"))
        text_bytes += sum(map(_size_of, criteria))
        if trajectory := shown_trajectory(submission, criteria):
            text_bytes += len(trajectory.text().encode("utf-8", "replace"))
        if is_lm_judge(judge):
            cost = judge.highest_cost(text_bytes, limit.reply_tokens, price)
        elif price is not None:
            cost = price.cost(prompt_bytes(text_bytes, 0), limit.reply_tokens)
        else:
            cost = judge.highest_cost(text_bytes)
        if cost is None:
            raise PriceUnknown(PRICE_UNKNOWN)
        return cost

    def _with_price(self, outcome: Any, limit: SpendLimit) -> Any:
        """Return an outcome with its cost by the price of the judge's tokens, if both are known."""
        if outcome is None:
            return outcome
        price, spend = limit.prices.get(price_name(innermost(self))), cast("Spend", outcome.spend)
        if price is None or (usage := spend.usage) is None or not usage.total_tokens:
            return outcome
        spend = spend.model_copy(update={"cost": price.cost(usage.prompt_tokens, usage.completion_tokens)})
        if isinstance(outcome, Judgment):
            return outcome.model_copy(update={"spend": spend})
        if isinstance(outcome, JudgeFailure):
            failure = copy.copy(outcome)  # a judge may raise one object for every question
            failure.spend = spend
            return failure
        return outcome._replace(spend=spend)

    async def _prepare(self) -> Redactor:
        prepare: Any = getattr(innermost(self), "prepare", None)
        if callable(prepare):
            await cast("Awaitable[None]", prepare())
        self._target = _WithoutModel(self.inner) if _runs_user_code(innermost(self)) else self.inner
        self._redactor = Redactor(self.inner)
        return self._redactor

    def _failure_of(self, error: Exception) -> JudgeFailure:
        """Return an error of the judge as the failure of one request."""
        if isinstance(error, JudgeFailure):
            return error
        if isinstance(error, TimeoutError):
            message = f"no reply within {self._limiter.limits.timeout:g} s{self._timeout_hint()}"
            return JudgeFailure("transport", message, retryable=True, spend=UNKNOWN_CALL)
        failure = JudgeFailure("config", f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _timeout_hint(self) -> str:
        lm: Any = getattr(innermost(self), "lm", None)
        tier: object = getattr(lm, "kwargs", {}).get("service_tier")
        is_short = tier == "flex" and self._limiter.limits.timeout < _FLEX_TIMEOUT
        return f": the tier `flex` is slow, so set `timeout` to {_FLEX_TIMEOUT}" if is_short else ""


# By identity, since to compare records takes as long as to serialize them; and weak, since texts may be long.
_sizes: dict[int, tuple[ref[Any], int]] = {}


def _size_of(record: Submission | Criterion) -> int:
    """Return the most bytes of a record in a prompt, computed once: all questions about a submission share it."""
    entry = _sizes.get(id(record))
    if entry is not None and entry[0]() is record:
        return entry[1]
    if isinstance(record, Submission):
        # The fence around each document.
        size = 64 * len(record.context) + sum(map(_highest_bytes, record.attachments))
        text = record.model_dump_json(exclude=_COUNTED_APART)
    else:
        size, text = 0, record.model_dump_json()
    size += len(text.encode("utf-8", "replace"))
    key = id(record)

    def forget(reference: ref[Any]) -> None:
        # The identity may belong to a new record by now.
        if (entry := _sizes.get(key)) is not None and entry[0] is reference:
            del _sizes[key]

    _sizes[key] = ref(record, forget), size
    return size


def _highest_bytes(file: Attachment) -> int:
    """Return as many bytes of text as a file costs at most.

    Providers count an image by its size in pixels, never by its bytes. Of other files, a byte is at most a token.
    """
    return _IMAGE_BYTES if file.mime_type.startswith("image/") else file.size or MAX_BYTES


def limit_judge(judge: Judge, limiter: CallLimiter) -> Judge:
    """Limit a judge by a limiter in place of any other, inside of wrappers such as a store.

    Of a cascade, each judge is limited, and gets the retries that a grader's judge has otherwise.
    """
    if isinstance(judge, Cascade):
        return judge.with_members(lambda member: limit_judge(member, limiter), limiter)
    if isinstance(judge, LimitedJudge):
        return LimitedJudge(judge.inner, limiter, judge)
    if isinstance(judge, JudgeWrapper) and is_limited(judge):
        return judge.wrapping(limit_judge(judge.inner, limiter))
    return LimitedJudge(judge, limiter)


def is_limited(judge: Judge) -> bool:
    """Whether the calls of a judge are limited, at whatever depth of its wrappers."""
    if isinstance(judge, LimitedJudge):
        return True
    if isinstance(judge, Cascade):
        return all(map(is_limited, judge.members))
    return isinstance(judge, JudgeWrapper) and is_limited(judge.inner)
