"""Judgments that are bought once: what a store of them must do, and a judge that asks it before the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol, cast

from rubric_integrations.judges.prompts.render import criterion_inputs, describe_rubric
from rubric_integrations.judges.prompts.sanitize import MAX_CACHED_CHARS
from rubric_integrations.judges.protocol import BatchResult, Judge, OverallResult, Question, validate_judgment
from rubric_integrations.results.interpret import interpret_answer
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, total_spend
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

# WeightedValue of every key. To be raised when prompts change in a way that no signature shows.
PROMPT_VERSION = 1


class StoreError(Exception):
    """A store cannot be read or written. The run must end: what it bought from now on would be lost."""


class Lease(Protocol):
    """Some keys that nobody else asks about meanwhile."""

    @property
    def stored(self) -> Mapping[str, Judgment]:
        """What the store has already, by key."""
        ...

    async def store(self, judgments: Mapping[str, Judgment]) -> None:
        """Take what was bought, by key; it is safe when this returns, and taken although the caller is cancelled."""
        ...

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """Note that there is none, and why; the key is asked again next time."""
        ...


class JudgmentStore(Protocol):
    """Where judgments are kept by key, for all tasks, threads and processes that share it."""

    def lease(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Lease]:
        """Wait until nobody else asks about any of these keys, and hold those that the store has not."""
        ...


class StoredJudge:
    """A judge that asks a store first, and another judge for what the store has not.

    A key is made of everything that could change the answer: the judge's fingerprint, what it is shown of the
    submission and the criterion, and the sample's number. Weights, names and policies are not in it; a kept verdict
    gets its value from the criterion as it is now.
    """

    def __init__(self, judge: Judge, store: JudgmentStore, sample: int = 0, twin: int = 0):
        """Wrap a judge.

        Args:
            judge: Who is asked; its `fingerprint()` tells what its answers depend on.
            store: Where its judgments are kept.
            sample: Which of several independent answers to the same question this is.
            twin: Which of several judges on one panel that are the same.

        Raises:
            TypeError: The judge has no `fingerprint`.
        """
        if not hasattr(judge, "fingerprint"):
            asked = type(getattr(judge, "counted", judge)).__name__
            raise TypeError(
                f"{asked} has no method `fingerprint() -> str` that says what its answers depend on "
                "(model, settings, prompts): without it, another judge's answers would be taken for its own"
            )
        self._judge: Any = judge
        self._store, self._number = store, (sample, twin)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # what copies and pickles look for is this object's own, or nobody's
        return getattr(self._judge, name)

    def without_cache(self) -> Judge:
        """The judge itself, past the store."""
        return getattr(self._judge, "without_cache", lambda: self._judge)()

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion, from the store if it has the answer.

        Raises:
            JudgeFailure: The judge has none.
        """
        key = self._key("criterion", question, [])
        async with self._store.lease([key]) as lease:
            if key in lease.stored:
                return _valued(question, lease.stored[key])
            try:
                judgment = validate_judgment(question.criterion, await self._judge.judge(question))
            except JudgeFailure as failure:
                lease.record_failure(key, failure)
                raise
            await lease.store({key: judgment})
            return judgment

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria; the judge gets those in one call that the store has not.

        Raises:
            JudgeFailure: The judge has no answer to any.
        """
        keys = {
            number: self._key("batch", question, [_shown(criterion) for criterion in question.batch_criteria])
            for number, question in questions.items()
        }
        async with self._store.lease(list(keys.values())) as lease:
            kept = {n: _valued(questions[n], lease.stored[key]) for n, key in keys.items() if key in lease.stored}
            spend = total_spend(judgment.spend for judgment in kept.values())
            answers = {number: judgment.model_copy(update={"spend": Spend()}) for number, judgment in kept.items()}
            left = {number: question for number, question in questions.items() if number not in kept}
            if not left:
                return BatchResult(answers, {}, spend)
            try:
                batch = cast("BatchResult", await self._judge.judge_batch(left))
            except JudgeFailure as failure:
                for number in left:
                    lease.record_failure(keys[number], failure)
                raise
            cost, bought = batch.spend, dict[str, Judgment]()
            for number, judgment in batch.answers.items():
                # What the call cost is kept once, with its first answer.
                bought[keys[number]] = judgment.model_copy(update={"spend": judgment.spend + cost})
                cost = Spend()
            await lease.store(bought)
            for number, fault in batch.faults.items():
                lease.record_failure(keys[number], JudgeFailure("parse", fault, retryable=True))
        return BatchResult({**answers, **batch.answers}, batch.faults, spend + batch.spend)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission, from the store if it has the score.

        Raises:
            JudgeFailure: The judge has none.
        """
        key = self._digest("whole", submission, rubric.instructions, describe_rubric(rubric))
        async with self._store.lease([key]) as lease:
            if key in lease.stored:
                kept = lease.stored[key]
                return OverallResult(float(kept.verdict), kept.reason, kept.spend, kept.neutralized)
            try:
                overall = cast("OverallResult", await self._judge.judge_overall(submission, rubric))
            except JudgeFailure as failure:
                lease.record_failure(key, failure)
                raise
            percent, reason, spend, neutralized = overall
            verdict = repr(float(percent))
            found = Judgment(verdict=verdict, value=None, reason=reason, spend=spend, neutralized=neutralized)
            await lease.store({key: found})
            return overall

    def _key(self, how: str, question: Question, batch_criteria: Sequence[object]) -> str:
        examples = [example.model_dump(mode="json") for example in question.criterion.examples]
        shown = [criterion_inputs(question), examples, question.may_abstain, batch_criteria]
        return self._digest(how, question.submission, question.guidelines, shown)

    def _digest(self, how: str, submission: Submission, guidelines: str, shown: object) -> str:
        asked = json.dumps([PROMPT_VERSION, self._judge.fingerprint(), self._number, how])
        told = (submission.query, submission.reference, submission.response, submission.thinking)
        short = sum(len(text) for text in told if text) <= MAX_CACHED_CHARS
        digest = (_begun if short else _begun.__wrapped__)(asked, *told, guidelines).copy()
        digest.update(f"{json.dumps(shown, sort_keys=True)}]".encode())
        return digest.hexdigest()


@lru_cache(maxsize=512)
def _begun(
    asked: str, query: str | None, reference: str | None, response: str, thinking: str | None, guidelines: str
) -> Any:
    """A `hashlib` object that has seen what a question shares with the others about its submission."""
    told = {"query": query, "reference": reference, "response": response, "thinking": thinking}
    # One JSON array with what is to follow.
    return sha256(f"{asked[:-1]}, {json.dumps(told)}, {json.dumps(guidelines)}, ".encode())


def _shown(criterion: Criterion) -> dict[str, str]:
    return criterion_inputs(Question(Submission(response="-"), criterion))


def _valued(question: Question, kept: Judgment) -> Judgment:
    value = interpret_answer(question.criterion, kept.verdict, question.may_abstain).value
    return kept.model_copy(update={"value": value})
