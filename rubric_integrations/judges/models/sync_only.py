"""LMs of a user's own that have no asynchronous call, such as a `dspy.BaseLM` with `forward` alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import dspy

from rubric_integrations._util.threads import run_in_thread

_SYNCHRONOUS, _ASYNCHRONOUS = ("__call__", "forward"), ("acall", "aforward")


def is_sync_only(lm: dspy.BaseLM) -> bool:
    """Whether an LM's synchronous call was replaced and its asynchronous one was not.

    DSPy would raise NotImplementedError, or in a subclass of `dspy.LM` use the inherited call without a word.
    """
    layers: list[Mapping[str, Any]] = [vars(lm), *map(vars, type(lm).__mro__)]
    return _first(layers, _SYNCHRONOUS) < _first(layers, _ASYNCHRONOUS)


def with_async_call(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return an LM whose asynchronous call runs the synchronous one in a thread; any other LM as it is."""
    if not is_sync_only(lm):
        return lm
    threaded: Any = lm.copy()

    async def acall(*prompt: Any, **settings: Any) -> Any:
        return await run_in_thread(partial(threaded, *prompt, **settings))

    threaded.acall = acall
    return threaded


def _first(layers: list[Mapping[str, Any]], names: tuple[str, ...]) -> int:
    """Return the position of the first layer, from the most derived one on, that defines one of the names."""
    return next(index for index, layer in enumerate(layers) if any(name in layer for name in names))
