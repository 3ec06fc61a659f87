"""The grades of a metric: totals, the latest grades as table rows, and a cache of reports. All are thread-safe.

The cache is an LRU cache with single-flight: simultaneous requests for one key share one computation.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from hashlib import sha256
from typing import Literal, NamedTuple, TypedDict

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.judgment import Spend
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.calibration import Calibration


class MetricSummary(TypedDict):
    """Totals over all calls of a metric since it was created.

    Attributes:
        gradings: Grades that a judge or a check computed.
        cached: Calls of the metric that were answered by an earlier or simultaneous grade of the same text, without
            a request to the judge.
        passed: Gradings that passed.
        undefined: Gradings in which nothing was assessed; DSPy gets the score 0.
        failed: Gradings that ended in a `JudgeError`. DSPy counts them as its `failure_score` (0 by default).
        nothing_to_grade: Calls for programs that raised an error or returned an empty response.
        mean_coverage: The mean coverage in [0, 1] of the gradings; None if there are none.
        calls: Requests to the judge's model.
        tokens: Tokens of these requests; None if one of them did not report its tokens.
        cost: US dollars; None if the price of a request is unknown.
        seconds: The sum of the gradings' durations; simultaneous gradings each count in full.
        mean_score: The judge's mean score of the texts in `RubricMetric.graded`, without those whose grade failed or
            has no score; None if there are none.
        calibration: The same mean, `judge_score`, beside the one that people's answers would give, `score`, and the
            rates of each criterion; None without labels.
    """

    gradings: int
    cached: int
    passed: int
    undefined: int
    failed: int
    nothing_to_grade: int
    mean_coverage: float | None
    calls: int
    tokens: int | None
    cost: float | None
    seconds: float
    mean_score: float | None
    calibration: Calibration | None


class HistoryRow(TypedDict):
    """One grade that a judge or a check computed; cached grades have no row.

    Attributes:
        query: The task.
        response: The text that was graded.
        score: Its score; None if nothing was assessed or a judge failed.
        passed: Whether it passed.
        coverage: The share in [0, 1] of the rubric's weight that was assessed.
        tags: The score of each tag; empty for a rubric without tags.
        unmet: The names of the criteria that do not hold.
        error: Why the grade is incomplete; None if it is complete.
        calls: Requests to the judge's model.
        tokens: Tokens of these requests; None if one of them did not report its tokens.
        cost: US dollars; None if the price of a request is unknown.
        seconds: The duration of the grading; 0 for a grade of `RubricMetric.noise`.
    """

    query: str | None
    response: str
    score: float | None
    passed: bool
    coverage: float
    tags: dict[str, float | None]
    unmet: list[str]
    error: str | None
    calls: int
    tokens: int | None
    cost: float | None
    seconds: float


class MetricHistory:
    """The totals of a metric, and its latest grades.

    Args:
        size: How many grades are stored as rows, at least 0; the totals cover all.
    """

    def __init__(self, size: int):
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._coverage, self._seconds, self._spend = 0.0, 0.0, Spend()
        self._rows = deque[HistoryRow](maxlen=size)
        self._size, self._graded = size, dict[str, Graded]()

    def count_call(self, outcome: Literal["cached", "nothing_to_grade"]) -> None:
        """Count a call of the metric that computed no grade."""
        with self._lock:
            self._counts[outcome] += 1

    def add(
        self,
        rubric: Rubric,
        submission: Submission,
        report: EvaluationReport,
        seconds: float = 0.0,
        failed: bool = False,
    ) -> None:
        """Add a grade that was computed, complete or not."""
        row = HistoryRow(
            query=submission.query,
            response=submission.response,
            score=None if failed else report.score,
            passed=report.passed and not failed,
            coverage=report.coverage,
            tags={} if failed else report.tags,
            unmet=[row.name for row in report.criteria if row.value is not None and not row.passed],
            error=report.error,
            calls=report.spend.calls,
            tokens=report.spend.total_tokens,
            cost=report.cost,
            seconds=seconds,
        )
        if failed:
            outcome = "failed"
        elif report.score is None:
            outcome = "undefined"
        else:
            outcome = "passed" if report.passed else "not_passed"
        # An id made of the input: another program's answer to it has the same one, in any order of threads.
        # A program may have retrieved the context.
        row_id = _hash(submission.model_dump_json(exclude={"response", "thinking", "trajectory", "context"}))
        key = _hash(submission.model_dump_json(), *(entry.requirement for entry in report.criteria))
        # Attachments may be large, and nobody labels by them.
        text = Row(row_id, submission.model_copy(update={"attachments": ()}))
        graded = Graded(text, report, report.error if failed else None, rubric)
        with self._lock:
            self._counts["gradings"] += 1
            self._counts[outcome] += 1
            self._coverage += report.coverage
            self._seconds += seconds
            self._spend += report.spend
            self._rows.append(row)
            self._graded.pop(key, None)
            self._graded[key] = graded
            if len(self._graded) > self._size:
                self._graded.pop(next(iter(self._graded)))

    def summary(self) -> MetricSummary:
        """Return the totals so far."""
        with self._lock:
            counts, gradings = self._counts, self._counts["gradings"]
            reports = [row.report for row in self._graded.values() if row.report and not row.report.failed_count]
            scores = [report.score for report in reports if report.score is not None]
            return MetricSummary(
                gradings=gradings,
                cached=counts["cached"],
                passed=counts["passed"],
                undefined=counts["undefined"],
                failed=counts["failed"],
                nothing_to_grade=counts["nothing_to_grade"],
                mean_coverage=self._coverage / gradings if gradings else None,
                calls=self._spend.calls,
                tokens=self._spend.total_tokens,
                cost=self._spend.cost,
                seconds=self._seconds,
                mean_score=math.fsum(scores) / len(scores) if scores else None,
                calibration=None,
            )

    def results(self) -> list[Graded]:
        """Return the latest grade of each text, oldest first."""
        with self._lock:
            return list(self._graded.values())

    def graded(self) -> list[GradedRow]:
        """Return the latest grade of each text, oldest first, as the rows of a run."""
        return [
            GradedRow(result.row.id, result.row.submission, result.report, result.report and result.report.error)
            for result in self.results()
        ]

    def rows(self) -> list[HistoryRow]:
        """Return the latest grades, oldest first."""
        with self._lock:
            return list(self._rows)


def _hash(*texts: str) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()[:16]


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
