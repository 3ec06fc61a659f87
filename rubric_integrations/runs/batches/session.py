"""The providers behind the judges of a grader, while batches are submitted or collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from os import PathLike
from typing import NamedTuple, cast

from rubric_integrations._util.urls import url_without_secrets
from rubric_integrations.graders import Grader
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.redaction import Redactor
from rubric_integrations.judges.requests import JudgeRequest, RequestProtocol
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.runs.batches.anthropic import AnthropicBatches
from rubric_integrations.runs.batches.http import BatchServer
from rubric_integrations.runs.batches.openai import OpenAIBatches
from rubric_integrations.runs.batches.provider import Provider
from rubric_integrations.runs.batches.records import LOCK, Batch, BatchError, BatchLedger
from rubric_integrations.runs.batches.replay import endpoint_of, judges_of
from rubric_integrations.runs.ledger import open_ledger

# Seconds after which a provider surely lists a batch that was submitted.
SETTLE_SECONDS = 10.0

PROVIDERS: dict[RequestProtocol, tuple[str, Callable[[BatchServer], Provider]]] = {
    "openai": ("/chat/completions", OpenAIBatches),
    "anthropic": ("/messages", AnthropicBatches),
}
"""For each protocol, what the base URL of its API lacks, and its batch API."""


class Access(NamedTuple):
    """The batch API behind one judge."""

    judge: LMJudge
    protocol: RequestProtocol
    base_url: str
    provider: Provider


@asynccontextmanager
async def open_session(grader: Grader, ledger: BatchLedger) -> AsyncGenerator[tuple[list[Access], Callable[[], None]]]:
    """Open the batch API of each judge; no other process submits or collects meanwhile.

    Yields:
        The batch APIs, in the order of the panel; and a function that raises a `BatchError` if this process was
        suspended so long that another one may have begun.
    """
    async with AsyncExitStack() as stack:
        accesses = [await _open(stack, judge) for judge in judges_of(grader)]
        lease = await stack.enter_async_context(ledger.lease([LOCK]))

        def check() -> None:
            if not lease.is_held():
                raise BatchError("the process was suspended, and another one may submit or collect: start again")

        yield accesses, check


async def _open(stack: AsyncExitStack, judge: LMJudge) -> Access:
    try:
        request = await endpoint_of(judge)
    except JudgeFailure as failure:
        raise BatchError(failure.message) from None
    suffix, make = PROVIDERS[request.protocol]
    base_url = _base_url(request, suffix)
    redactor = Redactor(judge)

    def redact(text: str) -> str:
        return redactor.failure(JudgeFailure("config", text)).message

    server = await stack.enter_async_context(BatchServer(base_url, request.headers, redact))
    return Access(judge, request.protocol, base_url, make(server))


def _base_url(request: JudgeRequest, suffix: str) -> str:
    url = request.url.removesuffix(suffix)
    if url == request.url or url_without_secrets(url) != url:
        raise BatchError(
            f"the address {url_without_secrets(request.url)!r} is none of a batch API: pass the base URL without user "
            "and parameters, and the key as `api_key`"
        )
    return url


def access_to(accesses: Sequence[Access], batch: Batch) -> Access:
    """Return the batch API to which a batch was submitted.

    Raises:
        BatchError: Its judge now has another server, which does not know the batch.
    """
    access = accesses[batch.judge]
    if access.base_url != batch.base_url:
        raise BatchError(
            f"a batch was submitted to {batch.base_url!r}, and its judge is now at {access.base_url!r}: use the same "
            "`api_base`; without this error, its requests would be paid for twice"
        )
    return access


BatchLedgerLike = BatchLedger | str | PathLike[str]
"""A ledger that stores batches, or the path or the URL of one."""


@contextmanager
def use_ledger(ledger: BatchLedgerLike) -> Generator[BatchLedger]:
    """Return a ledger as it is; open that of a path or a URL, and close it at the end.

    Raises:
        TypeError: It stores no batches.
        LedgerError: It cannot be used.
    """
    if isinstance(ledger, str | PathLike):
        with open_ledger(ledger) as opened:
            yield cast("BatchLedger", opened)
        return
    # Also a user's own store, as far as the types are concerned.
    if not hasattr(ledger, "save_batch"):
        raise TypeError(
            "`ledger` must be a path, a URL or a ledger that stores batches, "
            f"got {type(ledger).__name__}: without their tickets, the replies could not be found"
        )
    yield ledger


async def find_ticket(provider: Provider, batch: Batch, others: Collection[str]) -> str | None:
    """Return the ticket of a batch of which only the intent is known; None if it was never submitted.

    Raises:
        Unclear: It cannot be known yet.
        BatchError: The provider does not list its batches.
    """
    ticket = await provider.find(batch, others)
    if ticket is None:
        await asyncio.sleep(SETTLE_SECONDS)
        ticket = await provider.find(batch, others)
    return ticket
