"""A cache for functions of texts that does not hold long texts in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# A few hundred longer texts would fill the memory.
MAX_CACHED_CHARS = 50_000

_MAX_ENTRIES = 512


def cache_by_text(function: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function whose arguments are texts or None, unless the texts are long.

    All questions about one submission share its texts, so that each is rendered and searched once, not once for every
    criterion. Arguments of more than 50,000 characters in total are not cached. The cache holds 512 results; the
    attribute `cached_function` is the `functools.lru_cache` object.

    Example:
        >>> cache_by_text(str.upper)("a")
        'A'
    """
    cached = lru_cache(maxsize=_MAX_ENTRIES)(function)

    @wraps(function)
    def call(*texts: P.args, **no_keywords: P.kwargs) -> T:
        length = 0
        for text in texts:
            length += len(text) if isinstance(text, str) else 0
        return cached(*texts) if length <= MAX_CACHED_CHARS else function(*texts)  # pyright: ignore[reportCallIssue]

    call.__dict__["cached_function"] = cached
    return call
