"""Grades that are bought once: kept by their content, and awaited by whoever asks while one is under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from rubric_integrations.results.report import EvaluationReport


class CachedReport(NamedTuple):
    """A report, and whether this caller is the one who paid for it."""

    report: EvaluationReport
    paid: bool


class ReportCache:
    """The reports of the last `size` grades by key; safe under threads.

    Only complete reports are kept: a judge's failure says nothing of the text, and asking again may help.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> grader, memo = PerCriterionGrader(judge="offline"), ReportCache(size=10)
        >>> [memo.once("42", lambda: grader.grade_sync(rubric, "42")).paid for _ in range(3)]
        [True, False, False]
    """

    def __init__(self, size: int):
        self._size = size
        self._kept: OrderedDict[str, EvaluationReport] = OrderedDict()
        self._under_way: dict[str, Future[EvaluationReport]] = {}
        self._lock = threading.Lock()

    def once(self, key: str, grade: Callable[[], EvaluationReport]) -> CachedReport:
        """The report under `key`: a kept one, that of a grade under way, or else `grade()`.

        Raises:
            Exception: Whatever `grade` raised, to everyone who waited for it.
        """
        while True:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return CachedReport(self._kept[key], paid=False)
                if key not in self._under_way:
                    mine = self._under_way[key] = Future[EvaluationReport]()
                    break
                awaited = self._under_way[key]
            try:
                return CachedReport(awaited.result(), paid=False)
            except CancelledError:
                continue  # whoever was grading was interrupted: it is our turn
        try:
            report = grade()
        except Exception as error:
            self._finish(key)
            mine.set_exception(error)
            raise
        except BaseException:
            self._finish(key)
            mine.cancel()
            raise
        self._finish(key, report if report.complete else None)
        mine.set_result(report)
        return CachedReport(report, paid=True)

    def _finish(self, key: str, report: EvaluationReport | None = None) -> None:
        with self._lock:
            del self._under_way[key]
            if report is not None:
                self._kept[key] = report
                if len(self._kept) > self._size:
                    self._kept.popitem(last=False)
