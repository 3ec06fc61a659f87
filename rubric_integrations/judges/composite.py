"""`CompositeJudge`, the base class of judges that consist of other judges, such as `Cascade` and `Explained`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from rubric_integrations.judges.protocol import Judge, Request, RequestJudge, Retries, answer, innermost, without_cache
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Spend

T = TypeVar("T")


class Retrier(Protocol):
    """Makes the calls of each judge of a composite judge, and repeats failed calls."""

    async def outcome(
        self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None
    ) -> tuple[T | JudgeFailure, Spend]:
        """Attempt a call. Return its result or its last failure, and the spend of the other failed attempts."""
        ...


class _NoRetries:
    async def outcome(
        self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None
    ) -> tuple[T | JudgeFailure, Spend]:
        try:
            return await attempt(), NO_SPEND
        except JudgeFailure as failure:
            return failure, NO_SPEND


class CompositeJudge(RequestJudge):
    """A judge that consists of other judges, its members.

    Each member has its own retries, timeout and limits, and its own judgments in a ledger. The composite judge itself
    has none of them.
    """

    _retries: Retrier = _NoRetries()

    @property
    @abstractmethod
    def members(self) -> tuple[Judge, ...]:
        """All judges that may be called."""

    @property
    def answering_members(self) -> tuple[Judge, ...]:
        """The judges that answer questions. Their names are the name of the composite judge."""
        return self.members

    @abstractmethod
    def with_members(self, change: Callable[[Judge], Judge], retries: Retrier | None = None) -> Self:
        """Copy this judge, and replace each of its members in the copy.

        Args:
            change: A function that takes a member and returns its replacement.
            retries: An object that makes the calls of each member in the copy and repeats failed calls. None for the
                object that this judge uses.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any] | None:
        """Return the fingerprints of the members and the settings, as JSON. None if a member cannot be identified."""

    def _ask(self, judge: Judge, request: Request) -> Coroutine[Any, Any, tuple[Any, Spend]]:
        """Ask one of the members, with its own retries. The result may be a failure."""
        return self._retries.outcome(partial(answer, judge, request), request.retries)

    @property
    def _may_retry(self) -> bool:
        """Whether a failure of a member may be retried by the caller. False if each member has its own retries."""
        return isinstance(self._retries, _NoRetries)

    def fingerprint(self) -> str | None:
        """Return a text that identifies the members and the settings. None if a member cannot be identified."""
        description = self.describe()
        return None if description is None else f"{type(self).__name__.lower()} {json.dumps(description)}"

    @property
    def gives_reasons(self) -> bool:
        """Whether the answers may have reasons."""
        return all(gives_reasons(member) for member in self.members)

    def without_cache(self) -> Self:
        """Copy this judge with members that use neither a cache of responses nor a store."""
        return self.with_members(without_cache)


def gives_reasons(judge: object) -> bool:
    """Whether a judge may give reasons. True for a judge that does not say it, and for a name."""
    return bool(getattr(innermost(judge), "gives_reasons", True))  # type: ignore[arg-type]


def require_reasons(user: str, judges: Iterable[object]) -> None:
    """Check that judges give the reasons that something needs.

    Args:
        user: The public name of the thing that needs the reasons, for the error message.
        judges: The judges.

    Raises:
        ValueError: A judge never gives a reason.
    """
    if not all(map(gives_reasons, judges)):
        raise ValueError(
            f"`{user}` needs the judge's reasons, and the judge has `reason='never'`: use `reason='if_lost'`, or "
            "`Explained(judge, by=...)`"
        )
