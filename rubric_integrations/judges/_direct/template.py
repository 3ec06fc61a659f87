"""A question's request, made once by DSPy and then only filled in.

DSPy makes a request anew for every question: it plans, renders, converts and routes, at ten times the cost of sending
it. All questions of one form, to one model, differ in their texts alone. So the first goes the whole way with slots in
place of its texts; the others put theirs into the bytes that came out.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TYPE_CHECKING, Any

import dspy

from rubric_integrations.judges.prompts.sanitize import cache_by_text

if TYPE_CHECKING:
    from rubric_integrations.judges._direct import capture as wire
try:
    from rubric_integrations.judges._direct import capture as wire

    _known_dspy = True
except ImportError:
    _known_dspy = False

_SLOT = f"slot{secrets.token_hex(12)}"
_SLOTS = re.compile(rf"{_SLOT}(\w+){_SLOT}".encode())

# Beyond so many forms of questions, demonstrations are chosen for each, and the older forms will not come again.
_MOST = 256


class PromptTemplate:
    """A request to an OpenAI-compatible endpoint whose texts are left open."""

    def __init__(self, lm: dspy.LM, wired: wire.CapturedRequest):
        self._lm, self._wired = lm, wired
        # Alternately what is the same in all requests, and the name of what is not.
        self._parts = _SLOTS.split(wired.body)
        self._names = [name.decode() for name in self._parts[1::2]]

    def body(self, inputs: Mapping[str, str]) -> bytes:
        """The bytes to send for these texts."""
        parts = list(self._parts)
        parts[1::2] = [_encoded(inputs[name]) for name in self._names]
        return b"".join(parts)

    def ask(self, inputs: Mapping[str, str]) -> Awaitable[wire.Reply]:
        """Send it with these texts.

        Raises:
            dspy.utils.exceptions.DSPyError: As `dspy.LM` does, after one attempt.
        """
        return wire.send(self._wired, self.body(inputs), self._lm)


class TemplateCache:
    """The requests that a judge has made, by all that they depend on."""

    def __init__(self) -> None:
        self._made: dict[object, PromptTemplate | None] = {}

    def __reduce__(self) -> tuple[type[TemplateCache], tuple[()]]:
        # Keys, locks and connections are not for pickles.
        return TemplateCache, ()

    async def of(
        self,
        predict: dspy.Predict,
        lm: dspy.BaseLM,
        signature: type[dspy.Signature],
        demos: Sequence[Any],
        inputs: Mapping[str, str],
        context: Callable[[], AbstractContextManager[None]],
    ) -> PromptTemplate | None:
        """The request for inputs of this form; None where the question has to go the ordinary way.

        Args:
            predict: Who would ask it on the ordinary way.
            lm: Which model.
            signature: The question's form.
            demos: The demonstrations that it is shown.
            inputs: The question's texts.
            context: Makes the `dspy.context` in which the predictor would be called.
        """
        if not _known_dspy or not isinstance(lm, dspy.LM) or not _is_plain(predict, lm):
            return None
        try:
            shown = tuple(tuple(demo.items()) for demo in demos)
            key = (signature, tuple(inputs), shown, repr(predict.config), lm.model, lm.model_type, repr(lm.kwargs))
            if key in self._made:
                return self._made[key]
        except TypeError:  # a demonstration that is no text
            return None
        if len(self._made) >= _MOST:
            self._made.clear()
        with context():
            made = self._made[key] = await _made(predict, lm, signature, demos, inputs)
        return made


async def _made(
    predict: dspy.Predict, lm: dspy.LM, signature: type[dspy.Signature], demos: Sequence[Any], inputs: Mapping[str, str]
) -> PromptTemplate | None:
    slots = {name: f"{_SLOT}{name}{_SLOT}" for name in inputs}
    try:
        wired = await wire.wire(predict, lm, signature, demos, slots)
        if wired is None:
            return None
        request = PromptTemplate(lm, wired)
        # What is filled in must be what DSPy would have sent, or it is not sent.
        direct = await wire.wire(predict, lm, signature, demos, inputs)
        return request if direct and direct.body == request.body(inputs) else None
    except Exception:  # noqa: BLE001 -- another DSPy, or wrong settings: the ordinary way works, or tells what is wrong
        return None


def _is_plain(predict: dspy.Predict, lm: dspy.LM) -> bool:
    """Whether nobody has put anything of their own into the way, or listens on it."""
    if type(lm) is not dspy.LM or type(predict) is not dspy.Predict or lm.cache or predict.fields:
        return False
    if lm.callbacks or predict.callbacks or dspy.settings.callbacks:
        return False
    steps = (dspy.LM.__call__, dspy.LM.acall, dspy.Predict.forward, dspy.Predict.aforward, dspy.Predict.acall)
    return all(type(step) is FunctionType for step in steps)


@cache_by_text
def _encoded(text: str) -> bytes:
    return wire.json_text(text)
