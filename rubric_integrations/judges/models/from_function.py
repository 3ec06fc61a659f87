"""A `dspy.LM` from an async function of two prompts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import dspy
from dspy import lm15

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.models.completion import FINISH_REASON, HAS_FORMAT
from rubric_integrations.judges.models.failures import response_from_error, to_lm_error

GenerateFn = Callable[[str, str], Awaitable[str]]
"""`async (system_prompt, user_prompt) -> reply`."""


def lm_from_fn(generate_fn: GenerateFn) -> dspy.LM:
    """Make a `dspy.LM` that calls an async function. Its exceptions are sorted so that the right ones are retried."""
    name = getattr(generate_fn, "__name__", type(generate_fn).__name__)
    async_engine = _AsyncFunctionEngine(generate_fn)
    return dspy.LM(f"generate_fn/{name}", engine=_FunctionEngine(async_engine), async_engine=async_engine, cache=False)


class _AsyncFunctionEngine:
    def __init__(self, generate_fn: GenerateFn):
        self._generate_fn = generate_fn
        named: Any = generate_fn if hasattr(generate_fn, "__qualname__") else type(generate_fn)
        self.name = f"{named.__module__}.{named.__qualname__}"

    def __deepcopy__(self, memo: object) -> _AsyncFunctionEngine:
        # DSPy's optimizers copy programs; the function's client must not be copied with them.
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        system = request.system if isinstance(request.system, str) else _text(request.system or ())
        turns = [(message.role, _text(message.parts)) for message in request.messages]
        # Few-shot examples arrive as earlier turns; a function of two strings has space for one user turn.
        user = turns[0][1] if len(turns) == 1 else "\n\n".join(f"[{role}]\n{text}" for role, text in turns)
        try:
            reply: object = self._generate_fn(system, user)
            if not inspect.isawaitable(reply):
                raise TypeError(f"`generate_fn` must be async, but it returned {type(reply).__name__}")
            text = cast("object", await reply)
            if not isinstance(text, str):
                raise TypeError(f"`generate_fn` must return the reply's text, but it returned {type(text).__name__}")
        except Exception as error:
            if (ended := response_from_error(error, request)) is not None:
                return ended
            raise to_lm_error(error) from error
        message = lm15.Message.assistant(text)
        return lm15.Response(
            id=None, model=request.model, message=message, finish_reason="stop", usage=lm15.Usage(),
            provider_data={FINISH_REASON: None, HAS_FORMAT: False},
        )  # fmt: skip


class _FunctionEngine:
    def __init__(self, engine: _AsyncFunctionEngine):
        self._engine = engine

    def __deepcopy__(self, memo: object) -> _FunctionEngine:
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        return run_sync(self._engine.complete(request))

    def fingerprint(self) -> str:
        """Return the function's qualified name; what the function itself depends on cannot be seen."""
        return self._engine.name


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts)
