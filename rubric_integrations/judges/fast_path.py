"""The fast path to a model: a prompt that DSPy renders once becomes a template, which is filled in for each question.

DSPy plans, renders, converts and routes each request from the beginning. This takes ten times the CPU time of sending
the request. Questions of the same form to the same model differ only in their texts. Therefore DSPy renders one
request with slots instead of the texts, for an engine that records it and sends nothing (`judges/engines.py`). For each
question, a copy of the bytes of this request gets the texts of the question in its slots.

A template is used only if it gives the same bytes as the question itself, rendered in the same way. Otherwise, requests
go through DSPy itself, and one warning names the difference.
"""

from __future__ import annotations

import json
import re
import secrets
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from json.encoder import encode_basestring
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import dspy
from dspy import lm15
from dspy.clients.errors import error_boundary
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import DSPyError

from rubric_integrations._util.text import cache_by_text, url_without_secrets
from rubric_integrations.judges.engines import ModelCapabilities, record_request
from rubric_integrations.judges.models.errors import Completion, completion_of_response, first_line
from rubric_integrations.judges.models.keys import litellm_reason, server_url, server_url_of_environment
from rubric_integrations.judges.models.langchain import chat_model_of, chat_model_settings
from rubric_integrations.judges.models.names import is_function_model
from rubric_integrations.judges.prompts.render import ShownFile
from rubric_integrations.judges.prompts.signatures import Attachments
from rubric_integrations.judges.protocol import JudgeRequest

if TYPE_CHECKING:
    from rubric_integrations.judges.provider import CapturedRequest, ProviderClient

_SLOT = f"slot{secrets.token_hex(12)}"
# DSPy checks that the content of a file is base64. Therefore its slot is alphanumeric, and its length is a multiple of
# four.
_FILE_SLOT = f"slotFile{secrets.token_hex(7)}"
_TEXT_SLOTS = re.compile(rf"{_SLOT}(\w+){_SLOT}")
_SLOTS = re.compile(rf"{_SLOT}(\w+){_SLOT}|{_FILE_SLOT}(\d{{5}})A".encode())
# DSPy checks that a URL is valid. Therefore its slot keeps the scheme.
_SCHEME = re.compile(r"https?://")


class Slots(NamedTuple):
    """The body of a request, split at its slots: the places for the texts and files of a question.

    Attributes:
        constants: The parts of the body before, between and after the slots. They are the same in all requests.
        names: The names of the slots, in their order in the body.
    """

    constants: tuple[bytes, ...]
    names: tuple[str, ...]

    def fill(self, inputs: Mapping[str, Any]) -> bytes:
        """Fill the texts and files of a question into the slots, and return the bytes of the request's body."""
        values, parts = _values(inputs), [self.constants[0]]
        for name, constant in zip(self.names, self.constants[1:], strict=True):
            parts += (values[name], constant)
        return b"".join(parts)


def find_slots(body: bytes) -> Slots:
    """Find the slots in the body of a request whose inputs were markers (made by `slot_inputs`) instead of texts."""
    constants, names, end = list[bytes](), list[str](), 0
    for match in _SLOTS.finditer(body):
        constants.append(body[end : match.start()])
        names.append((match[1] or match[2]).decode())
        end = match.end()
    return Slots((*constants, body[end:]), tuple(names))


def slot_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs of the same form, with the marker of a slot instead of each text and each file of the question."""
    return {name: _slot_input(name, value) for name, value in inputs.items()}


def form_of(inputs: Mapping[str, Any]) -> object:
    """Return the properties of inputs that a request template depends on: names of fields, and kinds of files."""
    fields, attachments = tuple(inputs), inputs.get("attachments")
    if attachments is None:
        return fields, ()
    return fields, tuple((file.kind, file.mime_type, _scheme(file), file.detail) for file in attachments.files)


def _slot_input(name: str, value: Any) -> Any:
    if not isinstance(value, Attachments):
        return f"{_SLOT}{name}{_SLOT}"
    return Attachments(files=tuple(_slot_file(file, number) for number, file in enumerate(value.files)))


def _slot_file(file: ShownFile, number: int) -> ShownFile:
    slot = f"{_SLOT}{_content_slot(number)}{_SLOT}"
    content = slot if file.kind == "text" else _scheme(file) + slot if file.is_url else f"{_FILE_SLOT}{number:05d}A"
    return file._replace(label=f"{_SLOT}{_label_slot(number)}{_SLOT}", content=content)


def _values(inputs: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the bytes for each slot, by the slot's name."""
    values: dict[str, bytes] = {}
    for name, value in inputs.items():
        if type(value) is not Attachments:
            values[name] = _encode(value)
            continue
        for number, file in enumerate(value.files):
            values[_label_slot(number)] = _encode(file.label)
            # Base64 needs no escapes in JSON.
            is_base64 = file.kind != "text" and not file.is_url
            content = file.content.encode() if is_base64 else _encode(file.content.removeprefix(_scheme(file)))
            values[f"{number:05d}" if is_base64 else _content_slot(number)] = content
    return values


def _scheme(file: ShownFile) -> str:
    match = _SCHEME.match(file.content) if file.is_url else None
    return match[0] if match else ""


def _label_slot(number: int) -> str:
    return f"label_{number}"


def _content_slot(number: int) -> str:
    return f"content_{number}"


def encode_json_text(text: str) -> bytes:
    """Encode a text as DSPy writes it between the quotation marks of a JSON string."""
    quoted = encode_basestring(text)[1:-1]
    try:
        return quoted.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text of the request contains a lone surrogate (U+{ord(quoted[error.start]):04X}), which no server can "
            "receive: repair the text, "
            "for example with `text.encode('utf-8', 'replace').decode()`"
        ) from None


_encode = cache_by_text(encode_json_text)


# The releases of DSPy that CI tests. Other releases also use the fast path if they send and read the same bytes.
TESTED_DSPY = ("3.4.1",)

# If there are more forms of questions, few-shot examples are chosen for each question, and older forms are not reused.
_MAX_TEMPLATES = 256


class PromptTemplate:
    """An HTTP request with slots instead of the texts and files of a question.

    Attributes:
        assumes_format: Whether the request asks for a JSON format although DSPy does not know whether the model
            supports it.
        json_only: Whether the request asks for a JSON format that the model supports according to DSPy. The reply must
            then be only a JSON object.
        body: A function that returns the bytes of the request's body with the texts and files of a question.
    """

    def __init__(self, lm: dspy.LM, request: CapturedRequest):
        self._lm, self._request = lm, request
        # The names of the format's field in OpenAI's and in Anthropic's protocol.
        has_format = not {"response_format", "output_config"}.isdisjoint(json.loads(request.body))
        self.json_only = has_format and "response_format" in ModelCapabilities(lm).supported_params
        self.assumes_format = has_format and not self.json_only
        self.body = find_slots(request.body).fill

    def complete(self, inputs: Mapping[str, Any]) -> Awaitable[Completion]:
        """Send the request with these texts and files, once.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        return self._request.send(self.body(inputs), self._lm)

    def request(self, inputs: Mapping[str, Any]) -> JudgeRequest:
        """Return the request with these texts and files, without sending it. For example, it can be part of a batch."""
        address = self._request.address
        return JudgeRequest(self._request.protocol, address.url, tuple(address.headers), self.body(inputs))

    def read(self, status: int, body: bytes) -> Awaitable[Completion]:
        """Parse the response to a request that `complete` has not sent, such as a request of a batch.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        from rubric_integrations.judges.http import HttpReply

        return self._request.reader.read(HttpReply(status, "", {}, body), self._lm)


class FunctionTemplate:
    """The system prompt and the user prompt for a model that is a function, with slots instead of the texts.

    Attributes:
        assumes_format, json_only: As in `PromptTemplate`. Always False, because a function accepts no JSON format.
    """

    assumes_format = json_only = False

    def __init__(self, lm: dspy.LM, request: lm15.Request):
        self._lm, self._request = lm, request

    def fill(self, inputs: Mapping[str, Any]) -> lm15.Request:
        """Fill the texts of a question into the slots, and return the request to the function."""

        def filled(text: str) -> str:
            return _TEXT_SLOTS.sub(lambda slot: inputs[slot[1]], text)

        messages = tuple(
            replace(message, parts=tuple(lm15.TextPart(filled(part.text)) for part in cast("Any", message.parts)))
            for message in self._request.messages
        )
        return replace(self._request, system=filled(cast("str", self._request.system or "")), messages=messages)

    async def complete(self, inputs: Mapping[str, Any]) -> Completion:
        """Call the function with these texts, once.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        engine: Any = self._lm.engine
        with error_boundary(self._lm.model, unexpected=True):
            response = await engine.async_engine.complete(self.fill(inputs))
        return completion_of_response(response)


Template = PromptTemplate | FunctionTemplate


class TemplateCache:
    """A cache of one judge's request templates. A key consists of all values on which a template depends."""

    def __init__(self) -> None:
        self.templates: dict[object, Template | None] = {}

    def __reduce__(self) -> tuple[type[TemplateCache], tuple[()]]:
        # Credentials, locks and connections must not be pickled.
        return TemplateCache, ()


async def template_for(
    cached: TemplateCache,
    predict: dspy.Predict,
    lm: dspy.BaseLM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
    context: Callable[[], AbstractContextManager[None]],
    *,
    for_batch: bool = False,
) -> Template | None:
    """Return the template of the HTTP request for questions of this form, from the cache or made with DSPy.

    For a model that is a function, it is the template of the prompts. The filled template gives the same bytes as
    DSPy's request, and saves the time for DSPy's rendering.

    Args:
        cached: The judge's templates.
        predict: The predictor that would send the question.
        lm: The model.
        signature: The signature, without fields that the question does not have.
        demos: The few-shot examples.
        inputs: The question's texts and files.
        context: A function that makes the `dspy.context` in which the predictor would be called.
        for_batch: Whether the template is for requests that this judge does not send itself, such as the requests of a
            batch. Such requests may have Anthropic's protocol, and a URL that needs a proxy.

    Returns:
        The template. None if the question must go through DSPy itself. These are some of the reasons:

        - The LM or the predictor is an object of a subclass.
        - Callbacks of the LM or the predictor, or instrumentation, observe the call.
        - The protocol is not OpenAI's, or a proxy is needed.
        - The installed DSPy sends other bytes than the filled template, or parses replies in another way.
    """
    # Read once: each attribute look-up of a `dspy.Module` is a function call.
    own = predict.__dict__
    if not isinstance(lm, dspy.LM) or not _is_plain(predict, own, lm) or not _is_active():
        return None
    try:
        examples = tuple(tuple(demo.items()) for demo in demos) if demos else ()
        settings = (repr(own["config"]), lm.model, lm.model_type, repr(lm.kwargs))
        key = (signature, form_of(inputs), *settings, for_batch, examples)
        if key in cached.templates:
            return cached.templates[key]
    except TypeError:  # a few-shot example with a field that is no text
        return None
    if len(cached.templates) >= _MAX_TEMPLATES:
        cached.templates.clear()
    with context():
        template = await _make_template(predict, lm, signature, demos, inputs, for_batch)
    cached.templates[key] = template
    return template


async def _make_template(
    predict: dspy.Predict,
    lm: dspy.LM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
    for_batch: bool,
) -> Template | None:
    """Make the template of a request. Return None if DSPy itself must make the requests."""
    from rubric_integrations.judges.provider import capture_http_request, provider_with_template

    template: Template | None
    try:
        provider = None if is_function_model(lm) else provider_with_template(lm, for_batch=for_batch)
        if provider is None and (for_batch or not is_function_model(lm)):
            return None
        with_slots = await record_request(predict, lm, signature, demos, slot_inputs(inputs))
        request = await record_request(predict, lm, signature, demos, inputs)
        if provider is None:
            template = FunctionTemplate(lm, with_slots)
            is_equal = template.fill(inputs) == request
        else:
            captured = capture_http_request(provider, with_slots, for_batch=for_batch)
            rendered = capture_http_request(provider, request, for_batch=for_batch)
            if captured is None or rendered is None:
                return None
            template = PromptTemplate(lm, captured)
            is_equal = template.body(inputs) == rendered.body
    except (DSPyError, lm15.LM15Error, ValueError):
        return None  # wrong settings or texts: DSPy itself gives a better error message
    except Exception as error:  # noqa: BLE001 -- whatever another DSPy raises; requests through DSPy still work
        _warn_slow(f"DSPy {version('dspy')} works otherwise ({type(error).__name__}: {error})")
        return None
    if not is_equal:
        _warn_slow(f"DSPy {version('dspy')} differs from the fast path in the body of a request")
        return None
    return template


def _is_plain(predict: dspy.Predict, own: Mapping[str, Any], lm: dspy.LM) -> bool:
    """Whether DSPy's own code makes the complete call, and no callback or instrumentation listens to it.

    Args:
        predict: The predictor.
        own: The predictor's attributes.
        lm: The model.
    """
    if type(lm) is not dspy.LM or type(predict) is not dspy.Predict or lm.cache or own["fields"]:
        return False
    callbacks = (*lm.callbacks, *own["callbacks"])
    if callbacks and any(map(_listens, callbacks)):
        return False
    steps = (dspy.LM.__call__, dspy.LM.acall, dspy.Predict.forward, dspy.Predict.aforward, dspy.Predict.acall)
    return set(map(type, steps)) == {FunctionType}


# Hooks for parts of DSPy that a judge does not use. Unknown hooks of later versions of DSPy count as used.
_UNUSED_HOOKS = ("on_tool_", "on_evaluate_", "on_interpreter_", "on_compile_")
_HOOKS = {
    name: getattr(BaseCallback, name)
    for name in dir(BaseCallback)
    if name.startswith("on_") and not name.startswith(_UNUSED_HOOKS)
}


def _listens(callback: object) -> bool:
    """Whether a callback overrides a hook that DSPy calls for a judge. The hooks of `BaseCallback` do nothing."""
    return any(getattr(getattr(callback, name, None), "__func__", None) is not hook for name, hook in _HOOKS.items())


@cache
def fast_path_problem() -> str | None:
    """Return why requests cannot be sent without DSPy (the fast path). None if they can.

    Without the fast path, all requests go through DSPy itself, which takes about eight times the CPU time. This
    function does not compare the bytes that DSPy sends and reads. They are compared when a template is made.
    """
    try:
        from rubric_integrations.judges import provider as _  # noqa: F401
    except ImportError as error:
        return f"DSPy {version('dspy')} lacks what the fast path needs ({error})"
    return None


def describe_path(lm: dspy.BaseLM) -> str:
    """Describe in one line who sends a model's requests, where to, and the reason if it is not this library.

    Example:
        >>> describe_path(dspy.LM("hosted_vllm/qwen3", model_type="chat", cache=False))
        'sent by this library to http://localhost:8000/v1'
    """
    if is_function_model(lm):
        return "sent by your function"
    if (model := chat_model_of(lm)) is not None:
        return f"sent by LangChain's {type(model).__name__}{_to(chat_model_settings(lm).get('base_url'))}"
    if type(lm) is not dspy.LM:
        return f"sent by your LM {type(lm).__name__}"
    if not isinstance(lm.engine, str):
        return f"sent by your engine {type(lm.engine).__name__}"
    if reason := litellm_reason(lm):
        return f"sent by LiteLLM{_to(server_url(lm))}, because {reason}"
    provider, reason = None, fast_path_problem()
    if reason is None:
        from rubric_integrations.judges.provider import provider_of

        try:
            provider = provider_of(lm)
            reason = _reason_for_dspy(lm, provider)
        except lm15.LM15Error as error:
            reason = first_line(error)
    if provider is not None and reason is None:
        is_heard, is_openai = any(map(_listens, lm.callbacks)), provider.protocol == "openai"
        cause = "callbacks are set" if is_heard else None if is_openai else "its protocol is not OpenAI's"
        return f"sent by this library{_to(provider.url)}{f', rendered by DSPy, because {cause}' if cause else ''}"
    # DSPy then uses LiteLLM.
    is_of_environment = lm.engine == "auto" and server_url_of_environment(lm.model)
    return f"sent by {'LiteLLM' if is_of_environment else 'DSPy'}{_to(server_url(lm))}, because {reason}"


def _reason_for_dspy(lm: dspy.LM, provider: ProviderClient | None) -> str | None:
    from rubric_integrations.judges.http import needs_proxy

    if lm.cache:
        return "its DSPy cache is on"
    if provider is not None:
        return "the environment sets a proxy" if needs_proxy(provider.url) else None
    if str(lm.model_type) != "chat":
        return f"`model_type` is {str(lm.model_type)!r}"
    return "its `timeout` or its key is not a plain value"


def _to(url: object) -> str:
    return f" to {url_without_secrets(url)}" if isinstance(url, str) else ""


@cache
def _is_active() -> bool:
    problem = fast_path_problem()
    if problem:
        _warn_slow(problem)
    return problem is None


@cache
def _warn_slow(reason: str) -> None:
    """Warn once for each reason."""
    message = (
        "judgments are requested through DSPy itself, which gives the same judgments at about eight times the CPU: "
        f"{reason}"
    )
    # Where warnings are errors, a judgment must not fail because it is slow.
    with suppress(RuntimeWarning):
        warnings.warn(message, RuntimeWarning, stacklevel=2)


__all__ = ["TESTED_DSPY", "PromptTemplate", "TemplateCache", "describe_path", "fast_path_problem", "template_for"]
