"""`StoredJudge` requests each judgment once and then reads it from a store. Also defines the protocol of a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from functools import partial
from hashlib import sha256
from os import PathLike
from typing import Any, Protocol, cast

from rubric_integrations._util.event_loop import run_in_thread
from rubric_integrations._util.text import cache_by_text
from rubric_integrations.judges.exploration import ExplorationRequest, ExplorerReply
from rubric_integrations.judges.prompts.render import criterion_inputs, rubric_inputs
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    OverallResult,
    Question,
    Request,
    RequestWrapper,
    answer,
    criteria_of_request,
    fingerprint_of,
    innermost,
    without_cache,
)
from rubric_integrations.judges.spend import spend_of_grade
from rubric_integrations.judges.validation import revalidate_stored, validate_overall
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, Spend, total_spend
from rubric_integrations.submission.submission import Submission, has_numbered_steps, shown_trajectory

# Part of every key. Raise it when prompts change in a way that no signature shows.
PROMPT_VERSION = 1

# Made once, because `json.dumps` with sorted keys would make a new encoder for each call.
_encode = json.JSONEncoder(sort_keys=True).encode


class StoreError(Exception):
    """A store cannot be read or written. The run must end, because further judgments would be lost."""


class LeaseExpired(JudgeFailure):
    """A call was not sent, because its lease expired while the call waited. The judge has not failed."""


class Lease(Protocol):
    """The exclusive right to request the judgments of some keys. The store releases it at the end of its context."""

    @property
    def stored(self) -> Mapping[str, Judgment]:
        """The judgments that the store already has, by key."""
        ...

    def is_held(self) -> bool:
        """Whether the lease is still valid. It expires if this process is suspended for too long.

        Other processes may then request the judgments.
        """
        ...

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        """Store judgments by key, and return the judgments that the store now has for these keys.

        When this method returns, the judgments are stored, even if the caller was cancelled in the meantime. If the
        lease has expired, another process may already have stored a judgment for a key. The store then keeps and
        returns the earlier judgment.
        """
        ...

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """Record why there is no judgment for a key. The next run requests the key again."""
        ...


_lease_of_call: ContextVar[Lease | None] = ContextVar("_lease_of_call", default=None)


def _reset_lease(token: Token[Lease | None]) -> None:
    try:
        _lease_of_call.reset(token)
    except ValueError:
        return  # the garbage collector ends an abandoned call in another context


def check_lease() -> None:
    """Check, right before a request is sent, that the lease of its judgment is still valid.

    Raises:
        LeaseExpired: The lease expired while the call waited. The next attempt first looks for a judgment that
            another process may have stored.
    """
    lease = _lease_of_call.get()
    if lease is not None and not lease.is_held():
        message = "the process was suspended before the request was sent, and others may have the answer meanwhile"
        raise LeaseExpired("transport", message, retryable=True)


_fingerprints: dict[tuple[asyncio.AbstractEventLoop, StoredJudge], str | None] = {}


def _fingerprint_of_tick(judge: StoredJudge) -> str | None:
    """Return the fingerprint of a judge, computed once for all questions of one event-loop tick.

    The computation compares the complete state of the judge with its last state. All questions about a submission
    start in the same tick. A judge may be changed between two grades, but a grade takes more than one tick, because it
    waits for its tasks.
    """
    key = asyncio.get_running_loop(), judge
    if key not in _fingerprints:
        _fingerprints[key] = judge.fingerprint()
        key[0].call_soon(_fingerprints.pop, key)
    return _fingerprints[key]


class JudgmentStore(Protocol):
    """The protocol of a store of judgments that tasks, threads and processes can share, such as a `Ledger`."""

    def lease(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Lease]:
        """Lease the keys that are not stored yet. Waits until no other lease on any of these keys is active.

        Args:
            keys: The keys of the judgments.

        Returns:
            An async context manager. Its lease has the judgments that are already stored.
        """
        ...


LedgerLike = JudgmentStore | str | PathLike[str]
"""A ledger or another store of judgments, the path of a ledger's file, or the URL of a database."""


def require_fingerprint(judge: Judge) -> None:
    """Check that a judge or an explorer can be identified.

    Raises:
        TypeError: It has no method `fingerprint`, or the method returns None.
    """
    if fingerprint_of(judge) is None:
        raise TypeError(
            f"{type(innermost(judge)).__name__} cannot be identified, so that a ledger or another store would take "
            "the answers of another judge for its own: give it a `fingerprint`, naming what its answers depend "
            "on (model, settings, prompts). A judge has a method `fingerprint() -> str`; a lambda, a partial or an "
            "object that is called gets one by `lm_from_fn(function, fingerprint=...)`"
        )


class StoredJudge(RequestWrapper):
    """A judge that looks up every judgment in a store, and requests and stores missing judgments.

    A key is a digest of everything that can change the answer: the judge's fingerprint, the parts of the submission and
    the criterion that the judge sees, `sample` and `duplicate`. Weights, names and policies are not included. A
    stored verdict gets its value from the current criterion.

    Args:
        judge: The judge that answers missing questions.
        store: The store.
        sample: The number of the sample to which the judgments belong. Judgments of different samples are independent
            and are stored separately.
        duplicate: The number of this judge among the equal judges of a panel. The votes of equal judges are independent
            and are stored separately.

    Raises:
        TypeError: The judge has no method `fingerprint`, or the method returns None.
    """

    def __init__(self, judge: Judge, store: JudgmentStore, sample: int = 0, duplicate: int = 0):
        super().__init__(judge)
        require_fingerprint(judge)
        self._store, self._number = store, (sample, duplicate)

    def without_cache(self) -> Judge:
        """Return the wrapped judge, which does not use the store."""
        return without_cache(self.inner)

    async def answer(self, request: Request) -> Any:
        """Answer a request from the store. Missing judgments are requested and stored.

        Raises:
            JudgeFailure: The judge has no answer.
        """
        if request.questions is not None:
            return await self._answer_batch(request, request.questions)
        question = request.question
        if question is not None:
            key = self._key("criterion", question, [])
        else:
            rubric = cast("Rubric", request.rubric)
            key = self._digest("whole", request.submission, rubric.instructions, _rubric_part(rubric), rubric.criteria)
        async with self._store.lease([key]) as lease:
            if key in lease.stored:
                stored = lease.stored[key]
                _count_stored(stored.spend)
                return _stored_score(stored) if question is None else revalidate_stored(question, stored)
            token = _lease_of_call.set(lease)
            try:
                result = await answer(self.inner, request)
            except JudgeFailure as failure:
                lease.record_failure(key, failure)
                raise
            finally:
                _reset_lease(token)
            judgment = _score_as_judgment(result) if question is None else result
            kept = (await lease.store({key: judgment}))[key]
            if question is None:
                return _stored_score(kept)
            # The new judgment is already validated. In most cases, the store keeps it.
            return judgment if kept is judgment else revalidate_stored(question, kept)

    async def _answer_batch(self, request: Request, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several questions: from the store, and the missing ones by one request to the judge."""
        keys = {number: self._batch_key(question) for number, question in questions.items()}
        async with self._store.lease(list(keys.values())) as lease:
            stored = {number: lease.stored[key] for number, key in keys.items() if key in lease.stored}
            from_store = _stored_batch(questions, stored)
            _count_stored(from_store.spend)
            missing = {number: question for number, question in questions.items() if number not in stored}
            if not missing:
                return from_store
            token = _lease_of_call.set(lease)
            try:
                batch: BatchResult = await answer(self.inner, request.about(missing))
            except JudgeFailure as failure:
                for number in missing:
                    lease.record_failure(keys[number], failure)
                raise
            finally:
                _reset_lease(token)
            kept = await lease.store(
                _with_shared_spend({keys[number]: answer for number, answer in batch.answers.items()}, batch.spend)
            )
            for number in batch.faults:
                lease.record_failure(keys[number], batch.failure(number))
        requested = _stored_batch(questions, {number: kept[keys[number]] for number in batch.answers})
        return BatchResult(
            {**from_store.answers, **requested.answers},
            {**from_store.faults, **batch.faults, **requested.faults},
            # A request without any answer is not stored, but it had a cost.
            from_store.spend + (requested.spend if batch.answers else batch.spend),
        )

    def _batch_key(self, question: Question) -> str:
        if not question.batch_criteria:  # the answer does not depend on the other questions of the request
            return self._key("criterion", question, [])
        return self._key("batch", question, [_shown_inputs(criterion) for criterion in question.batch_criteria])

    def _key(self, form: str, question: Question, batch_criteria: Sequence[object]) -> str:
        examples = [example.model_dump(mode="json") for example in question.criterion.examples]
        own_part = [criterion_inputs(question), examples, question.may_abstain, batch_criteria]
        criteria = criteria_of_request({0: question})
        return self._digest(form, question.submission, question.guidelines, own_part, criteria)

    def _digest(
        self, form: str, submission: Submission, guidelines: str, own_part: object, criteria: Sequence[Criterion]
    ) -> str:
        """Return the key of a judgment: a digest of everything that can change it."""
        # An empty text is not shown, as if it were absent.
        texts = (
            submission.query or None,
            submission.reference or None,
            submission.response,
            submission.shown_thinking or None,
        )
        trajectory = shown_trajectory(submission, criteria)
        # If the response itself is the trajectory, the judge is also requested to cite steps.
        steps = trajectory.text() if trajectory else "response" if has_numbered_steps(submission, criteria) else None
        judge = (PROMPT_VERSION, _fingerprint_of_tick(self), self._number, form)
        digest = _shared_digest(judge, *texts, guidelines, steps, *submission.context).copy()
        if submission.attachments:
            # The bytes at a URL are not known. If they change, the stored judgment is about the earlier bytes.
            files = json.dumps([file.identity() for file in submission.attachments], sort_keys=True)
            digest.update(f"{files}, ".encode())
        digest.update(f"{_encode(own_part)}]".encode())
        return digest.hexdigest()


class StoredExplorer(RequestWrapper):
    """An explorer that looks up every reply in a store, and requests and stores missing replies.

    A reply is stored as a `Judgment`, because a store contains nothing else. Its key begins with `KEY_PREFIX`. The key
    does not depend on the judges. Therefore, runs with other judges explore nothing again.

    Args:
        explorer: The explorer that replies to missing requests.
        store: The store.

    Raises:
        TypeError: The explorer's `fingerprint` is None.
    """

    def __init__(self, explorer: Judge, store: JudgmentStore):
        super().__init__(explorer)
        require_fingerprint(explorer)
        self._store = store

    def without_cache(self) -> Judge:
        """Return the wrapped explorer, which does not use the store."""
        return self.inner

    async def answer(self, request: Request) -> Any:
        """Reply to a request from the store. A missing reply is requested and stored.

        Raises:
            JudgeFailure: There is no reply.
        """
        key = await run_in_thread(partial(cast("ExplorationRequest", request).key, self.fingerprint() or ""))
        async with self._store.lease([key]) as lease:
            if key in lease.stored:
                _count_stored(lease.stored[key].spend)
                return _stored_reply(lease.stored[key])
            token = _lease_of_call.set(lease)
            try:
                reply: ExplorerReply = await answer(self.inner, request)
            except JudgeFailure as failure:
                lease.record_failure(key, failure)
                raise
            finally:
                _reset_lease(token)
            return _stored_reply((await lease.store({key: _reply_as_judgment(reply)}))[key])


def _reply_as_judgment(reply: ExplorerReply) -> Judgment:
    verdict = "UNREADABLE" if reply.problem else "REPLY"
    return Judgment(
        verdict=verdict, value=None, reason=reply.problem or reply.text, spend=reply.spend, model=reply.model
    )


def _stored_reply(stored: Judgment) -> ExplorerReply:
    is_text = stored.verdict == "REPLY"
    problem = "" if is_text else stored.reason
    return ExplorerReply(stored.reason if is_text else "", stored.spend, problem, stored.model)


@cache_by_text
def _shared_digest(
    judge: tuple[int, str | None, tuple[int, int], str],
    query: str | None,
    reference: str | None,
    response: str,
    thinking: str | None,
    guidelines: str,
    steps: str | None,
    *context: str,
) -> Any:
    """Hash the texts that all questions about one submission share, as the beginning of a JSON array."""
    texts: dict[str, Any] = {"query": query, "reference": reference, "response": response, "thinking": thinking}
    if context:
        texts["context"] = context
    if steps:
        texts["trajectory"] = steps
    return sha256(f"{json.dumps(judge)[:-1]}, {json.dumps(texts)}, {json.dumps(guidelines)}, ".encode())


def _rubric_part(rubric: Rubric) -> object:
    """Return the inputs of a holistic judge from a rubric: only the text if no criterion has a context."""
    own = rubric_inputs(rubric)
    return own["criteria"] if len(own) == 1 else own


def _shown_inputs(criterion: Criterion) -> dict[str, str]:
    return criterion_inputs(Question(Submission(response="-"), criterion))


def _stored_batch(questions: Mapping[int, Question], stored: Mapping[int, Judgment]) -> BatchResult:
    """Make a batch result from stored judgments. A judgment that is no longer valid becomes a fault of its question."""
    answers: dict[int, Judgment] = {}
    faults: dict[int, str | JudgeFailure] = {}
    for number, judgment in stored.items():
        question = questions[number]
        try:
            valid = revalidate_stored(question, judgment)
        except JudgeFailure as failure:
            faults[number] = str(failure).removeprefix(f"{failure.kind}: ")
        else:
            answers[number] = valid.model_copy(update={"spend": NO_SPEND})
    return BatchResult(answers, faults, total_spend(judgment.spend for judgment in stored.values()))


def _count_stored(spend: Spend) -> None:
    """Count the cost of a stored judgment, at the time of its request, as a part of the grade that uses it."""
    if (total := spend_of_grade.get()) is not None:
        total.add(spend)


def _score_as_judgment(overall: OverallResult) -> Judgment:
    # A store contains only judgments. Therefore the score is stored as the verdict.
    percent, reason, spend, neutralized, model = overall
    return Judgment(
        verdict=repr(float(percent)), value=None, reason=reason, spend=spend, neutralized=neutralized, model=model
    )


def _stored_score(stored: Judgment) -> OverallResult:
    return validate_overall(
        OverallResult(float(stored.verdict), stored.reason, stored.spend, stored.neutralized, stored.model)
    )


def _with_shared_spend(judgments: Mapping[str, Judgment], spend: Spend) -> dict[str, Judgment]:
    """Add the spend of one request to the first of its judgments. A sum over all judgments then counts it once."""
    charged: dict[str, Judgment] = {}
    for key, judgment in judgments.items():
        charged[key] = judgment.model_copy(update={"spend": judgment.spend + spend})
        spend = NO_SPEND
    return charged
