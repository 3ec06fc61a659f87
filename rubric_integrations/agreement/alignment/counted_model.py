"""A model as an optimizer calls it: its calls are counted and limited, and its replies stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, cast

import dspy
from dspy.utils.exceptions import DSPyError

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.agreement.alignment.calls import AlignmentCalls
from rubric_integrations.judges.credentials import is_credential
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models import settings_of, without_framework_cache
from rubric_integrations.judges.models.completion import completion_from_history
from rubric_integrations.judges.models.failures import failure_from_client_error, failure_from_error
from rubric_integrations.judges.models.prices import highest_cost, load_prices
from rubric_integrations.judges.models.sync_only import with_async_call
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.usage import NO_SPEND, UNKNOWN_CALL, total_spend

_REPLY = "REPLY"


class CountedModel(dspy.BaseLM):
    """A model whose calls count towards the limits of an alignment, and whose replies are stored by their requests.

    Args:
        lm: The model.
        calls: The calls of the alignment.
    """

    def __init__(self, lm: dspy.BaseLM, calls: AlignmentCalls):
        super().__init__(lm.model, model_type=cast("Any", lm.model_type), cache=False)
        self._lm, self._calls = without_framework_cache(lm), calls
        self.kwargs = dict(lm.kwargs)
        self._fingerprint = LMJudge(lm).fingerprint()

    def __deepcopy__(self, memo: object) -> CountedModel:
        return self

    @property
    def supports_function_calling(self) -> bool:
        """Whether the model supports function calling."""
        return self._lm.supports_function_calling

    @property
    def supports_reasoning(self) -> bool:
        """Whether the model supports native reasoning."""
        return self._lm.supports_reasoning

    @property
    def supports_response_schema(self) -> bool:
        """Whether the model supports structured output."""
        return self._lm.supports_response_schema

    @property
    def supported_params(self) -> set[str]:
        """The names of the parameters that the model supports."""
        return self._lm.supported_params

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Return the model's outputs, as `dspy.BaseLM` does."""
        return run_sync(self.acall(prompt, messages=messages, **kwargs))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """`__call__`, asynchronously."""
        # DSPy changes the settings of a copy, such as the temperature of MIPROv2's proposals.
        own = {name: value for name, value in self.kwargs.items() if self._lm.kwargs.get(name) != value}
        settings = {**own, **kwargs}
        text = json.dumps([prompt, messages], default=str)
        shown = {name: value for name, value in settings.items() if not is_credential(name)}
        key = None
        if self._fingerprint is not None:
            request = json.dumps([_REPLY, self._fingerprint, text, shown], default=repr, sort_keys=True)
            key = sha256(request.encode()).hexdigest()
        await load_prices(self._lm)
        send = partial(self._send, prompt, messages, settings)
        reply = await self._calls.reply(self.model, key, send, highest_cost(self._lm, len(text.encode())))
        outputs: list[Any] = json.loads(reply.reason)
        if "update_history" in vars(self):  # a judge that calls this model reads its reply there
            self.update_history({"outputs": outputs, "response": None, "usage": None, "cost": None})
        return outputs

    async def _send(self, prompt: Any, messages: Any, settings: Mapping[str, Any]) -> Judgment:
        """Send a request; the outputs of the model become a judgment's reason, as JSON.

        Raises:
            JudgeFailure: The model did not reply.
        """
        entries: list[Mapping[str, Any]] = []
        lm = with_async_call(self._lm.copy(update_history=entries.append))
        try:
            with dspy.context(disable_history=False, track_usage=False, usage_tracker=None):
                outputs: Sequence[Any] = await lm.acall(prompt, messages=messages, **settings)
        except DSPyError as error:
            raise failure_from_error(error, UNKNOWN_CALL, settings_of(self._lm)) from None
        except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
            raise failure_from_client_error(error, UNKNOWN_CALL, settings_of(self._lm)) from None
        # An LM that replaces DSPy's whole call reports nothing.
        spends = [completion_from_history(entry, caches=False).spend for entry in entries]
        spend = total_spend(spends) if spends else UNKNOWN_CALL
        reason = json.dumps([output if isinstance(output, str | Mapping) else str(output) for output in outputs])
        return Judgment(verdict=_REPLY, value=None, reason=reason, spend=spend or NO_SPEND)
