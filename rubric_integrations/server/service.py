"""Grades the submissions of requests: one grader, one concurrency limit, one ledger and one spend limit for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.threads import run_in_thread
from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.graders import Grader
from rubric_integrations.graders.made_up_scores import refuse_made_up_scores
from rubric_integrations.graders.rounds import grade_in_rounds
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.judges.stored import JudgmentStore, StoreError
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.stores import RunStore, check_run_name
from rubric_integrations.server.metrics import ServerMetrics
from rubric_integrations.server.problems import RequestProblem
from rubric_integrations.submission.rows import Row
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import RunLedger

# Seconds after which a client should repeat a request: after an outage of the judge, and in all other cases.
_AFTER_OUTAGE, _SOON = 5, 1

# Rubrics of requests that are read at the same time, each in a thread.
_MAX_READERS = 4

_logger = logging.getLogger(__name__)

_Outcome = EvaluationReport | RequestProblem


class GradingService:
    """Grades submissions for the requests of a server.

    A grade that has begun is finished, also if its client is gone: its judgments are paid for, and a ledger keeps them
    for the next request. Equal submissions share one grade while it is under way.

    Args:
        rubric: The rubric of all requests, in any form but a function; None if each request brings its own.
        grader: The grader. A judge's failure must raise (`on_failure="raise"`), so that no number stands for it.
        library: Rubrics by name, or the path of a file with such a mapping, for requests whose `rubric` is a name.
        ledger: An open ledger, which stores each judgment; None to store none.
        accept_rubrics: Whether a request may bring a rubric of its own, which is then joined with `rubric`.
        max_calls: The largest number of calls to models over the life of the service.
        max_cost: The most to spend over the life of the service, in US dollars.
        run: A name under which the ledger counts for these limits, so that they also hold for other processes, and
            after a restart.
        max_waiting: The largest number of grades under way, at least 1; a request beyond it is refused.
        deadline: Seconds, above 0, after which a request is answered with an error. Its grade goes on, and the same
            request gets it later.

    Attributes:
        grader: The grader, with the limits of the service.
        metrics: The counters of the service.

    Raises:
        ValueError: A limit is out of range, the grader scores failures or may leave scores open, there is no rubric
            and none is accepted, the rubric is invalid (`RubricError`), or there is a `run` without a ledger.
        TypeError: There is a ledger, and a judge has no `fingerprint`; or `rubric` is a function.

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
        ledger: RunLedger | None = None,
        accept_rubrics: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
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
        self._spend_limit = SpendLimit(max_calls, max_cost)
        self.grader = self._attach(grader, ledger, run)
        if self._rubrics.shared is not None:
            self.grader.check_rubric(self._rubrics.shared)
        self._accepts_rubrics, self._max_waiting, self._deadline = accept_rubrics, max_waiting, deadline
        self._under_way: dict[str, asyncio.Task[_Outcome]] = {}
        self._limit_reached = self._is_stopping = False
        self._readers = asyncio.Semaphore(_MAX_READERS)
        self.metrics = ServerMetrics(self.shared_rubric.keys if self.shared_rubric else ())
        self._ledger = ledger

    @property
    def shared_rubric(self) -> Rubric | None:
        """The rubric of all requests; None if each brings its own."""
        return self._rubrics.shared

    @property
    def under_way(self) -> int:
        """The number of grades under way, those included whose clients are gone."""
        return len(self._under_way)

    @property
    def spend_limit(self) -> SpendLimit:
        """Counts what all calls cost."""
        return self._spend_limit

    @property
    def reused(self) -> int:
        """The number of judgments that came from the ledger."""
        return self._ledger.reused if self._ledger else 0

    @property
    def state(self) -> str:
        """`ok`, or why requests are likely to fail: `stopping`, `judge down` or `spend limit reached`."""
        if self._is_stopping:
            return "stopping"
        if self._limit_reached:
            return "spend limit reached"
        return "ok" if self.grader.call_limiter.down_since is None else "judge down"

    def check_capacity(self, count: int = 1) -> None:
        """Check that some more grades may begin now.

        Raises:
            RequestProblem: (503) They may not; or (422) they are more than can ever be under way.
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
        """Return the rubric by which a row is graded.

        Raises:
            RequestProblem: (422) The row brings one that is not valid or not accepted, or none where it needs one.
        """
        if row.rubric is not None and not self._accepts_rubrics:
            raise RequestProblem(
                422,
                "the request brings a rubric, which this server does not accept: leave it out, or start the server "
                "with `--accept-rubrics`; without this error, it would be graded by the server's own alone",
            )
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
            RequestProblem: (422) The row cannot be graded, or its score is undefined, because the judge abstains;
                (503) the judge failed, the grade takes too long, too many grades are under way, a spend limit is
                reached, or the ledger cannot be used.
        """
        if row.submission is None:
            raise RequestProblem(422, row.error or "there is nothing to grade")
        rubric = await self.rubric_of(row)
        task = self._task_of(rubric, row.submission)
        # Unlike `wait_for`, this does not cancel the grade: neither at the deadline, nor if the client is gone.
        await asyncio.wait([task], timeout=self._deadline)
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
        """Refuse new grades, finish those under way, and cancel what is left after some seconds.

        Args:
            grace: Seconds, at least 0.

        Returns:
            The number of grades that were cancelled.
        """
        self._is_stopping = True
        tasks = list(self._under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        with suppress(StoreError):
            await self._spend_limit.record()
        return len(late)

    async def _own_rubric(self, row: Row) -> Rubric | None:
        async with self._readers:
            return await run_in_thread(lambda: self._rubrics.own_of(row, row.rubric))

    def _attach(self, grader: Grader, ledger: RunLedger | None, run: str | None) -> Grader:
        limited = grader.for_run(grader.call_limiter.limits.max_concurrency, self._spend_limit, may_end=False)
        if ledger is None:
            return limited
        RunStore(ledger).share_limits(run, self._spend_limit)
        store: JudgmentStore = ledger
        return limited.with_store(store)

    def _task_of(self, rubric: Rubric, submission: Submission) -> asyncio.Task[_Outcome]:
        texts = rubric.model_dump_json(), submission.model_dump_json()
        key = sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
        task = self._under_way.get(key)
        if task is None:
            self.check_capacity()
            task = self._under_way[key] = asyncio.create_task(self._grade(rubric, submission))
            task.add_done_callback(lambda _task: self._under_way.pop(key, None))
        return task

    async def _grade(self, rubric: Rubric, submission: Submission) -> _Outcome:
        try:
            report = await grade_in_rounds(self.grader, rubric, submission)
        except JudgeError as error:
            self.metrics.count_grade("failed", error.report)
            is_down = self.grader.call_limiter.down_since is not None
            retry_after = _AFTER_OUTAGE if is_down else _SOON
            return RequestProblem(503, f"the judge has failed: {error}", retry_after, is_outcome=True)
        except RunStopped as error:
            self._limit_reached = True
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


def _stopping() -> RequestProblem:
    return RequestProblem(503, "the server has stopped before the grade was ready: send it again", _AFTER_OUTAGE)


def _check_limits(max_waiting: int, deadline: float) -> None:
    if max_waiting < 1:
        raise ValueError(f"`max_waiting` must be at least 1, got {max_waiting!r}: no request could be graded")
    if not 0 < deadline < float("inf"):
        raise ValueError(f"`deadline` must be above 0 seconds and finite, got {deadline!r}")
