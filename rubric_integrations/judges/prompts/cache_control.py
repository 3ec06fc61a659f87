"""Where a prompt's shared part ends, said to a provider that caches only what it is told to: Anthropic.

Writing to its cache costs a quarter more than not caching, and reading from it a tenth: so it is told only where the
part is long enough to be cached, and where others that share it follow once the first is answered.
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.lm15 import CacheConfig
from dspy.utils.exceptions import LMUnsupportedFeatureError

from rubric_integrations.judges.prompts.parse import JudgeAdapter

# What Anthropic's most lenient models need, at four characters a token; shorter parts are not cached.
_LEAST = 4 * 1024

_SHARED = ("guidelines", "query", "reference", "submission")


class CacheControlAdapter(JudgeAdapter):
    """A judge's adapter that ends a message where the questions about a submission begin to differ, and marks it."""

    async def acall(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Ask with the mark; without it where the prompt is too short or goes a way that takes no marks."""
        own = next((name for name in signature.input_fields if name not in _SHARED), None)
        plain = JudgeAdapter(self.quotable, self.asked)
        messages = super().format(signature, demos, inputs)
        shared, header, rest = messages[-1]["content"].partition(f"[[ ## {own} ## ]]")
        if header and len(shared) + sum(len(message["content"]) for message in messages[:-1]) >= _LEAST:
            self._parts = [{"role": "user", "content": shared.rstrip()}, {"role": "user", "content": header + rest}]
            # The index does not count the system message.
            marked = {**lm_kwargs, "prompt_cache": CacheConfig(prefix_until_index=len(messages) - 2)}
            try:
                return await super().acall(lm, marked, signature, demos, inputs)
            except LMUnsupportedFeatureError:
                pass
        return await plain.acall(lm, lm_kwargs, signature, demos, inputs)

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The messages, the last in two parts."""
        return [*super().format(signature, demos, inputs)[:-1], *self._parts]


def supports_cache_control(lm: dspy.BaseLM) -> bool:
    """Whether a model caches what it is told to, and its user has not said what."""
    return type(lm) is dspy.LM and lm.model.startswith("anthropic/") and lm.kwargs.get("prompt_cache") is None
