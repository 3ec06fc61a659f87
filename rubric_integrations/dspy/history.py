"""What a metric has done: its sums, and its last grades as a table; safe under threads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Literal, TypedDict

from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.results.usage import Spend
from rubric_integrations.submission.submission import Submission


class MetricSummary(TypedDict):
    """What a metric has done since it was made.

    Attributes:
        gradings: Grades that reached a judge or a check.
        remembered: Calls of the metric that an earlier or a simultaneous grade of the same answered, at no cost.
        passed: Those that passed.
        undefined: Those with nothing assessed, scored 0 for DSPy.
        failed: Those that ended in a judge's failure.
        nothing_to_grade: Calls for programs that raised or returned nothing.
        mean_coverage: Over `gradings`; None where there are none.
        calls: TemplateCache to the judge.
        tokens: Their tokens.
        cost: US dollars; None where a price is not known.
        seconds: Spent in grading, by the clock; of grades side by side each counts.
    """

    gradings: int
    remembered: int
    passed: int
    undefined: int
    failed: int
    nothing_to_grade: int
    mean_coverage: float | None
    calls: int
    tokens: int
    cost: float | None
    seconds: float


class HistoryRow(TypedDict):
    """One grade that was bought.

    Attributes:
        query: The task.
        response: The text that was graded.
        score: Its score; None where nothing was assessed or a judge failed.
        passed: Whether it passed.
        coverage: The share of the weights that was assessed.
        unmet: The names of the criteria that do not hold.
        error: Why the grade is not complete.
        calls: TemplateCache to the judge.
        tokens: Their tokens.
        cost: US dollars; None where a price is not known.
        seconds: How long it took.
    """

    query: str | None
    response: str
    score: float | None
    passed: bool
    coverage: float
    unmet: list[str]
    error: str | None
    calls: int
    tokens: int
    cost: float | None
    seconds: float


class MetricHistory:
    """The sums, and the last `size` grades."""

    def __init__(self, size: int):
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._coverage, self._seconds, self._spend = 0.0, 0.0, Spend()
        self._history = deque[HistoryRow](maxlen=size)

    def note(self, call: Literal["remembered", "nothing_to_grade"]) -> None:
        """Count a call that bought no grade."""
        with self._lock:
            self._counts[call] += 1

    def add(self, submission: Submission, report: EvaluationReport, seconds: float = 0.0, failed: bool = False) -> None:
        """Count a grade that was bought, complete or not."""
        row = HistoryRow(
            query=submission.query,
            response=submission.response,
            score=None if failed else report.score,
            passed=report.passed and not failed,
            coverage=report.coverage,
            unmet=[row.name for row in report.criteria if row.value is not None and not row.passed],
            error=report.error,
            calls=report.spend.calls,
            tokens=report.token_usage.total_tokens,
            cost=report.cost,
            seconds=seconds,
        )
        with self._lock:
            outcome = "failed" if failed else "undefined" if report.score is None else "passed"
            self._counts["gradings"] += 1
            self._counts[outcome] += outcome != "passed" or report.passed
            self._coverage += report.coverage
            self._seconds += seconds
            self._spend += report.spend
            self._history.append(row)

    def summary(self) -> MetricSummary:
        """The sums so far."""
        with self._lock:
            counts, gradings = self._counts, self._counts["gradings"]
            return MetricSummary(
                gradings=gradings,
                remembered=counts["remembered"],
                passed=counts["passed"],
                undefined=counts["undefined"],
                failed=counts["failed"],
                nothing_to_grade=counts["nothing_to_grade"],
                mean_coverage=self._coverage / gradings if gradings else None,
                calls=self._spend.calls,
                tokens=self._spend.usage.total_tokens,
                cost=self._spend.cost,
                seconds=self._seconds,
            )

    def history(self) -> list[HistoryRow]:
        """The last grades, oldest first."""
        with self._lock:
            return list(self._history)
