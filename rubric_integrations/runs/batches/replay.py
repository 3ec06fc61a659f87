"""Runs the user's grader without calls, to find questions without an answer or to match replies to questions.

Because it is the user's own grader, the questions, keys, checks and conditions are the same as in an ordinary run. The
module also opens the batch APIs of a grader's judges.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from rubric_integrations._util.text import url_without_secrets
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.graders.scheduler import Redactor
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.protocol import (
    Judge,
    JudgeRequest,
    JudgeWrapper,
    Question,
    Request,
    RequestProtocol,
    RequestWrapper,
    innermost,
)
from rubric_integrations.judges.store import Lease, LedgerLike
from rubric_integrations.judges.validation import validate_judgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.batches.base import LOCK, Batch, BatchError, BatchLedger, LineReply, Provider
from rubric_integrations.runs.batches.providers import AnthropicBatches, BatchServer, OpenAIBatches
from rubric_integrations.runs.ledger import use_ledger
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment, Spend
from rubric_integrations.submission.submission import Submission

PRICE = 0.5
"""The price of a call in a batch as a share of the normal price, at OpenAI and at Anthropic."""

_PROBE = Question(Submission(response="-"), Criterion(requirement="-"))
_key: ContextVar[str] = ContextVar("_key")


class OpenQuestion(NamedTuple):
    """A question without an answer.

    Attributes:
        judge: The position of its judge on the panel.
        key: The key of its judgment.
        question: The question.
    """

    judge: int
    key: str
    question: Question


def judges_of(grader: Grader) -> list[LMJudge]:
    """Return the judges of a grader, after a check that their requests can be sent in batches.

    Raises:
        TypeError: The grader is not a `PerCriterionGrader`, or a judge is not a model.
        ValueError: The grader chooses its next request by earlier answers (an explorer, `stop_when_decided` or a
            sequential panel), or a judge has the setting `service_tier` or `headers`.
    """
    if not isinstance(grader, PerCriterionGrader):
        raise TypeError(
            f"batches go with PerCriterionGrader, one request for each criterion, got {type(grader).__name__}: grade "
            "with `service_tier='flex'` for the same price"
        )
    if grader.text_limits.explorer is not None:
        raise ValueError(
            "`TextLimits.explorer` decides by each reply which request is next, and a batch answers all at once: leave "
            "the explorer out, or grade with `grade_many`"
        )
    if grader.may_leave_open or grader.voting.sequential:
        name = "stop_when_decided" if grader.may_leave_open else "Voting(sequential=True)"
        raise ValueError(
            f"`{name}` decides by each answer which question is next, and a batch answers all at once: leave it out"
        )
    judges: list[LMJudge] = []
    for member in grader.panel:
        judge = innermost(member.judge)
        if not isinstance(judge, LMJudge):
            raise TypeError(
                f"batches need a model that writes text, got {type(judge).__name__}: grade with it directly "
                "(`grade_many`, or the command `grade`), or name a language model"
            )
        if judge.lm.kwargs.get("service_tier"):
            raise ValueError("`service_tier` does not go with batches, which have a price of their own: leave it out")
        if judge.lm.kwargs.get("extra_headers"):
            raise ValueError("`headers` are for the server of ordinary calls and are stored nowhere: leave them out")
        judges.append(judge)
    return judges


async def endpoint_of(judge: LMJudge) -> JudgeRequest:
    """Prepare an example request of a judge. The request contains the URL and the credential of the judge's server.

    Raises:
        JudgeFailure: Only DSPy can send the requests of the judge (see `LMJudge.prepare_request`).
    """
    return await judge.prepare_request(_PROBE)


def identity_of(grader: Grader) -> str:
    """Return the judges of a grader and its settings that change questions, as JSON without secrets.

    By this text, `collect_batches` recognizes the batches that were submitted with the same grader.
    """
    settings = grader.settings()
    names = [member.name for member in grader.panel]
    return json.dumps(
        [grader.fingerprints(), names, settings.get("options"), settings.get("text_limits")], sort_keys=True
    )


class Replay:
    """A grader whose judges make no calls. It finds questions without an answer, or reads the replies of a batch.

    Args:
        grader: The user's grader.
        store: The ledger of the judgments.
        replies: A mapping whose keys are the keys of the judgments with a reply in the batch. Its values are not used.
            To find the questions without an answer, pass None or an empty mapping.
        read: A function that returns the reply for a key in `replies`.
    """

    def __init__(
        self,
        grader: Grader,
        store: BatchLedger,
        replies: Mapping[str, object] | None = None,
        read: Callable[[str], LineReply] | None = None,
    ):
        self._open: list[OpenQuestion] = []
        self.spend: list[Spend] = []
        self.failures: list[JudgeFailure] = []
        stored = grader.with_store(_KeyedStore(store, replies)).panel
        self._grader = grader.with_panel(
            member._replace(judge=_around(member.judge, _ReplayJudge(judge, position, self, replies, read)))
            for position, (member, judge) in enumerate(zip(stored, judges_of(grader), strict=True))
        )
        # A question without an answer must not cancel the other questions.
        self._grader.policies = grader.policies._replace(on_failure="abstain")

    async def open_questions(self, rubric: Rubric, submission: Submission) -> list[OpenQuestion]:
        """Return the questions about a submission that have no answer, and store the judgments that `replies` contain.

        While the question about a condition in words (`applies_when`) has no answer, this question is returned, and
        criteria with such a condition are left out.
        """
        self._open = []
        await self._grader.judge(rubric, submission)
        if any(line.question.criterion.is_condition for line in self._open):
            return [line for line in self._open if line.question.criterion.applies_when is None]
        return self._open

    def note(self, judge: int, question: Question) -> None:
        """Record a question that has no answer, with the position of its judge on the panel."""
        self._open.append(OpenQuestion(judge, _key.get(), question))


class _ReplayJudge(RequestWrapper):
    """A judge that reads its answers from the replies of a batch, at the price of a batch."""

    def __init__(
        self,
        judge: LMJudge,
        position: int,
        replay: Replay,
        replies: Mapping[str, object] | None,
        read: Callable[[str], LineReply] | None,
    ):
        super().__init__(judge)
        self._position, self._replay = position, replay
        self._replies, self._read_line, self._redactor = replies or {}, read, Redactor(judge)

    async def answer(self, request: Request) -> Judgment:
        """Return the judgment in the reply to a question.

        Raises:
            JudgeFailure: There is no judgment in a reply. It is never retried, because the reply would be the same. Or
                the request is not about one criterion, for which the wrapped judge would call its model.
        """
        question = request.question
        if question is None:
            raise JudgeFailure("config", "a batch has one request for each criterion")
        key = _key.get()
        if key not in self._replies or self._read_line is None:
            self._replay.note(self._position, question)
            raise JudgeFailure("cancelled", "the question is for a batch")
        try:
            judgment = await self._read(question, self._read_line(key))
        except JudgeFailure as failure:
            failure.retryable = False
            redacted = self._redactor.failure(failure)
            self._replay.failures.append(redacted)
            raise redacted from None
        self._replay.spend.append(judgment.spend)
        return self._redactor.result(judgment)

    async def _read(self, question: Question, reply: LineReply) -> Judgment:
        if reply.problem:
            raise JudgeFailure("transport", reply.problem)
        judgment = await self.inner.read_reply(question, reply.body, status=reply.status)
        valid = validate_judgment(question.criterion, judgment, question.may_abstain, question.submission)
        cost = valid.spend.cost
        spend = valid.spend.model_copy(update={"cost": None if cost is None else cost * PRICE})
        return valid.model_copy(update={"spend": spend})


class _KeyedStore:
    """The judgments of a ledger. Keys with a reply are leased and stored. All other keys are only looked up."""

    def __init__(self, store: BatchLedger, replies: Mapping[str, object] | None):
        self._store, self._replies = store, replies or {}

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        (key,) = keys
        token = _key.set(key)
        try:
            if key in self._replies:
                async with self._store.lease(keys) as lease:
                    yield lease
            else:
                yield _NoLease(self._store.lookup(keys))
        finally:
            _key.reset(token)


class _NoLease(NamedTuple):
    stored: Mapping[str, Judgment]

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        """Store nothing, because nothing is requested."""
        return judgments

    def is_held(self) -> bool:
        """Return True, because nothing is requested."""
        return True

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """Do nothing, because an open question is not a failure."""


def _around(stored: Judge, judge: Judge) -> Judge:
    """Return the wrapper that `Grader.with_store` made, around another judge."""
    return stored.wrapping(judge) if isinstance(stored, JudgeWrapper) else judge


# Seconds after which a provider is expected to list a batch that was submitted.
SETTLE_SECONDS = 10.0

PROVIDERS: dict[RequestProtocol, tuple[str, Callable[[BatchServer], Provider]]] = {
    "openai": ("/chat/completions", OpenAIBatches),
    "anthropic": ("/messages", AnthropicBatches),
}
"""For each protocol, the suffix that requests add to the base URL of the API, and the class of its batch API."""


class Access(NamedTuple):
    """A judge, and the batch API of the provider that serves it."""

    judge: LMJudge
    protocol: RequestProtocol
    base_url: str
    provider: Provider


@asynccontextmanager
async def open_session(grader: Grader, ledger: BatchLedger) -> AsyncGenerator[tuple[list[Access], Callable[[], None]]]:
    """Open the batch API of each judge. During the block, no other process submits or collects batches.

    Yields:
        The batch APIs in the order of the panel, and a check. The check is a function that raises a `BatchError` if
        this process was suspended for so long that another process may have begun to submit or collect batches.
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
        BatchError: The judge now uses another server than the server that has the batch.
    """
    access = accesses[batch.judge]
    if access.base_url != batch.base_url:
        raise BatchError(
            f"a batch was submitted to {batch.base_url!r}, and its judge is now at {access.base_url!r}: use the same "
            "`api_base`; without this error, its requests would be paid for twice"
        )
    return access


@contextmanager
def use_batch_ledger(ledger: LedgerLike) -> Generator[BatchLedger]:
    """Yield the ledger for the block. A ledger that is already open is yielded unchanged.

    An address is opened as a ledger, which is closed at the end of the block.

    Raises:
        TypeError: The ledger stores no batches.
        LedgerError: The ledger cannot be used.
    """
    with use_ledger(ledger) as store:
        if not isinstance(store, BatchLedger):
            raise TypeError(
                "`ledger` must be a path, a URL or a ledger that stores batches, "
                f"got {type(store).__name__}: without their tickets, the replies could not be found"
            )
        yield store


async def find_ticket(provider: Provider, batch: Batch, others: Collection[str]) -> str | None:
    """Return the ticket of a batch, or None if the batch was never submitted.

    Call this function for a batch whose ticket is not in the ledger, because a crash or an outage interrupted the
    submission.

    Raises:
        Unclear: It is not known yet whether the batch was submitted.
        BatchError: The provider cannot list its batches.
    """
    ticket = await provider.find(batch, others)
    if ticket is None:
        await asyncio.sleep(SETTLE_SECONDS)
        ticket = await provider.find(batch, others)
    return ticket
