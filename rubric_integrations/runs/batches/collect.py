"""`collect_batches`: reads the replies of finished batches and stores the judgments in their ledger."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.records import Record
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.judges.http import MAX_REPLY_BYTES
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.batches.base import Batch, BatchLedger, BatchStatus, LineReply, Provider, load, save
from rubric_integrations.runs.batches.providers import Results, read_results
from rubric_integrations.runs.batches.replay import (
    Access,
    Replay,
    access_to,
    identity_of,
    open_session,
    use_batch_ledger,
)
from rubric_integrations.runs.batches.submit import resolve
from rubric_integrations.scoring.judgment import Spend, SpendTotal

# The first and the longest pause, in seconds, between two checks of batches that are not over.
FIRST_LOOK, LONGEST_LOOK = 5.0, 300.0
# The largest number of bytes of results for each request, in addition to one very long reply.
_BYTES_PER_REQUEST = 100_000


class CollectedBatches(Record):
    """The result of `collect_batches`.

    Attributes:
        batches: The number of batches whose replies were stored.
        waiting: The number of batches that the provider has not finished.
        done: The number of processed requests in the waiting batches.
        requests: The number of all requests in the waiting batches.
        judgments: The number of judgments that were stored.
        failed: The number of requests without a judgment. `submit_batches` requests them again.
        problems: The reasons why requests have no judgment, each with the number of its requests. The most frequent
            reason comes first.
        unknown: The number of lines of the results that cannot be read or do not belong to a request of the batch.
        spend: The spend of the judgments, at half price.
    """

    batches: int = 0
    waiting: int = 0
    done: int = 0
    requests: int = 0
    judgments: int = 0
    failed: int = 0
    problems: tuple[tuple[str, int], ...] = ()
    unknown: int = 0
    spend: Spend = Spend()


def collect_batches(ledger: LedgerLike, grader: Grader, *, wait: bool = False) -> CollectedBatches:
    """Store the replies of finished batches in their ledger, where `grade_many` finds the judgments.

    If a request has no valid reply, the ledger stores no judgment but records the failure. The next `submit_batches` or
    `grade_many` requests this judgment again.

    Args:
        ledger: The ledger with which the batches were submitted, or its address.
        grader: The grader with which the batches were submitted. Batches of other graders are ignored.
        wait: Whether to wait until the provider has finished all batches, which may take a day.

    Returns:
        The numbers of batches, requests and judgments, and the spend.

    Raises:
        TypeError, ValueError: The requests of the grader cannot be sent in a batch, or the ledger stores no batches.
        BatchError: The provider cannot be reached, or does not know a batch. You can call this function again.
        LedgerError: The ledger cannot be used.
    """
    with use_batch_ledger(ledger) as opened:
        return run_sync(_collect(opened, grader, wait))


async def _collect(ledger: BatchLedger, grader: Grader, wait: bool) -> CollectedBatches:
    collector = _Collector(ledger, grader)
    pause = FIRST_LOOK
    while True:
        # The lock is free during the wait. Other processes can then submit.
        async with open_session(grader, ledger) as (accesses, _):
            await collector.collect(accesses)
        if not wait or not collector.waiting["batches"]:
            return collector.summary
        await asyncio.sleep(pause)
        pause = min(LONGEST_LOOK, 2 * pause)


class _Collector:
    def __init__(self, ledger: BatchLedger, grader: Grader):
        self._ledger, self._grader = ledger, grader
        self.counts, self.waiting, self._problems = Counter[str](), Counter[str](), Counter[str]()
        self._spend = SpendTotal()

    @property
    def summary(self) -> CollectedBatches:
        counts, waiting = self.counts, self.waiting
        return CollectedBatches(
            batches=counts["batches"], waiting=waiting["batches"], done=waiting["done"], requests=waiting["requests"],
            judgments=counts["judgments"], failed=counts["failed"], problems=tuple(self._problems.most_common()),
            unknown=counts["unknown"], spend=self._spend.spend,
        )  # fmt: skip

    async def collect(self, accesses: list[Access]) -> None:
        """Collect each batch that is over."""
        self.waiting.clear()
        identity = identity_of(self._grader)
        for batch in load(self._ledger):
            if batch.collected or batch.grader != identity:
                continue
            access = access_to(accesses, batch)
            known = batch if batch.ticket else await resolve(self._ledger, access, batch)
            if known.collected:
                continue
            status = await access.provider.status(known.ticket) if known.ticket else BatchStatus("unclear", False)
            if status.is_over:
                await self._store(access, known, status)
            else:
                self.waiting.update(batches=1, done=status.done, requests=len(known.keys))

    async def _store(self, access: Access, batch: Batch, status: BatchStatus) -> None:
        """Download the results of a finished batch, store its judgments and close it."""
        limit = MAX_REPLY_BYTES + _BYTES_PER_REQUEST * len(batch.keys)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results"
            for path in status.files:
                await access.provider.download(path, file, limit)
                with file.open("ab") as results:
                    results.write(b"\n")  # the last line may be cut off
            access.judge.use_request_form(batch.form)
            with read_results(file) as results:
                replay = await self._store_results(access.provider, batch, status, results)
        # If all requests were refused, the reason is their form. The refusal of a single request may have another
        # reason, which it may quote.
        refused = replay.failures if not replay.spend else []
        simpler = next(filter(None, map(access.judge.simpler_form, refused)), None)
        save(self._ledger, batch.closed(simpler))
        self.counts["batches"] += 1

    async def _store_results(self, provider: Provider, batch: Batch, status: BatchStatus, results: Results) -> Replay:
        """Store the judgments of a batch's results, and count them."""
        keys = dict.fromkeys(batch.keys)

        def read(key: str) -> LineReply:
            if key not in results:
                return LineReply(0, b"", status.problem or "the results of the batch have no line for the request")
            if key in results.ambiguous:
                return LineReply(0, b"", "the results of the batch have several lines for the request, which differ")
            try:
                return provider.read_line(results[key])
            except (LookupError, TypeError, ValueError, AttributeError):
                return LineReply(0, b"", "the line of the results is no response")

        replay = Replay(self._grader, self._ledger, keys, read)
        rubrics = RowRubrics(Rubric.from_json(batch.rubric) if batch.rubric else None)
        for row, submission in self._ledger.submissions():
            try:
                rubric = rubrics.of(row, row.rubric)
            except ValueError:
                continue  # a row of another run, which has another rubric
            await replay.open_questions(rubric, submission)
        for spend in replay.spend:
            self._spend.add(spend)
        self._problems.update(failure.message for failure in replay.failures)
        missing = len(keys) - len(self._ledger.lookup(batch.keys))
        self.counts.update(
            judgments=len(replay.spend), failed=missing, unknown=results.unreadable + len(results.keys() - keys.keys())
        )
        return replay
