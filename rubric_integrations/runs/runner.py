"""Many submissions: graded side by side under one cap, handed back as a stream, and none lost to another's failure."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Mapping
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.notebook import frame, html_table
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend_limit import SpendLimit, SpendLimitedJudge, SpendLimitReached
from rubric_integrations.results.report import JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.progress import progress_bar
from rubric_integrations.runs.summary import Graded, RunSummary
from rubric_integrations.submission.files import Row, read_row
from rubric_integrations.submission.submission import ToGradeInput, as_submission, error_line

if TYPE_CHECKING:
    from pandas import DataFrame

    from rubric_integrations.runs.ledger import Ledger


class Run:
    """Submissions being graded, as an iterator or an async iterator of `Graded`; nothing is asked until it is used.

    However many submissions there are, only those under way are in memory.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> run = grade_many(["It is 42.", "It is 41."], rubric, PerCriterionGrader("offline"))
        >>> [graded.score for graded in run], run.summary.graded
        ([1.0, 0.0], 2)
    """

    def __init__(
        self,
        submissions: Iterable[Any] | AsyncIterable[Any],
        rubric: Rubric,
        grader: Grader,
        *,
        ledger: Ledger | str | Path | None,
        max_concurrency: int,
        progress: bool,
        ordered: bool,
        max_cost: float | None,
        max_calls: int | None,
    ):
        if isinstance(submissions, str | bytes | Mapping):
            kind = type(submissions).__name__
            raise TypeError(f"`submissions` must be an iterable of submissions, got one {kind}: put it into a list")
        self._submissions, self._rubric, self._ledger = submissions, rubric, ledger
        self._meter = SpendLimit(max_calls, max_cost)
        metered = [SpendLimitedJudge(judge, self._meter) for judge in grader.judges]
        self._grader = grader.for_run(max_concurrency).with_judges(metered)
        self._window, self._ordered, self._progress = 2 * max_concurrency, ordered, progress
        self.summary = RunSummary()

    def __iter__(self) -> Generator[Graded]:
        stream = self._stream()

        async def following() -> Graded | None:
            return await anext(stream, None)

        try:
            while (graded := run_sync(following())) is not None:
                yield graded
        finally:
            run_sync(_close(stream))

    def __aiter__(self) -> AsyncGenerator[Graded]:
        return self._stream()

    def __repr__(self) -> str:
        return f"Run({self.summary!r})"

    def _repr_html_(self) -> str:
        told = self.summary
        mean = None if told.mean_score is None else round(told.mean_score, 3)
        row = [told.submissions, mean, told.passed, told.failed, told.abstentions, told.spend.calls, told.spend.cost]
        columns = ["submissions", "mean score", "passed", "failed", "abstentions", "calls", "US dollars"]
        return html_table(told.stopped or "Run so far", columns, [row])

    def to_dataframe(self) -> DataFrame:
        """Grade everything, and give one row a submission: its grade, and a column of verdicts for each criterion.

        Raises:
            ImportError: pandas is not installed.
        """
        rows = [
            {
                "id": graded.row.id,
                "score": graded.score,
                "passed": bool(graded.report and graded.report.passed and not graded.judge_error),
                "coverage": graded.report.coverage if graded.report else None,
                "cost": graded.report.cost if graded.report else None,
                "error": graded.judge_error or graded.row.error,
                **{c.name: c.verdict for c in (graded.report.criteria if graded.report else ())},
            }
            for graded in self
        ]
        return frame(rows, ["id", "score", "passed", "coverage", "cost", "error", *self._rubric.keys])

    async def _stream(self) -> AsyncGenerator[Graded]:
        start = time.monotonic()
        with ExitStack() as stack:
            grader, ledger = self._grader, None
            if self._ledger is not None:
                from rubric_integrations.runs.ledger import Ledger

                ledger = self._ledger if isinstance(self._ledger, Ledger) else stack.enter_context(Ledger(self._ledger))
                grader = grader.with_store(ledger)
                ledger.record_grader(self._grader.configuration())
            before = ledger.reused if ledger else 0
            show = stack.enter_context(progress_bar(self._submissions)) if self._progress else None

            def account() -> None:
                reused = ledger.reused - before if ledger else 0
                self._update(spend=self._meter.spend, reused=reused, seconds=time.monotonic() - start)

            try:
                async with aclosing(self._results(grader, ledger)) as results:
                    async for graded in results:
                        self._add(graded)
                        account()
                        if show:
                            show(self.summary)
                        yield graded
            finally:
                account()  # again: what was bought for rows that a limit or the user left unfinished

    async def _results(self, grader: Grader, ledger: Ledger | None) -> AsyncGenerator[Graded]:
        """The rows that came to an end; when the run is stopped, those under way are waited for, and no more begun."""
        waiting: deque[asyncio.Task[Graded]] = deque()
        try:
            async with aclosing(_rows(self._submissions)) as rows:
                async for row in rows:
                    if ledger and row.submission:
                        ledger.record_submission(row.id, row.submission)
                    waiting.append(asyncio.create_task(self._grade(grader, row)))
                    await asyncio.sleep(0)  # its first call goes out while the next is being prepared
                    if len(waiting) >= self._window:
                        for graded in await self._next(waiting):
                            yield graded
                    if self.summary.stopped:
                        break
            while waiting:
                for graded in await self._next(waiting):
                    yield graded
        finally:
            for task in waiting:
                task.cancel()
            # To the end, since the ledger is closed next.
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _next(self, waiting: deque[asyncio.Task[Graded]]) -> list[Graded]:
        """The results that come next, in order or as they come; none of a row that the limit left ungraded."""
        if self._ordered:
            done = {waiting[0]}
            await asyncio.wait(done)
        else:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        results: list[Graded] = []
        for task in [task for task in waiting if task in done]:
            waiting.remove(task)
            try:
                results.append(task.result())
            except SpendLimitReached as stopped:
                self._update(stopped=str(stopped))
        return results

    async def _grade(self, grader: Grader, row: Row) -> Graded:
        if row.submission is None:
            return Graded(row, None)
        try:
            return Graded(row, await grader.grade(self._rubric, row.submission))
        except JudgeError as error:
            return Graded(row, error.report, str(error))

    def _add(self, graded: Graded) -> None:
        so_far, report = self.summary, graded.report
        complete = report is not None and graded.judge_error is None
        self._update(
            submissions=so_far.submissions + 1,
            graded=so_far.graded + complete,
            passed=so_far.passed + bool(complete and report and report.passed),
            failed=so_far.failed + (graded.judge_error is not None),
            ungradable=so_far.ungradable + (report is None),
            abstentions=so_far.abstentions + (report.cannot_assess_count if report else 0),
            score_sum=so_far.score_sum + (graded.score or 0.0),
            scored=so_far.scored + (graded.score is not None),
        )

    def _update(self, **changed: Any) -> None:
        self.summary = self.summary.model_copy(update=changed)


def grade_many(
    submissions: Iterable[Any] | AsyncIterable[Any],
    rubric: Rubric,
    grader: Grader,
    *,
    ledger: Ledger | str | Path | None = None,
    max_concurrency: int = 64,
    progress: bool = False,
    ordered: bool = True,
    max_cost: float | None = None,
    max_calls: int | None = None,
) -> Run:
    """Grade many submissions side by side; the run is iterated, with `for` or with `async for`.

    Args:
        submissions: Texts, conversations, mappings (`response`, `query`, `reference`, `id`), `Submission`s or the
            rows of `read_responses`; any iterable or async iterable, however long.
        rubric: The rubric of all.
        grader: How each is graded; its own `max_concurrency` does not count here.
        ledger: A `Ledger`, or the path of one: judgments are kept there, and what it has is not bought again. A run
            that was killed goes on where it was when it is started again.
        max_concurrency: Calls under way at once, at least 1, over the whole run; fewer while a provider limits rates.
        progress: Whether to show a progress bar on stderr, if that is a terminal.
        ordered: Whether results come in the order of the submissions, or as they are ready.
        max_cost: US dollars that the run may spend; it ends before it would spend more.
        max_calls: TemplateCache to models that it may make.

    Returns:
        The run: iterate it, with `for` or `async for`, and read its `summary`, which says why it `stopped` if a limit
        ended it. What came before is kept in the ledger.

    Raises:
        TypeError: `submissions` is one submission; or there is a ledger, and a judge cannot tell what its answers
            depend on (raised when the run begins).
        ValueError: A limit is out of range.
    """
    return Run(
        submissions, rubric, grader, ledger=ledger, max_concurrency=max_concurrency, progress=progress, ordered=ordered,
        max_cost=max_cost, max_calls=max_calls,
    )  # fmt: skip


def agrade_many(
    submissions: Iterable[Any] | AsyncIterable[Any], rubric: Rubric, grader: Grader, **settings: Any
) -> Run:
    """`grade_many`, under the name that async code looks for: a run is iterated either way."""
    return grade_many(submissions, rubric, grader, **settings)


async def _close(stream: Any) -> None:
    while stream.ag_running:  # noqa: ASYNC110 -- a step that Ctrl-C interrupted is still ending
        await asyncio.sleep(0.005)
    await stream.aclose()


async def _rows(submissions: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Row]:
    number = 0
    if isinstance(submissions, AsyncIterable):
        async for item in submissions:
            number += 1
            yield _row(item, number)
    else:
        for item in submissions:
            number += 1
            yield _row(item, number)


def _row(item: Any, number: int) -> Row:
    if isinstance(item, Row):
        return item
    if isinstance(item, Mapping) and not set(cast("Mapping[str, Any]", item)) <= {"thinking", "output"}:
        return read_row(cast("Mapping[str, Any]", item), number)
    try:
        return Row(str(number), as_submission(cast("ToGradeInput", item)))
    except (ValueError, TypeError) as error:
        return Row(str(number), None, f"row {number}: {error_line(error)}")
