"""The grades of a metric: totals, the latest grades as table rows, and a cache of reports. All are thread-safe.

The cache is an LRU cache with single-flight: concurrent requests for the same key share one computation.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from hashlib import sha256
from typing import Literal, NamedTuple, TypedDict

from rubric_integrations.judges.spend import spend_of_grade
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.judgment import Spend, SpendTotal
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.calibration import Calibration


class MetricSummary(TypedDict):
    """Totals over all calls of a metric since it was created.

    Attributes:
        gradings: The number of grades that a judge or a check computed.
        cached: The number of calls of the metric that reused an earlier or concurrent grade of the same text.
        passed: The number of gradings that passed.
        undefined: The number of gradings in which no criterion was assessed. DSPy gets the score 0 for them.
        failed: The number of gradings that ended in a `JudgeError`. DSPy counts them with its `failure_score` (0 by
            default).
        nothing_to_grade: The number of calls without a response to grade: the program returned an empty response, or
            the prediction is None. If a program raises an error, `dspy.Evaluate` does not call the metric, and
            `dspy.SIMBA` calls it with None.
        mean_coverage: The mean coverage in [0, 1] of the gradings. None if there are no gradings.
        calls: The number of requests to the judge's model.
        tokens: The number of tokens of these requests. None if a request did not report its tokens.
        cost: The cost in US dollars. None if the price of a request is unknown.
        is_lower_bound: Whether a request was sent and not answered. The tokens and the cost may then be higher.
        seconds: The sum of the gradings' durations in seconds. Concurrent gradings each count in full.
        mean_score: The judge's mean score of the texts in `RubricMetric.graded`, without texts whose grade failed or
            has no score. None if there are no such texts.
        calibration: The judge's mean score (`judge_score`), the mean score that human labels imply (`score`), and the
            error rates of each criterion. None without labels.
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
    is_lower_bound: bool
    seconds: float
    mean_score: float | None
    calibration: Calibration | None


class HistoryRow(TypedDict):
    """One grade that a judge or a check computed. Cached grades have no row.

    Attributes:
        query: The task.
        response: The text that was graded.
        score: The score of the response. None if no criterion was assessed or a judge failed.
        passed: Whether the response passed.
        coverage: The share in [0, 1] of the rubric's weight that was assessed.
        tags: The score of each tag. Empty for a rubric without tags.
        unmet: The names of the criteria that were judged and did not pass. A penalty does not pass if the response
            commits the error.
        error: The reason why the grade is incomplete. None if the grade is complete.
        calls: The number of requests to the judge's model.
        tokens: The number of tokens of these requests. None if a request did not report its tokens.
        cost: The cost in US dollars. None if the price of a request is unknown.
        seconds: The duration of the grading in seconds. 0 for a grade of `RubricMetric.noise`.
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
        size: The number of grades that are stored as rows, at least 0. The totals cover all grades.
    """

    def __init__(self, size: int):
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._coverage, self._seconds, self._spend = 0.0, 0.0, Spend()
        self._counted = SpendTotal()
        self._rows = deque[HistoryRow](maxlen=size)
        self._size, self._graded = size, dict[str, Graded]()

    def count_call(self, outcome: Literal["cached", "nothing_to_grade"]) -> None:
        """Count a call of the metric that computed no grade.

        Args:
            outcome: `"cached"` if an existing grade was reused, `"nothing_to_grade"` if there was no response.
        """
        with self._lock:
            self._counts[outcome] += 1

    @contextmanager
    def counted_spend(self) -> Generator[None]:
        """Count all requests of the block, also those of a grade that ends without a report."""
        outside = spend_of_grade.set(self._counted)
        try:
            yield
        finally:
            spend_of_grade.reset(outside)

    def add(
        self,
        rubric: Rubric,
        submission: Submission,
        report: EvaluationReport,
        seconds: float = 0.0,
        failed: bool = False,
    ) -> None:
        """Add a computed grade, which may be incomplete."""
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
        # The id is a digest of the input: another program's answer to this input gets the same id, in any order of
        # threads. The context is not a part of it, because the program may have retrieved the context.
        row_id = _hash(submission.model_dump_json(exclude={"response", "thinking", "trajectory", "context"}))
        key = _hash(submission.model_dump_json(), *(entry.requirement for entry in report.criteria))
        # Attachments may be large, and labels do not need them.
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
            spend = max(self._counted.spend, self._spend, key=lambda spend: spend.calls)
            return MetricSummary(
                gradings=gradings,
                cached=counts["cached"],
                passed=counts["passed"],
                undefined=counts["undefined"],
                failed=counts["failed"],
                nothing_to_grade=counts["nothing_to_grade"],
                mean_coverage=self._coverage / gradings if gradings else None,
                calls=spend.calls,
                tokens=spend.total_tokens,
                cost=spend.cost,
                is_lower_bound=spend.is_lower_bound,
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
        """Return the latest grades as table rows, oldest first."""
        with self._lock:
            return list(self._rows)


def _hash(*texts: str) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()[:16]


class CachedReport(NamedTuple):
    """A report, and whether it was computed for this call.

    Attributes:
        report: The report.
        is_new: True if this caller's `compute` ran. False if the report came from the cache, or from another thread
            that was computing it concurrently.
    """

    report: EvaluationReport
    is_new: bool


class ReportCache:
    """A thread-safe LRU cache of reports with single-flight.

    Only complete reports are stored, because a new attempt may succeed after a judge's failure.

    Args:
        size: The number of reports that are stored, at least 0. With 0, only concurrent computations are shared.

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
        """Return the report for a key.

        Args:
            key: The key.
            compute: Computes the report. It is called if the report is neither stored nor being computed by another
                thread.

        Raises:
            Exception: The exception that `compute` raised. Every thread that waited for the report gets the same
                exception.
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
                continue  # The computing thread was interrupted (Ctrl-C): one of the waiting threads takes over.
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
