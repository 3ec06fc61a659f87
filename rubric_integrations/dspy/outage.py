"""Ends a DSPy run when the judge is down, because DSPy would report the outage as bad programs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from rubric_integrations.results.report import EvaluationReport, failure_kinds
from rubric_integrations.rubric.rubric import Rubric

# Failures in a row, with no complete grade in between, that are an outage. A wrong key fails every call, so that a
# second failure is only awaited to be sure. A check or a metric may fail because of one text.
MAX_CONFIG_FAILURES, MAX_CHECK_FAILURES = 2, 5
# Unreadable replies in a row, none readable; with the default of two retries, those to seven questions.
MAX_UNREADABLE_REPLIES = 20
# The grades that these replies come from, at least: a judge may refuse to read one text, however often it is asked.
MIN_UNREADABLE_GRADES = 3


class JudgeOutage(BaseException):
    """The judge is down or cannot be used; raised by `RubricMetric` to end the run.

    It is not an `Exception`, as `KeyboardInterrupt` is not: DSPy catches every `Exception` that a metric raises and
    scores the program 0, so that `Evaluate`, MIPROv2 and GEPA would finish and report the outage as bad programs.
    """


class OutageGuard:
    """Watches a judge's failures over all threads, and refuses further work when there is an outage.

    An outage is, with no complete grade in between:

    - transport failures for `max_outage` seconds. Time counts and not their number, since 16 threads collect 16
      failures from an outage of a second;
    - two grades that failed because of a wrong model, key or setting, which no waiting changes;
    - five grades that failed because a check or a metric could not be computed;
    - 20 replies, in at least three grades, that cannot be read, and none that can.

    Args:
        max_outage: The seconds without a complete grade after which transport failures are an outage, at least 0. With
            0, the first one is.
        clock: The current time in seconds.

    Raises:
        ValueError: `max_outage` is negative or no number.
    """

    def __init__(self, max_outage: float, clock: Callable[[], float] = time.monotonic):
        if isinstance(max_outage, bool) or math.isnan(max_outage) or max_outage < 0:
            raise ValueError(f"`max_outage` must be at least 0 seconds, got {max_outage!r}")
        self._max_outage, self._clock = max_outage, clock
        self._lock = threading.Lock()
        self.reset()

    def check(self) -> None:
        """Raise if there was an outage.

        Raises:
            JudgeOutage: There was one since the last `reset`.
        """
        with self._lock:
            if self._message:
                raise JudgeOutage(self._message)

    def start(self) -> float:
        """Return the time at which a grade begins, for `record_failure`.

        Raises:
            JudgeOutage: There was an outage since the last `reset`.
        """
        self.check()
        return self._clock()

    def record_success(self) -> None:
        """Record a complete grade, which ends every series of failures."""
        with self._lock:
            self._end_series()

    def record_failure(self, rubric: Rubric, report: EvaluationReport, started_at: float) -> None:
        """Record an incomplete grade.

        Args:
            rubric: The rubric.
            report: The incomplete report.
            started_at: The time at which the grade began: a grade that failed after minutes of retries shows that the
                judge was down for minutes.

        Raises:
            JudgeOutage: This failure makes an outage, or there was an outage before.
        """
        with self._lock:
            extent, error = self._extent(rubric, report, started_at), report.error or "no answer"
            if extent and self._message is None:
                self._message = (
                    f"the judge failed for {extent}, at last with: {error}. The run ends here, because DSPy would "
                    "score its programs 0. Fix the judge, call the metric's `resume()` and start the run again: "
                    "complete grades are cached and not paid for twice"
                )
        self.check()

    def reset(self) -> None:
        """Clear the outage and the series of failures."""
        with self._lock:
            self._message: str | None = None
            self._last_success = -math.inf
            self._end_series(is_success=False)

    def _end_series(self, is_success: bool = True) -> None:
        if is_success:
            self._last_success = self._clock()
        self._down_since = math.inf
        self._config_failures, self._check_failures, self._unreadable_replies = 0, 0, 0

    def _extent(self, rubric: Rubric, report: EvaluationReport, started_at: float) -> str | None:
        """Count a failure; return how long the outage is, or None if there is none."""
        kinds = failure_kinds(report)
        if "config" in kinds:
            self._config_failures += 1
            if self._config_failures >= MAX_CONFIG_FAILURES:
                return f"{self._config_failures} grades in a row, because of its model, key or setting"
        elif "transport" in kinds:
            # A grade that began before the last complete one does not show that the judge was down all the time.
            self._down_since = min(self._down_since, max(started_at, self._last_success))
            seconds = self._clock() - self._down_since
            if seconds >= self._max_outage:
                return f"{seconds:.0f} s without a complete grade"
        elif "check" in kinds:
            self._check_failures += 1
            if self._check_failures >= MAX_CHECK_FAILURES:
                return f"{self._check_failures} grades in a row, because a check could not be computed"
        elif _has_readable_reply(rubric, report):
            self._unreadable_replies = 0
        else:
            self._unreadable_replies += max(1, report.spend.calls)
            if self._unreadable_replies >= MAX_UNREADABLE_REPLIES:
                return f"{self._unreadable_replies} replies in a row that cannot be read"
        return None


def _has_readable_reply(rubric: Rubric, report: EvaluationReport) -> bool:
    rows = zip(rubric.criteria, report.criteria, strict=False)  # a holistic judge's report has no rows
    return any(criterion.check is None and row.verdict is not None and not row.error for criterion, row in rows)
