"""`grade_many`: grades many submissions concurrently under one concurrency limit, as a stream of results.

It accepts submissions, texts, mappings, and tables of pandas and Arrow. It finds the rubric of each row. A stop rule
such as `SequentialGate` can end a run early.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Set,
    Sized,
)
from contextlib import ExitStack, aclosing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rubric_integrations._util.event_loop import close_stream, run_in_thread, run_sync
from rubric_integrations._util.records import data_frame
from rubric_integrations.formats.datasets import labels_of
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.graders.endpoint import JudgeUnusable, WarmUp, WrongSetting
from rubric_integrations.graders.scheduler import answered_text, require_price
from rubric_integrations.judges.cascade import judges_inside
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.spend import Prices, SpendLimit, price_name, spend_of_grade
from rubric_integrations.judges.store import JudgmentStore, LedgerLike, StoreError
from rubric_integrations.rubric.rubric import Rubric, require_grader
from rubric_integrations.runs.files import IncompleteRunWarning, describe_stop
from rubric_integrations.runs.summary import Graded, RunSummary, progress_bar, summary_table
from rubric_integrations.scoring.judgment import NO_SPEND, Spend, SpendTotal
from rubric_integrations.scoring.report import JudgeError, tag_key
from rubric_integrations.submission.columns import SAMPLE_COLUMNS, fold, repeated_column
from rubric_integrations.submission.inputs import Row, count_rows_of_item, rows_of_item
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from pandas import DataFrame

    from rubric_integrations.runs.ledger import RunLedger

# The number of rows of an Arrow table that are converted to Python objects at a time.
_ROWS_AT_ONCE = 1_000


def rows_of_table(submissions: Iterable[Any] | AsyncIterable[Any]) -> Iterable[Any] | AsyncIterable[Any]:
    """Return the rows of a table, or any other submissions unchanged.

    Iteration over a table itself would yield its columns or their names, which would then be graded instead of the
    rows.

    Args:
        submissions: The submissions as the user passed them, of any type.
    """
    if _is_arrow(submissions) or _is_frame(submissions):
        return rows_of_batch(submissions)
    # A method `columns`, such as in SQLAlchemy, belongs to an iterable of rows.
    kind = type(submissions)
    if not callable(getattr(kind, "columns", len)):
        raise TypeError(
            f"`submissions` is a {kind.__module__.partition('.')[0]} {kind.__name__}, whose columns would be graded as "
            "if they were rows: pass its rows, such as `frame.to_dicts()` of Polars, or a pandas DataFrame or an Arrow "
            "table (`frame.to_arrow()`)"
        )
    return submissions


def rows_of_batch(item: Any) -> Iterator[Any]:
    """Yield the rows of a table or of an Arrow batch as dictionaries. Yield any other item unchanged.

    Args:
        item: One item of the submissions as the user passed them, of any type.
    """
    if _is_arrow(item):
        _check_columns(item.schema.names)
        for start in range(0, item.num_rows, _ROWS_AT_ONCE):
            yield from item.slice(start, _ROWS_AT_ONCE).to_pylist()
    elif _is_frame(item):
        names = _check_columns(item.columns)
        for values in item.itertuples(index=False, name=None):
            yield dict(zip(names, values, strict=True))
    else:
        yield item


def _check_columns(columns: Iterable[Any]) -> list[str]:
    """Return the names of the columns of a table.

    Raises:
        ValueError: Two columns are the same field, or a column has several names.
    """
    columns = list(columns)
    if levels := next((name for name in columns if isinstance(name, tuple)), None):
        raise ValueError(
            f"the columns of `submissions` have several levels, such as {levels!r}: give each one name, as by "
            "`frame.columns = ['_'.join(name) for name in frame.columns]`, or no column would be read by its name"
        )
    names = [str(name) for name in columns]
    if repeated := repeated_column(tuple(names)):
        raise ValueError(f"`submissions` has {repeated}")
    return names


def _is_arrow(value: Any) -> bool:
    # Recognized by the name of its module, because Arrow may not be installed.
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def _is_frame(value: Any) -> bool:
    return hasattr(value, "itertuples") and hasattr(value, "columns")


def _has_sample_column(item: Any) -> bool:
    """Return whether an item is a table, a data set or a row with attributes, with a column of samples."""
    names: Any = getattr(item, "column_names", None) or getattr(item, "columns", None)
    is_listed = isinstance(names, list | tuple) or hasattr(names, "tolist")
    return is_listed and any(fold(name) in SAMPLE_COLUMNS for name in names)


def count_rows(submissions: object) -> int | None:
    """Return the number of rows of the submissions as the user passed them. None if only reading them would show it.

    Example:
        >>> count_rows(["one", "two"]), count_rows(iter(["one", "two"]))
        (2, None)
    """
    if isinstance(submissions, list | tuple) and not any(map(_has_sample_column, submissions)):
        return sum(
            len(item) if _is_arrow(item) or _is_frame(item) else count_rows_of_item(item) for item in submissions
        )
    if not isinstance(submissions, Sized) or isinstance(submissions, list | tuple) or _has_sample_column(submissions):
        return None
    try:
        return len(submissions)
    except (TypeError, NotImplementedError):  # such as a data set over a stream
        return None


async def as_rows(
    submissions: Iterable[Any] | AsyncIterable[Any], *, warns: bool = True
) -> AsyncGenerator[tuple[Any, Row]]:
    """Yield each submission as the caller passed it, together with its `Row`.

    Rows are numbered from 1. The next submission is read only when the caller asks for the next row.

    If a submission is a table or a batch of a table, its rows are yielded instead. The same is true for a mapping with
    several samples: each is a row, with an id such as `a#1`. A warning names the columns that the
    library does not read, unless `warns` is False.
    """
    source, number, tasks = rows_of_table(submissions), 0, Counter[str]()
    if isinstance(source, AsyncIterable):
        async for item in source:
            for row in rows_of_batch(item):
                number += 1
                for own in rows_of_item(row, number, warns=warns, tasks=tasks):
                    yield own
    else:
        for item in source:
            for row in rows_of_batch(item):
                number += 1
                for own in rows_of_item(row, number, warns=warns, tasks=tasks):
                    yield own


async def find_rubric(
    rubrics: RowRubrics, item: Any, row: Row, check_rubric: Callable[[Rubric], None]
) -> tuple[Row, Rubric | None, Rubric | None]:
    """Find the rubric that grades a row. A row without a submission gets no rubric.

    Args:
        rubrics: The rubrics of the run.
        item: The row as the caller passed it. It is the argument of a rubric function.
        row: The row.
        check_rubric: Raises a ValueError for a rubric that the grader cannot use.

    Returns:
        The row, the row's own rubric (None if it does not have its own), and the rubric that grades the row. If no
        valid rubric is found, the returned row has an error and no submission, and both rubrics are None.
    """
    own = None
    if row.submission is None:
        return row, None, None
    try:
        if row.rubric is not None or rubrics.has_function:
            # In a thread, because the rubric may be a file, or a function of the user.
            own = await run_in_thread(lambda: rubrics.own_of(item, row.rubric))
        rubric = rubrics.join(own)
        check_rubric(rubric)
        if row.labels is None and rubrics.shared is None and (met := labels_of(row.rubric)):
            row = row._replace(labels={name: "MET" if is_met else "UNMET" for name, is_met in met.items()})
    except Exception as error:  # noqa: BLE001 -- whatever a row or a function holds stops no other row
        return row.with_error(f"row {row.id} {problem_of(error)}"), None, None
    return row, own, rubric


class StopRule(Protocol):
    """The type of the argument `stop_when` of `grade_many`: a function that decides whether the run ends.

    The run calls it with the score of each submission, in order. It returns the reason to end the run, or None to
    continue.
    """

    def __call__(self, score: float | None, /) -> str | None:
        """Return the reason to end the run, or None to continue.

        Args:
            score: The score of the next submission, or None if a criterion failed or if too little was assessed.
        """
        ...


class EarlyStop:
    """Passes the scores of a run to its stop rule in the order of the submissions, not in the order of completion.

    In the order of completion, the first scores would belong to the submissions with quick answers. Such scores are not
    a random sample of the run.

    If a limit of the run prevents the grade of a row, the scores of all later rows are not passed to the rule. These
    rows may have been graded only because they needed fewer calls, so their scores are not a random sample either.

    Of several samples of one prompt, only the score of the first one is passed on, because the others depend on it.

    Args:
        rule: The rule, or None to run until the last submission.
    """

    def __init__(self, rule: StopRule | None):
        self._rule = rule
        self._positions: dict[asyncio.Task[Graded], int] = {}
        self._waiting: dict[int, Graded] = {}
        self._groups = set[str]()
        self._started = self._passed_on = 0

    def watch(self, task: asyncio.Task[Graded]) -> None:
        """Record the position in the run of a row whose grading starts now.

        Args:
            task: The task that grades the row.
        """
        if self._rule:
            self._positions[task] = self._started
            self._started += 1

    def reason(self, task: asyncio.Task[Graded], graded: Graded) -> str | None:
        """Pass the score of a row on to the rule. Return the rule's reason to end the run, or None to continue."""
        if not self._rule or task not in self._positions:
            return None
        self._waiting[self._positions.pop(task)] = graded
        while self._passed_on in self._waiting:
            following = self._waiting.pop(self._passed_on)
            self._passed_on += 1
            if (group := following.row.group) is not None:
                if group in self._groups:
                    continue
                self._groups.add(group)
            if reason := self._rule(following.gate_score):
                # The rows in progress still finish, but they must not change a decision that was already made.
                self._rule = None
                return reason
        return None


def check_run_name(name: str | None, ledger: LedgerLike | None) -> str | None:
    """Return the name of a run, after a check that a run with a name has a ledger.

    The processes of a named run share their limits through the ledger.

    Raises:
        ValueError: There is a name but no ledger.
    """
    if name is not None and ledger is None:
        raise ValueError(f"`run` {name!r} needs a `ledger`, which counts what all processes of that run spend")
    return name


def check_priced_judges(limit: SpendLimit, grader: Grader) -> None:
    """Check that each price of a spend limit names a judge. A price with a wrong name would have no effect.

    Raises:
        ValueError: A name is not the name of a judge.
    """
    names = dict.fromkeys(price_name(inner) for judge in grader.runtime.callers for inner in judges_inside(judge))
    for name in limit.prices:
        if name not in names:
            judges_text = ", ".join(map(repr, names))
            raise ValueError(f"`prices` names {name!r}, and the judges are {judges_text}: use one of these names")


class _RunMarks:
    """Adds the number of rows of a run to the results that can come first in its file (`Graded.run`).

    A file that is sorted later has the lowest place in its first line. This place is the lowest so far when its result
    arrives.

    Args:
        rows: The number of rows of the run. None if it is unknown.
        grader: The settings of the grader. With the id of the first row, they identify the run, also after a resume.
    """

    def __init__(self, rows: int | None, grader: Mapping[str, Any]):
        self._rows, self._grader = rows, grader
        self._mark: dict[str, Any] | None = None
        self._places: dict[asyncio.Task[Graded], int] = {}
        self._lowest: float = math.inf
        self._started = 0

    def watch(self, task: asyncio.Task[Graded], row: Row) -> None:
        """Record the place of a row whose grading starts now."""
        if not self._started and self._rows is not None:
            text = json.dumps([row.id, self._rows, self._grader], sort_keys=True, default=str)
            self._mark = {"id": sha256(text.encode("utf-8", "replace")).hexdigest()[:8], "rows": self._rows}
        self._places[task] = self._started
        self._started += 1

    def add(self, task: asyncio.Task[Graded], graded: Graded) -> Graded:
        """Return the result of a row, with the mark if no earlier result has a lower place."""
        place = self._places.pop(task)
        if place > self._lowest:
            return graded
        self._lowest = place
        return graded._replace(run=self._mark)


class RunStore:
    """The open store of a run, or a placeholder for a run without a store.

    Args:
        store: A ledger, or another store of judgments, which records judgments only. None if judgments are not stored.
    """

    def __init__(self, store: JudgmentStore | None = None):
        from rubric_integrations.runs.ledger.base import RunLedger

        self._store = store
        self._ledger: RunLedger | None = store if isinstance(store, RunLedger) else None
        self._reused_before = self._ledger.reused if self._ledger else 0
        self._failed: Set[str] = self._ledger.failed_rows() if self._ledger else frozenset()

    @property
    def reused(self) -> int:
        """The number of judgments read from the ledger since the run began. 0 if the store is not a ledger."""
        return self._ledger.reused - self._reused_before if self._ledger else 0

    def attach(self, grader: Grader, rows: int | None) -> Grader:
        """Record the grader's configuration and the number of rows in the ledger, and return a grader with the store.

        The number of rows stays in the ledger until `record_end`.
        """
        stored = grader.with_store(self._store) if self._store else grader  # refuses a judge without a fingerprint
        if self._ledger:
            missing = {} if rows is None else {"rows": rows}
            self._ledger.record_grader({**grader.configuration(), **missing})
        return stored

    def record_end(self, grader: Grader) -> None:
        """Record in the ledger that the run was not stopped: it has a result for each of its rows."""
        if self._ledger:
            self._ledger.record_grader(grader.configuration())

    def record(self, row: Row, rubric: Rubric | None) -> None:
        """Record the submission of a row and the row's own rubric in the ledger, for `rescore`.

        Without a ledger, or for a row without a submission, nothing is recorded.
        """
        if self._ledger and row.submission:
            self._ledger.record_submission(row.id, row.submission, rubric)

    def has_failed(self, row: Row) -> bool:
        """Whether the grade of a row failed in the previous run. False if the run has no ledger."""
        if not self._failed:
            return False
        from rubric_integrations.runs.ledger.base import row_key

        return row_key(row.id) in self._failed

    def answered_text(self) -> Submission | None:
        """Return the first submission of the ledger whose grade has not failed, or None."""
        if self._ledger is None:
            return None
        from rubric_integrations.runs.ledger.base import row_key

        # A row that failed in the previous run may be in progress.
        failed = self._failed | self._ledger.failed_rows()
        rows = self._ledger.submissions()
        return next((submission for row, submission in rows if row_key(row.id) not in failed), None)

    def record_result(self, graded: Graded) -> None:
        """Record in the ledger whether the grade of a row failed. Without a ledger, nothing is recorded."""
        if self._ledger is None:
            return
        report = graded.report
        # With `on_failure`, a row with a failure has a grade, but its judgment is still requested again.
        error = graded.judge_error or (report.error if report and report.failed_count else None)
        if error is not None:
            self._ledger.record_row(graded.row.id, error)
        elif self.has_failed(graded.row):
            self._ledger.record_row(graded.row.id, None)

    def share_limits(self, run: str | None, limit: SpendLimit) -> None:
        """Share the limits of a named run with its other processes. Without a name, do nothing.

        Raises:
            TypeError: The store does not count the spend.
        """
        if run is None:
            return
        if self._ledger is None:
            kind = type(self._store).__name__
            raise TypeError(f"`run` needs a `ledger` that counts what its processes spend, got {kind}")
        limit.share(partial(self._ledger.claim_spend, run, limit.part))


@contextmanager
def open_store(ledger: LedgerLike | None) -> Generator[RunStore]:
    """Open the store of a run for the block. A ledger that is passed as an address is opened and closed.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    if ledger is None:
        yield RunStore()
        return
    from rubric_integrations.runs.ledger import use_ledger

    with use_ledger(ledger) as store:
        yield RunStore(store)


class RowWindow:
    """The tasks that grade the rows of one run, and their results that were not taken yet.

    Args:
        max_under_way: The largest number of rows that are graded at the same time.
        max_waiting: The largest number of finished rows that wait for the result of an earlier row, if `ordered` is
            set.
        ordered: Whether results come in the order of the rows. If not, they come as soon as they are ready.
    """

    def __init__(self, max_under_way: int, max_waiting: int, ordered: bool):
        self._max_under_way, self._max_tasks, self._ordered = max_under_way, max_under_way + max_waiting, ordered
        self._under_way: set[asyncio.Task[Graded]] = set()
        # Rows that start only after all other rows have started.
        self._late: set[asyncio.Task[Graded]] = set()
        # All rows that failed earlier, whether they start late or not.
        self._failed_before: set[asyncio.Task[Graded]] = set()
        self._others_started, self._late_slots = asyncio.Event(), asyncio.Semaphore(max_under_way)
        # In the order of the results: the order of the rows, or the order of completion.
        self._queue: deque[asyncio.Task[Graded]] = deque()
        self._has_finished = asyncio.Event()

    @property
    def under_way(self) -> int:
        """The number of rows that are being graded."""
        return len(self._under_way)

    @property
    def has_only_failed(self) -> bool:
        """Whether all rows in progress failed earlier (`start` with `late=True`)."""
        return self._under_way <= self._failed_before

    @property
    def has_room(self) -> bool:
        """Whether another row may start without exceeding `max_under_way` and `max_waiting`."""
        return len(self._under_way) < self._max_under_way and len(self._queue) < self._max_tasks

    def start(self, grade: Callable[[], Coroutine[Any, Any, Graded]], *, late: bool = False) -> asyncio.Task[Graded]:
        """Create the task that grades a row, and return it.

        Args:
            grade: Grades the row.
            late: Whether the row waits until all other rows have started, as a row that failed earlier does. The row
                does not wait if `max_waiting` late rows are already waiting. It stops waiting if too many finished rows
                wait for its result.
        """
        is_late = late and len(self._late) < self._max_tasks - self._max_under_way
        task = asyncio.create_task(self._grade_late(grade) if is_late else grade())
        (self._late if is_late else self._under_way).add(task)
        if late:
            self._failed_before.add(task)
        if self._ordered:
            self._queue.append(task)
        task.add_done_callback(self._finish)
        return task

    async def _grade_late(self, grade: Callable[[], Coroutine[Any, Any, Graded]]) -> Graded:
        await self._others_started.wait()
        async with self._late_slots:
            return await grade()

    def start_late(self) -> None:
        """Let the rows start that `start` created with `late=True`."""
        self._others_started.set()

    async def drop_late(self) -> None:
        """Cancel the rows with `late=True` that have not started, because the run has ended.

        The cancelled rows get no result.
        """
        if not self._others_started.is_set():
            await self._cancel(self._late)
            self._queue = deque(task for task in self._queue if not task.cancelled())

    def _finish(self, task: asyncio.Task[Graded]) -> None:
        self._under_way.discard(task)
        self._late.discard(task)
        self._failed_before.discard(task)
        if not self._ordered:
            self._queue.append(task)
        self._has_finished.set()

    @property
    def is_busy(self) -> bool:
        """Whether any row is waiting, is being graded, or has a result that `take` has not returned yet."""
        return bool(self._under_way or self._late or self._queue)

    async def wait(self) -> None:
        """Wait until a row has finished. Return immediately if `take` can already return a row."""
        if len(self._queue) >= self._max_tasks:
            self.start_late()
        if not (self._queue and self._queue[0].done()):
            await self._has_finished.wait()
        self._has_finished.clear()

    def take(self) -> Iterator[asyncio.Task[Graded]]:
        """Yield the finished tasks that are next in the order of the results, and remove each from the queue.

        If the caller stops the iteration because a task ends the run, the other tasks stay in the queue. `cancel` then
        waits for these tasks.
        """
        while self._queue and self._queue[0].done():
            yield self._queue.popleft()

    async def cancel(self) -> None:
        """Cancel the rows in progress, and wait until their tasks have ended.

        Without waiting, a task could still write to the ledger after this method has returned.
        """
        await self._cancel({*self._under_way, *self._late})
        await asyncio.gather(*self._queue, return_exceptions=True)

    @staticmethod
    async def _cancel(tasks: Set[asyncio.Task[Graded]]) -> None:
        cancelled = [task for task in tasks if task.cancel()]
        await asyncio.gather(*cancelled, return_exceptions=True)


# The largest number of finished rows in memory that wait for an earlier row. Without them, one slow call would stop the
# run.
MAX_WAITING_ROWS = 1000


class Run:
    """A run over many submissions, made by `grade_many`: an iterable and an async iterable of `Graded`.

    Nothing is requested before the iteration begins. Memory contains only the submissions in progress. Therefore the
    number of submissions is not limited.

    Iterate a run once. A second iteration reads and grades the submissions again, and continues the counts of `summary`
    and of the limits. With a `ledger`, it takes the judgments from the ledger.

    Attributes:
        summary: Counts, spend and mean score so far. If the run ended early, `summary.stopped` is the reason.

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
        rubric: RubricLike | RubricFunction | RowRubrics | None,
        grader: Grader,
        *,
        library: Mapping[str, RubricLike] | str | Path | None,
        ledger: LedgerLike | None,
        max_concurrency: int,
        progress: bool,
        ordered: bool,
        max_cost: float | None,
        max_calls: int | None,
        prices: Prices | None,
        run: str | None,
        stop_when: StopRule | None,
    ):
        if isinstance(submissions, str | bytes | Mapping):
            kind = type(submissions).__name__
            raise TypeError(f"`submissions` must be an iterable of submissions, got one {kind}: put it into a list")
        require_grader(grader)
        if max_concurrency < 1:
            raise ValueError(f"`max_concurrency` must be at least 1, got {max_concurrency!r}")
        self._rubrics = rubric if isinstance(rubric, RowRubrics) else RowRubrics(rubric, library)
        self._submissions, self._ledger = submissions, ledger
        self._run = check_run_name(run, ledger)
        self._rubrics.check_shared(grader.check_rubric)
        self._spend_limit, self._warm_up = SpendLimit(max_calls, max_cost, prices), WarmUp()
        check_priced_judges(self._spend_limit, grader)
        if max_cost is not None and grader.runtime.explorer is not None:
            # Otherwise, the explorations of many rows could be paid for before the price of the judge is missed.
            for caller in grader.runtime.callers:
                require_price(caller, self._spend_limit)
        self._grader = grader.for_run(max_concurrency, self._spend_limit, warm_up=self._warm_up)
        # More submissions than calls: while one waits for its last call, the others use the free slots.
        self._max_under_way = 2 * self._grader.call_limiter.limits.concurrency
        self._ordered, self._progress, self._early_stop = ordered, progress, EarlyStop(stop_when)
        self._highest_row_spend: Spend | None = None
        # The first text that was graded, and whether any row was started that had not failed in an earlier run.
        self._answered: Submission | None = None
        self._has_new_rows = False
        self._spend_of_all_starts = SpendTotal()
        self._scoring_record: dict[str, Any] = {}
        self._marks = _RunMarks(None, {})
        self.summary = RunSummary(rows=count_rows(submissions))

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
        """Grade all submissions and return a data frame with one row per submission.

        Its columns are the grade, the score of each tag, and the verdict on each criterion. The column
        `omitted_characters` exists only if a text was shortened. The column `escalated` exists only for a `Cascade`. It
        is the share of the answers that came from the expensive judge, in [0, 1]. A warning tells if a limit stopped
        the run.

        Raises:
            ImportError: pandas is not installed.
        """
        shared = self._rubrics.shared
        names = [*map(tag_key, shared.tags), *shared.keys] if shared else []
        records = [graded.to_record() for graded in self]
        if note := describe_stop(len(records), self.summary.rows):
            warnings.warn(note, IncompleteRunWarning, stacklevel=2)
        used = [name for name in ("omitted_characters",) if any(record[name] for record in records)]
        used += ["escalated"] if any(record["escalated"] is not None for record in records) else []
        return data_frame(records, ["id", "score", "passed", "coverage", "cost", "error", *used, *names])

    async def _stream(self) -> AsyncGenerator[Graded]:
        """Grade all rows, and record each result and the spend."""
        start = time.monotonic()
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._ledger))
            store.share_limits(self._run, self._spend_limit)
            grader = store.attach(self._grader, self.summary.rows)
            self._scoring_record = self._grader.scoring_record()
            show = (
                stack.enter_context(progress_bar(self._submissions, self._outage_seconds)) if self._progress else None
            )

            def update_spend() -> None:
                seconds = time.monotonic() - start
                spend = self._spend_limit.spend
                in_all = spend if self._ledger is None else self._spend_of_all_starts.spend
                self._update_summary(spend=spend, spend_of_all_starts=in_all, reused=store.reused, seconds=seconds)

            try:
                async with aclosing(self._results(grader, store)) as results:
                    async for graded in results:
                        store.record_result(graded)
                        self.summary = self.summary.with_result(graded)
                        update_spend()
                        if show:
                            show(self.summary)
                        yield graded
                if self.summary.rows is not None and not self.summary.stopped:
                    store.record_end(self._grader)
            finally:
                # Rows that a limit or the caller left unfinished yield no result, but their calls cost money.
                update_spend()
                with suppress(StoreError):
                    await self._spend_limit.record()

    async def _results(self, grader: Grader, store: RunStore) -> AsyncGenerator[Graded]:
        """Yield the results. After a stop or an error of the source, yield the rows in progress and start no others."""
        window = RowWindow(self._max_under_way, MAX_WAITING_ROWS, self._ordered)
        source_error: Exception | None = None
        self._marks = _RunMarks(self.summary.rows, self._scoring_record)
        self._warm_up.begin_rows()
        try:
            async with aclosing(as_rows(self._submissions, warns=not self._rubrics.has_function)) as rows:
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
                    has_failed = store.has_failed(row)
                    self._has_new_rows |= not has_failed
                    find = partial(self._answered_text, store, window) if has_failed else None
                    grade = partial(self._grade, grader, row, rubric, find)
                    task = window.start(grade, late=has_failed)
                    self._early_stop.watch(task)
                    self._marks.watch(task, row)
                    # Lets the task send its first request while the next row is read.
                    await asyncio.sleep(0)
                    for graded in self._finished(window):
                        yield graded
            if self.summary.stopped:
                await window.drop_late()
            window.start_late()
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
        return window.has_room and (rows == 1 or self._spend_limit.has_room_for(rows, self._highest_row_spend))

    def _finished(self, window: RowWindow) -> list[Graded]:
        """Take the results that are next in the order. A row that was left ungraded has no result."""
        results: list[Graded] = []
        for task in window.take():
            try:
                graded = task.result()
            except RunStopped as reason:
                stopped = self.summary.stopped or str(reason)
                self._update_summary(
                    stopped=stopped,
                    judge_is_unusable=isinstance(reason, JudgeUnusable),
                    has_wrong_setting=isinstance(reason, WrongSetting),
                )
            else:
                results.append(self._marks.add(task, graded))
                self._note_spend(graded)
                if (decision := self._early_stop.reason(task, graded)) and not self.summary.stopped:
                    self._update_summary(stopped=decision)
        return results

    def _note_spend(self, graded: Graded) -> None:
        if graded.report:
            highest, spend = self._highest_row_spend or NO_SPEND, graded.report.spend
            calls, cost = max(highest.calls, spend.calls), max(highest.cost or 0.0, spend.cost or 0.0)
            self._highest_row_spend = Spend(calls=calls, cost=cost)

    async def _grade(
        self, grader: Grader, row: Row, rubric: Rubric | None, find: Callable[[], Submission | None] | None
    ) -> Graded:
        """Grade one row. A row without a submission or a rubric has no report."""
        if row.submission is None or rubric is None:
            return Graded(row, None)
        answered_text.set(find)  # each row has its own task, and therefore its own context
        if self._ledger is not None:
            spend_of_grade.set(self._spend_of_all_starts)
        try:
            report = await grader.grade(rubric, row.submission)
        except JudgeError as error:
            return Graded(row, error.report, str(error), rubric, self._scoring_record)
        if self._answered is None and not report.failed_count:
            self._answered = row.submission
        return Graded(row, report, None, rubric, self._scoring_record)

    def _answered_text(self, store: RunStore, window: RowWindow) -> Submission | None:
        """Return another text that was graded, if only rows that failed before are in progress."""
        if not window.has_only_failed:
            return None
        # The ledger's rows come second: another process may be grading them, and their answers are not stored yet.
        return self._answered or (None if self._has_new_rows else store.answered_text())

    def _outage_seconds(self) -> float | None:
        down_since = self._grader.call_limiter.down_since
        return None if down_since is None else time.monotonic() - down_since

    def _update_summary(self, **changes: Any) -> None:
        self.summary = self.summary.model_copy(update=changes)


def grade_many(
    submissions: Iterable[Any] | AsyncIterable[Any],
    rubric: RubricLike | RubricFunction | RowRubrics | None,
    grader: Grader,
    *,
    library: Mapping[str, RubricLike] | str | Path | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    progress: bool = False,
    ordered: bool = True,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    run: str | None = None,
    stop_when: StopRule | None = None,
) -> Run:
    """Grade many submissions concurrently and return a run to iterate with `for` or `async for`.

    Args:
        submissions: Mappings (`response`, `query`, `reference`, `id`, `rubric`, `labels`, `metadata`), the rows of
            `read_responses`, or anything that `Rubric.grade` accepts, such as texts, conversations and predictions.
            They can be in any iterable or async iterable, such as a Hugging Face dataset. It is read only as fast as
            its items are graded.
        rubric: The rubric for all submissions: a `Rubric`, the path of a rubric file, or a rubric as lists and
            dictionaries. A row that has its own `rubric` is graded by both. Pass None if each row has its own rubric.
            You can also pass a function, which receives each item as it was passed and returns its rubric, or a
            `RowRubrics`, which can select some of the criteria.
        library: A mapping from names to rubrics, or the path of a file that contains such a mapping. It is used for
            rows whose `rubric` is a name.
        grader: The grader.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database for processes on several
            machines, an open ledger, or any other `JudgmentStore` (which `rescore` cannot use). Each judgment is
            stored as soon as it arrives, and is not requested again. To resume a run that was killed, start it again.
        max_concurrency: The largest number of concurrent calls of the run, at least 1. The `CallLimits` of the grader
            can allow fewer. While a provider reports a rate limit, the run makes fewer. Runs of one grader with the
            same `max_concurrency` share this limit.
        progress: Whether to show a progress bar on stderr, if stderr is a terminal.
        ordered: Whether results come in the order of the submissions. If not, they come as soon as they are ready.
        max_cost: The largest cost of the run, in US dollars. The run ends before a call that is expected to exceed it.
        max_calls: The largest number of calls to models that the run may make.
        prices: The prices of a million input and output tokens in US dollars, by the name of the model or of the class
            of your judge, such as `{"openai/mine": (0.25, 2.0)}`. By default, the prices of DSPy's price list.
        run: A name, such as `"nightly"`. `max_cost` and `max_calls` then limit the sum of all that was spent under this
            name in the ledger, by all processes and machines, now and earlier. Each process claims a part of the limits
            before it makes calls.
        stop_when: A rule that ends the run early, such as a new `SequentialGate`. It is a function that receives each
            score in the order of the submissions, which must be random, and of several samples of one prompt only the
            first. The score is None without a complete grade, or
            if too little was assessed. The function returns the reason to end the run, or None to continue. After the
            decision no row starts. The rows in progress, up to twice `max_concurrency`, are finished.

    Returns:
        The run. Its `summary` is updated after each result. If the run ended early, `summary.stopped` is the reason.

    Raises:
        TypeError: `submissions` is a single submission. When the iteration begins: there is a ledger and a judge has no
            `fingerprint`, or there is a `run` and the ledger does not count the spend.
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
        progress=progress, ordered=ordered, max_cost=max_cost, max_calls=max_calls, prices=prices,
        run=run, stop_when=stop_when,
    )  # fmt: skip
