"""A judge that is down must not look like a bad program: after some failures in a row, the run ends."""

from __future__ import annotations

import threading


class JudgeOutage(BaseException):
    """The judge failed too many times in a row for its silence to be taken for scores.

    Not an `Exception`, as `KeyboardInterrupt` is none: DSPy catches every `Exception` that a metric raises and
    scores the program 0, so that `Evaluate`, MIPROv2 and GEPA would finish and report the outage as bad programs.
    """


class OutageGuard:
    """Counts a judge's failures in a row, over all threads."""

    def __init__(self, limit: int):
        if isinstance(limit, bool) or limit < 1:
            raise ValueError(f"`max_judge_failures` must be at least 1, got {limit!r}")
        self._limit = limit
        self._in_a_row = 0
        self._outage: str | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Refuse to go on after an outage.

        Raises:
            JudgeOutage: There was one, and no `reset` since.
        """
        with self._lock:
            if self._outage:
                raise JudgeOutage(self._outage)

    def worked(self) -> None:
        """The judge answered."""
        with self._lock:
            self._in_a_row = 0

    def failed(self, error: str) -> None:
        """The judge failed.

        Raises:
            JudgeOutage: As often in a row as the limit allows.
        """
        with self._lock:
            self._in_a_row += 1
            if self._outage is None and self._in_a_row >= self._limit:
                self._outage = (
                    f"the judge failed {self._in_a_row} times in a row, at last with: {error}. The run ends here, or "
                    "its programs would be scored 0 for it. Mend the judge, call the metric's `resume()` and start "
                    "the run again: what was graded is not paid for twice"
                )
        self.check()

    def reset(self) -> None:
        """Forget the outage."""
        with self._lock:
            self._in_a_row, self._outage = 0, None
