"""Makes a `dspy.LM` from a LangChain chat model. Its requests use LangChain's callbacks and rate limits.

The model may be bound to arguments and a config, with `model.bind(...)` or `model.with_config(...)`. In a LangGraph
graph, callbacks and traces get the calls of a judge, but the graph's stream does not.

Clients have connections and locks, which cannot be pickled. A pickled chat model is made again from its fields. This is
a separate module because it is one source of models in `judges/models/names.py`.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import dspy
from dspy import lm15

from rubric_integrations._util.event_loop import on_background_loop
from rubric_integrations.judges.models.errors import (
    FINISH_REASON,
    HAS_FORMAT,
    MODEL,
    response_from_error,
    response_usage,
    to_lm_error,
)
from rubric_integrations.judges.models.keys import require_keys_for_server
from rubric_integrations.judges.models.langchain_http import guarded
from rubric_integrations.judges.protocol import ChatModel

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import RunnableConfig

# Fields with clients that the model makes itself, and fields with clients that only the user can make.
_OWN_CLIENTS = frozenset({"client", "async_client", "root_client", "root_async_client"})
_USERS_CLIENTS = ("http_client", "http_async_client")


class ModelFields(NamedTuple):
    """A chat model in a form that can be pickled: its class, and the fields that its user or its validators have set.

    The fields contain a key that was passed in code. They do not contain a key from the environment, which is read
    again when the model is made from the fields.
    """

    kind: type[Any]
    fields: dict[str, Any]


def to_pickle(model: BaseChatModel) -> BaseChatModel | ModelFields:
    """Return a chat model in a form that can be pickled: the model itself, or else the fields to make it again.

    Raises:
        TypeError: The user has set an HTTP client of the model, which cannot be pickled.
    """
    try:
        pickle.dumps(model)
    except Exception:  # noqa: BLE001 -- a lock is a TypeError, a local class an AttributeError, and others differ
        for name in _USERS_CLIENTS:
            if getattr(model, name, None) is not None:
                raise TypeError(
                    f"`{name}` of {type(model).__name__} holds connections, which cannot be pickled: make the model in "
                    "the process that uses it, or requests would go without the settings of that client"
                ) from None
        fields = {name: getattr(model, name) for name in model.model_fields_set - _OWN_CLIENTS}
        return ModelFields(type(model), fields)
    return model


def from_pickle(model: BaseChatModel | ModelFields) -> BaseChatModel:
    """Return a chat model from its pickled form: the model itself, or the fields from which to make it again."""
    return model.kind(**model.fields) if isinstance(model, ModelFields) else model


_FINISH_REASONS = {
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
}
_REASON_NAMES = ("finish_reason", "stop_reason", "done_reason")
# Fields of chat models that do not change an answer, or that repeat other fields.
_NO_SETTINGS = frozenset(
    {"async_client", "cache", "callbacks", "client", "custom_get_token_ids", "disable_streaming", "http_async_client",
     "http_client", "http_socket_options", "i", "max_retries", "messages", "name", "openai_api_base", "profile",
     "rate_limiter", "request_timeout", "root_async_client", "root_client", "stream_chunk_timeout", "stream_usage",
     "streaming", "tags", "timeout", "verbose"}
)  # fmt: skip
_SETTINGS = ("temperature", "max_tokens", "top_p", "seed")


class _Binding(NamedTuple):
    """The arguments, configs and config factories that `bind` and `with_config` add to the calls of a chat model."""

    arguments: Mapping[str, Any]
    configs: tuple[RunnableConfig, ...]
    config_factories: tuple[Callable[[RunnableConfig], RunnableConfig], ...]

    def config(self) -> RunnableConfig:
        """Return the config of a call: the caller's config, the bound configs, and the tag `nostream`.

        LangGraph's streams leave out calls with this tag. The callbacks of the caller and of the binding both trace the
        call.
        """
        from langchain_core.runnables.config import ensure_config, merge_configs

        config = merge_configs(ensure_config(), *self.configs)
        config = merge_configs(config, *(factory(config) for factory in self.config_factories))
        return {**config, "tags": [*config.get("tags", ()), "nostream"]}


def is_chat_model(judge: Any) -> bool:
    """Whether an object is a LangChain chat model, which may be bound to arguments. Does not import LangChain."""
    names = {parent.__name__ for parent in type(judge).__mro__ if parent.__module__.startswith("langchain_core.")}
    return "BaseChatModel" in names or ("RunnableBinding" in names and is_chat_model(judge.bound))


def lm_from_chat_model(model: ChatModel) -> dspy.LM:
    """Make a `dspy.LM` that calls a LangChain chat model.

    Exceptions of the chat model are classified. Only temporary errors, such as a timeout or a 429, are retried. DSPy's
    response cache is off, because its key contains the model's name but not the settings of the chat model. LangChain's
    cache (`set_llm_cache`) is used if the model uses it (see `without_langchain_cache`).

    Raises:
        ValueError: The model would send a key from the environment to a server for which the key is not intended.
    """
    inner, binding = _unbound(model)
    settings = _settings_of(inner, binding.arguments)
    if url := settings.get("base_url"):
        values: list[Any] = [getattr(inner, name, None) for name in type(inner).model_fields]
        require_keys_for_server([value.get_secret_value() for value in values if _is_secret(value)], url)
    return _lm(inner, binding)


def _unbound(model: Any) -> tuple[BaseChatModel, _Binding]:
    """Return a chat model without the bindings around it, and the bindings as one. The outermost takes precedence."""
    from langchain_core.runnables import RunnableBinding

    layers: list[Any] = []
    while isinstance(model, RunnableBinding):
        layers.insert(0, model)
        model = model.bound
    arguments = {name: value for layer in layers for name, value in layer.kwargs.items()}
    factories = tuple(factory for layer in layers for factory in layer.config_factories)
    return model, _Binding(arguments, tuple(layer.config for layer in layers), factories)


def _lm(model: Any, binding: _Binding) -> dspy.LM:
    names = (binding.arguments.get("model"), getattr(model, "model_name", None), getattr(model, "model", None))
    name = next(filter(None, names), type(model).__name__)
    engine = _Engine(model, binding)
    return dspy.LM(f"langchain/{name}", engine=engine, async_engine=_AsyncEngine(engine), cache=False)


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")


def chat_model_settings(lm: dspy.BaseLM) -> dict[str, Any]:
    """Return the settings of an LM's chat model, with credentials. Empty for an LM without a chat model."""
    engine = getattr(lm, "engine", None)
    return engine.settings if isinstance(engine, _Engine) else {}


def chat_model_of(lm: dspy.BaseLM) -> BaseChatModel | None:
    """Return the chat model of an LM. None for an LM without a chat model."""
    engine = getattr(lm, "engine", None)
    return engine.original if isinstance(engine, _Engine) else None


def _settings_of(model: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: getattr(model, name, None) for name in type(model).model_fields}
    settings = {name: value for name, value in {**fields, **arguments}.items() if name not in _NO_SETTINGS}
    settings = {
        name: getattr(value, "get_secret_value", lambda value=value: value)() for name, value in settings.items()
    }
    # The client's URL includes settings from the environment. The client appends a slash, even to a query.
    client: Any = getattr(model, "root_client", None) or getattr(model, "_client", None)
    url: object = getattr(client, "base_url", None)
    return {**settings, "base_url": str(url).rstrip("/")} if url else settings


def without_langchain_cache(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return an LM whose chat model does not use LangChain's cache. Other LMs are returned unchanged."""
    engine = getattr(lm, "engine", None)
    if not isinstance(engine, _Engine):
        return lm
    # A copy with the same client: the user's own model keeps its cache.
    return _lm(engine.original.model_copy(update={"cache": False}), engine.binding)


class _Engine:
    """A DSPy engine that calls a chat model. It requests a JSON Schema if the model supports it, otherwise text."""

    supports_response_schema = True
    supported_params = frozenset({*_SETTINGS, "stop", "response_format"})

    def __init__(self, model: BaseChatModel, binding: _Binding, structured: bool = True):
        # The original model is kept alive, because its HTTP clients would otherwise close the shared connections.
        self.original, self.binding = model, binding
        self.model = _with_usage(guarded(model), binding)
        self.settings = _settings_of(model, binding.arguments)
        self._structured = structured

    def __deepcopy__(self, memo: object) -> Self:
        # DSPy's optimizers copy programs; the model's client must not be copied with them.
        return self

    def __reduce__(self) -> Any:
        return _restore, (to_pickle(self.original), self.binding, self._structured)

    def complete(self, request: lm15.Request) -> lm15.Response:
        runnable, messages, settings = self.plan(request)
        try:
            return self.response(request, runnable, runnable.invoke(messages, **settings))
        except Exception as error:
            if self.forgoes_usage(runnable, error):
                return self.complete(request)
            if (ended := response_from_error(error, request)) is not None:
                return ended
            raise to_lm_error(error) from error

    def plan(self, request: lm15.Request) -> tuple[Any, list[Any], dict[str, Any]]:
        """Prepare a request: the runnable to call, its messages, and its settings and config."""
        config: Any = request.config
        settings = {name: getattr(config, name, None) for name in _SETTINGS} | {"stop": list(config.stop or ()) or None}
        settings = {**self.binding.arguments, **{name: value for name, value in settings.items() if value is not None}}
        schema = _schema(config.response_format) if self._structured else None
        runnable: Any = self.model
        if schema is not None:
            runnable = _structured(self.model, schema)
            if runnable is None:
                self._structured, runnable = False, self.model
        # The judge's reply format replaces a format that the user bound, because only the judge's can be parsed safely.
        own: Any = getattr(runnable, "kwargs", {})
        settings = {name: value for name, value in settings.items() if name not in own}
        return runnable, _messages(request), {**settings, "config": self.binding.config()}

    def forgoes_usage(self, runnable: Any, error: Exception) -> bool:
        """Whether a server has refused to report the usage in a stream. If so, later requests do not ask for it."""
        requests_usage = getattr(getattr(runnable, "bound", runnable), "stream_usage", None)
        if not requests_usage or getattr(self.original, "stream_usage", None) or _REFUSED_USAGE not in str(error):
            return False
        self.model = self.model.model_copy(update={"stream_usage": False})
        return True

    def response(self, request: lm15.Request, runnable: Any, reply: Any) -> lm15.Response:
        """Make a DSPy response from the reply of the runnable that `plan` returned."""
        raw: Any = reply["raw"] if isinstance(reply, dict) else reply
        tools: Any = getattr(runnable, "kwargs", {}).get("tools")
        has_format = self._structured and _schema(request.config.response_format) is not None
        if raw.tool_calls and not tools and not str(raw.text).strip():
            self._structured = False  # the reply is the call of a tool, which may not be strict
        return _response(request, raw, has_format, is_strict_tool=bool(tools))

    def fingerprint(self) -> str:
        """Return the model's class. The model's settings are not included: `chat_model_settings` returns them."""
        return f"{type(self.model).__module__}.{type(self.model).__qualname__}"


def _restore(model: BaseChatModel | ModelFields, binding: _Binding, structured: bool) -> _Engine:
    return _Engine(from_pickle(model), binding, structured)


# The parameter in the error message of a server that cannot report the usage in a stream.
_REFUSED_USAGE = "stream_options"


def _with_usage(model: Any, binding: _Binding) -> Any:
    """Copy a chat model and make the copy report its token usage, which a streaming model may not do.

    LangGraph and `astream_events` make the models of an agent stream. A judge needs only the complete reply. Therefore
    it streams only if the user has set streaming, for example for a server that supports nothing else.
    """
    streams = binding.arguments.get("stream") or (
        "streaming" in model.model_fields_set and getattr(model, "streaming", None) is True
    )
    if not streams:
        return model.model_copy(update={"disable_streaming": True})
    asks = "stream_usage" in type(model).model_fields and model.stream_usage is None
    return model.model_copy(update={"stream_usage": True}) if asks else model


class _AsyncEngine:
    supports_response_schema = _Engine.supports_response_schema
    supported_params = _Engine.supported_params

    def __init__(self, engine: _Engine):
        self._engine = engine

    def __deepcopy__(self, memo: object) -> Self:
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        if on_background_loop():
            # A synchronous caller uses the synchronous client. LangChain shares async clients, and they belong to the
            # event loop of async callers.
            return await asyncio.to_thread(self._engine.complete, request)
        runnable, messages, settings = self._engine.plan(request)
        try:
            return self._engine.response(request, runnable, await runnable.ainvoke(messages, **settings))
        except Exception as error:
            if self._engine.forgoes_usage(runnable, error):
                return await self.complete(request)
            if (ended := response_from_error(error, request)) is not None:
                return ended
            raise to_lm_error(error) from error


def _structured(model: Any, schema: dict[str, Any]) -> Any:
    """Bind a schema to a model by a method that keeps the model's original reply text. None if there is no such method.

    LangChain parses the arguments of a tool call and passes on only the value. A field that the model wrote twice then
    appears once, and a forged field from a quotation cannot be detected. Only a strict tool excludes this. Therefore,
    if the model's default method is a tool that is not strict, the schema is requested as the format of the reply's
    text, or not at all.
    """
    for method in ({}, {"method": "json_schema"}):
        try:
            # As a dict: with a pydantic class, the client validates the reply and raises before it can be read.
            runnable = _without_parser(model.with_structured_output(schema, include_raw=True, **method))
        except (NotImplementedError, ValueError, TypeError):
            continue  # such as the fake models of langchain-core
        tools: Any = getattr(runnable, "kwargs", {}).get("tools") or ()
        if all(_is_strict(tool) for tool in tools):
            return runnable
    return None


def _is_strict(tool: Any) -> bool:
    definition = tool if isinstance(tool, Mapping) else {}
    return (definition.get("function") or definition).get("strict") is True


def _without_parser(structured: Any) -> Any:
    """Return the model to which LangChain bound the schema, without LangChain's parser.

    The parser's result is not used. The parser and its fallback would add seven runs to the trace of each call.
    """
    steps: Mapping[str, Any] = getattr(getattr(structured, "first", None), "steps__", {})
    return steps.get("raw", structured)


def _schema(response_format: Any) -> dict[str, Any] | None:
    if not isinstance(response_format, Mapping) or response_format.get("type") != "json_schema":
        return None
    schema = response_format.get("schema") or response_format.get("json_schema", {}).get("schema")
    title = response_format.get("name") or "Judgment"
    return {**schema, "title": title, "description": "The judgment."} if schema else None


def _messages(request: lm15.Request) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kinds: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
    system = request.system if isinstance(request.system, str) else _text(request.system or ())
    turns = [kinds.get(message.role, SystemMessage)(_content(message.parts)) for message in request.messages]
    return [SystemMessage(system), *turns] if system else turns


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts)


def _content(parts: Any) -> Any:
    """Return the parts of a message as a text, or as LangChain's content blocks if some are files."""
    return _text(parts) if all(part.type == "text" for part in parts) else [_block(part) for part in parts]


def _block(part: Any) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    kind = "file" if part.type == "document" else part.type
    source = {"url": part.url} if part.url is not None else {"base64": part.data, "mime_type": part.media_type}
    # OpenAI refuses a file without a name.
    filename = {"filename": "document.pdf"} if kind == "file" else {}
    detail = {"extras": {"detail": part.detail}} if getattr(part, "detail", None) else {}
    return {"type": kind, **source, **filename, **detail}


def _response(request: lm15.Request, raw: Any, has_format: bool, is_strict_tool: bool) -> lm15.Response:
    """Convert the reply of a chat model to a response of DSPy."""
    # LangChain's `parsed` is not used, because it repairs a cut-off reply. A failure would then become a score.
    text = json.dumps(raw.tool_calls[0]["args"]) if raw.tool_calls and is_strict_tool else str(raw.text)
    usage: Any = raw.usage_metadata or {}
    metadata: dict[str, Any] = raw.response_metadata or {}
    reason = next(filter(None, (metadata.get(name) for name in _REASON_NAMES)), None)
    finish_reason = _FINISH_REASONS.get(str(reason), "stop")
    refusal, model = _refusal(raw), metadata.get("model_name") or metadata.get("model")
    return lm15.Response(
        id=raw.id or None,
        model=model or request.model,
        message=lm15.Message.assistant([lm15.TextPart(text), *([lm15.RefusalPart(refusal)] if refusal else [])]),
        finish_reason=cast("Any", finish_reason),
        provider_data={FINISH_REASON: reason, HAS_FORMAT: has_format, MODEL: model},
        usage=response_usage(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            (usage.get("input_token_details") or {}).get("cache_read"),
        ),
    )


def _refusal(message: Any) -> str:
    """Return the refusal in a message, which LangChain stores in one of two places. Empty if there is no refusal."""
    blocks: list[Any] = message.content if isinstance(message.content, list) else []
    refusals = [block.get("refusal") for block in blocks if isinstance(block, Mapping)]
    return str(message.additional_kwargs.get("refusal") or next(filter(None, refusals), ""))
