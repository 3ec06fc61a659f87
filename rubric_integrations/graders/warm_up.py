"""Lets one call about each submission warm the provider's prompt cache, wherever that takes no time."""

from __future__ import annotations

import asyncio
from typing import Any

from rubric_integrations.graders.concurrency import AdaptiveConcurrency


class WarmUp:
    """Holds the other calls about a submission until the first one is answered, in one run.

    A provider shares the beginning of a prompt only once it has answered it. While a run has more calls to make than
    may be under way, those about other submissions use the time. Once the run has read its last submission, and the
    calls that are held fit into the slots that are free, to hold them would only take time: all are released. A
    training step of 8 completions with 2 criteria makes its 16 calls at once, under a limit of 64.

    One from a pickle holds nothing.
    """

    def __init__(self) -> None:
        # How many calls each submission holds, by what they wait for beside the first call.
        self._held: dict[asyncio.Future[None], int] = {}
        self._reads_rows = True

    def __reduce__(self) -> Any:
        return WarmUp, ()

    def begin_rows(self) -> None:
        """Note that the run is going to read submissions."""
        self._reads_rows = True

    def end_rows(self, concurrency: AdaptiveConcurrency) -> None:
        """Note that the run reads no further submission."""
        self._reads_rows = False
        self._release(concurrency)

    async def hold(self, first: asyncio.Task[Any], count: int, concurrency: AdaptiveConcurrency) -> bool:
        """Wait until the other calls about a submission may be sent.

        Args:
            first: The first call.
            count: The number of the others.
            concurrency: The limit on the calls of the run.

        Returns:
            Whether the first call is answered, so that the provider has the beginning of the prompt.
        """
        released = asyncio.get_running_loop().create_future()
        self._held[released] = count
        try:
            self._release(concurrency)
            await asyncio.wait([first, released], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held.pop(released, None)
            released.cancel()
        return first.done()

    def _release(self, concurrency: AdaptiveConcurrency) -> None:
        # The first calls may not have taken their slots yet.
        if self._reads_rows or sum(self._held.values()) + len(self._held) > concurrency.free:
            return
        for released in self._held:
            if not released.done():
                released.set_result(None)
