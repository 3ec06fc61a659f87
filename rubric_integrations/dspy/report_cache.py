"""A thread-safe LRU cache of reports with single-flight: simultaneous requests for one key share one computation."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from rubric_integrations.results.report import EvaluationReport


class CachedReport(NamedTuple):
    """A report, and whether it was computed for this call.

    Attributes:
        report: The report.
        is_new: True for the caller whose `compute` ran; False where the report came from the cache, or from another
            thread that was computing it at the same time.
    """

    report: EvaluationReport
    is_new: bool


class ReportCache:
    """Stores the most recently used reports by key, and computes each only once; safe under threads.

    Only complete reports are stored: a judge's failure is not a property of the text, and a new attempt may succeed.

    Args:
        size: How many reports are stored, at least 0. With 0, only simultaneous computations are shared.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> grader, cache = PerCriterionGrader(judge="offline"), ReportCache(size=10)
        >>> [cache.get_or_compute("42", lambda: grader.grade_sync(rubric, "42")).is_new for _ in range(3)]
        [True, False, False]
    """

    def __init__(self, size: int):
        self._size = size
        self._reports: OrderedDict[str, EvaluationReport] = OrderedDict()
        self._in_flight: dict[str, Future[EvaluationReport]] = {}
        self._lock = threading.Lock()

    def get_or_compute(self, key: str, compute: Callable[[], EvaluationReport]) -> CachedReport:
        """Return the report under a key: the stored one, that of a computation in flight, or the result of `compute`.

        Raises:
            Exception: Whatever `compute` raised; every thread that waited for it gets the same exception.
        """
        while True:
            with self._lock:
                if key in self._reports:
                    self._reports.move_to_end(key)
                    return CachedReport(self._reports[key], is_new=False)
                if key not in self._in_flight:
                    future = self._in_flight[key] = Future[EvaluationReport]()
                    break
                other = self._in_flight[key]
            try:
                return CachedReport(other.result(), is_new=False)
            except CancelledError:
                continue  # The thread that computed was interrupted (Ctrl-C): one of those that waited takes over.
        try:
            report = compute()
        except Exception as error:
            self._finish(key)
            future.set_exception(error)
            raise
        except BaseException:
            self._finish(key)
            future.cancel()
            raise
        self._finish(key, report if report.complete else None)
        future.set_result(report)
        return CachedReport(report, is_new=True)

    def _finish(self, key: str, report: EvaluationReport | None = None) -> None:
        with self._lock:
            del self._in_flight[key]
            if report is not None:
                self._reports[key] = report
                if len(self._reports) > self._size:
                    self._reports.popitem(last=False)
