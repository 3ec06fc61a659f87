"""The counters of a server, as text for Prometheus.

They are written here and not by `prometheus_client`: the format is a few lines of text, and this server needs neither
that library's registry nor its state, which is global to the process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rubric_integrations.results.report import EvaluationReport

if TYPE_CHECKING:
    from rubric_integrations.server.service import GradingService

GradeOutcome = Literal["graded", "undefined", "failed", "refused"]
"""A grade has a score, or has none because of abstentions; the judge or the ledger failed; or a limit refused it."""

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0)
"""The upper bounds of the histogram of request times, in seconds."""

_PREFIX = "rubric_integrations_"


class ServerMetrics:
    """Counts requests, grades and verdicts.

    Args:
        criteria: The names of the criteria whose verdicts are counted: those of the server's own rubric. Rubrics of
            requests could have names without end.

    Example:
        >>> metrics = ServerMetrics(["right"])
        >>> metrics.count_request("/grade", 200, seconds=0.2)
        >>> [line for line in metrics.lines() if "requests_total{" in line]
        ['rubric_integrations_requests_total{endpoint="/grade",status="200"} 1']
    """

    def __init__(self, criteria: Iterable[str] = ()):
        self._criteria = frozenset(criteria)
        self._requests, self._seconds = Counter[tuple[str, int]](), defaultdict[str, float](float)
        self._buckets: dict[str, list[int]] = {}
        self._grades = Counter[str](dict.fromkeys(("graded", "undefined", "failed", "refused"), 0))
        self._values: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in sorted(self._criteria)}
        self._abstentions = 0

    def count_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that has been answered.

        Args:
            endpoint: Its path, or `other` for a path that does not exist.
            status: The HTTP status.
            seconds: The time from the end of its headers to the answer.
        """
        self._requests[endpoint, status] += 1
        self._seconds[endpoint] += seconds
        self._buckets.setdefault(endpoint, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1

    def count_grade(self, outcome: GradeOutcome, report: EvaluationReport | None = None) -> None:
        """Count a grade that has ended, and the verdicts of its report."""
        self._grades[outcome] += 1
        if report is None:
            return
        self._abstentions += report.cannot_assess_count
        for row in report.criteria:
            if row.name in self._values and row.was_asked and not row.error and not row.not_applicable:
                figures = self._values[row.name]
                if row.value is None:
                    figures[2] += 1
                else:
                    figures[0] += row.value
                    figures[1] += 1

    def lines(self) -> Iterator[str]:
        """Yield the lines of all counters."""
        requests = [
            (_labels(endpoint=endpoint, status=str(status)), count)
            for (endpoint, status), count in sorted(self._requests.items())
        ]
        yield from _metric("requests_total", "counter", "Requests by endpoint and HTTP status.", requests)
        yield from self._histogram()
        grades = [(_labels(outcome=outcome), count) for outcome, count in self._grades.items()]
        yield from _metric("grades_total", "counter", "Grades that have ended, by outcome.", grades)
        yield from _metric("abstentions_total", "counter", "Criteria that a judge abstained from.", self._abstentions)
        about = (
            ("criterion_value_sum", "Sum of the values in [0, 1] of a criterion; 1 is MET, also for a penalty."),
            ("criterion_values_total", "Verdicts on a criterion."),
            ("criterion_abstentions_total", "Abstentions from a criterion."),
        )
        for number, (name, text) in enumerate(about):
            values = [(_labels(criterion=criterion), figures[number]) for criterion, figures in self._values.items()]
            yield from _metric(name, "counter", text, values)

    def _histogram(self) -> Iterator[str]:
        name = "request_seconds"
        yield f"# HELP {_PREFIX}{name} Seconds from the headers of a request to its answer."
        yield f"# TYPE {_PREFIX}{name} histogram"
        for endpoint, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                yield f"{_PREFIX}{name}_bucket{_labels(endpoint=endpoint, le=bound)} {total}"
            yield f"{_PREFIX}{name}_sum{_labels(endpoint=endpoint)} {self._seconds[endpoint]:g}"
            yield f"{_PREFIX}{name}_count{_labels(endpoint=endpoint)} {total}"


def metrics_text(service: GradingService) -> str:
    """Return all metrics of a service in Prometheus's text format."""
    spend = service.spend_limit.spend
    lines = [*service.metrics.lines()]
    lines += _metric("judge_calls_total", "counter", "Requests to models.", spend.calls)
    if spend.cost is not None:
        lines += _metric("judge_cost_dollars_total", "counter", "US dollars for these requests.", spend.cost)
    lines += _metric("judgments_reused_total", "counter", "Judgments that came from the ledger.", service.reused)
    lines += _metric("grades_under_way", "gauge", "Grades under way.", service.under_way)
    is_up = int(service.state == "ok")
    lines += _metric("up", "gauge", "1 if the server can grade, 0 if `/healthz` says why it cannot.", is_up)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, values: float | Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {about}"
    yield f"# TYPE {_PREFIX}{name} {kind}"
    samples = values if isinstance(values, Sequence) else [("", values)]
    for labels, value in samples:
        yield f"{_PREFIX}{name}{labels} {value:.12g}"


def _labels(**labels: str) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
