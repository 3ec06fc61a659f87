"""Adds Anthropic cache breakpoints after the part of the prompt that all criteria share.

Anthropic caches only up to a breakpoint. To write its cache costs a quarter more than not to cache, and to read it a
tenth: so a breakpoint is set only where the shared part is long enough to be cached, and where other requests that
share it follow once this one is answered.
"""

from __future__ import annotations

from typing import Any, cast

import dspy
from dspy.lm15 import CacheConfig
from dspy.utils.exceptions import LMUnsupportedFeatureError

from rubric_integrations.judges.prompts.adapter import JudgeAdapter

# The least that any Anthropic model caches, at four characters a token.
_MIN_CACHED_CHARS = 4 * 1024

_SHARED_FIELDS = ("guidelines", "query", "reference", "context", "submission", "attachments")


class CacheControlAdapter(JudgeAdapter):
    """A judge's adapter that splits the last message where the questions about a submission begin to differ."""

    _parts: list[dict[str, Any]] | None = None

    async def acall(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Send the request with a breakpoint; without one where the prompt is short or its route takes none."""
        own = next((name for name in signature.input_fields if name not in _SHARED_FIELDS), None)
        messages = super().format(signature, demos, inputs)
        shared, rest = _split(messages[-1]["content"], f"[[ ## {own} ## ]]")
        if (
            rest
            and sum(_length(content) for content in (shared, *(m["content"] for m in messages[:-1])))
            >= _MIN_CACHED_CHARS
        ):
            self._parts = [{"role": "user", "content": shared}, {"role": "user", "content": rest}]
            # The index does not count the system message.
            breakpoint_after = CacheConfig(prefix_until_index=len(messages) - 2)
            try:
                return await super().acall(
                    lm, {**lm_kwargs, "prompt_cache": breakpoint_after}, signature, demos, inputs
                )
            except LMUnsupportedFeatureError:
                self._parts = None
        return await super().acall(lm, lm_kwargs, signature, demos, inputs)

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Render the messages; where there is a breakpoint, the last one in two parts."""
        messages = super().format(signature, demos, inputs)
        return messages if self._parts is None else [*messages[:-1], *self._parts]


def _split(content: Any, header: str) -> tuple[Any, str]:
    """Split a message's text, or the last text of its content blocks, before a header; an empty rest if it has none."""
    if isinstance(content, str):
        shared, own, rest = content.partition(header)
        return shared.rstrip(), own + rest
    *blocks, last = cast("list[dict[str, Any]]", content)
    shared, rest = _split(last["text"], header) if last["type"] == "text" else ("", "")
    return [*blocks, *([{**last, "text": shared}] if shared else [])], rest


def _length(content: Any) -> int:
    """Return the characters of a message; a file counts as long enough, since an image has thousands of tokens."""
    if isinstance(content, str):
        return len(content)
    blocks = cast("list[dict[str, Any]]", content)
    return sum(len(block["text"]) if block["type"] == "text" else _MIN_CACHED_CHARS for block in blocks)


def supports_cache_control(lm: dspy.BaseLM) -> bool:
    """Whether a model caches up to breakpoints, and its user has not set any."""
    return type(lm) is dspy.LM and lm.model.startswith("anthropic/") and lm.kwargs.get("prompt_cache") is None
