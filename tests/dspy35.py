# pyright: reportPrivateUsage=false
"""Imitates the boundary between DSPy 3.5's adapters and models on the installed release, for the duration of a test.

In 3.5, `Adapter.format` returns a `Prompt` of lm15's messages. Adapters build a `Request` and pass it to `LM.generate`
or `LM.agenerate`. `lm(messages=...)` is an error, and models without an engine cannot be called. The imitation follows
the upgrade guide of DSPy. It does not show that this library works with 3.5.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.adapters.base import Adapter
from dspy.clients.base_lm import BaseLM
from dspy.clients.capabilities import with_capability_planning
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import LMUnsupportedFeatureError

from rubric_integrations.judges.explorer import ExplorerAdapter
from rubric_integrations.judges.prompts.signatures import JudgeAdapter


@dataclass(frozen=True)
class Prompt:
    """The messages of a request, with the system prompt apart from them."""

    messages: tuple[lm15.Message, ...]
    system: Any = None


def _prompt_of(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    request = lm15.request_from_openai_chat({"model": "m", "messages": messages})
    return Prompt(request.messages, request.system)


def _request_of(lm: dspy.BaseLM, prompt: Prompt, options: Mapping[str, Any]) -> tuple[lm15.Request, int]:
    """Build a request as 3.5 does: the settings of the model and of the call, and the messages of the prompt."""
    from dspy.clients.execution import _canonical, prepare

    call = prepare(lm, None, [{"role": "user", "content": "-"}], dict(options))
    with_settings = _canonical(call)
    request = lm15.Request(
        model=lm.model, messages=prompt.messages, system=prompt.system, config=with_settings.config,
        tools=with_settings.tools,
    )  # fmt: skip
    return request, call.n


def _outputs_of(responses: Sequence[lm15.Response]) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    for response in responses:
        texts = [part.text for part in response.message.parts if isinstance(part, lm15.TextPart)]
        texts += [json.dumps(part.value) for part in response.message.parts if isinstance(part, lm15.DataPart)]
        outputs.append({"text": "".join(texts) or None})
    return outputs


def _require_engine(lm: Any, *, is_async: bool) -> None:
    spec: object = getattr(lm, "_engine_spec", None)
    if isinstance(spec, str):
        return
    if spec is None or (is_async and lm._async_engine_spec is None):
        raise LMUnsupportedFeatureError(f"{type(lm).__name__} has no engine: custom LMs are engines in DSPy 3.5")


@contextmanager
def dspy35_boundary() -> Generator[None]:
    """Replace the boundary of the installed DSPy, and restore it at the end."""
    render, call, acall = unwrap(Adapter.format), BaseLM.__call__, BaseLM.acall

    def format(adapter: Adapter, signature: Any, demos: Any, inputs: Any) -> Prompt:  # noqa: A001 -- DSPy's name
        return _prompt_of(render(adapter, signature, demos, inputs))

    def generate(lm: Any, request: lm15.Request, *, n: int = 1, **_: Any) -> list[lm15.Response]:
        _require_engine(lm, is_async=False)
        return [call(lm, request) for _ in range(n)]

    async def agenerate(lm: Any, request: lm15.Request, *, n: int = 1, **_: Any) -> list[lm15.Response]:
        _require_engine(lm, is_async=True)
        return [await acall(lm, request) for _ in range(n)]

    def adapter_call(adapter: Any, lm: Any, options: Any, signature: Any, demos: Any, inputs: Any) -> Any:
        processed = adapter._call_preprocess(lm, options, signature, inputs)
        request, n = _request_of(lm, adapter.format(processed, demos, inputs), options)
        return adapter._call_postprocess(processed, signature, _outputs_of(lm.generate(request, n=n)), lm, options)

    async def adapter_acall(adapter: Any, lm: Any, options: Any, signature: Any, demos: Any, inputs: Any) -> Any:
        processed = adapter._call_preprocess(lm, options, signature, inputs)
        request, n = _request_of(lm, adapter.format(processed, demos, inputs), options)
        outputs = _outputs_of(await lm.agenerate(request, n=n))
        return adapter._call_postprocess(processed, signature, outputs, lm, options)

    def refusing(method: Any) -> Any:
        def refuse(lm: Any, prompt: Any = None, **options: Any) -> Any:
            if "messages" in options:
                raise TypeError("lm(messages=[...]) was removed in DSPy 3.5: build a dspy.lm15.Request")
            return method(lm, prompt, **options)

        return refuse

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dspy.adapters, "Prompt", Prompt, raising=False)
        # DSPy gives each subclass a wrapped copy of the method.
        for kind in (Adapter, dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter, JudgeAdapter, ExplorerAdapter):
            patch.setattr(kind, "format", format if kind is Adapter else with_callbacks(format))
        patch.setattr(Adapter, "__call__", with_capability_planning(adapter_call))
        patch.setattr(Adapter, "acall", with_capability_planning(adapter_acall))
        patch.setattr(BaseLM, "generate", generate, raising=False)
        patch.setattr(BaseLM, "agenerate", agenerate, raising=False)
        patch.setattr(BaseLM, "__call__", refusing(call))
        patch.setattr(BaseLM, "acall", refusing(acall))
        yield
