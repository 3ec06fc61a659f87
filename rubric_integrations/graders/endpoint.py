"""The state of the model behind a judge. It delays calls during an outage and ends a run if the judge cannot be used.

The module also lowers the concurrency after a rate limit: the limit is halved, and each successful call raises it
again. The class `WarmUp` delays the other calls about a submission until its first call has filled the provider's
prompt cache. It delays calls only while this takes no extra time.
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
    """The concurrency limit of one event loop. Use it as an async context manager around each call.

    It follows the additive increase and multiplicative decrease of TCP (Chiu & Jain, 1989). A rate limit halves the
    number of slots (concurrent calls). Each successful call then adds `1 / slots` of a slot. For example, with 4 slots,
    a fifth slot is added after 4 successful calls.

    Args:
        limit: The most calls at the same time, at least 1.

    Attributes:
        must_wait: Whether the next call must await `wait_for_server`, because a call was refused by a rate limit.

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
        """The number of calls that may run at the same time now, at least 1."""
        return self.limit - self._withheld - self._to_withhold

    @property
    def free(self) -> int:
        """The number of further calls that may start now."""
        return max(0, self.slots - self._in_use)

    async def __aenter__(self) -> None:
        await self._free.acquire()
        self._in_use += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_use -= 1
        if error is None:
            self._release()
        else:
            # After the end of the call, which may end its grade. The next call of the grade is then not sent.
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        if self._to_withhold:
            self._to_withhold -= 1
            self._withheld += 1
        else:
            self._free.release()

    async def wait_for_server(self) -> None:
        """Wait until the time that the server requested is over. Await it last, directly before the call."""
        # Another call may be refused during the wait, which then becomes longer.
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 -- what it waits for is a time
            await asyncio.sleep(wait)
        self.must_wait = False

    def on_failure(self, failure: JudgeFailure, sent_at: float) -> None:
        """Lower the concurrency if a call failed because of a rate limit. Other failures have no effect.

        Args:
            failure: The failure.
            sent_at: The time at which the call was sent, by `time.monotonic`.
        """
        if failure.rate_limited:
            self.on_rate_limit(sent_at, min(LONGEST_WAIT, failure.retry_after or 0.0))

    def on_rate_limit(self, sent_at: float, wait: float = 0.0) -> None:
        """Halve the number of slots, unless the refused call was sent before the last halving.

        Args:
            sent_at: The time at which the refused call was sent, by `time.monotonic`.
            wait: The seconds for which the server refuses all calls.
        """
        self._not_before = max(self._not_before, time.monotonic() + wait)
        self.must_wait = True
        if sent_at > self._halved_at:
            self._halved_at = time.monotonic()
            self._to_withhold += self.slots // 2
            self._recovered = 0.0

    def on_success(self) -> None:
        """Add `1 / slots` of a slot after a successful call, if the number of slots is below the limit."""
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


# The number of lost calls in a row, without a reply in between, that counts as an outage. If 30 % of the calls are lost
# at random, 1 of 15,000 series of 8 calls looks like an outage.
LOST_CALLS = 8
# A run ends after this number of failed submissions in a row. Submissions are counted instead of replies, because a
# text that a model refuses to judge fails for each criterion and in each attempt.
MAX_FAILED_SUBMISSIONS = 20
# With a wrong key, every call fails. Before the first readable reply, refusals of two submissions end a run. The
# refusal of a single submission may be about its text.
MAX_FIRST_REFUSALS = 2
# The first and the longest interval between two probes during an outage, in seconds.
FIRST_PROBE, LONGEST_PROBE = 0.5, 5.0
# The longest wait in seconds, whatever a server requests. A run should fail while its user still watches it.
LONGEST_WAIT = 60.0
# The first and the longest interval, in seconds, at which a waiting call checks the state.
_FIRST_LOOK, _LONGEST_LOOK = 0.01, 0.25
# The seconds before the first warning about an outage, and between two warnings.
_FIRST_WARNING, _WARNING_INTERVAL = 5.0, 30.0

_logger = logging.getLogger(__name__)


class JudgeUnusable(RunStopped):
    """Raised to end a run whose judge does not reply, or gives no usable replies."""


class WrongSetting(JudgeUnusable):
    """Raised to end a run whose requests cannot be sent because of a setting, such as a missing package."""


class FailureStreak:
    """Counts the submissions of a run that failed in a row, in the order in which their grades end, over all threads.

    A long streak shows that the judge does not work at all, or never replies in the requested format. Outages are not
    counted, because `max_outage` limits them. A failure that is about one text, for example from a content filter, is
    not counted either.

    A copy or an unpickled object starts at zero.

    Attributes:
        count: The number of submissions that have failed in a row.
        ended: The number of submissions whose grades have ended.

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
        """Set all counts to zero, because the judge was fixed."""
        self.count = self.ended = 0
        self._message = ""

    def record(self, failures: Sequence[JudgeFailure], *, is_graded: bool) -> None:
        """Count a submission whose grade has ended.

        Args:
            failures: The failures of its judges.
            is_graded: Whether the judges have answered every question. If so, the count starts again at zero.
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
            JudgeUnusable: At least 20 submissions (`MAX_FAILED_SUBMISSIONS`) have failed in a row. This ends the run.
        """
        if self.count >= MAX_FAILED_SUBMISSIONS:
            raise JudgeUnusable(f"the last {MAX_FAILED_SUBMISSIONS} submissions failed: {self._message}")


class _LostText:
    """A submission about which a call was lost and, since then, no call was answered.

    Attributes:
        submission: The submission.
        others_replied: Whether the model has replied about another submission since then. In this case, the text may be
            the cause.
    """

    def __init__(self, submission: Submission):
        self.submission, self.others_replied = ref(submission), False


class Endpoint:
    """The state of the model behind one judge, learnt from its last calls. All tasks, threads and event loops share it.

    - A call is lost if no reply to it arrives. After 8 lost calls in a row (`LOST_CALLS`), there is an outage. During
      an outage, new calls wait, and one call at a time probes whether the model replies again. After `max_outage`
      seconds, calls fail immediately instead of waiting.
    - If the calls about one text are lost while the model replies about other texts, this is not an outage, because
      the text may be the cause. Such a call is sent up to 8 times.
    - In a run, the first call is sent alone, unless the model has replied to this grader before. The run ends if the
      model refuses the first two submissions because of a wrong key, model or setting, if 20 submissions in a row have
      failed, or if an outage has lasted for `max_outage`.
    - If a server has never replied and cannot be reached, the wait ends after `max_connect` seconds. In a run, a
      request that cannot be sent because of a setting ends the run immediately.

    A copy or an unpickled object has seen no calls.

    Args:
        max_outage: The seconds for which calls wait during an outage, at least 0.
        max_connect: The seconds for which calls wait for a server that has never replied and cannot be reached.
        streak: Counts the submissions that failed in a row in the run of the calls. None outside of a run.
        clock: Returns the current time in seconds.
        earlier: The state of the same model in the grader before its copy for this run. None if there is none.

    Attributes:
        down_since: The time at which the outage began, by `clock`. None if there is no outage.
        has_replied: Whether the model has given a readable reply. If so, submissions need not wait in `await_turn`.
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
        """Reset the state to that of a new endpoint, because the endpoint was fixed."""
        with self._lock:
            self.down_since: float | None = None
            self.has_replied = self._has_unreadable_reply = False
            # Whether a server was reached, even if its reply was an error.
            self._was_reached = False
            # The message of a failure that prevents every request of a run.
            self._wrong_setting: str | None = None
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
        """Wait until the calls about this submission may be sent.

        At the start of a run, the calls about 20 submissions are enough to learn whether the model gives readable
        replies. Further submissions wait for the first readable reply, or until one of the 20 has ended.

        Await this method before you take a concurrency slot. Otherwise, a waiting call would block another call.

        Raises:
            JudgeUnusable: The run has to end.
        """
        look = _FIRST_LOOK
        while not self._may_send(submission):
            await asyncio.sleep(look)
            look = min(_LONGEST_LOOK, 1.5 * look)

    async def admit(self) -> bool:
        """Wait until the state of the endpoint allows a call. The caller must `record` the outcome of the call.

        Returns:
            True if the number of concurrent calls is limited now, during an outage or before the model's first reply.
            The caller must then call `leave` when this call has ended.

        Raises:
            JudgeFailure: An outage has lasted longer than `max_outage`.
            JudgeUnusable: The run has to end.
        """
        look = _FIRST_LOOK
        while (is_single := self.try_admit()) is None:
            # Not an asyncio.Event, since calls come from several event loops.
            await asyncio.sleep(look)
            look = min(_LONGEST_LOOK, 1.5 * look)
        return is_single

    def leave(self) -> None:
        """Record the end of a call. Only for a call for which `admit` returned True."""
        with self._lock:
            self._single_calls -= 1

    def record(self, outcome: object, submission: Submission) -> None:
        """Update the state with the outcome of a call about a submission.

        Raises:
            JudgeFailure: The call was lost, and the cause may be the text. The `repeats` of this failure limit the
                repetitions of the call.
            JudgeUnusable: The run has to end.
        """
        if not isinstance(outcome, JudgeFailure):
            self._record_result(outcome, submission)
        elif not isinstance(outcome, LeaseExpired):
            self._record_failure(outcome, submission)

    def try_admit(self) -> bool | None:
        """Admit a call if the state allows it now.

        Returns:
            None if the call has to wait. True if the number of concurrent calls is limited now. The caller must then
            call `leave` when this call has ended. False if it is not limited.
        """
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
        """Return the number of calls that may be in progress now. None for no limit."""
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
        """Record that the model has given a readable reply, in any run. Further submissions need not wait."""
        self.has_replied = True

    def _end_run_if_hopeless(self) -> None:
        if self._streak is None:
            return
        if self._wrong_setting is not None:
            raise WrongSetting(f"the judge cannot be used: {self._wrong_setting}")
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
            first = next(iter(result.faults), None)
            failure = JudgeFailure("parse", "no answer") if first is None else result.failure(first)
            self._record_failure(failure, submission)
            return
        with self._lock:
            if self._lost or self._lost_texts:
                self._end_outage(submission)
            self.has_replied = self._was_reached = True
            self._refused, self._sent = [], []
        if self._earlier and not self._earlier.has_replied:
            # Each training step is a separate run, and should not begin with a single call each time.
            self._earlier.note_reply()

    def _record_failure(self, failure: JudgeFailure, submission: Submission) -> None:
        """Record a failed call and end the run if no later call can succeed."""
        with self._lock:
            if failure.unreachable and failure.kind == "config" and self._streak is not None:
                self._wrong_setting = failure.message
                self._end_run_if_hopeless()
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
        """Count a lost call, which may begin an outage. Raises the failure if the text may be its cause."""
        # During an outage, earlier lost calls give no information about the text.
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
        """Return whether the model has replied about other texts since a call about this text was lost."""
        for text in self._lost_texts:
            if text.submission() is submission:
                return text.others_replied
        self._lost_texts.append(_LostText(submission))
        return False

    def _end_outage(self, submission: Submission) -> None:
        self._lost, self.down_since, self._probe_interval = 0, None, FIRST_PROBE
        if self._lost_texts:
            # By identity, because comparing submissions takes long.
            alive = ((text, text.submission()) for text in self._lost_texts)
            self._lost_texts = [text for text, other in alive if other is not None and other is not submission]
            for text in self._lost_texts:
                text.others_replied = True


class JudgeOutage(BaseException):
    """Raised when the judge is down or cannot be used. It ends an optimization or a training run.

    Like `KeyboardInterrupt`, it is not an `Exception`. DSPy catches an `Exception` that a metric raises and gives the
    example the score 0 by default. `dspy.Evaluate` ends only after `max_errors` exceptions, by default 10. Until then,
    a program would have a low score because of the outage.
    """


class WarmUp:
    """Delays calls of a run: the other calls about a submission wait until its first call is answered.

    The reason is the prompt cache: a provider can reuse the beginning of a prompt only after it has answered a call
    with this beginning. The waiting time is not lost while calls about other submissions fill the concurrency limit.
    At the end of a run, waiting would only cost time. Therefore, all waiting calls are sent when the run has read its
    last submission and all of them fit into the free slots. For example, a training step of 8 completions with 2
    criteria sends its 16 calls immediately under a limit of 64.

    An unpickled object delays no calls.
    """

    def __init__(self) -> None:
        # The number of waiting calls of each submission, by the future that releases them.
        self._held: dict[asyncio.Future[None], int] = {}
        self._reads_rows = True

    def __reduce__(self) -> Any:
        return WarmUp, ()

    def begin_rows(self) -> None:
        """Record that the run is going to read submissions. Calls then wait, even if slots are free."""
        self._reads_rows = True

    def end_rows(self, concurrency: AdaptiveConcurrency) -> None:
        """Record that the run has read its last submission, and send the waiting calls if free slots exist for all."""
        self._reads_rows = False
        self._release(concurrency)

    async def hold(self, first: asyncio.Task[Any], count: int, concurrency: AdaptiveConcurrency) -> bool:
        """Wait until the other calls about a submission may be sent.

        Args:
            first: The first call.
            count: The number of the other calls.
            concurrency: The limit on the calls of the run.

        Returns:
            Whether the first call has ended. The provider then has the beginning of the prompt in its cache.
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
