"""Schedules the calls of a grader: concurrency slots, endpoint state, timeout, spend and retries.

Secrets that a server may have quoted are removed from every answer and every error.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from rubric_integrations.graders.endpoint import (
    LONGEST_WAIT,
    AdaptiveConcurrency,
    Endpoint,
    FailureStreak,
    WrongSetting,
)
from rubric_integrations.graders.rounds import current_round
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.cascade import is_lm_judge, judges_inside
from rubric_integrations.judges.composite import CompositeJudge
from rubric_integrations.judges.credentials import is_credential, redactor
from rubric_integrations.judges.exploration import ExplorationRequest, ExplorerReply, TrajectoryExplorer
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeWrapper,
    OverallResult,
    Question,
    Request,
    RequestWrapper,
    Retries,
    RunStopped,
    answer,
    fingerprint_of,
    innermost,
)
from rubric_integrations.judges.spend import (
    NOT_SENT,
    PRICE_UNKNOWN,
    PriceUnknown,
    SpendLimit,
    price_name,
    price_remedy,
    prompt_bytes,
    spend_of_grade,
    with_price,
)
from rubric_integrations.judges.store import LeaseExpired, StoreError, check_lease
from rubric_integrations.judges.validation import validate
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import (
    NO_SPEND,
    UNANSWERED_CALL,
    JudgeFailure,
    Judgment,
    Spend,
    SpendTotal,
    total_spend,
)
from rubric_integrations.submission.attachments import MAX_BYTES, Attachment
from rubric_integrations.submission.submission import Submission, shown_trajectory

T = TypeVar("T")
AnyOutcome = TypeVar("AnyOutcome", bound=Judgment | JudgeFailure)

AttemptResult: TypeAlias = tuple[T | JudgeFailure, Spend]
"""A pair: the result of a call or its last failure, and the additional spend of failed attempts."""

answered_text: ContextVar[Callable[[], Submission | None] | None] = ContextVar("answered_text", default=None)
"""Finds another submission that the judge has answered before, or None. It is set for a row that failed in an earlier
run. If only such rows are left, an outage looks the same as a text that makes the server fail. A question about the
other submission then shows which of the two it is."""

_logger = logging.getLogger(__name__)

_Concurrency = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, AdaptiveConcurrency]]


class CallLimiter:
    """Limits and retries the calls of one grader.

    `call` repeats a failed attempt up to `limits.max_retries` times. If no reply arrived (an outage, a rate limit, a
    timeout), it continues to repeat the attempt for `limits.max_outage` seconds. The wait between two attempts doubles
    from 0.5 to 20 seconds, unless the server requests another wait.

    The other attributes are for `LimitedJudge`, which waits before each call, for example for a concurrency slot. A
    deep copy or an unpickled object has the same limits and has seen no calls.

    Args:
        limits: Concurrency, retries, timeout and outage. If `max_retries` is 0, no failed call is repeated.
        in_run: Whether the calls belong to a run that ends if its judge cannot be used.
        spend_limit: Counts and limits the calls of a run. None for no limit.

    Attributes:
        endpoints: The state of the model behind each judge that uses this limiter.
        streak: The submissions of a run that have failed in a row. None outside of a run.
        refusals: The questions that are not asked again. None to ask every question again.
    """

    def __init__(self, limits: CallLimits, *, in_run: bool = False, spend_limit: SpendLimit | None = None):
        self.limits, self.spend_limit = limits, spend_limit
        self._max_concurrency = limits.concurrency
        self.retries = Retries(limits.max_retries, limits.outage_seconds if limits.max_retries else 0.0)
        self.streak = FailureStreak() if in_run else None
        self.endpoints: list[Endpoint] = []
        self.refusals: RefusalMemory | None = None
        self._forget_loops()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_concurrency", "_recent")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_loops()

    def _forget_loops(self) -> None:
        # By event loop, because a semaphore belongs to one loop and a grader may serve several, and then by the limit.
        self._concurrency: _Concurrency = WeakKeyDictionary()
        # The loop of the last call with its limit. Looking here is faster than searching all loops.
        self._recent: tuple[ref[asyncio.AbstractEventLoop], AdaptiveConcurrency] | None = None

    def for_run(
        self,
        max_concurrency: int | None,
        spend_limit: SpendLimit | None,
        max_outage: float | None,
        *,
        may_end: bool = True,
    ) -> CallLimiter:
        """Make a limiter for one run. A limit that is not passed stays the same.

        All runs of one grader with the same `max_concurrency` share their slots. Therefore, two runs at the same time
        have no more calls in progress than one run.

        Args:
            max_concurrency: The most calls at the same time. None for the limit of this limiter.
            spend_limit: Counts and limits the calls of the run. None for no limit.
            max_outage: The seconds after which an outage ends the run. None for the limit of this limiter.
            may_end: Whether the run ends if its judge cannot be used.
        """
        changes: dict[str, Any] = {}
        if max_concurrency is not None:
            changes["max_concurrency"] = self.limits.concurrency_in(max_concurrency)
        if max_outage is not None:
            changes["max_outage"] = max_outage
        limits = CallLimits.model_validate({**self.limits.model_dump(), **changes})
        limiter = CallLimiter(limits, in_run=may_end, spend_limit=spend_limit)
        limiter._concurrency, limiter.refusals = self._concurrency, self.refusals
        return limiter

    def record_submission(self, failures: Sequence[JudgeFailure], *, is_graded: bool) -> None:
        """Count a graded or failed submission, which may end the run. Outside of a run, do nothing.

        Args:
            failures: The failures of its judges.
            is_graded: Whether the judges have answered every question.
        """
        if self.streak is not None:
            self.streak.record(failures, is_graded=is_graded)

    def new_endpoint(self, earlier: Endpoint | None = None) -> Endpoint:
        """Create the `Endpoint` of a further judge of this grader: the state of the model behind the judge.

        Args:
            earlier: The state of the same model before this run, or None.
        """
        endpoint = Endpoint(self.limits.outage_seconds, self.limits.connect_seconds, self.streak, earlier=earlier)
        self.endpoints.append(endpoint)
        return endpoint

    @property
    def down_since(self) -> float | None:
        """The time at which the current outage began, by `time.monotonic`. None if there is no outage."""
        times = [endpoint.down_since for endpoint in self.endpoints]
        return min((time for time in times if time is not None), default=None)

    def reset(self) -> None:
        """Reset the state of all endpoints and the count of failed submissions, and forget refusals."""
        if self.refusals is not None:
            self.refusals.clear()
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

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Attempt a call until it succeeds or the retries are used up.

        Returns:
            The result and the spend of failed attempts.

        Raises:
            JudgeFailure: The last failure. Its `spend` includes all attempts.
        """
        result, lost = await self.outcome(attempt)
        if isinstance(result, JudgeFailure):
            raise result
        return result, lost

    async def outcome(self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None) -> AttemptResult[T]:
        """Attempt a call until it succeeds or is not retried. Return the result or the last failure, and the spend.

        Args:
            attempt: Makes the call.
            retries: The limits on repetitions. None for those of the round in progress or, outside of a grade, of this
                limiter.
        """
        failures: list[JudgeFailure] = []
        started_at = 0.0
        while True:
            try:
                result = await attempt()
            except JudgeFailure as failure:
                failures.append(failure)
                started_at = started_at or time.monotonic()
                if retries is None:
                    state = current_round.get()
                    retries = self.retries if state is None or state.limiter is not self else state.retries
                if not failure.retryable or _is_exhausted(failures, started_at, retries):
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
    # Unreadable replies are limited by their number. Lost calls are repeated for a time, and at least as often.
    if failures[-1].kind == "transport":
        return len(failures) > retries.unreadable and time.monotonic() - started_at >= retries.outage
    return sum(failure.kind != "transport" for failure in failures) > retries.unreadable


def _backoff(failures: int) -> float:
    """Return the seconds to wait after this number of failures, if the server does not request a time."""
    return min(20.0, 0.5 * 2.0 ** min(failures - 1, 10)) + random.uniform(0, 0.25)  # noqa: S311 -- no secret


class RefusalMemory:
    """Remembers which questions a judge refused, for a host that grades the same text many times.

    A refusal is a content filter's, a reply without a verdict, or another failure that is about the text. Failures
    without a reply are never remembered. A refused question is first repeated as often as without this memory.

    A copy or an unpickled object remembers nothing. The memory contains at most 4,096 refusals, and forgets the oldest
    ones first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The failure, the repetitions that are left before it is final, and the task that asks.
        self._refusals: OrderedDict[str, tuple[JudgeFailure, int, ref[asyncio.Task[Any]] | None]] = OrderedDict()

    def __reduce__(self) -> Any:
        return RefusalMemory, ()

    def clear(self) -> None:
        """Forget all refusals. All questions are then asked again."""
        with self._lock:
            self._refusals.clear()

    def find(self, judge: Judge, request: Request) -> JudgeFailure | None:
        """Return the failure of a request that was refused before, or None.

        Args:
            judge: The judge, without its wrappers.
            request: The request.
        """
        if not self._refusals:
            return None
        with self._lock:
            failure, left, _ = self._refusals.get(_request_key(judge, request), (None, 0, None))
        if failure is None or left > 0:
            return None
        return JudgeFailure(
            failure.kind, failure.message, about_text=failure.about_text, repeats=failure.repeats, spend=NO_SPEND
        )

    def add(self, judge: Judge, request: Request, failure: JudgeFailure, retries: Retries) -> None:
        """Remember a failure if it is a refusal and the last repetition of the request.

        Args:
            judge: The judge, without its wrappers.
            request: The request.
            failure: The failure.
            retries: How often the request is repeated.
        """
        if failure.kind == "transport" or not (failure.about_text or failure.repeats is not None):
            return
        key, task = _request_key(judge, request), asyncio.current_task()
        with self._lock:
            _, left, earlier_task = self._refusals.pop(key, (None, 0, None))
            if (
                earlier_task is None or earlier_task() is not task
            ):  # the question may have been answered in the meantime
                left = min(failure.repeats or 0, retries.unreadable) + 1
            self._refusals[key] = failure, left - 1, task and ref(task)
            if len(self._refusals) > _MAX_REFUSALS:
                self._refusals.popitem(last=False)


_MAX_REFUSALS = 4096


def _request_key(judge: Judge, request: Request) -> str:
    if isinstance(request, ExplorationRequest):
        return request.key(f"{id(judge)} {fingerprint_of(judge)}")
    questions = request.questions or ({} if request.question is None else {0: request.question})
    records = [question.criterion for question in questions.values()] or request.criteria
    texts = [
        request.submission.model_dump_json(),
        request.guidelines,
        *(record.model_dump_json() for record in records),
    ]
    key = [id(judge), fingerprint_of(judge), list(questions), *texts]
    return sha256(json.dumps(key).encode()).hexdigest()


class Redactor:
    """Replaces secrets, of a judge and of the environment, in everything that the judge returns or raises.

    Args:
        judge: The judge. Its secrets are collected once, from the settings of its model. For a judge without a model,
            the secrets are the values of attributes with names of credentials, such as `api_key`. The secrets of judges
            that it wraps are collected, too.
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
            reason, model = self._redact(result.reason), result.model and self._redact(result.model)
            if reason == result.reason and model == result.model:
                return result
            return result.model_copy(update={"reason": reason, "model": model})
        if isinstance(result, BatchResult):
            answers = {number: self.result(answer) for number, answer in result.answers.items()}
            faults = {
                number: self._redact(fault) if isinstance(fault, str) else self.failure(fault)
                for number, fault in result.faults.items()
            }
            redacted = result._replace(answers=answers, faults=faults)
        elif isinstance(result, ExplorerReply):
            redacted = result._replace(text=self._redact(result.text), problem=self._redact(result.problem))
        elif isinstance(result, OverallResult):
            model = result.model and self._redact(result.model)
            redacted = result._replace(reason=self._redact(result.reason), model=model)
        return redacted

    def failure(self, failure: JudgeFailure) -> JudgeFailure:
        """Return a failure or, if its message contains secrets, a copy without the secrets and without the cause."""
        message = self._redact(failure.message)
        if message == failure.message:
            return failure
        redacted = copy.copy(failure)
        redacted.message, redacted.args = message, (f"{failure.kind}: {message}",)
        redacted.__cause__ = None
        return redacted


def _secrets_of(judge: object) -> dict[str, Any]:
    lm: Any = getattr(judge, "lm", None)
    if hasattr(lm, "kwargs"):
        from rubric_integrations.judges.models.names import settings_of

        return settings_of(lm)
    return {name: value for name, value in getattr(judge, "__dict__", {}).items() if is_credential(name)}


# The largest known number of tokens for an image is 48,169 (gpt-4o-mini, high detail). Each token counts as a byte.
_IMAGE_BYTES = 50_000

# The timeout in seconds that the provider recommends for calls of the tier `flex`.
_FLEX_TIMEOUT = 900

# The parts of a submission whose size in a prompt differs from the size of their JSON.
_COUNTED_APART: Any = {"trajectory": True, "attachments": {"__all__": {"data"}}}


class _WithoutModel(RequestWrapper):
    """A judge that runs a user's code. This code must not call the model of the program that is graded."""

    async def answer(self, request: Request) -> Any:
        # The import of DSPy takes a second. If nobody has imported it, there is no program with a model.
        if "dspy" not in sys.modules:
            return await answer(self.inner, request)
        from rubric_integrations.judges.models.names import NO_MODEL, judge_context

        with judge_context(NO_MODEL):
            return await answer(self.inner, request)


class LimitedJudge(RequestWrapper):
    """A judge whose calls are limited, and whose answers are validated and redacted.

    It is the innermost wrapper, inside of every store, because an answer from a store is not a call. Any exception of
    the judge becomes a failure of one question.

    Args:
        judge: The judge.
        limiter: The limits, shared by the judges of a grader.
        earlier: The wrapper with the earlier limits of the same judge, which the new wrapper replaces, or None.
    """

    def __init__(self, judge: Judge, limiter: CallLimiter, earlier: LimitedJudge | None = None):
        super().__init__(judge)
        self._limiter, self._endpoint = limiter, limiter.new_endpoint(earlier._endpoint if earlier else None)
        # Made directly before the first call, to include the secrets that are set by then.
        self._redactor: Redactor | None = None
        self._target = judge
        self._is_probing = self._has_probed = False

    async def answer(self, request: Request) -> Any:
        """Make a call as soon as the limits allow it, and validate and redact its outcome.

        Raises:
            JudgeFailure: The judge has no answer.
            RunStopped: The run that this call belongs to ends.
        """
        redactor = self._redactor or await self._prepare()
        endpoint, limiter = self._endpoint, self._limiter
        concurrency, timeout = limiter.concurrency, limiter.limits.timeout
        if (refusals := limiter.refusals) is not None and (refusal := refusals.find(innermost(self), request)):
            raise refusal
        if not endpoint.has_replied:
            await endpoint.await_turn(request.submission)
        async with concurrency:
            is_single, reserved = await self._admit(request, concurrency)
            outcome: Any = None
            is_sent, sent_at = False, 0.0
            try:
                # Both checks come last, because the call may have waited for its share of `max_cost`.
                if concurrency.must_wait:
                    await concurrency.wait_for_server()
                check_lease()
                is_sent, sent_at = True, time.monotonic()
                async with asyncio.timeout(timeout):
                    result = await answer(self._target, request)
                outcome = redactor.result(validate(request, result))
            except asyncio.CancelledError as error:
                is_sent = is_sent and NOT_SENT not in getattr(error, "__notes__", ())
                raise
            except Exception as error:  # noqa: BLE001 -- whatever a user's own judge raises
                outcome = redactor.failure(self._failure_of(error))
                concurrency.on_failure(outcome, sent_at)  # before `_end_call`, which may end the run
            finally:
                outcome = self._end_call(request, outcome, reserved, is_sent=is_sent, is_single=is_single)
            if isinstance(outcome, JudgeFailure):
                raise await self._handled(request, outcome)
            concurrency.on_success()
            return outcome

    async def _admit(self, request: Request, concurrency: AdaptiveConcurrency) -> tuple[bool, float]:
        """Wait until the endpoint, the server and the spend limit allow a call.

        Returns:
            Whether the number of concurrent calls is limited now (see `Endpoint.try_admit`), and the reserved cost.
        """
        endpoint, limit = self._endpoint, self._limiter.spend_limit
        is_single = endpoint.try_admit()
        if is_single is None:
            is_single = await endpoint.admit()
        try:
            # After the endpoint, where a call may wait until another call is refused, and before the spend limit,
            # which counts the call as sent.
            if concurrency.must_wait:
                await concurrency.wait_for_server()
            if limit is None:
                return is_single, 0.0
            return is_single, await (limit.start(None) if limit.max_cost is None else self._reserve(request, limit))
        except BaseException:
            if is_single:
                endpoint.leave()
            raise

    def _end_call(self, request: Request, outcome: Any, reserved: float, *, is_sent: bool, is_single: bool) -> Any:
        """Count the spend of a call and record its outcome. Return the outcome with its price, or None if cancelled."""
        limit = self._limiter.spend_limit
        if limit is not None and limit.prices:
            outcome = self._with_price(outcome, limit)
        # Also if the call is cancelled after it was sent.
        spend = NO_SPEND if not is_sent else UNANSWERED_CALL if outcome is None else outcome.spend
        (spend_of_grade.get() or SpendTotal()).add(spend)
        try:
            if limit is not None:
                is_answered = not (outcome is None or isinstance(outcome, JudgeFailure))
                limit.end(spend, reserved, is_answered) if is_sent else limit.give_back(reserved)
            if outcome is not None:
                self._endpoint.record(outcome, request.submission)
        finally:
            if is_single:
                self._endpoint.leave()
        return outcome

    async def _handled(self, request: Request, failure: JudgeFailure) -> JudgeFailure:
        """Remember a refusal. After a lost call about a row that failed before, probe whether the judge replies.

        Returns:
            The failure, with the spend of the probe.
        """
        if self._limiter.refusals is not None:
            retries = request.retries or self._limiter.retries
            self._limiter.refusals.add(innermost(self), request, failure, retries)
        find, is_lost = answered_text.get(), failure.kind == "transport" and not failure.rate_limited
        if find is None or not is_lost or isinstance(failure, LeaseExpired) or self._is_probing:
            return failure
        other = find()
        return failure if other is None else with_spend(failure, await self._probe(request.with_submission(other)))

    async def _probe(self, request: Request) -> Spend:
        """Send a request about another text, and return its spend. A reply shows that there is no outage.

        The probe uses the slot of the lost call, because all other slots may wait for the end of the outage.
        """
        if not self._has_probed:
            _logger.warning("only rows that failed before are left, and a call is lost: asking about another text")
        self._is_probing = self._has_probed = True
        token = answered_text.set(None)  # the probe itself needs no probe
        concurrency = self._limiter.concurrency
        judge = LimitedJudge(self.inner, CallLimiter(self._limiter.limits, spend_limit=self._limiter.spend_limit))
        sent_at = 0.0
        try:
            await concurrency.wait_for_server()
            sent_at = time.monotonic()
            outcome: Any = await judge.answer(request)
        except JudgeFailure as probe_failure:
            outcome = probe_failure
            concurrency.on_failure(probe_failure, sent_at)
        finally:
            self._is_probing = False
            answered_text.reset(token)
        with suppress(JudgeFailure):
            self._endpoint.record(outcome, request.submission)
        return outcome.spend

    async def _reserve(self, request: Request, limit: SpendLimit) -> float:
        """Count a call and reserve its cost as soon as the limits allow it.

        Raises:
            SpendLimitReached: The limits do not allow another call.
            WrongSetting: `max_cost` is set and the price of the call is unknown.
        """
        try:
            return await limit.start(highest_request_cost(innermost(self), request, limit))
        except PriceUnknown:
            raise WrongSetting(price_remedy(price_name(innermost(self)))) from None

    def _with_price(self, outcome: Any, limit: SpendLimit) -> Any:
        """Return an outcome with the cost of its tokens, if the tokens and the judge's price are known."""
        if outcome is None:
            return outcome
        spend = with_price(cast("Spend", outcome.spend), limit.prices.get(price_name(innermost(self))))
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
        runs_user_code: bool = getattr(innermost(self), "runs_user_code", True)
        self._target = _WithoutModel(self.inner) if runs_user_code else self.inner
        self._redactor = Redactor(self.inner)
        return self._redactor

    def _failure_of(self, error: Exception) -> JudgeFailure:
        """Convert an exception of the judge to a failure of one request. An exception that ends a run is raised."""
        if isinstance(error, RunStopped | StoreError):
            raise error
        if isinstance(error, JudgeFailure):
            return error
        if isinstance(error, TimeoutError):
            message = f"no reply within {self._limiter.limits.timeout:g} s{self._timeout_hint()}"
            return JudgeFailure("transport", message, retryable=True, spend=UNANSWERED_CALL)
        failure = JudgeFailure("config", f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _timeout_hint(self) -> str:
        lm: Any = getattr(innermost(self), "lm", None)
        tier: object = getattr(lm, "kwargs", {}).get("service_tier")
        is_short = tier == "flex" and self._limiter.limits.timeout < _FLEX_TIMEOUT
        return f": the tier `flex` is slow, so set `timeout` to {_FLEX_TIMEOUT}" if is_short else ""


def highest_request_cost(judge: Any, request: Request, limit: SpendLimit) -> float | None:
    """Return the highest possible cost of a call in US dollars, if its reply has at most the expected length.

    None for a judge that has no `highest_cost` and no price. Its replies may still report a cost.

    Raises:
        PriceUnknown: The price is not known.
    """
    price, bound = limit.prices.get(price_name(judge)), getattr(judge, "highest_cost", None)
    if price is None and not callable(bound):
        return None
    text_bytes = _text_bytes(request)
    if callable(bound) and (is_lm_judge(judge) or isinstance(judge, TrajectoryExplorer)):
        cost = cast("Callable[..., float | None]", bound)(text_bytes, limit.reply_tokens, price)
    elif price is not None:
        cost = price.cost(prompt_bytes(text_bytes, 0), limit.reply_tokens)
    else:
        cost = judge.highest_cost(text_bytes)
    if cost is None:
        raise PriceUnknown(PRICE_UNKNOWN)
    return cost


def _text_bytes(request: Request) -> int:
    """Return the largest number of bytes that the texts of a request can have in a prompt."""
    if isinstance(request, ExplorationRequest):
        return request.text_bytes
    submission, criteria = request.submission, request.criteria
    size = _size_of(submission) + len(request.guidelines.encode("utf-8", "replace"))
    size += sum(map(_size_of, criteria))
    if trajectory := shown_trajectory(submission, criteria):
        size += len(trajectory.text().encode("utf-8", "replace"))
    return size


def require_price(judge: Judge, limit: SpendLimit) -> None:
    """Check, before the first call, that `max_cost` can be enforced for a judge.

    A judge without `highest_cost` passes, because its replies may report their cost.

    Raises:
        ValueError: The price of a call is not known. The calls of this judge would be refused.
    """
    submission = Submission(response="-")
    request = Request(submission, Question(submission, Criterion(requirement="-")))
    for inner in judges_inside(judge):
        try:
            highest_request_cost(inner, request, limit)
        except PriceUnknown:
            raise ValueError(price_remedy(price_name(inner))) from None


# By identity, because comparing records takes as long as serializing them. Weak references, because texts may be long.
_sizes: dict[int, tuple[ref[Any], int]] = {}


def _size_of(record: Submission | Criterion) -> int:
    """Return the largest number of bytes that a record can have in a prompt. It is computed once for each record."""
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
        # A new record may have the same identity by now.
        if (entry := _sizes.get(key)) is not None and entry[0] is reference:
            del _sizes[key]

    _sizes[key] = ref(record, forget), size
    return size


def _highest_bytes(file: Attachment) -> int:
    """Return the highest cost of a file, as a number of bytes of text.

    Providers charge for an image by its size in pixels, not in bytes. In other files, each byte is at most one token.
    """
    return _IMAGE_BYTES if file.mime_type.startswith("image/") else file.size or MAX_BYTES


def limit_judge(judge: Judge, limiter: CallLimiter) -> Judge:
    """Return a judge whose calls are limited by a limiter.

    If the judge already has a limiter, the new limiter replaces it. The limits apply to the innermost judge, inside of
    wrappers such as a store. In a cascade, the limits and the retries apply to each judge separately.
    """
    if isinstance(judge, CompositeJudge):
        return judge.with_members(lambda member: limit_judge(member, limiter), limiter)
    if isinstance(judge, LimitedJudge):
        return LimitedJudge(judge.inner, limiter, judge)
    if isinstance(judge, JudgeWrapper) and is_limited(judge):
        return judge.wrapping(limit_judge(judge.inner, limiter))
    return LimitedJudge(judge, limiter)


def is_limited(judge: Judge) -> bool:
    """Return whether the calls of a judge are limited, at any depth of its wrappers."""
    if isinstance(judge, LimitedJudge):
        return True
    if isinstance(judge, CompositeJudge):
        return all(map(is_limited, judge.members))
    return isinstance(judge, JudgeWrapper) and is_limited(judge.inner)
