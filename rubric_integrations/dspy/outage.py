"""Ends a DSPy run whose grades fail, because DSPy would report the failures as bad programs."""

from __future__ import annotations

import threading
from typing import NoReturn

from rubric_integrations.graders.outage import JudgeOutage
from rubric_integrations.results.failures import failure_kinds
from rubric_integrations.results.report import EvaluationReport

# Grades that failed in a row, with no complete one in between. What is wrong with the judge itself is noticed earlier
# (`graders/endpoint.py`); these fail because of checks, metrics, or a grader of the user's own.
MAX_FAILED_GRADES = 10


class OutageGuard:
    """Refuses further grades, over all threads, once the run has to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def check(self) -> None:
        """Raise if the run has ended.

        Raises:
            JudgeOutage: It has ended since the last `reset`.
        """
        with self._lock:
            if self._message:
                raise JudgeOutage(self._message)

    def end_run(self, reason: object) -> NoReturn:
        """End the run for a reason, such as a `JudgeUnusable`, unless it has ended for another.

        Raises:
            JudgeOutage: Always.
        """
        with self._lock:
            if self._message is None:
                self._message = (
                    f"{reason}. The run ends here, because DSPy would score its programs 0. Fix the judge, call the "
                    "metric's `resume()` and start the run again: complete grades are cached and not paid for twice"
                )
            raise JudgeOutage(self._message)

    def record_success(self) -> None:
        """Record a complete grade."""
        with self._lock:
            self._failed_grades = 0

    def record_failure(self, report: EvaluationReport) -> None:
        """Record the report of an incomplete grade.

        Raises:
            JudgeOutage: It is one of too many in a row.
        """
        if failure_kinds(report) == {"transport"}:
            return  # an outage is measured in time: 16 threads collect 16 failures in a second of it
        with self._lock:
            self._failed_grades += 1
            is_outage = self._failed_grades >= MAX_FAILED_GRADES
        if is_outage:
            self.end_run(f"{MAX_FAILED_GRADES} grades in a row failed, the last one because: {report.error}")

    def reset(self) -> None:
        """Forget all failures."""
        with self._lock:
            self._message: str | None = None
            self._failed_grades = 0
