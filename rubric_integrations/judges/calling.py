"""Calls the model of a judge: makes requests from questions, parses the replies, and makes judgments from them.

`ModelCaller.call` fills in the template of the request, sends the request and parses the reply. If there is no
template, DSPy makes the call.

A request asks for the strictest reply format that the model supports according to DSPy: a JSON Schema or JSON mode. If
DSPy does not know the model, the request asks for a JSON Schema. Some servers refuse these formats (DeepSeek, Ollama
and vLLM in some versions, older models of OpenAI). If the model was passed by its name, the request also has the
default temperature, which some reasoning models refuse. If a refusal names the format or the temperature, the request
is repeated with a simpler format or without the temperature. Once the server has accepted the repeated request, the
judge sends all further requests in the same form.

If DSPy does not know the model, one request is sent before the others to find out whether the server accepts the
format.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rubric_integrations._util.event_loop import run_on_texts
from rubric_integrations.judges.fast_path import (
    PromptTemplate,
    Template,
    TemplateCache,
    fast_path_problem,
    template_for,
)
from rubric_integrations.judges.models.errors import (
    Completion,
    completion_from_history,
    failure_of_call,
    is_unanswered,
    refuses_content,
    require_answer,
)
from rubric_integrations.judges.models.limits import check_prompt_fits
from rubric_integrations.judges.models.names import file_problem, settings_of, with_async_call
from rubric_integrations.judges.prompts.parse import parse_reply
from rubric_integrations.judges.prompts.render import PromptInputs, ShownFile, describe_option, option_codes, options_of
from rubric_integrations.judges.prompts.signatures import (
    ANSWER_FIELDS,
    OPTIONAL_FIELDS,
    BatchEntry,
    CacheControlAdapter,
    JudgeAdapter,
    expected_ids,
    read_probabilities,
    supports_cache_control,
    texts_of_inputs,
    with_attachments,
    with_evidence,
)
from rubric_integrations.judges.protocol import (
    REPLY_FORMATS,
    BatchResult,
    JudgeRequest,
    Question,
    ReplyFormat,
    RequestForm,
)
from rubric_integrations.rubric.answers import Option
from rubric_integrations.scoring.judgment import (
    NO_SPEND,
    UNANSWERED_CALL,
    UNKNOWN_CALL,
    Interpretation,
    JudgeFailure,
    Judgment,
    Spend,
    interpret_answer,
    parse_verdict,
    strip_decoration,
    total_spend,
)

if TYPE_CHECKING:
    import dspy

    from rubric_integrations.judges.provider import ProviderEngine

_NAMES_FORMAT = re.compile(
    r"response_format|json[ _](?:schema|object)|json mode|structured[ _]outputs?|\bgrammar\b|guided[ _]decoding",
    re.IGNORECASE,
)
_NAMES_TEMPERATURE = re.compile(r"\btemperature\b", re.IGNORECASE)


class ParsedReply(NamedTuple):
    """The fields of a reply, the spend of the call with refused requests, and the model that the reply names."""

    fields: Mapping[str, Any]
    spend: Spend
    model: str | None = None


# Seconds. A server refuses a format quickly, while a verdict may take long.
_LONGEST_REFUSAL = 1.0
# A server may also fail or hang because of a format. After so many lost requests, a request is sent without the format.
_LOST_BEFORE_TEXT = 2


class FormatTrial:
    """A trial of a reply format that a server may not support.

    One request is sent first. The other requests wait for its end, but at most one second. Therefore, a server that
    does not support the format usually refuses one request and not all of them.

    Attributes:
        form: The form of the next request. None if the next request uses `ModelCaller.form`.
        is_over: Whether the server has accepted a request.
    """

    def __init__(self) -> None:
        self.form: RequestForm | None = None
        self.is_over = False
        # The request that is sent first: its task, and a future for the end of the request.
        self._ahead: tuple[asyncio.Task[Any] | None, asyncio.Future[None]] | None = None
        self._lost = 0

    async def join(self) -> RequestForm | None:
        """Join the trial with the caller's request, and return the form of this request. None for `ModelCaller.form`.

        If another request of the trial is in progress, the caller waits until that request has ended, but at most one
        second. Otherwise, the caller's request becomes the request that is sent first.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        latest = loop.time() + _LONGEST_REFUSAL
        while not self.is_over and self._ahead is not None:
            owner, ended = self._ahead
            remaining = latest - loop.time()
            if owner is task or remaining <= 0 or ended.get_loop() is not loop:
                return self.form
            await asyncio.wait({ended}, timeout=remaining)
        if not self.is_over:
            self._ahead = task, loop.create_future()
        return self.form

    def failed(self, form: RequestForm, simpler: RequestForm | None, *, is_lost: bool) -> None:
        """Choose the form of the next request after the caller's request has failed.

        The failure is ignored if the caller's request is not the one that was sent first.

        Args:
            form: The form of the failed request.
            simpler: The form without the setting that the server refused. None if the server did not refuse the form.
            is_lost: Whether the server failed or did not reply.
        """
        if self._ahead is None or self._ahead[0] is not asyncio.current_task():
            return
        self.form = simpler
        if simpler is None:
            self._lost = self._lost + 1 if is_lost else 0
            if self._lost == _LOST_BEFORE_TEXT:
                self.form, self._lost = form._replace(reply_format="text"), -1
            self._end()

    def succeeded(self) -> None:
        """End the trial: the server has accepted a request."""
        self.is_over, self.form = True, None
        self._end()

    def _end(self) -> None:
        if self._ahead is not None:
            (_, ended), self._ahead = self._ahead, None
            if not ended.done() and not (loop := ended.get_loop()).is_closed():
                loop.call_soon_threadsafe(ended.set_result, None)


class ModelCaller:
    """Makes the calls of one judge. Keeps the judge's prompt templates and the form of its requests.

    Args:
        confidence: Whether probabilities are requested. If so, all requests go through DSPy itself, because only DSPy
            can decode the probabilities.
        default_temperature: The temperature of the judge's model if the user did not choose it, otherwise None. A
            temperature that the user chose is never left out.

    Attributes:
        default_temperature: The default temperature of the judge's model, or None.
        form: The form of the next request, without the settings that the model's server has refused.
    """

    def __init__(self, confidence: bool, default_temperature: float | None = None):
        self._confidence, self.default_temperature = confidence, default_temperature
        self._templates = {reply_format: TemplateCache() for reply_format in REPLY_FORMATS}
        self.form = RequestForm()
        self._trial = FormatTrial()

    def __reduce__(self) -> Any:
        return ModelCaller, (self._confidence, self.default_temperature)

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
            warm_prompt_cache: Whether other requests with the same beginning follow. The request then has a cache
                breakpoint after this beginning if the provider caches only up to breakpoints.

        Raises:
            JudgeFailure: There was no reply, the reply cannot be parsed, or the prompt is too long for the model.
        """
        if prompt.files:
            _check_files(lm, prompt.files)
        await check_prompt_fits(lm, *prompt.inputs.values())
        refused, form = NO_SPEND, self._trial.form or self.form
        while True:
            request = self._request(lm, predict, prompt, examples, form, warm_prompt_cache)
            completions: list[Completion] = []
            try:
                template = await self._template(request)
                if template is None:
                    fields = await request.complete_with_dspy(completions)
                else:
                    if template.assumes_format and not self._trial.is_over:
                        form, planned = await self._trial.join() or self.form, form
                        if form != planned:
                            continue
                    completion = await template.complete(request.inputs)
                    fields = await request.parse(template, completion, completions)
            except asyncio.CancelledError:
                self._trial.failed(form, None, is_lost=True)
                raise
            except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
                failure = self._failure(error, request.lm, completions)
                refused = failure.spend = failure.spend + refused
                if failure.kind == "parse":
                    self.accepted(form)
                simpler = self.simpler_form(form, lm, failure)
                # Other statuses come from a starting server or a gateway, and are not caused by the format.
                self._trial.failed(form, simpler, is_lost=getattr(error, "status", None) == 500)
                if simpler is None:
                    cause = failure.__cause__
                    raise (_about_files(failure, prompt.files) if prompt.files else failure) from cause
                form = simpler
            else:
                self.accepted(form)
                # An LM that replaces DSPy's complete call reports no usage.
                spend = _spend_of(completions) if completions else UNKNOWN_CALL
                model = completions[-1].model if completions else None
                return ParsedReply(fields, spend + refused if refused.calls else spend, model)

    async def converse(
        self, lm: dspy.BaseLM, predict: dspy.Predict, inputs: Mapping[str, Any], adapter_type: type[JudgeAdapter]
    ) -> ParsedReply:
        """Send one request with a `dspy.History` through DSPy, and parse the reply.

        Args:
            lm: The model.
            predict: The predictor. Its signature has all fields of the inputs and of the history.
            inputs: The inputs of the signature.
            adapter_type: The adapter, which parses the reply.

        Raises:
            JudgeFailure: There was no reply, or the reply did not end normally.
        """
        refused, form = NO_SPEND, self.form
        signature, demos = cast("Any", predict).signature, cast("Any", predict).demos
        while True:
            model, completions = lm if form.default_temperature else self.without_default(lm), list[Completion]()
            call = _ModelCall(model, predict, signature, inputs, demos, form.reply_format, adapter_type, lambda: False)
            try:
                fields = await call.complete_with_dspy(completions)
            except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
                failure = self._failure(error, model, completions)
                refused = failure.spend = failure.spend + refused
                simpler = self.simpler_form(form, lm, failure)
                if simpler is None:
                    raise failure from failure.__cause__
                form = simpler
            else:
                self.accepted(form)
                spend = _spend_of(completions) if completions else UNKNOWN_CALL
                return ParsedReply(fields, spend + refused, completions[-1].model if completions else None)

    async def prepare(
        self, lm: dspy.BaseLM, predict: dspy.Predict, prompt: PromptInputs, examples: Sequence[dspy.Example] = ()
    ) -> JudgeRequest:
        """Return the request that `call` would send in the current form, without sending it.

        Raises:
            JudgeFailure: The prompt is too long for the model, the model cannot read a file, or only DSPy can send the
                requests of this judge, for example because it has callbacks or uses another provider's protocol.
        """
        _check_files(lm, prompt.files)
        await check_prompt_fits(lm, *prompt.inputs.values())
        request = self._request(lm, predict, prompt, examples, self.form)
        try:
            return (await self._require_template(request)).request(request.inputs)
        except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
            failure = self._failure(error, request.lm)
            raise failure from failure.__cause__

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
        request, completions = self._request(lm, predict, prompt, examples, self.form), list[Completion]()
        try:
            template = await self._require_template(request)
            fields = await request.parse(template, await template.read(status, body), completions)
        except Exception as error:  # noqa: BLE001 -- whatever an LM of a user's own raises
            failure = self._failure(error, request.lm, completions)
            raise failure from failure.__cause__
        return ParsedReply(fields, _spend_of(completions), completions[-1].model)

    def without_default(self, lm: dspy.BaseLM) -> dspy.BaseLM:
        """Return a copy of `lm` without the default temperature, or `lm` if the user chose its temperature."""
        return lm.copy(temperature=None) if self.has_default(lm) else lm

    def simpler_form(self, form: RequestForm, lm: dspy.BaseLM, failure: JudgeFailure) -> RequestForm | None:
        """Return a simpler form of a request after a failure.

        Args:
            form: The form of the failed request.
            lm: The model.
            failure: The failure.

        Returns:
            The form without the setting that the server refused. None if no other form would help.
        """
        # Some servers reply with status 500 if they cannot honour a format.
        if failure.kind != "config" and (failure.kind != "transport" or self._trial.is_over):
            return None
        position = REPLY_FORMATS.index(form.reply_format) + 1
        if _NAMES_FORMAT.search(failure.message) and position < len(REPLY_FORMATS):
            return form._replace(reply_format=REPLY_FORMATS[position])
        names_default = _NAMES_TEMPERATURE.search(failure.message) and form.default_temperature and self.has_default(lm)
        return form._replace(default_temperature=False) if names_default and failure.kind == "config" else None

    def accepted(self, form: RequestForm) -> None:
        """Record that the server has accepted a request in this form.

        Later requests have this form, or a simpler form if the server has accepted one before. A refusal alone does not
        change the form of later requests. The server may have refused the request for another reason. Its message may
        name the format only because it quotes the request.
        """
        if not self._trial.is_over:
            self._trial.succeeded()
        if form == self.form:
            return
        position = max(REPLY_FORMATS.index(form.reply_format), REPLY_FORMATS.index(self.form.reply_format))
        self.form = RequestForm(REPLY_FORMATS[position], form.default_temperature and self.form.default_temperature)

    def has_default(self, lm: dspy.BaseLM) -> bool:
        """Return whether the temperature of `lm` is the judge's default, which the user did not choose."""
        default = self.default_temperature
        return default is not None and lm.kwargs.get("temperature") == default

    def _request(
        self,
        lm: dspy.BaseLM,
        predict: Any,
        prompt: PromptInputs,
        examples: Sequence[dspy.Example],
        form: RequestForm,
        warm_prompt_cache: bool = False,
    ) -> _ModelCall:
        """Collect all that a call of a predictor needs: model, signature, inputs and few-shot examples."""
        inputs = with_attachments(prompt.inputs, prompt.files) if prompt.files else prompt.inputs
        # Read once: each attribute look-up of a `dspy.Module` is a function call.
        own = predict.__dict__
        signature = select_fields(own["signature"], tuple(inputs), prompt.requests_evidence)
        adapter_type = CacheControlAdapter if warm_prompt_cache and supports_cache_control(lm) else JudgeAdapter
        model = lm if form.default_temperature else self.without_default(lm)
        demos = [*own["demos"], *examples]
        return _ModelCall(model, predict, signature, inputs, demos, form.reply_format, adapter_type, prompt.quotable)

    async def _template(self, request: _ModelCall, *, for_batch: bool = False) -> Template | None:
        if self._confidence:
            return None
        lm, predict, signature, inputs, demos, reply_format, *_ = request
        templates = self._templates[reply_format]
        return await template_for(
            templates, predict, lm, signature, demos, inputs, request.context, for_batch=for_batch
        )

    async def _require_template(self, request: _ModelCall) -> PromptTemplate:
        template = await self._template(request, for_batch=True)
        if not isinstance(template, PromptTemplate):
            reason = "a judge with `confidence`" if self._confidence else fast_path_problem() or _NO_REQUEST
            model = request.lm.model
            raise JudgeFailure("config", f"the judge {model!r} has no request that somebody else could send: {reason}")
        return template

    def _failure(self, error: Exception, lm: dspy.BaseLM, completions: Sequence[Completion] = ()) -> JudgeFailure:
        """Make a failure from an error, with the spend of the completions so far."""
        # DSPy wraps the exceptions of a function that is called as a model.
        for failure in (error, error.__cause__):
            if isinstance(failure, JudgeFailure):
                return failure
        # A ValueError about probabilities is about the reply.
        about_reply = self._confidence and bool(completions)
        failure = failure_of_call(error, _spend_of(completions), settings_of(lm), about_reply)
        if failure.kind == "transport" and not completions and is_unanswered(error):
            failure.spend = UNANSWERED_CALL
        return failure


_NO_REQUEST = (
    "it must be a model of OpenAI's protocol or of Anthropic's, by its name or as a `dspy.LM`, without `headers`, "
    "callbacks, an instrumentation or a cache of DSPy"
)


class _ModelCall(NamedTuple):
    """One call of the model in one form."""

    lm: dspy.BaseLM
    predict: dspy.Predict
    signature: Any
    inputs: Mapping[str, Any]
    demos: Sequence[Any]
    reply_format: ReplyFormat
    adapter_type: type[JudgeAdapter]
    quotable: Callable[[], bool]

    def adapter(self) -> JudgeAdapter:
        """Make the adapter through which DSPy renders the request and parses the reply."""
        adapter = self.adapter_type.for_inputs(self.inputs, self.quotable)
        adapter.reply_format = self.reply_format
        return adapter

    def context(self) -> AbstractContextManager[None]:
        """Make the DSPy context for a call of the predictor."""
        return self.adapter().isolated_context()

    async def complete_with_dspy(self, completions: list[Completion]) -> Any:
        """Make the call through DSPy, and return the fields of the reply."""
        adapter = self.adapter()
        await adapter.search_long_texts()
        engine = _engine_of(self.lm)

        def record(entry: Mapping[str, Any]) -> None:
            completion = engine.completion if engine else None
            completion = completion or completion_from_history(entry, caches=self.lm.cache)
            completions.append(completion)
            adapter.raw_text = completion.text or None
            adapter.end_is_known = completion.finish_reason is not None
            if completion.has_format is not None:
                adapter.json_only = completion.has_format
            require_answer(completion, self.lm.kwargs)

        # The copy passes the history entries to `record` instead of DSPy's histories, which would grow in memory.
        recorded = with_async_call(self.lm.copy(num_retries=0, update_history=record))
        send = partial(self.predict.acall, signature=self.signature, demos=self.demos, **self.inputs)
        with adapter.isolated_context():
            if engine is not None:
                try:
                    return await send(lm=engine.model(record))
                except Exception:
                    if engine.has_sent:
                        raise
                    engine = None  # DSPy may leave the request to LiteLLM, or have a better error message
            return await send(lm=recorded)

    async def parse(self, template: Template, completion: Completion, completions: list[Completion]) -> Any:
        """Parse the reply to the request of a template.

        Raises:
            JudgeFailure: The reply did not end normally, or is empty.
            UnreadableReply: The reply does not answer the signature.
        """
        completions.append(completion)
        require_answer(completion, self.lm.kwargs)
        # The texts are needed only if the reply may quote them.
        completing = texts_of_inputs(self.inputs) if completion.finish_reason is None else ()
        searched = completing if template.json_only else completing or texts_of_inputs(self.inputs)
        parse = partial(
            parse_reply,
            self.signature,
            completion.text,
            quotable=self.quotable,
            expected_ids=expected_ids(self.inputs),
            json_only=template.json_only,
            completing_texts=completing,
        )
        return await run_on_texts(parse, completion.text, *searched)


def _engine_of(lm: dspy.BaseLM) -> ProviderEngine | None:
    if fast_path_problem():
        return None
    from rubric_integrations.judges.provider import engine_of

    return engine_of(lm)


def _check_files(lm: dspy.BaseLM, files: Sequence[ShownFile]) -> None:
    if problem := file_problem(lm, files):
        raise JudgeFailure("config", problem, about_text=True)


def _about_files(failure: JudgeFailure, files: Sequence[ShownFile]) -> JudgeFailure:
    """Return the failure of a request with attachments. If the server refused them, the message says what to do."""
    if failure.kind != "config" or not refuses_content(failure.__cause__):
        return failure
    kinds = ", ".join(sorted({file.mime_type for file in files}))
    message = (
        f"{failure.message} (the request has {len(files)} attachments, {kinds}: use a judge that reads these types)"
    )
    # Submissions without attachments may still be judged.
    return JudgeFailure("config", message, about_text=True, spend=failure.spend)


def _spend_of(completions: Sequence[Completion]) -> Spend:
    if len(completions) == 1:
        return completions[0].spend
    # A request without a reply was a call.
    return total_spend(completion.spend for completion in completions) if completions else Spend(calls=1)


@lru_cache(maxsize=256)
def select_fields(signature: Any, inputs: tuple[str, ...], requests_evidence: bool = False) -> Any:
    """Return a copy of a signature that has exactly the input fields in `inputs`, including optional fields.

    With `requests_evidence`, the signature also requests the numbers of the steps on which an answer is based.
    """
    for name, (field, followers, kind) in OPTIONAL_FIELDS.items():
        if name in inputs and name not in signature.input_fields:
            index = next(index for index, other in enumerate(signature.input_fields) if other in followers)
            signature = signature.insert(index, name, field, kind)
    for name in set(signature.input_fields).difference(inputs):
        signature = signature.delete(name)
    return with_evidence(signature) if requests_evidence else signature


def interpret_reply(question: Question, answer: str) -> Interpretation:
    """Interpret a model's answer to a question of any kind. An option may be named by its code or its label.

    Raises:
        ValueError: The text is not an answer to the question.
    """
    if question.criterion.options is not None and parse_verdict(answer) is None:
        return interpret_choice(question, answer)
    return interpret_answer(question.criterion, answer, question.may_abstain)


def interpret_fields(
    question: Question, reply: ParsedReply, neutralized: bool, *, trained_on: bool = False
) -> Judgment:
    """Make a judgment from the fields of a reply about one criterion.

    Args:
        question: The question.
        reply: The reply.
        neutralized: Whether sanitizing changed a text of the request.
        trained_on: Whether the judge was aligned with a label of this judgment.

    Raises:
        JudgeFailure: The fields are not an answer to the question.
    """
    fields, spend, model = reply
    answer, probabilities = read_probabilities(fields[ANSWER_FIELDS[question.criterion.kind]])
    try:
        verdict, value = interpret_reply(question, str(answer))
    except ValueError as error:
        raise JudgeFailure("parse", str(error), retryable=True, spend=spend) from None
    return Judgment(
        verdict=verdict,
        value=value,
        reason=fields.get("explanation", ""),
        spend=spend,
        neutralized=neutralized,
        confidence=probabilities.confidence,
        expected_value=probabilities.expected_value,
        model=model,
        evidence=tuple(fields.get("evidence", ())),
        trained_on=trained_on,
    )


def interpret_choice(question: Question, reply: str) -> Interpretation:
    """Interpret a model's choice among the options that `describe_options` shows.

    The reply is compared with the code, the label and the full line of each option, ignoring case and white space. If
    nothing matches, the reply is compared again without the punctuation around its text. The first comparison includes
    the punctuation, because two labels may differ only in punctuation.

    Raises:
        ValueError: The reply names no option, or more than one option.
    """
    codes = option_codes(options_of(question))
    for form in (_folded, _undressed):
        word = form(reply)
        labels = [option.label for code, option in codes.items() if word and word in _names(code, option, form)]
        if len(labels) > 1:
            raise ValueError(f"{reply!r} names {len(labels)} options, {labels!r}: any of them could be meant")
        if labels:
            return interpret_answer(question.criterion, labels[0], question.may_abstain)
    return interpret_answer(question.criterion, reply, question.may_abstain)


def _names(code: str, option: Option, form: Callable[[str], str]) -> set[str]:
    """Return the names of an option in a reply: its code, its label, and its line without and with the description."""
    return {
        form(name) for name in (code, option.label, f"{code}: {option.label}", f"{code}: {describe_option(option)}")
    }


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _undressed(text: str) -> str:
    return strip_decoration(_folded(text))


def interpret_entries(questions: Mapping[int, Question], reply: ParsedReply, neutralized: bool) -> BatchResult:
    """Assign the entries of a batch reply to its questions.

    A missing, repeated or invalid answer is a fault of its question only. An entry with a number that was not requested
    is ignored.

    Args:
        questions: The questions by number.
        reply: The reply, whose field `judgments` has the entries.
        neutralized: Whether sanitizing changed a text of the request.
    """
    by_number: dict[int, list[BatchEntry]] = {}
    for entry in reply.fields["judgments"]:
        by_number.setdefault(entry.id, []).append(entry)
    answers: dict[int, Judgment] = {}
    faults: dict[int, str | JudgeFailure] = {}
    for number, question in questions.items():
        candidates = by_number.get(number, [])
        if len(candidates) != 1:
            faults[number] = f"{len(candidates)} answers" if candidates else "no answer"
            continue
        try:
            verdict, value = interpret_reply(question, candidates[0].answer)
        except ValueError as error:
            faults[number] = str(error)
            continue
        entry = candidates[0]
        answers[number] = Judgment(
            verdict=verdict,
            value=value,
            reason=entry.explanation,
            neutralized=neutralized,
            model=reply.model,
            evidence=tuple(getattr(entry, "evidence", ())),
        )
    return BatchResult(answers, faults, reply.spend)
