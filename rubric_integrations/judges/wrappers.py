"""The base class of judges that add something to another judge: validation, a store, a spend limit, tracing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    OverallResult,
    Question,
    fingerprint_of,
    without_cache,
)
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


class JudgeWrapper:
    """A judge that passes every question on to another judge. A subclass overrides what it adds to.

    Args:
        judge: The judge to wrap.

    Attributes:
        inner: The wrapped judge, which may be a wrapper itself. A wrapper has all methods of the protocols; whether
            the judge inside has them is checked when a grader is made.

    Example:
        >>> class Loud(JudgeWrapper):
        ...     async def judge(self, question: Question) -> Judgment:
        ...         print("judging", question.criterion.requirement)
        ...         return await super().judge(question)
    """

    def __init__(self, judge: Judge):
        self.inner: Any = judge

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion."""
        return await self.inner.judge(question)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request."""
        return await self.inner.judge_batch(questions)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission."""
        return await self.inner.judge_overall(submission, rubric)

    def fingerprint(self) -> str | None:
        """Return the wrapped judge's fingerprint; None if it has none."""
        return fingerprint_of(self.inner)

    def without_cache(self) -> Judge:
        """Wrap the judge without its cache of responses."""
        return self.wrapping(without_cache(self.inner))

    def wrapping(self, judge: Judge) -> Self:
        """Copy this wrapper around another judge."""
        wrapper = copy.copy(self)
        wrapper.inner = judge
        return wrapper


def innermost(judge: Judge) -> Judge:
    """Return the judge inside all wrappers."""
    while isinstance(judge, JudgeWrapper):
        judge = judge.inner
    return judge
