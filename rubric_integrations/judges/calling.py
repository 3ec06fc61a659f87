"""Sends one question to a model, by the fast path or through DSPy, and parses the reply.

The reply is requested in the strictest format that DSPy knows for the model: a JSON Schema, or JSON mode. Some servers
refuse it (DeepSeek, Ollama and vLLM in some versions, older models of OpenAI). A refusal that names the format steps
down to the next simpler one, which is remembered for the judge's other requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast, get_args

import dspy
from dspy.utils.exceptions import DSPyError

from rubric_integrations.judges._direct import TemplateCache, template_for
from rubric_integrations.judges.models.completion import Completion, completion_from_history
from rubric_integrations.judges.models.failures import failure_from_client_error, failure_from_error, first_line
from rubric_integrations.judges.models.incomplete import require_answer
from rubric_integrations.judges.models.sync_only import with_async_call
from rubric_integrations.judges.prompts.adapter import JudgeAdapter, ReplyFormat
from rubric_integrations.judges.prompts.cache_control import CacheControlAdapter, supports_cache_control
from rubric_integrations.judges.prompts.parse import parse_reply
from rubric_integrations.judges.prompts.render import PromptInputs
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import NO_SPEND, Spend, total_spend

_REPLY_FORMATS: tuple[ReplyFormat, ...] = get_args(ReplyFormat)
_NAMES_FORMAT = re.compile(r"response_format|json_(?:schema|object)|json mode|structured[ _]outputs?", re.IGNORECASE)


class ParsedReply(NamedTuple):
    """The fields of a reply, and what it cost, refused requests included."""

    fields: Mapping[str, Any]
    spend: Spend


class ModelCaller:
    """The calls of one judge: its prompt templates, and the reply format that its model's server accepts.

    Args:
        confidence: Whether probabilities are requested, which DSPy decodes outside of the adapter.
    """

    def __init__(self, confidence: bool):
        self._confidence = confidence
        self._templates = {reply_format: TemplateCache() for reply_format in _REPLY_FORMATS}
        self._reply_format: ReplyFormat = _REPLY_FORMATS[0]

    async def call(
        self,
        lm: dspy.BaseLM,
        predict: dspy.Predict,
        prompt: PromptInputs,
        examples: Sequence[dspy.Example] = (),
        *,
        warm_prompt_cache: bool = False,
    ) -> ParsedReply:
        """Send one request, and parse the reply.

        Args:
            lm: The model.
            predict: The predictor, with its signature and few-shot examples.
            prompt: The question's texts.
            examples: Further few-shot examples.
            warm_prompt_cache: See `Question.warm_prompt_cache`.

        Raises:
            JudgeFailure: There was no reply, or none that can be parsed.
        """
        refused = NO_SPEND
        while True:
            reply_format = self._reply_format
            adapter_type = CacheControlAdapter if warm_prompt_cache and supports_cache_control(lm) else JudgeAdapter
            adapter = adapter_type.for_inputs(prompt.inputs, prompt.quotable)
            adapter.reply_format = reply_format
            try:
                reply = await self._send(lm, predict, prompt, [*predict.demos, *examples], adapter)
                return reply._replace(spend=reply.spend + refused) if refused.calls else reply
            except JudgeFailure as failure:
                refused = failure.spend = failure.spend + refused
                if not _refuses_format(failure) or not self._step_down(reply_format):
                    raise

    def _step_down(self, refused: ReplyFormat) -> bool:
        """Use a simpler format than the refused one from now on; False if there is none."""
        position = _REPLY_FORMATS.index(refused) + 1
        if position == len(_REPLY_FORMATS):
            return False
        # Another request may have stepped down further meanwhile.
        self._reply_format = _REPLY_FORMATS[max(position, _REPLY_FORMATS.index(self._reply_format))]
        return True

    async def _send(
        self, lm: dspy.BaseLM, predict: dspy.Predict, prompt: PromptInputs, demos: Sequence[Any], adapter: JudgeAdapter
    ) -> ParsedReply:
        signature, context = _with_fields(predict, prompt.inputs), partial(_isolated_context, adapter)
        completions: list[Completion] = []
        fields: Any

        def receive(completion: Completion) -> None:
            completions.append(completion)
            adapter.raw_text = completion.text or None
            require_answer(completion, lm.kwargs)

        try:
            template = None
            if not self._confidence:
                templates = self._templates[adapter.reply_format]
                template = await template_for(templates, predict, lm, signature, demos, prompt.inputs, context)
            if template is not None:
                receive(await template.complete(prompt.inputs))
                ids = adapter.expected_ids
                fields = parse_reply(signature, completions[0].text, quotable=adapter.quotable, expected_ids=ids)
            else:

                def record(entry: Mapping[str, Any]) -> None:
                    receive(completion_from_history(entry, caches=lm.cache))

                # The copy hands us what DSPy would append to its histories, and nothing stays in memory.
                recorded = with_async_call(lm.copy(num_retries=0, update_history=record))
                with context():
                    fields = await predict.acall(lm=recorded, signature=signature, demos=demos, **prompt.inputs)
        except JudgeFailure:
            raise
        except DSPyError as error:
            raise failure_from_error(error, _spend_of(completions), lm.kwargs.get("api_base")) from error
        except (ValueError, TypeError, ImportError) as error:
            # An error about probabilities is about the reply; any other is about the settings.
            about_reply = self._confidence and bool(completions)
            kind = "parse" if about_reply else "config"
            spend = _spend_of(completions)
            raise JudgeFailure(kind, first_line(error), retryable=about_reply, spend=spend) from error
        except Exception as error:  # whatever an LM of a user's own raises
            raise failure_from_client_error(error, _spend_of(completions)) from error
        # An LM that replaces DSPy's whole call reports nothing.
        spend = _spend_of(completions) if completions else Spend(calls=1, usage=None, cost=None)
        return ParsedReply(fields, spend)


def _refuses_format(failure: JudgeFailure) -> bool:
    return failure.kind == "config" and bool(_NAMES_FORMAT.search(failure.message))


def _spend_of(completions: Sequence[Completion]) -> Spend:
    # A request without a reply was a call.
    return total_spend(completion.spend for completion in completions) if completions else Spend(calls=1)


def _isolated_context(adapter: JudgeAdapter) -> AbstractContextManager[None]:
    """Make a DSPy context in which the judge leaves no trace, and in which only we count its calls."""
    return dspy.context(
        adapter=adapter, trace=None, disable_history=False, track_usage=False, usage_tracker=None, send_stream=None
    )


def _with_fields(predict: dspy.Predict, inputs: Mapping[str, Any]) -> Any:
    """Return a predictor's signature without the input fields that a question lacks."""
    return select_fields(cast("Any", predict).signature, tuple(inputs))


@lru_cache(maxsize=256)
def select_fields(signature: Any, inputs: tuple[str, ...]) -> Any:
    """Remove the input fields of a signature that are not among `inputs`."""
    for name in set(signature.input_fields).difference(inputs):
        signature = signature.delete(name)
    return signature
