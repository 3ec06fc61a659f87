"""Sends one question to a model, by the fast path or through DSPy, and parses the reply."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import dspy
from dspy.utils.exceptions import DSPyError, LMInvalidRequestError, LMUnsupportedFeatureError

from rubric_integrations._util.threads import run_on_texts
from rubric_integrations.judges._direct import PromptTemplate, TemplateCache, fast_path_problem, template_for
from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.models import settings_of
from rubric_integrations.judges.models.completion import Completion, completion_from_history
from rubric_integrations.judges.models.context_limit import check_prompt_fits
from rubric_integrations.judges.models.failures import failure_from_client_error, failure_from_error, first_line
from rubric_integrations.judges.models.file_support import file_problem
from rubric_integrations.judges.models.incomplete import require_answer
from rubric_integrations.judges.models.sync_only import with_async_call
from rubric_integrations.judges.prompts.adapter import JudgeAdapter
from rubric_integrations.judges.prompts.attachments import with_attachments
from rubric_integrations.judges.prompts.cache_control import CacheControlAdapter, supports_cache_control
from rubric_integrations.judges.prompts.render import PromptInputs
from rubric_integrations.judges.prompts.shown_files import ShownFile
from rubric_integrations.judges.prompts.signatures import OPTIONAL_FIELDS, with_evidence
from rubric_integrations.judges.requests import JudgeRequest
from rubric_integrations.judges.step_down import REPLY_FORMATS, RequestForm, StepDown
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import NO_SPEND, UNKNOWN_CALL, Spend, total_spend


class ParsedReply(NamedTuple):
    """The fields of a reply, and what it cost, refused requests included."""

    fields: Mapping[str, Any]
    spend: Spend


class ModelCaller:
    """The calls of one judge, and its prompt templates.

    Args:
        confidence: Whether probabilities are requested, which DSPy decodes outside of the adapter.
        default_temperature: See `StepDown`.

    Attributes:
        step_down: The form of the requests, without what the model's server refused.
    """

    def __init__(self, confidence: bool, default_temperature: float | None = None):
        self._confidence, self._default_temperature = confidence, default_temperature
        self._templates = {reply_format: TemplateCache() for reply_format in REPLY_FORMATS}
        self.step_down = StepDown(default_temperature)

    def __reduce__(self) -> Any:
        return ModelCaller, (self._confidence, self._default_temperature)

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
            prompt: The question's texts and files.
            examples: Further few-shot examples.
            warm_prompt_cache: See `Question.warm_prompt_cache`.

        Raises:
            JudgeFailure: There was no reply, or none that can be parsed; or the prompt is longer than the model reads.
        """
        await _check_prompt(lm, prompt)
        refused, form = NO_SPEND, self.step_down.form
        while True:
            attempt = self._attempt(lm, predict, prompt, examples, form, warm_prompt_cache)
            try:
                reply = await self._send(attempt)
            except JudgeFailure as failure:
                refused = failure.spend = failure.spend + refused
                if failure.kind == "parse":
                    self.step_down.accepted(form)
                simpler = self.step_down.simpler(form, lm, failure)
                if simpler is None:
                    if prompt.files:
                        raise _about_files(failure, prompt.files) from failure.__cause__
                    raise
                form = simpler
            else:
                self.step_down.accepted(form)
                return reply._replace(spend=reply.spend + refused) if refused.calls else reply

    async def prepare(
        self, lm: dspy.BaseLM, predict: dspy.Predict, prompt: PromptInputs, examples: Sequence[dspy.Example] = ()
    ) -> JudgeRequest:
        """Return the request that `call` would send, in its present form, without sending it.

        Raises:
            JudgeFailure: As `call`; or the request is none that somebody else could send.
        """
        await _check_prompt(lm, prompt)
        attempt = self._attempt(lm, predict, prompt, examples, self.step_down.form)
        with _failures(attempt.lm, [], self._confidence):
            return (await self._require_template(attempt)).request(attempt.inputs)

    async def read(
        self,
        lm: dspy.BaseLM,
        predict: dspy.Predict,
        prompt: PromptInputs,
        examples: Sequence[dspy.Example],
        body: bytes,
        status: int = 200,
    ) -> ParsedReply:
        """Parse the response to a request that `prepare` has made.

        Raises:
            JudgeFailure: The response is an error, or cannot be parsed.
        """
        attempt = self._attempt(lm, predict, prompt, examples, self.step_down.form)
        completions: list[Completion] = []
        with _failures(attempt.lm, completions, self._confidence):
            template = await self._require_template(attempt)
            fields = await attempt.parse(template, await template.read(status, body), completions)
        return ParsedReply(fields, _spend_of(completions))

    def _attempt(
        self,
        lm: dspy.BaseLM,
        predict: dspy.Predict,
        prompt: PromptInputs,
        examples: Sequence[dspy.Example],
        form: RequestForm,
        warm_prompt_cache: bool = False,
    ) -> _Attempt:
        inputs = with_attachments(prompt.inputs, prompt.files)
        adapter_type = CacheControlAdapter if warm_prompt_cache and supports_cache_control(lm) else JudgeAdapter
        adapter = adapter_type.for_inputs(inputs, prompt.quotable)
        adapter.reply_format = form.reply_format
        signature = select_fields(cast("Any", predict).signature, tuple(inputs), prompt.requests_evidence)
        model = self.step_down.model_for(lm, form)
        return _Attempt(model, predict, signature, inputs, [*predict.demos, *examples], adapter)

    async def _template(self, attempt: _Attempt, *, for_batch: bool = False) -> PromptTemplate | None:
        if self._confidence:
            return None
        lm, predict, signature, inputs, demos, adapter = attempt
        templates, context = self._templates[adapter.reply_format], partial(_isolated_context, adapter)
        return await template_for(templates, predict, lm, signature, demos, inputs, context, for_batch)

    async def _require_template(self, attempt: _Attempt) -> PromptTemplate:
        template = await self._template(attempt, for_batch=True)
        if template is None:
            reason = "a judge with `confidence`" if self._confidence else fast_path_problem() or _NO_REQUEST
            model = attempt.lm.model
            raise JudgeFailure("config", f"the judge {model!r} has no request that somebody else could send: {reason}")
        return template

    async def _send(self, attempt: _Attempt) -> ParsedReply:
        completions: list[Completion] = []
        fields: Any
        with _failures(attempt.lm, completions, self._confidence):
            template = await self._template(attempt)
            if template is not None:
                fields = await attempt.parse(template, await template.complete(attempt.inputs), completions)
            else:
                lm, predict, signature, inputs, demos, adapter = attempt

                def record(entry: Mapping[str, Any]) -> None:
                    attempt.receive(completion_from_history(entry, caches=lm.cache), completions)

                # The copy hands us what DSPy would append to its histories, and nothing stays in memory.
                recorded = with_async_call(lm.copy(num_retries=0, update_history=record))
                with _isolated_context(adapter):
                    fields = await predict.acall(lm=recorded, signature=signature, demos=demos, **inputs)
        # An LM that replaces DSPy's whole call reports nothing.
        return ParsedReply(fields, _spend_of(completions) if completions else UNKNOWN_CALL)


_NO_REQUEST = (
    "it must be a model of OpenAI's protocol or of Anthropic's, by its name or as a `dspy.LM`, without `headers`, "
    "callbacks, an instrumentation or a cache of DSPy"
)


class _Attempt(NamedTuple):
    """One request in one form."""

    lm: dspy.BaseLM
    predict: dspy.Predict
    signature: Any
    inputs: Mapping[str, Any]
    demos: Sequence[Any]
    adapter: JudgeAdapter

    def receive(self, completion: Completion, completions: list[Completion]) -> None:
        """Note what the model replied, and check that the reply is whole.

        Raises:
            JudgeFailure: It is not.
        """
        completions.append(completion)
        self.adapter.raw_text = completion.text or None
        self.adapter.end_is_known = completion.finish_reason is not None
        if completion.has_format is not None:
            self.adapter.has_format = completion.has_format
        require_answer(completion, self.lm.kwargs)

    async def parse(self, template: PromptTemplate, completion: Completion, completions: list[Completion]) -> Any:
        """Parse the reply to the request of a template."""
        self.adapter.has_format = template.has_format
        self.receive(completion, completions)
        parse = partial(self.adapter.parse, self.signature, completion.text)
        return await run_on_texts(parse, completion.text, *self.adapter.completing_texts)


async def _check_prompt(lm: dspy.BaseLM, prompt: PromptInputs) -> None:
    if problem := file_problem(lm, prompt.files):
        raise JudgeFailure("config", problem, about_text=True)
    await check_prompt_fits(lm, *prompt.inputs.values())


@contextmanager
def _failures(lm: dspy.BaseLM, completions: Sequence[Completion], confidence: bool) -> Generator[None]:
    """Raise every error of the block as a `JudgeFailure`, with what the completions so far have cost."""
    try:
        yield
    except JudgeFailure:
        raise
    except DSPyError as error:
        failure = failure_from_error(error, _spend_of(completions), settings_of(lm))
        raise failure from _presentable(error, lm)
    except (ValueError, TypeError, ImportError) as error:
        # An error about probabilities is about the reply; any other is about the settings.
        about_reply = confidence and bool(completions)
        kind = "parse" if about_reply else "config"
        message = redact(first_line(error), settings_of(lm))
        failure = JudgeFailure(kind, message, retryable=about_reply, spend=_spend_of(completions))
        raise failure from _presentable(error, lm)
    except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
        failure = failure_from_client_error(error, _spend_of(completions), settings_of(lm))
        raise failure from _presentable(error, lm)


def _about_files(failure: JudgeFailure, files: Sequence[ShownFile]) -> JudgeFailure:
    """Return the failure of a request with attachments, with what to do if the server refused them."""
    error = failure.__cause__
    # A ValueError is that of DSPy about a format for which it has no content block.
    is_refusal = isinstance(error, LMInvalidRequestError | LMUnsupportedFeatureError | ValueError)
    if failure.kind != "config" or not is_refusal or getattr(error, "status", None) in (404, 405):
        return failure
    kinds = ", ".join(sorted({file.mime_type for file in files}))
    message = (
        f"{failure.message} (the request has {len(files)} attachments, {kinds}: use a judge that reads these types)"
    )
    # Submissions without attachments may still be judged.
    return JudgeFailure("config", message, about_text=True, spend=failure.spend)


def _presentable(error: Exception, lm: dspy.BaseLM) -> Exception | None:
    """Return the cause of a failure; None if a traceback would show a credential in it."""
    return error if redact(str(error), settings_of(lm)) == str(error) else None


def _spend_of(completions: Sequence[Completion]) -> Spend:
    # A request without a reply was a call.
    return total_spend(completion.spend for completion in completions) if completions else Spend(calls=1)


def _isolated_context(adapter: JudgeAdapter) -> AbstractContextManager[None]:
    """Make a DSPy context in which the judge leaves no trace, and in which only we count its calls."""
    return dspy.context(
        adapter=adapter, trace=None, disable_history=False, track_usage=False, usage_tracker=None, send_stream=None
    )


@lru_cache(maxsize=256)
def select_fields(signature: Any, inputs: tuple[str, ...], requests_evidence: bool = False) -> Any:
    """Remove the input fields of a signature that are not among `inputs`, and add the optional ones that are.

    With `requests_evidence`, the numbers of the steps that an answer relies on are requested, too.
    """
    for name, (field, followers, kind) in OPTIONAL_FIELDS.items():
        if name in inputs and name not in signature.input_fields:
            index = next(index for index, other in enumerate(signature.input_fields) if other in followers)
            signature = signature.insert(index, name, field, kind)
    for name in set(signature.input_fields).difference(inputs):
        signature = signature.delete(name)
    return with_evidence(signature) if requests_evidence else signature
