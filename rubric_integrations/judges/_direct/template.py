"""A prompt template that DSPy renders once, and that is filled in for each question.

DSPy plans, renders, converts and routes each request from the start, which costs ten times as much CPU as to send it.
All questions of one form to one model differ in their texts alone. So the first one goes through DSPy with slots in
place of its texts, up to the bytes of the HTTP request; the others put their texts into the slots.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import version
from types import FunctionType
from typing import TYPE_CHECKING, Any

import dspy
from dspy import lm15
from dspy.utils.exceptions import DSPyError

from rubric_integrations.judges._direct.slots import find_slots, form_of, slot_inputs
from rubric_integrations.judges.models.completion import Completion
from rubric_integrations.judges.requests import JudgeRequest

if TYPE_CHECKING:
    from rubric_integrations.judges._direct.capture import CapturedRequest

# The releases of DSPy whose internals this package was tested with.
TESTED_DSPY = ("3.4.1",)

# Where there are more forms of questions, examples are chosen for each question, and older forms do not come again.
_MAX_TEMPLATES = 256


class PromptTemplate:
    """A request with slots in place of the texts and files.

    Attributes:
        has_format: Whether it requests a JSON format.
    """

    def __init__(self, lm: dspy.LM, request: CapturedRequest):
        self._lm, self._request = lm, request
        # OpenAI's name of it, and Anthropic's.
        self.has_format = not {"response_format", "output_config"}.isdisjoint(json.loads(request.body))
        self._slots = find_slots(request.body)

    def body(self, inputs: Mapping[str, Any]) -> bytes:
        """Fill in the texts and files, and return the bytes of the request."""
        return self._slots.fill(inputs)

    def complete(self, inputs: Mapping[str, Any]) -> Awaitable[Completion]:
        """Send the request with these texts and files, once.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        from rubric_integrations.judges._direct.capture import send

        return send(self._request, self.body(inputs), self._lm)

    def request(self, inputs: Mapping[str, Any]) -> JudgeRequest:
        """Return the request with these texts and files, for somebody else to send it."""
        endpoint = self._request.endpoint
        return JudgeRequest(self._request.protocol, endpoint.url, tuple(endpoint.headers), self.body(inputs))

    def read(self, status: int, body: bytes) -> Awaitable[Completion]:
        """Read a response to the request that somebody else has sent.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        from rubric_integrations.judges._direct.capture import read
        from rubric_integrations.judges._direct.http import HttpReply

        return read(self._request, HttpReply(status, "", {}, body), self._lm)


class TemplateCache:
    """The templates of one judge, by everything that they depend on."""

    def __init__(self) -> None:
        self.templates: dict[object, PromptTemplate | None] = {}

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
    for_batch: bool = False,
) -> PromptTemplate | None:
    """Return the template for questions of this form, from the cache or made with DSPy.

    Args:
        cached: The judge's templates.
        predict: The predictor that would send the question.
        lm: The model.
        signature: The signature without the fields that the question lacks.
        demos: The few-shot examples.
        inputs: The question's texts and files.
        context: Makes the `dspy.context` in which the predictor would be called.
        for_batch: Whether the request is not sent from here, so that Anthropic's protocol and proxies do not matter.

    Returns:
        The template; None where the question must go through DSPy itself: custom LMs and predictors, listeners
        (callbacks, instrumentation), other protocols than OpenAI's, proxies, an untested DSPy.
    """
    if not isinstance(lm, dspy.LM) or not _is_plain(predict, lm) or not _is_active():
        return None
    try:
        examples = tuple(tuple(demo.items()) for demo in demos)
        settings = (repr(predict.config), lm.model, lm.model_type, repr(lm.kwargs))
        key = (signature, form_of(inputs), examples, *settings, for_batch)
        if key in cached.templates:
            return cached.templates[key]
    except TypeError:  # a few-shot example with a field that is no text
        return None
    if len(cached.templates) >= _MAX_TEMPLATES:
        cached.templates.clear()
    with context():
        template = cached.templates[key] = await _make_template(predict, lm, signature, demos, inputs, for_batch)
    return template


async def _make_template(
    predict: dspy.Predict,
    lm: dspy.LM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
    for_batch: bool,
) -> PromptTemplate | None:
    from rubric_integrations.judges._direct.capture import capture_request

    try:
        request = await capture_request(predict, lm, signature, demos, slot_inputs(inputs), for_batch)
        if request is None:
            return None
        template = PromptTemplate(lm, request)
        # A filled template must be what DSPy would have sent, byte for byte, or it is not used.
        rendered = await capture_request(predict, lm, signature, demos, inputs, for_batch)
    except (DSPyError, lm15.LM15Error, ValueError):
        return None  # wrong settings or texts, about which DSPy itself gives the better error message
    except Exception as error:  # noqa: BLE001 -- whatever another DSPy raises; requests through DSPy still work
        _warn_slow(f"{type(error).__name__}: {error}")
        return None
    if rendered is not None and rendered.body == template.body(inputs):
        return template
    _warn_slow("a filled template differs from the request that DSPy renders")
    return None


def _is_plain(predict: dspy.Predict, lm: dspy.LM) -> bool:
    """Whether the call is DSPy's own throughout, and nobody listens to it."""
    if type(lm) is not dspy.LM or type(predict) is not dspy.Predict or lm.cache or predict.fields:
        return False
    if lm.callbacks or predict.callbacks or dspy.settings.callbacks:
        return False
    steps = (dspy.LM.__call__, dspy.LM.acall, dspy.Predict.forward, dspy.Predict.aforward, dspy.Predict.acall)
    return all(type(step) is FunctionType for step in steps)


@cache
def fast_path_problem() -> str | None:
    """Return why requests go through DSPy itself, at about eight times the CPU; None where the fast path is active."""
    installed = version("dspy")
    if installed not in TESTED_DSPY:
        return f"DSPy {installed} is not a version that this package was tested with ({', '.join(TESTED_DSPY)})"
    try:
        from rubric_integrations.judges._direct import capture as _  # noqa: F401
    except ImportError as error:
        return f"DSPy {installed} lacks what the fast path needs ({error})"
    return None


@cache
def _is_active() -> bool:
    problem = fast_path_problem()
    if problem:
        _warn_slow(problem)
    return problem is None


@cache
def _warn_slow(reason: str) -> None:
    """Warn once for each reason."""
    message = f"judgments are requested through DSPy itself, at about eight times the CPU: {reason}"
    warnings.warn(message, RuntimeWarning, stacklevel=2)
