"""Grades many submissions concurrently, under one concurrency limit, as a stream of results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Mapping
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubric_integrations._util.event_loop import close_stream, run_sync
from rubric_integrations._util.notebook import data_frame
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.graders import Grader
from rubric_integrations.graders.endpoint import JudgeUnusable
from rubric_integrations.graders.rounds import grade_in_rounds
from rubric_integrations.graders.warm_up import WarmUp
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.judges.stored import StoreError
from rubric_integrations.results.report import JudgeError, tag_key
from rubric_integrations.results.usage import NO_SPEND, Spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.progress import progress_bar, summary_table
from rubric_integrations.runs.rows import as_rows, find_rubric
from rubric_integrations.runs.stopping import EarlyStop, StopRule
from rubric_integrations.runs.stores import RunStore, check_run_name, open_store
from rubric_integrations.runs.summary import Graded, RunSummary
from rubric_integrations.runs.window import RowWindow
from rubric_integrations.submission.files import Row

# Finished rows in memory that wait for an earlier one, so that one slow call does not hold up the run.
MAX_WAITING_ROWS = 1000

if TYPE_CHECKING:
    from pandas import DataFrame

    from rubric_integrations.runs.ledger import LedgerLike


class Run:
    """A run over many submissions, made by `grade_many`: an iterable and an async iterable of `Graded`.

    Nothing is requested before the iteration begins. Only the submissions under way are in memory, so the number of
    submissions is not limited. Each iteration reads the submissions and grades them, and counts in the same `summary`
    and towards the same limits; iterate once, or pass a `ledger`, from which a second iteration gets its judgments.

    Attributes:
        summary: Counts, spend and mean score so far; its `stopped` says why the run ended early, if it did.

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
        rubric: RubricLike | RubricFunction | None,
        grader: Grader,
        *,
        library: Mapping[str, RubricLike] | str | Path | None,
        ledger: LedgerLike | None,
        max_concurrency: int,
        progress: bool,
        ordered: bool,
        max_cost: float | None,
        max_calls: int | None,
        run: str | None,
        stop_when: StopRule | None,
    ):
        if isinstance(submissions, str | bytes | Mapping):
            kind = type(submissions).__name__
            raise TypeError(f"`submissions` must be an iterable of submissions, got one {kind}: put it into a list")
        if max_concurrency < 1:
            raise ValueError(f"`max_concurrency` must be at least 1, got {max_concurrency!r}")
        self._submissions, self._rubrics, self._ledger = submissions, RowRubrics(rubric, library), ledger
        self._run = check_run_name(run, ledger)
        if self._rubrics.shared is not None:
            grader.check_rubric(self._rubrics.shared)
        self._spend_limit, self._warm_up = SpendLimit(max_calls, max_cost), WarmUp()
        self._grader = grader.for_run(max_concurrency, self._spend_limit, warm_up=self._warm_up)
        # More submissions than calls: while one waits for its last call, the others use the free slots.
        self._max_under_way = 2 * max_concurrency
        self._ordered, self._progress, self._early_stop = ordered, progress, EarlyStop(stop_when)
        self._highest_row_spend: Spend | None = None
        self.summary = RunSummary()

    def __iter__(self) -> Generator[Graded]:
        stream = self._stream()

        async def next_result() -> Graded | None:
            return await anext(stream, None)

        try:
            while (graded := run_sync(next_result())) is not None:
                yield graded
        finally:
            run_sync(close_stream(stream))

    def __aiter__(self) -> AsyncGenerator[Graded]:
        return self._stream()

    def __repr__(self) -> str:
        return f"Run({self.summary!r})"

    def _repr_html_(self) -> str:
        return summary_table(self.summary)

    def to_dataframe(self) -> DataFrame:
        """Grade everything, and return one row per submission: its grade, the scores of tags, verdicts per criterion.

        `omitted_characters` is a column only if a text was cut, and `escalated`, a share, only for a `Cascade`.

        Raises:
            ImportError: pandas is not installed.
        """
        shared = self._rubrics.shared
        names = [*map(tag_key, shared.tags), *shared.keys] if shared else []
        records = [graded.to_record() for graded in self]
        used = [name for name in ("omitted_characters",) if any(record[name] for record in records)]
        used += ["escalated"] if any(record["escalated"] is not None for record in records) else []
        return data_frame(records, ["id", "score", "passed", "coverage", "cost", "error", *used, *names])

    async def _stream(self) -> AsyncGenerator[Graded]:
        start = time.monotonic()
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._ledger))
            store.share_limits(self._run, self._spend_limit)
            grader = store.attach(self._grader)
            show = (
                stack.enter_context(progress_bar(self._submissions, self._outage_seconds)) if self._progress else None
            )

            def update_spend() -> None:
                seconds = time.monotonic() - start
                self._update_summary(spend=self._spend_limit.spend, reused=store.reused, seconds=seconds)

            try:
                async with aclosing(self._results(grader, store)) as results:
                    async for graded in results:
                        self.summary = self.summary.with_result(graded)
                        update_spend()
                        if show:
                            show(self.summary)
                        yield graded
            finally:
                # Rows that a limit or the caller left unfinished yield no result, but their calls were paid for.
                update_spend()
                with suppress(StoreError):
                    await self._spend_limit.record()

    async def _results(self, grader: Grader, store: RunStore) -> AsyncGenerator[Graded]:
        """Yield the results; after the run is stopped, or its source fails, yield those under way and start no more."""
        window = RowWindow(self._max_under_way, MAX_WAITING_ROWS, self._ordered)
        source_error: Exception | None = None
        self._warm_up.begin_rows()
        try:
            async with aclosing(as_rows(self._submissions)) as rows:
                while True:
                    while not self._has_room(window):
                        await window.wait()
                        for graded in self._finished(window):
                            yield graded
                    if self.summary.stopped:
                        break
                    try:
                        next_row = await anext(rows, None)
                    except Exception as error:  # noqa: BLE001 -- raised below, after the rows that were read before it
                        source_error = error
                        break
                    if next_row is None:
                        break
                    row, own, rubric = await find_rubric(self._rubrics, *next_row, grader.check_rubric)
                    store.record(row, own)
                    self._early_stop.watch(window.start(self._grade(grader, row, rubric)))
                    # Lets the task send its first request while the next row is read.
                    await asyncio.sleep(0)
                    for graded in self._finished(window):
                        yield graded
            self._warm_up.end_rows(grader.call_limiter.concurrency)
            while window.is_busy:
                await window.wait()
                for graded in self._finished(window):
                    yield graded
        finally:
            # A second iteration would count each score twice.
            self._early_stop = EarlyStop(None)
            await window.cancel()
        if source_error:
            raise source_error

    def _has_room(self, window: RowWindow) -> bool:
        rows = window.under_way + 1
        return rows == 1 or (window.has_room and self._spend_limit.has_room_for(rows, self._highest_row_spend))

    def _finished(self, window: RowWindow) -> list[Graded]:
        """Take the results whose turn it is; a row that was left ungraded has none."""
        results: list[Graded] = []
        for task in window.take():
            try:
                graded = task.result()
            except RunStopped as reason:
                stopped = self.summary.stopped or str(reason)
                self._update_summary(stopped=stopped, judge_is_unusable=isinstance(reason, JudgeUnusable))
            else:
                results.append(graded)
                self._note_spend(graded)
                if (decision := self._early_stop.reason(task, graded)) and not self.summary.stopped:
                    self._update_summary(stopped=decision)
        return results

    def _note_spend(self, graded: Graded) -> None:
        if graded.report:
            highest, spend = self._highest_row_spend or NO_SPEND, graded.report.spend
            calls, cost = max(highest.calls, spend.calls), max(highest.cost or 0.0, spend.cost or 0.0)
            self._highest_row_spend = Spend(calls=calls, cost=cost)

    async def _grade(self, grader: Grader, row: Row, rubric: Rubric | None) -> Graded:
        if row.submission is None or rubric is None:
            return Graded(row, None)
        try:
            return Graded(row, await grade_in_rounds(grader, rubric, row.submission), rubric=rubric)
        except JudgeError as error:
            return Graded(row, error.report, str(error), rubric)

    def _outage_seconds(self) -> float | None:
        down_since = self._grader.call_limiter.down_since
        return None if down_since is None else time.monotonic() - down_since

    def _update_summary(self, **changes: Any) -> None:
        self.summary = self.summary.model_copy(update=changes)


def grade_many(
    submissions: Iterable[Any] | AsyncIterable[Any],
    rubric: RubricLike | RubricFunction | None,
    grader: Grader,
    *,
    library: Mapping[str, RubricLike] | str | Path | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    progress: bool = False,
    ordered: bool = True,
    max_cost: float | None = None,
    max_calls: int | None = None,
    run: str | None = None,
    stop_when: StopRule | None = None,
) -> Run:
    """Grade many submissions concurrently; iterate the run with `for` or `async for`.

    Args:
        submissions: Texts, conversations, mappings (`response`, `query`, `reference`, `id`, `rubric`, `labels`,
            `metadata`), `Submission`s or the rows of `read_responses`: any iterable or async iterable, such as a
            Hugging Face dataset, read only as fast as its items are graded.
        rubric: The rubric for all submissions: a `Rubric`, the path of a rubric file, or a rubric as lists and
            dictionaries. A row with a `rubric` of its own is graded by both; None if each row brings its own. Or a
            function, which receives each item as it was passed, and returns its rubric.
        library: Rubrics by name, or the path of a file with such a mapping, for rows whose `rubric` is a name.
        grader: The grader; its own `max_concurrency` has no effect in a run.
        ledger: Where each judgment is stored as soon as it arrives, and not requested again: start a run that was
            killed a second time, and it resumes. The path of a file, the URL of a PostgreSQL database, for processes on
            several machines, an open ledger, or any other `JudgmentStore`, which records no submissions for `rescore`.
        max_concurrency: The largest number of concurrent calls over the whole run, at least 1; while a provider
            reports a rate limit, the run makes fewer. Runs of one grader with the same number share it.
        progress: Whether to show a progress bar on stderr, if stderr is a terminal.
        ordered: Whether results come in the order of the submissions; if not, they come as soon as they are ready.
        max_cost: The most that the run may spend, in US dollars; the run ends before a call would exceed it.
        max_calls: The largest number of calls to models that the run may make.
        run: A name, such as `"nightly"`. `max_cost` and `max_calls` then hold for everything that was spent under this
            name in the ledger, by all processes and machines, now and earlier. Each claims a part before it calls.
        stop_when: Ends the run early, such as a new `SequentialGate`: a function that receives each score (None without
            a complete grade) in the order of the submissions, which must be random, and returns why the run ends, or
            None. No row starts then; up to twice `max_concurrency` rows are under way, and are finished.

    Returns:
        The run. Its `summary` is up to date after each result, and says what `stopped` the run early.

    Raises:
        TypeError: `submissions` is a single submission. When the iteration begins: there is a ledger, and a judge has
            no `fingerprint`; or there is a `run`, and the ledger does not count what is spent.
        ValueError: A limit is out of range, there is a `run` without a ledger, the rubric is invalid (`RubricError`),
            or the grader cannot use it. When the iteration begins: the ledger cannot be used (`LedgerError`).

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> [graded.score for graded in grade_many(["It is 42."], rubric, PerCriterionGrader("offline"))]
        [1.0]
    """
    return Run(
        submissions, rubric, grader, library=library, ledger=ledger, max_concurrency=max_concurrency,
        progress=progress, ordered=ordered, max_cost=max_cost, max_calls=max_calls, run=run, stop_when=stop_when,
    )  # fmt: skip
