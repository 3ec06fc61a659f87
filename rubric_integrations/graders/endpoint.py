"""The state of the model behind a judge: holds calls during an outage, and ends a run if the judge cannot be used.

Also lowers the concurrency after a rate limit (it is halved, and recovers call by call), and lets one call about each
submission fill the provider's prompt cache first if that takes no extra time.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any
from weakref import ref

from rubric_integrations.judges.protocol import BatchResult, RunStopped
from rubric_integrations.judges.store import LeaseExpired
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.submission import Submission


class AdaptiveConcurrency:
    """The concurrency limit of one event loop; use it as an async context manager around each call.

    It follows the additive increase and multiplicative decrease of TCP (Chiu & Jain, 1989): a rate limit halves the
    slots, and each successful call returns such a share of a slot that one whole slot is back after as many calls as
    there are slots.

    Args:
        limit: The most calls at the same time, at least 1.

    Attributes:
        must_wait: Whether a server has requested a wait that may not be over.

    Example:
        >>> concurrency = AdaptiveConcurrency(8)
        >>> concurrency.on_rate_limit(sent_at=time.monotonic())
        >>> concurrency.slots
        4
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._free = asyncio.Semaphore(limit)
        self._withheld = self._to_withhold = self._in_use = 0
        self._recovered, self._halved_at, self._not_before = 0.0, -1.0, 0.0
        self.must_wait = False

    @property
    def slots(self) -> int:
        """How many calls may run at the same time now; at least 1."""
        return self.limit - self._withheld - self._to_withhold

    @property
    def free(self) -> int:
        """How many more calls may start now."""
        return max(0, self.slots - self._in_use)

    async def __aenter__(self) -> None:
        await self._free.acquire()
        self._in_use += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_use -= 1
        self._release()

    def _release(self) -> None:
        if self._to_withhold:
            self._to_withhold -= 1
            self._withheld += 1
        else:
            self._free.release()

    async def wait_for_server(self) -> None:
        """Wait until the server accepts calls again; await it when everything else allows the call."""
        # Another call may be refused during the wait, which then becomes longer.
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 -- what it waits for is a time
            await asyncio.sleep(wait)
        self.must_wait = False

    def on_failure(self, failure: JudgeFailure, sent_at: float) -> None:
        """Make fewer calls if a call failed because of a rate limit.

        Args:
            failure: The failure.
            sent_at: When the call was sent, by `time.monotonic`.
        """
        if failure.rate_limited:
            self.on_rate_limit(sent_at, min(LONGEST_WAIT, failure.retry_after or 0.0))

    def on_rate_limit(self, sent_at: float, wait: float = 0.0) -> None:
        """Halve the slots, once for all calls that were sent before the provider first refused one.

        Args:
            sent_at: When the refused call was sent, by `time.monotonic`.
            wait: Seconds during which the server wants no call at all.
        """
        self._not_before = max(self._not_before, time.monotonic() + wait)
        self.must_wait = True
        if sent_at > self._halved_at:
            self._halved_at = time.monotonic()
            self._to_withhold += self.slots // 2
            self._recovered = 0.0

    def on_success(self) -> None:
        """Return a share of a slot after a successful call."""
        if not (self._withheld or self._to_withhold):
            return
        self._recovered += 1 / self.slots
        if self._recovered >= 1:
            self._recovered -= 1
            if self._to_withhold:
                self._to_withhold -= 1
            else:
                self._withheld -= 1
                self._free.release()


# Lost calls in a row, with no reply in between, that are an outage. At 30 % of lost calls, one series in 15,000 is.
LOST_CALLS = 8
# Submissions that fail in a row, with none graded in between, that end a run. Not replies: one text that a model does
# not want to judge fails for each criterion, in each attempt.
MAX_FAILED_SUBMISSIONS = 20
# A wrong key fails every call: before the first readable reply, the refusals of two submissions end a run, because that
# of one may be about its text.
MAX_FIRST_REFUSALS = 2
# Seconds between two probes during an outage: the first, and the longest.
FIRST_PROBE, LONGEST_PROBE = 0.5, 5.0
# Seconds. No wait is longer, whatever a server requests: a run should fail while its user is watching.
LONGEST_WAIT = 60.0
# Seconds between two looks of a waiting call at the state: the first, and the longest.
_FIRST_LOOK, _LONGEST_LOOK = 0.01, 0.25
# Seconds until the first warning about an outage, and between two.
_FIRST_WARNING, _WARNING_INTERVAL = 5.0, 30.0

_logger = logging.getLogger(__name__)


class JudgeUnusable(RunStopped):
    """A run ended because its judge does not reply, or never usefully."""


class WrongSetting(JudgeUnusable):
    """A run ended because a setting of its judge keeps every request from being sent, such as a missing package."""


class FailureStreak:
    """The submissions of a run that have failed in a row, in the order in which they end; over all threads.

    A judge that is dead, or answers nothing but prose, fails all of them. Outages are not counted, because they are
    measured in time, and neither are failures that are about one text, as after a content filter.

    A copy, and one from a pickle, has counted nothing.

    Attributes:
        count: The submissions that have failed in a row.
        ended: All submissions whose grades have ended.

    Example:
        >>> streak = FailureStreak()
        >>> streak.record([JudgeFailure("parse", "prose")], is_graded=False)
        >>> streak.count
        1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def __reduce__(self) -> Any:
        return FailureStreak, ()

    def reset(self) -> None:
        """Forget all submissions, because the judge was fixed."""
        self.count = self.ended = 0
        self._message = ""

    def record(self, failures: Sequence[JudgeFailure], *, is_graded: bool) -> None:
        """Count a submission whose grade has ended.

        Args:
            failures: The failures of its judges.
            is_graded: Whether the judges have answered every question.
        """
        counted = [failure for failure in failures if failure.kind in ("parse", "config") and not failure.about_text]
        with self._lock:
            self.ended += 1
            if is_graded:
                self.count = 0
            elif counted:
                self.count += 1
                self._message = counted[0].message

    def check(self) -> None:
        """Raise if too many submissions have failed in a row.

        Raises:
            JudgeUnusable: They have; so the run ends.
        """
        if self.count >= MAX_FAILED_SUBMISSIONS:
            raise JudgeUnusable(f"the last {MAX_FAILED_SUBMISSIONS} submissions failed: {self._message}")


class _LostText:
    """A submission about which a call was lost, and none was answered since.

    Attributes:
        submission: The submission.
        others_replied: Whether the model has replied about another one since: then this text may be the cause.
    """

    def __init__(self, submission: Submission):
        self.submission, self.others_replied = ref(submission), False


class Endpoint:
    """What the last calls tell of the model behind one judge, shared by all tasks, threads and event loops.

    - After `LOST_CALLS` lost calls in a row there is an outage: new calls are held, and one at a time probes whether
      the model replies again. After `max_outage` seconds, calls are no longer held, but fail at once.
    - Lost calls about one text, while the model replies about others, are no outage; each is sent `LOST_CALLS` times.
    - In a run, the first call is made alone, unless the model has replied to this grader before. The run ends if the
      model refuses the first two submissions because of a wrong key, model or setting, when 20 submissions in a row
      have failed, and when an outage has lasted `max_outage`.
    - A server that has never replied and cannot be reached is waited for `max_connect` seconds. A request that a
      setting keeps from being sent ends the run immediately.

    A copy, and one from a pickle, knows of no calls.

    Args:
        max_outage: The seconds for which calls are held during an outage, at least 0.
        max_connect: The same for a server that has never replied and cannot be reached.
        streak: The failed submissions of the run that the calls belong to, which may be ended; None outside of a run.
        clock: The current time in seconds.
        earlier: The state of the same model for the grader that the run was made of; None if there is none.

    Attributes:
        down_since: When the outage began, by `clock`; None if there is none.
        has_replied: Whether the model has given a readable reply, so that a submission needs no `await_turn`.
    """

    def __init__(
        self,
        max_outage: float,
        max_connect: float = math.inf,
        streak: FailureStreak | None = None,
        clock: Callable[[], float] = time.monotonic,
        earlier: Endpoint | None = None,
    ):
        self._max_outage, self._max_connect = max_outage, min(max_outage, max_connect)
        self._streak, self._clock, self._earlier = streak, clock, earlier
        self._lock = threading.Lock()
        self._single_calls = 0
        self.reset()

    def reset(self) -> None:
        """Forget all calls, because the endpoint was fixed."""
        with self._lock:
            self.down_since: float | None = None
            self.has_replied = self._has_unreadable_reply = False
            # Whether a server was reached, whatever it replied.
            self._was_reached = False
            # The submissions that were refused before the first readable reply, and all that were sent until then.
            self._refused: list[Submission] = []
            self._sent: list[Submission] = []
            self._lost = 0
            self._lost_texts: list[_LostText] = []
            self._lost_since, self._last_failure = 0.0, JudgeFailure("transport", "no call yet")
            self._probe_at, self._probe_interval, self._warned_at = 0.0, FIRST_PROBE, -math.inf

    def __reduce__(self) -> Any:
        return Endpoint, (self._max_outage, self._max_connect, self._streak, self._clock)

    async def await_turn(self, submission: Submission) -> None:
        """Wait while there are enough other submissions to find out whether the model gives readable replies.

        Await it before a concurrency slot: a call that waits here must not keep another from being sent.

        Raises:
            JudgeUnusable: The run has to end.
        """
        look = _FIRST_LOOK
        while not self._may_send(submission):
            await asyncio.sleep(look)
            look = min(_LONGEST_LOOK, 1.5 * look)

    async def admit(self) -> bool:
        """Wait until the endpoint's state allows a call; `record` its outcome.

        Returns:
            Whether it is one of few calls that may be made now: it has to `leave` when it has ended.

        Raises:
            JudgeFailure: There is an outage that has lasted `max_outage`.
            JudgeUnusable: The run has to end.
        """
        look = _FIRST_LOOK
        while (is_single := self.try_admit()) is None:
            # Not an asyncio.Event, since calls come from several event loops.
            await asyncio.sleep(look)
            look = min(_LONGEST_LOOK, 1.5 * look)
        return is_single

    def leave(self) -> None:
        """Note that one of few calls has ended."""
        with self._lock:
            self._single_calls -= 1

    def record(self, outcome: object, submission: Submission) -> None:
        """Learn from the outcome of a call about a submission.

        Raises:
            JudgeFailure: The failure with the number of times that the call may be repeated.
            JudgeUnusable: The run has to end.
        """
        if not isinstance(outcome, JudgeFailure):
            self._record_result(outcome, submission)
        elif not isinstance(outcome, LeaseExpired):
            self._record_failure(outcome, submission)

    def try_admit(self) -> bool | None:
        """Admit a call, and return whether it is one of few that may be made now; None if it has to wait."""
        with self._lock:
            self._end_run_if_hopeless()
            if self.down_since is not None:
                self._refuse_after_long_outage(self.down_since)
            allowed = self._allowed_calls()
            if allowed is None:
                return False
            if self._single_calls >= allowed:
                return None
            self._single_calls += 1
            return True

    def _allowed_calls(self) -> int | None:
        """How many calls may be under way now; None for any number."""
        if self.down_since is not None:
            return 1 if self._clock() >= self._probe_at else 0
        if self._streak is None or self.has_replied or self._replied_before:
            return None
        return MAX_FAILED_SUBMISSIONS if self._has_unreadable_reply and not self._refused else 1

    def _may_send(self, submission: Submission) -> bool:
        with self._lock:
            self._end_run_if_hopeless()
            if self._streak is None or self.has_replied or self._replied_before:
                return True
            if any(submission is other for other in self._sent):
                return True
            if len(self._sent) - self._streak.ended >= MAX_FAILED_SUBMISSIONS:
                return False
            self._sent.append(submission)
            return True

    @property
    def _replied_before(self) -> bool:
        return self._earlier is not None and self._earlier.has_replied

    def note_reply(self) -> None:
        """Note that the model has given a readable reply to a run of this grader."""
        self.has_replied = True

    def _end_run_if_hopeless(self) -> None:
        if self._streak is None:
            return
        if self._streak.count:
            self._streak.check()
        if self._refused and len(self._refused) >= MAX_FIRST_REFUSALS:
            raise JudgeUnusable(f"the judge cannot be used: {self._last_failure.message}")
        if self.down_since is not None and self._clock() - self.down_since >= self._patience:
            raise JudgeUnusable(self._outage_text(self.down_since))

    def _refuse_after_long_outage(self, down_since: float) -> None:
        now = self._clock()
        if now - down_since >= self._patience and now < self._probe_at:
            raise JudgeFailure("transport", self._outage_text(down_since))
        if now - down_since >= _FIRST_WARNING and now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            text = "waiting for the judge, %.0f s so far, up to %.0f s (%s)"
            _logger.warning(text, now - down_since, self._patience, self._last_failure.message)

    @property
    def _patience(self) -> float:
        was_reached = self._was_reached or (self._earlier is not None and self._earlier._was_reached)
        return self._max_outage if was_reached else self._max_connect

    def _outage_text(self, down_since: float) -> str:
        seconds, message = self._clock() - down_since, self._last_failure.message
        if self._last_failure.unreachable and not self._was_reached:
            return f"the judge cannot be reached, after {seconds:.0f} s: {message}"
        return f"the judge has not replied for {seconds:.0f} s: {message}"

    def _record_result(self, result: object, submission: Submission) -> None:
        if isinstance(result, BatchResult) and not result.answers:
            self._record_failure(JudgeFailure("parse", next(iter(result.faults.values()), "no answer")), submission)
            return
        with self._lock:
            self._end_outage(submission)
            self.has_replied = self._was_reached = True
            self._refused, self._sent = [], []
        if self._earlier and not self._earlier.has_replied:
            # A training step is a run of its own, which should not begin with a call that is made alone each time.
            self._earlier.note_reply()

    def _record_failure(self, failure: JudgeFailure, submission: Submission) -> None:
        with self._lock:
            if failure.unreachable and failure.kind == "config" and self._streak is not None:
                raise WrongSetting(f"the judge cannot be used: {failure.message}")
            self._was_reached |= not failure.unreachable
            if failure.kind == "transport":
                self._record_lost_call(failure, submission)
            else:
                self._end_outage(submission)
                if failure.about_text:
                    return
                if failure.kind != "config":
                    self._has_unreadable_reply = True
                elif not self.has_replied and all(submission is not other for other in self._refused):
                    self._refused.append(submission)
            self._last_failure = failure
            self._end_run_if_hopeless()
            if self.down_since is not None and not self._was_reached and failure.unreachable:
                self._end_call_to_nowhere(self.down_since, failure)

    def _end_call_to_nowhere(self, down_since: float, failure: JudgeFailure) -> None:
        # Otherwise the call would be repeated for `max_outage`.
        if self._clock() - down_since >= self._patience:
            text = self._outage_text(down_since)
            raise JudgeFailure("transport", text, unreachable=True, spend=failure.spend) from failure.__cause__

    def _record_lost_call(self, failure: JudgeFailure, submission: Submission) -> None:
        # In an outage, whatever was lost before says nothing about the text.
        if self.down_since is None and not failure.rate_limited and self._may_be_about(submission):
            failure = copy.copy(failure)  # a judge may raise one object for every question
            failure.repeats = LOST_CALLS - 1
            raise failure
        now = self._clock()
        self._lost_since = self._lost_since if self._lost else now
        self._lost += 1
        is_outage = self._lost >= LOST_CALLS or (failure.unreachable and self._patience < self._max_outage)
        if not is_outage or (self.down_since is not None and now < self._probe_at):
            return  # no outage yet, or a call that was sent before the outage was known
        if self.down_since is None:
            self.down_since = self._lost_since
        self._probe_at = now + max(self._probe_interval, min(LONGEST_WAIT, failure.retry_after or 0.0))
        self._probe_interval = min(LONGEST_PROBE, 2 * self._probe_interval)

    def _may_be_about(self, submission: Submission) -> bool:
        """Whether the model has replied about other texts since a call about this one was lost."""
        for text in self._lost_texts:
            if text.submission() is submission:
                return text.others_replied
        self._lost_texts.append(_LostText(submission))
        return False

    def _end_outage(self, submission: Submission) -> None:
        self._lost, self.down_since, self._probe_interval = 0, None, FIRST_PROBE
        if self._lost_texts:
            # By identity, since to compare submissions takes long.
            alive = ((text, text.submission()) for text in self._lost_texts)
            self._lost_texts = [text for text, other in alive if other is not None and other is not submission]
            for text in self._lost_texts:
                text.others_replied = True


class JudgeOutage(BaseException):
    """The judge is down or cannot be used, or grades keep failing; it ends an optimization or a training run.

    It is not an `Exception`, as `KeyboardInterrupt` is not: DSPy catches every `Exception` that a metric raises and
    scores the program 0, so that `Evaluate`, MIPROv2 and GEPA would finish and report the outage as bad programs.
    """


class WarmUp:
    """Holds the other calls about a submission until the first one is answered, in one run.

    A provider shares the beginning of a prompt only once it has answered it. While a run has more calls to make than
    may be under way, those about other submissions use the time. Once the run has read its last submission, and the
    calls that are held fit into the slots that are free, to hold them would only take time: all are released. A
    training step of 8 completions with 2 criteria makes its 16 calls at once, under a limit of 64.

    One from a pickle holds nothing.
    """

    def __init__(self) -> None:
        # How many calls each submission holds, by what they wait for beside the first call.
        self._held: dict[asyncio.Future[None], int] = {}
        self._reads_rows = True

    def __reduce__(self) -> Any:
        return WarmUp, ()

    def begin_rows(self) -> None:
        """Note that the run is going to read submissions."""
        self._reads_rows = True

    def end_rows(self, concurrency: AdaptiveConcurrency) -> None:
        """Note that the run reads no further submission."""
        self._reads_rows = False
        self._release(concurrency)

    async def hold(self, first: asyncio.Task[Any], count: int, concurrency: AdaptiveConcurrency) -> bool:
        """Wait until the other calls about a submission may be sent.

        Args:
            first: The first call.
            count: The number of the others.
            concurrency: The limit on the calls of the run.

        Returns:
            Whether the first call is answered, so that the provider has the beginning of the prompt.
        """
        released = asyncio.get_running_loop().create_future()
        self._held[released] = count
        try:
            self._release(concurrency)
            await asyncio.wait([first, released], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held.pop(released, None)
            released.cancel()
        return first.done()

    def _release(self, concurrency: AdaptiveConcurrency) -> None:
        # The first calls may not have taken their slots yet.
        if self._reads_rows or sum(self._held.values()) + len(self._held) > concurrency.free:
            return
        for released in self._held:
            if not released.done():
                released.set_result(None)
