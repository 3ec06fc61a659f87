"""Makes a `dspy.LM` from a model name, a function of two prompts, or any other source in `MODEL_SOURCES`.

This module also adapts LMs without an asynchronous call, such as a `dspy.BaseLM` that has only `forward`, and decides
which models accept attachments. To add a source, write a function that makes a `dspy.LM`, and add it to
`MODEL_SOURCES`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, cast

import dspy
from dspy import lm15
from dspy.utils.exceptions import DSPyError, LMConfigurationError

from rubric_integrations._util.event_loop import run_in_thread, run_sync
from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.decisions import is_decision_model
from rubric_integrations.judges.models.errors import FINISH_REASON, HAS_FORMAT, response_from_error, to_lm_error
from rubric_integrations.judges.models.keys import (
    check_provider,
    key_for_endpoint,
    ollama_url,
    require_litellm,
    with_key_for_its_server,
    with_provider,
)
from rubric_integrations.judges.models.langchain import (
    chat_model_of,
    chat_model_settings,
    is_chat_model,
    lm_from_chat_model,
    without_langchain_cache,
)
from rubric_integrations.judges.models.servers import check_url
from rubric_integrations.judges.prompts.render import ShownFile
from rubric_integrations.judges.protocol import GenerateFn, ModelLike
from rubric_integrations.scoring.judgment import JudgeFailure


def lm_from_fn(generate_fn: GenerateFn, fingerprint: str | None = None) -> dspy.LM:
    """Make a `dspy.LM` that calls an async function.

    Exceptions of the function are classified. Only temporary errors, such as a timeout or a 429, are retried.

    Args:
        generate_fn: An async function that takes a system prompt and a user prompt, and returns the reply.
        fingerprint: A text that identifies everything that the replies depend on, such as the model and its settings.
            A ledger uses it to distinguish the replies of different functions. By default, it is the result of
            `fingerprint()` if the function is an object with such a method, otherwise the function's qualified name. A
            ledger refuses a lambda, a `functools.partial`, a method, an object or a closure without a fingerprint,
            because their names do not identify them.

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
    """Return the result of a function's `fingerprint()`, or else its qualified name.

    Returns None if the name does not identify the function, such as the name of a lambda or a closure.
    """
    fingerprint: object = getattr(function, "fingerprint", None)
    if callable(fingerprint):
        return cast("str | None", fingerprint())
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        return None
    if function.__closure__ or (function.__defaults__ and "<locals>" in function.__qualname__):
        return None
    return f"{function.__module__}.{function.__qualname__}"


def is_function_model(lm: dspy.BaseLM) -> bool:
    """Whether an LM calls an async function of two prompts. `lm_from_fn` makes such LMs."""
    return isinstance(getattr(lm, "engine", None), _FunctionEngine)


_NO_MODEL = (
    "the judge calls DSPy without a model of its own, and would run on the model of the program that it grades: pass "
    "`judge_lm=dspy.LM(...)` to `RubricMetric`, or give its predictors a model with `set_lm(dspy.LM(...))`"
)


class _NoModel(dspy.BaseLM):
    """The model in `dspy.settings` for a judge without its own model: each call raises an error with the remedy."""

    def __init__(self) -> None:
        super().__init__("none", cache=False)

    def __call__(self, prompt: object = None, *, messages: object = None, **settings: object) -> NoReturn:
        raise JudgeFailure("config", _NO_MODEL, unreachable=True)

    async def acall(self, prompt: object = None, *, messages: object = None, **settings: object) -> None:
        self(prompt, messages=messages, **settings)

    # DSPy 3.5 calls these in place of the above.
    def generate(self, request: lm15.Request, **settings: object) -> None:
        self()

    async def agenerate(self, request: lm15.Request, **settings: object) -> None:
        self()


NO_MODEL = _NoModel()


def judge_context(lm: dspy.BaseLM) -> AbstractContextManager[None]:
    """Make a DSPy context in which a judge's calls do not appear in the trace, history and usage of the program.

    The callbacks in `dspy.settings` are not called. The callbacks of a model or a module are called.

    Args:
        lm: The model for predictors that do not have their own model. If there is no such model, pass `NO_MODEL`. Each
            call of such a predictor is then an error.
    """
    return dspy.context(lm=lm, callbacks=[], trace=None, usage_tracker=None, caller_modules=None, send_stream=None)


# A line of a text that looks like the header of a turn.
_TURN_HEADER = re.compile(r"(?:^|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))\[(?=(?:user|assistant|system|tool)\])")


def _join_turns(turns: Sequence[tuple[str, str]]) -> str:
    """Return several turns as one text, each under a header that no line of a text can imitate."""
    return "\n\n".join(f"[{role}]\n{_TURN_HEADER.sub('(', text)}" for role, text in turns)


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
        user = turns[0][1] if len(turns) == 1 else _join_turns(turns)
        try:
            # Without the judge's adapter, which must not be used for DSPy requests that the function itself makes.
            with dspy.context(adapter=None, callbacks=[], caller_modules=None):
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
        self.async_engine = engine

    def __deepcopy__(self, memo: object) -> _FunctionEngine:
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        return run_sync(self.async_engine.complete(request))

    def fingerprint(self) -> str | None:
        """Return the text that identifies the function. None if the function cannot be identified."""
        return self.async_engine.fingerprint


def _text(parts: Any) -> str:
    if any(part.type != "text" for part in parts):
        raise TypeError(
            "a function of two texts cannot be sent attachments: use a `dspy.LM` or a chat model as the judge"
        )
    return "".join(part.text for part in parts)


@dataclass(frozen=True)
class ModelSettings:
    """Settings for a model that you pass by its name. None leaves a setting to the provider.

    Attributes:
        api_base: The base URL of an OpenAI-compatible server (vLLM, Ollama, llama.cpp), such as `http://host:port/v1`.
            For models that begin with `ollama/` or `ollama_chat/`, `/v1` is optional, and the default is
            OLLAMA_API_BASE or OLLAMA_HOST.
        api_key: The API key. By default, the key in the provider's environment variable, which is sent only to the
            provider and to this machine. For another server, pass the key here or set RUBRIC_INTEGRATIONS_API_KEY.
            Without a key, a placeholder is sent, because local servers require none.
        temperature: The sampling temperature, at least 0. By default, it is 0. Reasoning models have no default (see
            `LMJudge`).
        max_tokens: The largest number of tokens in a reply, at least 1.
        seed: The sampling seed, for providers that accept one.
        reasoning_effort: The effort of a reasoning model, such as `low`.
        service_tier: The service tier, such as `flex`, for providers with several tiers. It affects price and delay.
        headers: Additional HTTP headers of each request by name, such as the headers that a gateway requires. DSPy
            sends requests with such headers through LiteLLM (extra `litellm`), which takes about 11 ms of CPU time
            instead of 1 ms. The values may be secrets. They do not appear in fingerprints, ledgers or messages. A
            fingerprint contains a digest of the headers that are not credentials.
    """

    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def chosen(self) -> dict[str, Any]:
        """Return the settings that are not None, by name."""
        settings = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        return {name: value for name, value in settings.items() if value is not None}

    def joined(self, others: ModelSettings) -> ModelSettings:
        """Combine these settings with others, such as the separate arguments of `LMJudge`.

        Raises:
            ValueError: The same setting is set in both.
        """
        own, more = self.chosen(), others.chosen()
        if twice := sorted(own.keys() & more.keys()):
            raise ValueError(f"`{twice[0]}` and `settings.{twice[0]}` are two names of one setting: pass one")
        return ModelSettings(**own, **more)


NO_SETTINGS = ModelSettings()


def lm_from_name(model: str, options: ModelSettings = NO_SETTINGS) -> dspy.LM:
    """Make a `dspy.LM` from a model name such as `openai/gpt-5-mini` or `ollama_chat/llama3.2`.

    DSPy's response cache is switched off. Its key contains neither the endpoint nor the engine. It could therefore
    return another server's verdict for the same model name. The LM makes no retries, because the grader makes them.

    Args:
        model: `provider/model`, as DSPy and LiteLLM spell it.
        options: The settings of the model.

    Raises:
        ValueError: The name is empty or has no provider, the URL has no scheme, a setting is out of range, DSPy refuses
            a setting for this model, a key from the environment would be sent to a server for which it is not intended,
            or the model needs LiteLLM, which is not installed.
    """
    if not model.strip():
        raise ValueError("`judge` is an empty model name: write one such as 'openai/gpt-5-mini', or 'offline'")
    if options.temperature is not None and not options.temperature >= 0:
        raise ValueError(f"`temperature` must be at least 0, got {options.temperature!r}")
    if options.max_tokens is not None and options.max_tokens < 1:
        raise ValueError(f"`max_tokens` must be at least 1, got {options.max_tokens!r}")
    if options.api_base is not None:
        check_url(options.api_base, "`api_base`")
    model, settings = model if options.api_base else with_provider(model), options.chosen()
    check_provider(model)
    if headers := settings.pop("headers", None):
        _check_headers(headers)
        settings["extra_headers"] = dict(headers)
    if api_base := ollama_url(model, options.api_base, has_headers=bool(headers)):
        settings["api_base"] = api_base
    if not options.api_key and (key := key_for_endpoint(model, api_base, has_headers=bool(headers))):
        settings["api_key"] = key
    if options.temperature is None:
        settings["temperature"] = default_temperature(model, options.reasoning_effort)
    else:
        settings["temperature"] = float(options.temperature)  # in the fingerprint, 0 and 0.0 must be the same
    try:
        # From DSPy 3.5 on, the default is "auto", by which OpenAI's models may be called by another protocol.
        lm = dspy.LM(model, model_type="chat", cache=False, num_retries=0, **settings)
    except DSPyError as error:
        message = redact(str(error), settings)
        cause = error if message == str(error) else None
        raise ValueError(f"DSPy does not make the model {model!r} with these settings: {message}") from cause
    require_litellm(lm)
    return lm


def default_temperature(model: str, reasoning_effort: str | None = None) -> float | None:
    """Return the default sampling temperature of a model: 0, or None for a reasoning model.

    OpenAI's reasoning models refuse any temperature except 1, and DSPy knows their names. Models of other providers may
    refuse a temperature together with a `reasoning_effort`. If any other model refuses the temperature 0, requests have
    no temperature after the first refusal (see `judges/calling.py`).

    Example:
        >>> default_temperature("openai/gpt-4.1"), default_temperature("openai/gpt-5-mini")
        (0.0, None)
    """
    if reasoning_effort is not None:
        return None
    try:
        dspy.LM(model, temperature=0.5)
    except LMConfigurationError:
        return None
    return 0.0


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(
                f"`headers` has the name {name!r}: a name has letters, digits and hyphens, such as 'X-Team'"
            )
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(
                f"`headers`: the value of {name!r} must be printable ASCII without line breaks, and not empty: the "
                "request would be refused, or another one be sent (the value is not shown, since it may be a secret)"
            )


class ModelSource(NamedTuple):
    """A kind of object that a `dspy.LM` can be made of.

    Attributes:
        description: The name of the kind in messages.
        matches: A function that decides whether an object is of this kind.
        make: A function that makes the `dspy.LM`.
    """

    description: str
    matches: Callable[[object], bool]
    make: Callable[[Any], dspy.BaseLM]


def _is_lm(model: object) -> bool:
    return isinstance(model, dspy.BaseLM)


def _is_function(model: object) -> bool:
    """Whether an object may be an async function of two texts. False for a DSPy program without an async `forward`."""
    if isinstance(model, dspy.Module) and type(model).__call__ in (dspy.Module.__call__, dspy.Predict.__call__):
        return inspect.iscoroutinefunction(getattr(model, "forward", None))
    return callable(model)


def _with_its_key(model: dspy.BaseLM) -> dspy.BaseLM:
    # DSPy 3.5 calls `agenerate`, and neither `forward` nor `__call__`.
    if hasattr(dspy.BaseLM, "agenerate") and is_sync_only(model):
        raise ValueError(
            f"`model` is of the class {type(model).__name__}, which has only a synchronous `forward` or `__call__`: "
            "DSPy 3.5 does not call them; make an engine of it, as in dspy.LM('name', engine=..., async_engine=...)"
        )
    return with_key_for_its_server(model) if isinstance(model, dspy.LM) else model


MODEL_SOURCES: dict[str, ModelSource] = {
    "dspy": ModelSource("a dspy.LM", _is_lm, _with_its_key),
    "langchain": ModelSource("a LangChain chat model", is_chat_model, lm_from_chat_model),
    "function": ModelSource("an async function (system_prompt, user_prompt)", _is_function, lm_from_fn),
}
"""The kinds of models that a user can pass as an object. An object is compared with the kinds in this order."""


def to_lm(model: ModelLike, options: ModelSettings = NO_SETTINGS) -> dspy.BaseLM:
    """Make a `dspy.LM` from any value that a user can pass as a model.

    Args:
        model: A model name, a `dspy.LM`, a LangChain chat model, or an async function of two prompts.
        options: The settings of a model that is passed by name.

    Raises:
        TypeError: `model` has none of these types.
        ValueError: The model name is empty, the model is a decision model, a setting is passed with a model object, a
            key from the environment would be sent to a server for which it is not intended, the model needs LiteLLM,
            which is not installed, or the installed DSPy does not call an LM of this class.
    """
    if is_decision_model(model):
        shown = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise ValueError(
            f"the model is {shown}, a decision model, which writes no text: pass it as the judge itself, as in "
            "`PerCriterionGrader(judge=...)`, or make a DecisionJudge"
        )
    if isinstance(model, str):
        return lm_from_name(model, options)
    source = next((source for source in MODEL_SOURCES.values() if source.matches(model)), None)
    if source is None:
        kinds = ", ".join(["a model name", *(source.description for source in MODEL_SOURCES.values())])
        remedy = "; a DSPy program is a judge with an async method `judge`" if isinstance(model, dspy.Module) else ""
        raise TypeError(f"`model` must be one of: {kinds}; got {type(model).__name__}{remedy}")
    for option in options.chosen():
        raise ValueError(
            f"`{option}` goes with a model name, and has no effect on {source.description}: configure the model that "
            "you pass instead"
        )
    return source.make(model)


def settings_of(lm: dspy.BaseLM) -> dict[str, Any]:
    """Return a model's settings, including the settings of its LangChain chat model.

    They contain credentials, so never write them to a file or a log.
    """
    return {**lm.kwargs, **chat_model_settings(lm)}


def without_framework_cache(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return an LM that uses neither DSPy's nor LangChain's response cache. The user's own model is not changed.

    A judge must not use these caches. Every retry would return the same unreadable reply, another server's verdict
    could be returned for the same model name, and equal judges would always give the same vote.
    """
    uncached = without_langchain_cache(lm)
    return uncached.copy(cache=False) if uncached.cache else uncached


# Clients that pass a URL on to the provider. Other clients may download the file on this machine. A URL in a submission
# could then reach servers that are not accessible from the internet.
_PASS_URLS_ON = ("openai/", "azure/")
_CHAT_MODELS_PASS_URLS_ON = ("langchain_openai.", "langchain_anthropic.")


def file_problem(lm: dspy.BaseLM, files: Sequence[ShownFile]) -> str | None:
    """Return why some files cannot be sent to a model, and what to do. None if no problem is known."""
    if not files:
        return None
    if is_function_model(lm):
        return (
            f"the submission has {len(files)} attachments, which a function of two texts cannot be sent: use a "
            "`dspy.LM`, a model name or a LangChain chat model as the judge"
        )
    urls = [file.content for file in files if file.is_url]
    if urls and not _passes_on(lm, urls):
        return (
            f"an attachment has only a URL, and the client of {lm.model!r} may download it on this machine, from where "
            "it could reach what the internet cannot: pass the file's bytes as `data`"
        )
    return None


def _passes_on(lm: dspy.BaseLM, urls: Sequence[str]) -> bool:
    model = chat_model_of(lm)
    if model is not None:
        return any(parent.__module__.startswith(_CHAT_MODELS_PASS_URLS_ON) for parent in type(model).__mro__)
    engine: Any = getattr(lm, "engine", None)
    if type(lm) is not dspy.LM or not isinstance(engine, str):
        return True  # an LM or an engine of the user's own, which decides for itself
    # LiteLLM passes https addresses on to Anthropic, and downloads http ones.
    is_anthropic = lm.model.startswith("anthropic/") and all(url.startswith("https://") for url in urls)
    return is_anthropic or "/" not in lm.model or lm.model.startswith(_PASS_URLS_ON)


def is_plain_lm(lm: object) -> bool:
    """Whether an LM is a `dspy.LM`, and not an object of a subclass."""
    return type(lm) is dspy.LM


_SYNCHRONOUS, _ASYNCHRONOUS = ("__call__", "forward"), ("acall", "aforward")


def is_sync_only(lm: dspy.BaseLM) -> bool:
    """Whether an LM overrides the synchronous call but not the asynchronous call.

    DSPy would raise NotImplementedError or, for a subclass of `dspy.LM`, silently use the inherited call.
    """
    layers: list[Mapping[str, Any]] = [vars(lm), *map(vars, type(lm).__mro__)]
    return _first(layers, _SYNCHRONOUS) < _first(layers, _ASYNCHRONOUS)


def with_async_call(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Give an LM that has only a synchronous call an asynchronous call, which runs it in a thread.

    Other LMs are returned unchanged.
    """
    if not is_sync_only(lm):
        return lm
    threaded: Any = lm.copy()

    async def acall(*prompt: Any, **settings: Any) -> Any:
        return await run_in_thread(partial(threaded, *prompt, **settings))

    threaded.acall = acall
    return threaded


def _first(layers: list[Mapping[str, Any]], names: tuple[str, ...]) -> int:
    """Return the index of the first layer that defines one of the names. The first layer is the most derived one."""
    return next(index for index, layer in enumerate(layers) if any(name in layer for name in names))
