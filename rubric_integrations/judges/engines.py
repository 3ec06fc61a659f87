"""Engines with which this library takes the place of DSPy's own in a call of a `dspy.LM`.

DSPy renders a question as an `lm15.Request` and passes it to the engine of its model. `record_request` uses an engine
that records the request and sends nothing. `judges/provider.py` has an engine that sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import dspy
from dspy import lm15
from dspy.utils.exceptions import DSPyError

from rubric_integrations.judges.models.keys import CONNECTION_SETTINGS, speaks_openai


class ModelCapabilities:
    """What a model supports according to DSPy, in the form in which DSPy asks an engine.

    Args:
        lm: The model, with DSPy's own engine.

    Attributes:
        speaks_openai: Whether the model's requests have OpenAI's chat protocol.
    """

    def __init__(self, lm: dspy.BaseLM):
        # If the environment names the server, DSPy's default is to ask LiteLLM, which may ask the server.
        native = lm.copy(engine="lm15") if getattr(lm, "engine", None) == "auto" else lm
        self.supports_function_calling = native.supports_function_calling
        self.supports_reasoning = native.supports_reasoning
        self.supports_response_schema = native.supports_response_schema
        self.supported_params = frozenset(native.supported_params)
        self.speaks_openai = speaks_openai(lm)


class Engine(Protocol):
    """An engine that can be called both ways."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the response to a request."""
        ...

    async def acomplete(self, request: lm15.Request) -> lm15.Response:
        """Return the response to a request."""
        ...


class _AsyncEngine:
    def __init__(self, engine: Engine):
        self._engine = engine

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return await self._engine.acomplete(request)


def engine_pair(engine: Engine) -> dict[str, Any]:
    """Return the arguments by which a `dspy.LM` gets an engine for its synchronous and its asynchronous calls."""
    return {"engine": engine, "async_engine": _AsyncEngine(engine)}


def with_engine(lm: dspy.LM, engine: Engine, record: Callable[[Mapping[str, Any]], None] | None = None) -> dspy.LM:
    """Return a copy of a model for one call with another engine, without retries.

    Args:
        lm: The model, with DSPy's own engine.
        engine: The engine. It has its own connection. DSPy refuses the model's settings of a connection with it.
        record: A function that gets the entries of the model's history. By default, there is no history.
    """
    connection: Any = dict.fromkeys(CONNECTION_SETTINGS & lm.kwargs.keys())
    settings: Any = {"num_retries": 0, "update_history": record or _forget}
    return lm.copy(**engine_pair(engine), **settings, **connection)


def _forget(entry: Mapping[str, Any]) -> None:
    """Leave an entry of a history out."""


class RecordingEngine(ModelCapabilities):
    """An engine that records a request and sends nothing.

    Attributes:
        request: The request. None until DSPy calls the engine.
    """

    request: lm15.Request | None = None

    def complete(self, request: lm15.Request) -> NoReturn:
        """Record the request.

        Raises:
            dspy.lm15.InvalidRequestError: Always. It ends the call of the predictor, and DSPy does not repeat it.
        """
        self.request = self.request or request
        raise lm15.InvalidRequestError("the request was recorded and not sent")

    async def acomplete(self, request: lm15.Request) -> NoReturn:
        """Record the request, as `complete` does."""
        self.complete(request)


async def record_request(
    predict: dspy.Predict, lm: dspy.LM, signature: type[dspy.Signature], demos: Sequence[Any], inputs: Mapping[str, Any]
) -> lm15.Request:
    """Return the request that DSPy renders for a question, without sending it.

    Raises:
        dspy.utils.exceptions.DSPyError: DSPy cannot render the question for this model.
        TypeError: DSPy has not called the engine.
    """
    engine = RecordingEngine(lm)
    try:
        await predict.acall(lm=with_engine(lm, engine), signature=signature, demos=demos, **inputs)
    except DSPyError:
        if engine.request is None:
            raise
    if engine.request is None:
        raise TypeError("DSPy did not call the engine of the model")
    return engine.request
