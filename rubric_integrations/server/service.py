"""Grades the submissions of all requests with one grader, one concurrency limit, one ledger and one spend limit.

The module also reports metrics in Prometheus's text format. The library `prometheus_client` is not used, because the
format is simple and the library has one registry for the entire process.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import WorkLimit, run_in_thread, work_limit
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.graders.endpoint import WrongSetting
from rubric_integrations.graders.grader import refuse_made_up_scores
from rubric_integrations.graders.scheduler import require_price
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.spend import Prices, SpendLimit
from rubric_integrations.judges.store import LedgerLike, StoreError
from rubric_integrations.rubric.criterion import all_criteria
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run import RunStore, check_priced_judges, check_run_name
from rubric_integrations.scoring.report import EvaluationReport, JudgeError
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission

GradeOutcome = Literal["graded", "undefined", "failed", "refused"]
"""The outcome of a grade: it has a score (`graded`), abstentions leave the score `undefined`, the judge or the ledger
`failed`, or the grade was `refused` by a spend limit or because the submission is invalid."""

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0)
"""The upper bounds of the histogram of request times, in seconds."""

_PREFIX = "rubric_integrations_"


class ServerMetrics:
    """Counts requests, grades and verdicts for Prometheus.

    Args:
        criteria: The names of the criteria in the server's rubric. The verdicts on these criteria are counted. Verdicts
            on the criteria of rubrics in requests are not counted, because the number of their names is unlimited.

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
        """Count a request after its response.

        Args:
            endpoint: The path of the request, or `other` for a path that does not exist.
            status: The HTTP status of the response.
            seconds: The time from the end of the request's headers to the response.
        """
        self._requests[endpoint, status] += 1
        self._seconds[endpoint] += seconds
        self._buckets.setdefault(endpoint, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1

    def count_grade(self, outcome: GradeOutcome, report: EvaluationReport | None = None) -> None:
        """Count a grade that has ended, and the verdicts in its report.

        Args:
            outcome: `graded` (with a score), `undefined` (abstentions leave no score), `failed` or `refused`.
            report: The report, or None if the grade has none.
        """
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
        """Yield the lines of all counters in Prometheus's text format."""
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
    """Return all metrics of a service in Prometheus's text format: its counters, its calls and cost, and its state."""
    spend = service.spend_limit.spend
    lines = [*service.metrics.lines()]
    lines += _metric("judge_calls_total", "counter", "Requests to models.", spend.calls)
    if spend.cost is not None:
        about = "US dollars for these requests, as far as they were answered."
        lines += _metric("judge_cost_dollars_total", "counter", about, spend.cost)
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


class RequestProblem(Exception):  # noqa: N818 -- a status that a client gets, whoever made the mistake
    """Raised if a request gets an HTTP error as its response.

    Args:
        status: The HTTP status.
        message: One line with the problem and its remedy.
        retry_after: The number of seconds after which the client should repeat the request, or None if a repetition
            would not help.
        is_outcome: Whether a grade began and ended without a score, because the judge failed or abstained. False for
            other problems, such as an invalid request.
        report: The report of a grade with an undefined score, or None for other problems.

    Attributes:
        status: The HTTP status.
        message: One line with the problem and its remedy.
        retry_after: The number of seconds after which the client should repeat the request, or None.
        is_outcome: Whether a grade began and ended without a score.
        report: The report of a grade with an undefined score, or None.
    """

    def __init__(
        self,
        status: int,
        message: str,
        retry_after: int | None = None,
        *,
        is_outcome: bool = False,
        report: EvaluationReport | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
        self.is_outcome, self.report = is_outcome, report

    def __reduce__(self) -> Any:
        return type(self), (self.status, self.message, self.retry_after), vars(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the HTTP response to the client, as a dictionary."""
        report = {"report": self.report.model_dump(mode="json")} if self.report else {}
        return {"error": self.message, **report}

    def about(self, place: str) -> RequestProblem:
        """Return a copy of this error whose message begins with a place in the request, such as `query[3]`."""
        message = f"{place}: {self.message}" if place else self.message
        return RequestProblem(self.status, message, self.retry_after, is_outcome=self.is_outcome, report=self.report)


# The number of seconds after which a client should repeat a request: after an outage of the judge, and otherwise.
_AFTER_OUTAGE, _SOON = 5, 1

# The number of threads that read requests, and the largest request, in characters, that is read without a thread.
_MAX_READERS, _SMALL = 4, 10_000
# The CPU time in seconds for the checks of a rubric in a request.
_CHECK_SECONDS = 5.0

_logger = logging.getLogger(__name__)

_Outcome = EvaluationReport | RequestProblem

T = TypeVar("T")


@dataclass
class _Grading:
    """A grade in progress, with the work limit of its checks and the number of requests that wait for it."""

    task: asyncio.Task[_Outcome]
    limit: WorkLimit | None
    waiting: int = 0


class GradingService:
    """Grades submissions for the requests of a server.

    A grade in progress is finished even if its client has disconnected. The judgments are already paid for, and a
    ledger stores them for the next request. There is one exception: if a rubric came with a request, its checks in code
    stop when the last client that waits for the grade disconnects. These checks may take at most 5 seconds of CPU time.
    Concurrent requests with equal submissions and equal rubrics share one grade.

    Args:
        rubric: The rubric of all requests, in any form except a function. None if each request has its own rubric.
        grader: The grader. It needs `on_failure="raise"`, because a failure must never become a score.
        library: A mapping from names to rubrics, or the path of a file that contains such a mapping. It is used for
            requests whose `rubric` is a name.
        ledger: A ledger that stores judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger.
            None stores no judgments.
        accept_rubrics: Whether a request may contain its own rubric, whose criteria are added to `rubric`.
        max_calls: The largest number of calls to models over the lifetime of the service. None means no limit.
        max_cost: The highest cost over the lifetime of the service, in US dollars. None means no limit.
        prices: The prices of a million input and output tokens in US dollars, by the name of the model, such as
            `{"openai/mine": (0.25, 2.0)}`. By default, the prices of DSPy's price list.
        run: A name under which the ledger counts calls and cost. `max_calls` and `max_cost` then limit the total of all
            processes with this name, also before a restart.
        max_waiting: The largest number of grades in progress, at least 1. Further requests are refused.
        deadline: The number of seconds, above 0, after which a request gets an error. The grade continues after the
            error. If the client repeats the request, the client gets this grade.

    Attributes:
        grader: The grader, with the limits of the service.
        metrics: The counters of the service.

    Raises:
        ValueError: A limit is out of range, the grader has a fallback for failures or `stop_when_decided`, there is no
            rubric and `accept_rubrics` is false, the rubric is invalid (`RubricError`), there is a `run` without a
            ledger, `prices` names no judge, or there is a `max_cost` and the price of a judge is unknown.
        TypeError: There is a ledger and a judge has no `fingerprint`, or `rubric` is a function.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> from rubric_integrations.submission import Row, Submission
        >>> says_42 = [{"requirement": "Says 42", "check": {"number": 42}}]
        >>> service = GradingService(says_42, PerCriterionGrader("offline"))
        >>> asyncio.run(service.grade(Row("a", Submission(response="It is 42.")))).score
        1.0
    """

    def __init__(
        self,
        rubric: RubricLike | None,
        grader: Grader,
        *,
        library: Mapping[str, RubricLike] | str | Path | None = None,
        ledger: LedgerLike | None = None,
        accept_rubrics: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
        prices: Prices | None = None,
        run: str | None = None,
        max_waiting: int = 1024,
        deadline: float = 150.0,
    ):
        _check_limits(max_waiting, deadline)
        refuse_made_up_scores(grader)
        self._rubrics = RowRubrics(rubric, library)
        if self._rubrics.has_function:
            raise TypeError("`rubric` is a function: a request can only bring a rubric of its own")
        if self._rubrics.shared is None and not accept_rubrics:
            raise ValueError("there is no `rubric`, and no request may bring one: pass one, or `accept_rubrics=True`")
        check_run_name(run, ledger)
        self._spend_limit = SpendLimit(max_calls, max_cost, prices)
        check_priced_judges(self._spend_limit, grader)
        opened = HostGrader("GradingService", None, grader, ledger, remembers_refusals=False)
        self._store = RunStore(opened.store)
        self._store.share_limits(run, self._spend_limit)
        max_concurrency = grader.call_limiter.limits.concurrency
        self.grader = opened().for_run(max_concurrency, self._spend_limit, may_end=False)
        if self._rubrics.shared is not None:
            self.grader.check_rubric(self._rubrics.shared)
        self._accepts_rubrics, self._max_waiting, self._deadline = accept_rubrics, max_waiting, deadline
        if max_cost is not None:
            self._require_prices()
        self._under_way: dict[str, _Grading] = {}
        self._is_stopping = False
        self._refusal: str | None = None
        self._readers = asyncio.Semaphore(_MAX_READERS)
        self.metrics = ServerMetrics(self.shared_rubric.keys if self.shared_rubric else ())

    @property
    def shared_rubric(self) -> Rubric | None:
        """The rubric of all requests, or None if each request has its own rubric."""
        return self._rubrics.shared

    @property
    def under_way(self) -> int:
        """The number of grades in progress, including grades whose clients have disconnected."""
        return len(self._under_way)

    @property
    def spend_limit(self) -> SpendLimit:
        """The spend limit of the service, which counts the calls and cost of all requests."""
        return self._spend_limit

    @property
    def reused(self) -> int:
        """The number of judgments that came from the ledger, without a call to a model."""
        return self._store.reused

    @property
    def state(self) -> str:
        """`ok`, or the reason why requests will probably fail.

        The reason is `stopping`, `judge down`, `spend limit reached` or `price unknown`.
        """
        if self._is_stopping:
            return "stopping"
        if self._refusal is not None:
            return self._refusal
        return "ok" if self.grader.call_limiter.down_since is None else "judge down"

    def check_capacity(self, count: int = 1) -> None:
        """Check that `count` additional grades may begin now.

        Raises:
            RequestProblem: (503) The server is stopping, or too many grades are in progress. (422) The number is larger
                than `max_waiting`.
        """
        if self._is_stopping:
            raise RequestProblem(503, "the server is stopping: send the request again later", _AFTER_OUTAGE)
        if count > self._max_waiting:
            raise RequestProblem(
                422,
                f"the request has {count} samples, more than the {self._max_waiting} that the server grades at the "
                "same time (`--max-waiting`): split it",
            )
        if self.under_way + count > self._max_waiting:
            raise RequestProblem(503, f"{self.under_way} grades are under way: send the request again later", _SOON)

    async def rubric_of(self, row: Row) -> Rubric:
        """Return the rubric that grades a row: the server's rubric, joined with the row's own rubric if it has one.

        The CPU time of checks from the row's own rubric is limited.

        Raises:
            RequestProblem: (422) The row's rubric is invalid or not accepted, or the row needs a rubric and has none.
        """
        if row.rubric is not None and not self._accepts_rubrics:
            raise RequestProblem(
                422,
                "the request brings a rubric, which this server does not accept: leave it out, or start the server "
                "with `--accept-rubrics`; without this error, it would be graded by the server's own alone",
            )
        work_limit.set(None if row.rubric is None else WorkLimit(_CHECK_SECONDS))
        try:
            own = None if row.rubric is None else await self._own_rubric(row)
            rubric = self._rubrics.join(own)
            self.grader.check_rubric(rubric)
        except Exception as error:  # noqa: BLE001 -- whatever a request holds must not end the server
            raise RequestProblem(422, f"the request {problem_of(error)}") from None
        return rubric

    async def grade(self, row: Row) -> EvaluationReport:
        """Grade one submission.

        Raises:
            RequestProblem: (422) The row cannot be graded, or abstentions leave its score undefined. (503) The judge
                failed, the grade takes too long, too many grades are in progress, the server is stopping, a spend limit
                is reached, or the ledger cannot be used.
        """
        if row.submission is None:
            raise RequestProblem(422, row.error or "there is nothing to grade")
        rubric, submission = await self.rubric_of(row), row.submission
        key = await self.read(lambda: _key_of(rubric, submission), _size_of(submission))
        grading = self._grading_of(key, rubric, submission)
        task = grading.task
        grading.waiting += 1
        try:
            # Unlike `wait_for`, this does not cancel the grade at the deadline or if the client has disconnected.
            await asyncio.wait([task], timeout=self._deadline)
        except asyncio.CancelledError:
            if grading.waiting == 1 and grading.limit is not None:
                grading.limit.stop()
            raise
        finally:
            grading.waiting -= 1
        if not task.done():
            raise RequestProblem(
                503,
                f"the grade is not ready after {self._deadline:g} s: it goes on, so send the same request again",
                _SOON,
            )
        outcome = _stopping() if task.cancelled() else task.result()
        if isinstance(outcome, RequestProblem):
            # A copy, because several requests may wait for this grade.
            raise outcome.about("")
        return outcome

    async def stop(self, grace: float) -> int:
        """Refuse new grades, wait for the grades in progress, and cancel the remaining ones.

        Args:
            grace: The number of seconds to wait, at least 0.

        Returns:
            The number of grades that were cancelled.
        """
        self._is_stopping = True
        tasks = [grading.task for grading in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        with suppress(StoreError):
            await self._spend_limit.record()
        return len(late)

    async def read(self, function: Callable[[], T], size: int) -> T:
        """Run a function that reads a request: directly if the request is small, otherwise in one of four threads.

        A large request would block the event loop. If its client disconnects before a thread is free, the function is
        not called.

        Args:
            function: The function.
            size: The number of characters or bytes that the function reads.

        Raises:
            BaseException: Any exception that the function raises.
        """
        if size <= _SMALL:
            return function()
        await self._readers.acquire()
        reading = asyncio.ensure_future(run_in_thread(function))
        # If this caller is cancelled, the thread continues, and counts as busy until it has ended.
        reading.add_done_callback(lambda _reading: self._readers.release())
        return await asyncio.shield(reading)

    def _require_prices(self) -> None:
        """Check the price of each judge that a request may need. A rubric of checks alone needs no judge."""
        rubric = self.shared_rubric
        judged = [c for c in all_criteria(rubric.criteria) if c.check is None] if rubric else []
        for member in self.grader.panel:
            if self._accepts_rubrics or any(map(member.may_answer, judged)):
                require_price(member.judge, self._spend_limit)
        if self.grader.runtime.explorer is not None:
            require_price(self.grader.runtime.explorer, self._spend_limit)

    async def _own_rubric(self, row: Row) -> Rubric | None:
        return await self.read(lambda: self._rubrics.own_of(row, row.rubric), _SMALL + 1)

    def _grading_of(self, key: str, rubric: Rubric, submission: Submission) -> _Grading:
        grading = self._under_way.get(key)
        if grading is None or (grading.limit is not None and grading.limit.is_reached):
            self.check_capacity()
            task = asyncio.create_task(self._grade(rubric, submission))
            grading = self._under_way[key] = _Grading(task, work_limit.get())
            task.add_done_callback(lambda task: self._remove(key, task))
        return grading

    def _remove(self, key: str, task: asyncio.Task[_Outcome]) -> None:
        if self._under_way[key].task is task:
            del self._under_way[key]

    async def _grade(self, rubric: Rubric, submission: Submission) -> _Outcome:
        """Grade a submission, and return the report, or the problem with its status code."""
        try:
            report = await self.grader.grade(rubric, submission)
        except JudgeError as error:
            self.metrics.count_grade("failed", error.report)
            is_down = self.grader.call_limiter.down_since is not None
            retry_after = _AFTER_OUTAGE if is_down else _SOON
            return RequestProblem(503, f"the judge has failed: {error}", retry_after, is_outcome=True)
        except WrongSetting as error:
            self._refusal = "price unknown"
            self.metrics.count_grade("refused")
            return RequestProblem(503, str(error))
        except RunStopped as error:
            self._refusal = "spend limit reached"
            self.metrics.count_grade("refused")
            return RequestProblem(503, f"{error}: start the server with a higher limit")
        except StoreError as error:
            self.metrics.count_grade("failed")
            _logger.error("the ledger cannot be used: %s", error)
            return RequestProblem(503, "the ledger of the server cannot be used: see its output", _AFTER_OUTAGE)
        except ValueError as error:
            self.metrics.count_grade("refused")
            return RequestProblem(422, str(error))
        self.metrics.count_grade("undefined" if report.score is None else "graded", report)
        if report.score is None:
            message = (
                f"the score is undefined: {report.cannot_assess_count} criteria cannot be assessed, and none that the "
                "score divides by can; leave the sample out, because any number would be made up"
            )
            return RequestProblem(422, message, is_outcome=True, report=report)
        return report


def _key_of(rubric: Rubric, submission: Submission) -> str:
    texts = rubric.without_cases().model_dump_json(), submission.model_dump_json()
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _size_of(submission: Submission) -> int:
    """Return the approximate number of characters of a submission, without its files, which are copied fast."""
    texts = (submission.response, submission.thinking, submission.query, submission.reference, *submission.context)
    steps = submission.trajectory.steps if submission.trajectory else ()
    return sum(len(text or "") for text in texts) + sum(100 + len(step.text) for step in steps)


def _stopping() -> RequestProblem:
    return RequestProblem(503, "the server has stopped before the grade was ready: send it again", _AFTER_OUTAGE)


def _check_limits(max_waiting: int, deadline: float) -> None:
    if max_waiting < 1:
        raise ValueError(f"`max_waiting` must be at least 1, got {max_waiting!r}: no request could be graded")
    if not 0 < deadline < float("inf"):
        raise ValueError(f"`deadline` must be above 0 seconds and finite, got {deadline!r}")
