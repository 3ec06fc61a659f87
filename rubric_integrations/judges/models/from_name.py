"""Anything that completes text, as a `dspy.LM`: a model name, a DSPy LM, or an async function."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import dspy
from dspy import lm15

from rubric_integrations._util.event_loop import run_sync

GenerateFn = Callable[[str, str], Awaitable[str]]
"""`async (system_prompt, user_prompt) -> reply`."""


def lm_from_name(model: str, api_base: str | None = None, api_key: str | None = None) -> dspy.LM:
    """A `dspy.LM` for a model name such as `openai/gpt-5-mini` or `ollama_chat/llama3.2`.

    DSPy's response cache stays off: its key knows neither the endpoint nor the engine, so that another server's
    verdict could come back under the same model name. Retries are the grader's.

    Args:
        model: `provider/model`, as DSPy and LiteLLM spell it.
        api_base: The base URL of an OpenAI-compatible server (vLLM, Ollama, llama.cpp), as `http://host:port/v1`.
        api_key: Its key; by default the provider's environment variable, and for an `api_base` without one
            a placeholder, since local servers ask for none.
    """
    if not model.strip():
        raise ValueError("`judge` is an empty model name: write one such as 'openai/gpt-5-mini', or 'offline'")
    options: dict[str, Any] = {"api_key": api_key} if api_key else {}
    if api_base:
        provider = model.split("/", 1)[0].upper() if "/" in model else "OPENAI"
        key = api_key or os.environ.get(f"{provider}_API_KEY") or "none"
        options |= {"api_base": api_base, "api_key": key}
    return dspy.LM(model, cache=False, num_retries=0, **options)


def lm_from_fn(generate_fn: GenerateFn) -> dspy.LM:
    """A `dspy.LM` that asks an async function; what the function raises is mapped so that retries work."""
    name = getattr(generate_fn, "__name__", type(generate_fn).__name__)
    async_engine = _AsyncFnEngine(generate_fn)
    return dspy.LM(f"generate_fn/{name}", engine=_FnEngine(async_engine), async_engine=async_engine, cache=False)


class _AsyncFnEngine:
    def __init__(self, generate_fn: GenerateFn):
        self._generate_fn = generate_fn
        kind: Any = generate_fn if hasattr(generate_fn, "__qualname__") else type(generate_fn)
        self.name = f"{kind.__module__}.{kind.__qualname__}"

    def __deepcopy__(self, memo: object) -> _AsyncFnEngine:
        # DSPy's optimizers copy programs; the function's client must not be cloned with them.
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        system = request.system if isinstance(request.system, str) else _text(request.system or ())
        turns = [(message.role, _text(message.parts)) for message in request.messages]
        # Demonstrations arrive as earlier turns; a function of two strings has room for one user turn.
        user = turns[0][1] if len(turns) == 1 else "\n\n".join(f"[{role}]\n{text}" for role, text in turns)
        try:
            reply: object = self._generate_fn(system, user)
            if not inspect.isawaitable(reply):
                raise TypeError(f"`generate_fn` must be async, but it returned {type(reply).__name__}")
            text = cast("object", await reply)
            if not isinstance(text, str):
                raise TypeError(f"`generate_fn` must return the reply's text, but it returned {type(text).__name__}")
        except Exception as error:
            raise to_lm_error(error) from error
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="stop",
            usage=lm15.Usage(),
        )


class _FnEngine:
    def __init__(self, engine: _AsyncFnEngine):
        self._engine = engine

    def __deepcopy__(self, memo: object) -> _FnEngine:
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        return run_sync(self._engine.complete(request))

    def fingerprint(self) -> str:
        """Which function answers; what it depends on itself cannot be seen."""
        return self._engine.name


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts)


def to_lm_error(error: Exception) -> Exception:
    """Sort a client's exception, by its HTTP status or its name, into the kinds that DSPy knows.

    Every SDK has classes of its own; `status_code` and names such as RateLimitError or APITimeoutError are what they
    share. What fits nothing is returned as it is, and is not retried.
    """
    if isinstance(error, lm15.LM15Error):
        return error
    status, name = getattr(error, "status_code", None), type(error).__name__.lower()
    message = f"{type(error).__name__}: {error}"
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    retry_after = _seconds(getattr(error, "retry_after", None) or headers.get("retry-after"))
    if status == 429 or "ratelimit" in name:
        return lm15.RateLimitError(message, retry_after=retry_after)
    if isinstance(error, TimeoutError) or "timeout" in name or status == 408:
        return lm15.TimeoutError(message)
    if isinstance(error, OSError) or "connection" in name:
        return lm15.TransportError(message)
    if isinstance(status, int):
        if status >= 500:
            return lm15.ServerError(message, retry_after=retry_after)
        return lm15.AuthError(message) if status in (401, 403) else lm15.InvalidRequestError(message)
    return error


def _seconds(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None
