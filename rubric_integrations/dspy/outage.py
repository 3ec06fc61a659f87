"""Ends a DSPy run when the judge is down, because DSPy would report the outage as bad programs."""

from __future__ import annotations

import threading


class JudgeOutage(BaseException):
    """The judge failed too many times in a row; raised by `RubricMetric` to end the run.

    It is not an `Exception`, as `KeyboardInterrupt` is not: DSPy catches every `Exception` that a metric raises and
    scores the program 0, so that `Evaluate`, MIPROv2 and GEPA would finish and report the outage as bad programs.
    """


class OutageGuard:
    """Counts a judge's consecutive failures over all threads, and refuses further work when there are too many.

    Args:
        limit: The number of consecutive failures that counts as an outage, at least 1.

    Raises:
        ValueError: `limit` is below 1.
    """

    def __init__(self, limit: int):
        if isinstance(limit, bool) or limit < 1:
            raise ValueError(f"`max_judge_failures` must be at least 1, got {limit!r}")
        self._limit = limit
        self._consecutive_failures = 0
        self._message: str | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise if there was an outage.

        Raises:
            JudgeOutage: There was one since the last `reset`.
        """
        with self._lock:
            if self._message:
                raise JudgeOutage(self._message)

    def record_success(self) -> None:
        """Record that the judge answered, which ends a series of failures."""
        with self._lock:
            self._consecutive_failures = 0

    def record_failure(self, error: str) -> None:
        """Record that the judge failed.

        Raises:
            JudgeOutage: This was the last failure that the limit allows, or there was an outage before.
        """
        with self._lock:
            self._consecutive_failures += 1
            if self._message is None and self._consecutive_failures >= self._limit:
                self._message = (
                    f"the judge failed {self._consecutive_failures} times in a row, at last with: {error}. The run "
                    "ends here, because DSPy would score its programs 0. Fix the judge, call the metric's `resume()` "
                    "and start the run again: complete grades are cached and not paid for twice"
                )
        self.check()

    def reset(self) -> None:
        """Clear the outage and the count of failures."""
        with self._lock:
            self._consecutive_failures, self._message = 0, None
