"""`submit_batches`: submits each question that has no answer and that is not part of an earlier batch."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.records import Record
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.graders import Grader
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.runs.batches.base import Batch, BatchError, BatchLedger, Unclear, load, save
from rubric_integrations.runs.batches.providers import MAX_ATTEMPTS, LineFile, Uncertain
from rubric_integrations.runs.batches.replay import (
    Access,
    OpenQuestion,
    Replay,
    access_to,
    find_ticket,
    identity_of,
    open_session,
    use_batch_ledger,
)
from rubric_integrations.runs.run import as_rows, find_rubric
from rubric_integrations.scoring.judgment import JudgeFailure


class SubmittedBatches(Record):
    """The result of `submit_batches`.

    Attributes:
        rows: The number of rows that were read.
        errors: The reasons why rows cannot be graded, one for each such row.
        batches: The number of batches that this call submitted.
        requests: The number of requests in these batches.
        waiting: The number of questions that are in batches of earlier calls and are not collected yet.
        failed: The reasons why questions cannot be sent, one for each such question. For example, a text is too long.
    """

    rows: int = 0
    errors: tuple[str, ...] = ()
    batches: int = 0
    requests: int = 0
    waiting: int = 0
    failed: tuple[str, ...] = ()


def submit_batches(
    submissions: Iterable[Any] | AsyncIterable[Any],
    rubric: RubricLike | RubricFunction | None,
    grader: Grader,
    *,
    ledger: LedgerLike,
    library: Mapping[str, RubricLike] | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> SubmittedBatches:
    """Submit each question that has no answer in the ledger to a batch API, at half the price and within a day.

    Call `collect_batches` later, and then `grade_many` with the same ledger, which contains the answers. If this call
    is interrupted, repeat it. No question is requested twice.

    If a criterion has a condition in words (`applies_when`), the first call submits the condition without the
    criterion. Collect the answer, and then call this function again.

    Args:
        submissions: The submissions in any form that `grade_many` accepts, such as the rows of `read_responses`.
        rubric: The rubric for all submissions, a function that returns the rubric of a submission, or None if each row
            has its own rubric.
        grader: A `PerCriterionGrader` with one or more models of OpenAI, of Anthropic, or of servers with the same
            batch API. It must not have `stop_when_decided` or a sequential panel.
        ledger: The path of a ledger, such as `"run.sqlite"`, the URL of a database, or an open ledger.
        library: Rubrics by name, or the path of a file of such rubrics, for rows whose `rubric` is a name.
        settings: Data to be stored with each batch, such as the options of your program, as JSON and without secrets.

    Returns:
        The numbers of rows, batches and requests, and the errors.

    Raises:
        TypeError, ValueError: The requests of the grader cannot be sent in a batch, or the ledger stores no batches.
        BatchError: The provider refuses a batch, or cannot be reached. You can call this function again.
        LedgerError: The ledger cannot be used.
    """
    with use_batch_ledger(ledger) as opened:
        return run_sync(_submit(submissions, RowRubrics(rubric, library), grader, opened, dict(settings or {})))


async def _submit(
    submissions: Iterable[Any] | AsyncIterable[Any],
    rubrics: RowRubrics,
    grader: Grader,
    ledger: BatchLedger,
    settings: dict[str, Any],
) -> SubmittedBatches:
    """Submit the requests for all missing judgments of the submissions."""
    async with open_session(grader, ledger) as (accesses, check_lock):
        with tempfile.TemporaryDirectory() as folder:
            shared = rubrics.shared.to_json() if rubrics.shared else None
            intent = Batch(
                id="", protocol="openai", base_url="", grader=identity_of(grader), judge=0, rubric=shared,
                settings=settings, keys=(), created_at=0.0,
            )  # fmt: skip
            submitter = _Submitter(ledger, accesses, intent, Path(folder), check_lock)
            await submitter.resolve_intents()
            replay, count, errors = Replay(grader, ledger), 0, list[str]()
            async for item, read_row in as_rows(submissions, warns=not rubrics.has_function):
                count += 1
                row, own, rubric = await find_rubric(rubrics, item, read_row, grader.check_rubric)
                if row.submission is None or rubric is None:
                    errors.append(row.error or f"row {row.id}: there is nothing to grade")
                    continue
                ledger.record_submission(row.id, row.submission, own)
                for line in await replay.open_questions(rubric, row.submission):
                    await submitter.add(line)
            await submitter.finish()
    counts = submitter.counts
    return SubmittedBatches(
        rows=count, errors=tuple(errors), batches=counts["batches"], requests=counts["requests"],
        waiting=counts["waiting"], failed=tuple(submitter.failed),
    )  # fmt: skip


class _Submitter:
    """Writes the lines of questions and submits a file of lines when it is full."""

    def __init__(
        self,
        ledger: BatchLedger,
        accesses: list[Access],
        intent: Batch,
        folder: Path,
        check_lock: Callable[[], None],
    ):
        self._ledger, self._accesses, self._intent = ledger, accesses, intent
        self._folder, self._check_lock = folder, check_lock
        self._files: dict[int, LineFile] = {}
        self._waiting, self._added = set[str](), set[str]()
        self.counts, self.failed = Counter[str](), list[str]()

    async def resolve_intents(self) -> None:
        """Find the batches that a process submitted before it ended, without storing their tickets."""
        batches = load(self._ledger)
        for batch in batches:
            if batch.collected:
                if batch.grader == self._intent.grader:
                    self._accesses[batch.judge].judge.use_request_form(batch.form)
                continue
            if batch.ticket is None and batch.grader == self._intent.grader:
                batch = await resolve(self._ledger, access_to(self._accesses, batch), batch)  # noqa: PLW2901
            self._waiting.update(batch.keys)

    async def add(self, line: OpenQuestion) -> None:
        """Write the line of a question, unless a batch already contains it."""
        if line.key in self._waiting or line.key in self._added:
            self.counts["waiting"] += line.key in self._waiting
            return
        access = self._accesses[line.judge]
        try:
            request = await access.judge.prepare_request(line.question)
        except JudgeFailure as failure:
            if not failure.about_text:
                raise BatchError(failure.message) from None
            self.failed.append(failure.message)
            return
        content = access.provider.line(line.key, request.body)
        file = self._files.get(line.judge)
        if file is not None and not file.has_room_for(content):
            await self._submit(line.judge)
            file = None
        if file is None:
            file = self._files[line.judge] = LineFile(self._folder / uuid4().hex, access.provider.framing)
        file.add(line.key, content)
        self._added.add(line.key)

    async def finish(self) -> None:
        """Submit the remaining files."""
        for judge in list(self._files):
            await self._submit(judge)

    async def _submit(self, judge: int) -> None:
        file, access = self._files.pop(judge), self._accesses[judge]
        file.finish()
        changes = {
            "id": uuid4().hex, "protocol": access.protocol, "base_url": access.base_url, "judge": judge,
            "keys": tuple(file.keys), "created_at": time.time(), "form": access.judge.request_form,
        }  # fmt: skip
        batch = self._intent.model_copy(update=changes)
        self._check_lock()
        save(self._ledger, batch)
        ticket = await self._create(access, batch, file.path)
        save(self._ledger, batch.model_copy(update={"ticket": ticket}))
        file.path.unlink()
        self.counts.update(batches=1, requests=len(batch.keys))

    async def _create(self, access: Access, batch: Batch, path: Path) -> str:
        """Submit a file and return the ticket.

        If it is unknown whether the file arrived, look for the batch before the next attempt.
        """
        problem = ""
        for _ in range(MAX_ATTEMPTS):
            try:
                return await access.provider.create(batch, path)
            except BatchError:
                # The provider has refused the batch. Therefore nothing is requested.
                save(self._ledger, batch.closed())
                raise
            except Uncertain as error:
                problem = str(error)
            try:
                others = {other.ticket for other in load(self._ledger) if other.ticket}
                if ticket := await find_ticket(access.provider, batch, others):
                    return ticket
            except Unclear:
                break
        raise BatchError(
            f"{access.base_url}: whether a batch of {len(batch.keys):,} requests was submitted is not known "
            f"({problem}): start again later, which looks for it first"
        )


async def resolve(ledger: BatchLedger, access: Access, batch: Batch) -> Batch:
    """Find out whether an interrupted submission of a batch has succeeded, and store the result.

    Returns:
        The batch with its ticket if it was submitted, the closed batch (`Batch.closed`) if it was not submitted, or the
        unchanged batch if the provider does not show this yet.
    """
    others = {other.ticket for other in load(ledger) if other.ticket}
    try:
        ticket = await find_ticket(access.provider, batch, others)
    except Unclear:
        return batch
    batch = batch.model_copy(update={"ticket": ticket}) if ticket else batch.closed()
    save(ledger, batch)
    return batch
