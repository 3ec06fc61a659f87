"""A `dspy.LM` from an async function of two prompts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import FunctionType
from typing import Any, cast

import dspy
from dspy import lm15

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.models.completion import FINISH_REASON, HAS_FORMAT
from rubric_integrations.judges.models.failures import response_from_error, to_lm_error

GenerateFn = Callable[[str, str], Awaitable[str]]
"""`async (system_prompt, user_prompt) -> reply`."""


def lm_from_fn(generate_fn: GenerateFn, fingerprint: str | None = None) -> dspy.LM:
    """Make a `dspy.LM` that calls an async function. Its exceptions are sorted so that the right ones are retried.

    Args:
        generate_fn: The function of a system prompt and a user prompt, which returns the reply.
        fingerprint: A name for everything that the replies depend on, such as the model and its settings, by which a
            ledger tells them from those of another function. By default that is the result of `fingerprint()`, if the
            function is an object with such a method, or the function's qualified name. A ledger refuses a lambda, a
            `functools.partial`, a method, an object or a closure without a fingerprint, since others with the same name
            may give other replies.

    Example:
        >>> async def reply(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"explanation": "as always", "verdict": "MET"}'
        >>> lm_from_fn(reply, fingerprint="always MET").model
        'generate_fn/reply'
    """
    name = getattr(generate_fn, "__name__", type(generate_fn).__name__)
    async_engine = _AsyncFunctionEngine(generate_fn, fingerprint or identify_function(generate_fn))
    return dspy.LM(f"generate_fn/{name}", engine=_FunctionEngine(async_engine), async_engine=async_engine, cache=False)


def identify_function(function: object) -> str | None:
    """Return a function's own fingerprint or its qualified name; None where neither identifies it."""
    fingerprint: object = getattr(function, "fingerprint", None)
    if callable(fingerprint):
        return cast("str | None", fingerprint())
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        return None
    if function.__closure__ or (function.__defaults__ and "<locals>" in function.__qualname__):
        return None
    return f"{function.__module__}.{function.__qualname__}"


def is_function_model(lm: dspy.BaseLM) -> bool:
    """Whether an LM calls a function of two texts."""
    return isinstance(getattr(lm, "engine", None), _FunctionEngine)


class _AsyncFunctionEngine:
    def __init__(self, generate_fn: GenerateFn, fingerprint: str | None):
        self._generate_fn = generate_fn
        self.fingerprint = fingerprint

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

    def fingerprint(self) -> str | None:
        """Return what identifies the function; None where nothing does."""
        return self._engine.fingerprint


def _text(parts: Any) -> str:
    if any(part.type != "text" for part in parts):
        raise TypeError(
            "a function of two texts cannot be sent attachments: use a `dspy.LM` or a chat model as the judge"
        )
    return "".join(part.text for part in parts)
