"""A judge whose every call waits for a free slot and for its endpoint, has a timeout, and is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from rubric_integrations.graders.endpoint import LONGEST_WAIT
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    OverallResult,
    Question,
    RunStopped,
    criteria_of_request,
)
from rubric_integrations.judges.redaction import Redactor
from rubric_integrations.judges.spend_limit import PRICE_UNKNOWN, SpendLimitReached
from rubric_integrations.judges.stored import StoreError, check_lease
from rubric_integrations.judges.validation import ValidatedJudge
from rubric_integrations.judges.wrappers import JudgeWrapper, innermost
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import UNKNOWN_CALL
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.attachments import MAX_BYTES, Attachment
from rubric_integrations.submission.evidence import shown_trajectory
from rubric_integrations.submission.submission import Submission

Result = TypeVar("Result", Judgment, BatchResult, OverallResult)

# The most tokens of an image that we know of are 48,169 (gpt-4o-mini, high detail), and each is counted as a byte.
_IMAGE_BYTES = 50_000

# Seconds that the provider recommends for calls of the tier `flex`.
_FLEX_TIMEOUT = 900

# The parts of a submission whose size in a prompt is not that of their JSON.
_COUNTED_APART: Any = {"trajectory": True, "attachments": {"__all__": {"data"}}}


class LimitedJudge(JudgeWrapper):
    """A judge whose calls are limited. It is inside of every store: a stored answer is no call.

    Any exception of the judge becomes a failure of the one question.

    Args:
        judge: The judge.
        limiter: The limits, shared by the judges of a grader.
        earlier: The same judge under the limits that these replace; None if there is none.
    """

    def __init__(self, judge: Judge, limiter: CallLimiter, earlier: LimitedJudge | None = None):
        super().__init__(judge)
        self._limiter, self._endpoint = limiter, limiter.new_endpoint(earlier._endpoint if earlier else None)
        # Made before the first call, so that it has the secrets that are set then.
        self._redactor: Redactor | None = None

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion.

        Raises:
            JudgeFailure: The judge has no answer.
            RunStopped: The run that this call is part of ends.
        """
        texts = (question.submission, question.guidelines, [question.criterion])
        return await self._call(partial(self.inner.judge, question), *texts)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request; raises as `judge` does."""
        first = next(iter(questions.values()))
        criteria = criteria_of_request(questions)
        return await self._call(
            partial(self.inner.judge_batch, questions), first.submission, first.guidelines, criteria
        )

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission; raises as `judge` does."""
        request = partial(self.inner.judge_overall, submission, rubric)
        return await self._call(request, submission, rubric.instructions, rubric.criteria)

    async def _call(
        self,
        request: Callable[[], Awaitable[Result]],
        submission: Submission,
        guidelines: str,
        criteria: Sequence[Criterion],
    ) -> Result:
        redactor = self._redactor or await self._prepare()
        limit, concurrency = self._limiter.spend_limit, self._limiter.concurrency
        send = partial(self._send, request, redactor)
        highest_cost = None
        if limit is not None and limit.max_cost is not None:
            highest_cost = self._highest_cost(submission, guidelines, criteria)

        async def call() -> Result:
            # After the endpoint, which may hold a call until another is refused; and before the spend limit, which
            # counts a call from here on as sent.
            await concurrency.wait_for_server()
            return await (limit.call(send, highest_cost) if limit else send())

        async with concurrency:
            return await self._endpoint.call(call)

    def _highest_cost(self, submission: Submission, guidelines: str, criteria: Sequence[Criterion]) -> float | None:
        """The most that a call can cost; None where the judge cannot say."""
        bound: Any = getattr(innermost(self), "highest_cost", None)
        if not callable(bound):
            return None
        texts = [submission.model_dump_json(exclude=_COUNTED_APART), guidelines]
        texts += [criterion.model_dump_json() for criterion in criteria]
        if trajectory := shown_trajectory(submission, criteria):
            texts.append(trajectory.text())
        # The fence around each document.
        texts += [" " * 64] * len(submission.context)
        text_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
        text_bytes += sum(_highest_bytes(file) for file in submission.attachments)
        cost = cast("float | None", bound(text_bytes))
        if cost is None:
            raise SpendLimitReached(PRICE_UNKNOWN)
        return cost

    async def _prepare(self) -> Redactor:
        prepare: Any = getattr(innermost(self), "prepare", None)
        if callable(prepare):
            await cast("Awaitable[None]", prepare())
        self._redactor = Redactor(innermost(self))
        return self._redactor

    async def _send(self, request: Callable[[], Awaitable[Result]], redactor: Redactor) -> Result:
        # Both at the last moment: the call may have waited for its share of `max_cost` meanwhile.
        await self._limiter.concurrency.wait_for_server()
        check_lease()
        concurrency, timeout, sent_at = self._limiter.concurrency, self._limiter.limits.timeout, time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                result = await request()
        except (RunStopped, StoreError):
            raise
        except JudgeFailure as failure:
            if failure.rate_limited:
                concurrency.on_rate_limit(sent_at, min(LONGEST_WAIT, failure.retry_after or 0.0))
            redacted = redactor.failure(failure)
            if redacted is failure:
                raise
            raise redacted from None
        except TimeoutError:
            message = f"no reply within {timeout:g} s{self._timeout_hint()}"
            raise JudgeFailure("transport", message, retryable=True, spend=UNKNOWN_CALL) from None
        except Exception as error:  # noqa: BLE001 -- whatever a user's own judge raises
            failure = JudgeFailure("config", f"{type(error).__name__}: {error}")
            redacted = redactor.failure(failure)
            raise redacted from error if redacted is failure else None
        concurrency.on_success()
        return redactor.result(result)

    def _timeout_hint(self) -> str:
        lm: Any = getattr(innermost(self), "lm", None)
        tier: object = getattr(lm, "kwargs", {}).get("service_tier")
        is_short = tier == "flex" and self._limiter.limits.timeout < _FLEX_TIMEOUT
        return f": the tier `flex` is slow, so set `timeout` to {_FLEX_TIMEOUT}" if is_short else ""


def _highest_bytes(file: Attachment) -> int:
    """Return as many bytes of text as a file costs at most.

    Providers count an image by its size in pixels, never by its bytes. Of other files, a byte is at most a token.
    """
    return _IMAGE_BYTES if file.mime_type.startswith("image/") else file.size or MAX_BYTES


def limit_judge(judge: Judge, limiter: CallLimiter) -> Judge:
    """Limit a judge by a limiter in place of any other, inside of wrappers such as a store.

    Of a cascade, each judge is limited, and gets the retries that a grader's judge has otherwise.
    """
    if isinstance(judge, Cascade):
        return judge.with_members(lambda member: limit_judge(member, limiter), limiter)
    if isinstance(judge, LimitedJudge):
        return LimitedJudge(judge.inner, limiter, judge)
    if isinstance(judge, JudgeWrapper) and is_limited(judge):
        return judge.wrapping(limit_judge(judge.inner, limiter))
    return LimitedJudge(ValidatedJudge(judge), limiter)


def is_limited(judge: Judge) -> bool:
    """Whether the calls of a judge are limited, at whatever depth of its wrappers."""
    if isinstance(judge, LimitedJudge):
        return True
    if isinstance(judge, Cascade):
        return all(map(is_limited, judge.members))
    return isinstance(judge, JudgeWrapper) and is_limited(judge.inner)
