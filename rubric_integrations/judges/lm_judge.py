"""`LMJudge`, the judge that calls a language model: a DSPy module that can be saved, loaded and compiled."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self, cast, get_args

import dspy
from dspy.utils.exceptions import DSPyError

from rubric_integrations._util.event_loop import run_on_texts
from rubric_integrations.judges.calling import (
    ModelCaller,
    interpret_entries,
    interpret_fields,
    select_fields,
)
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.models.errors import failure_from_error
from rubric_integrations.judges.models.limits import highest_cost, is_priced, load_prices, own_bytes
from rubric_integrations.judges.models.names import (
    NO_SETTINGS,
    ModelSettings,
    is_function_model,
    is_plain_lm,
    judge_context,
    settings_of,
    to_lm,
    with_async_call,
    without_framework_cache,
)
from rubric_integrations.judges.offline import OfflineJudge
from rubric_integrations.judges.prompts.render import (
    PromptInputs,
    batch_inputs,
    render_inputs,
    render_question,
    rubric_inputs,
    texts_of,
)
from rubric_integrations.judges.prompts.signatures import ExplainAnswer, JudgeAdapter, as_example
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeRequest,
    ModelLike,
    OverallResult,
    Question,
    ReasonPolicy,
    Request,
    RequestForm,
    RequestWrapper,
    answer,
    criteria_of_request,
    fingerprint_of,
    innermost,
    is_trained_on,
    mark_batch,
)
from rubric_integrations.judges.saved import (
    Memo,
    SavedPrompts,
    fingerprint_model_judge,
    model_state,
    predictor_states,
    read_judge_file,
)
from rubric_integrations.judges.spend import TokenPrice, prompt_bytes
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, to_judgment
from rubric_integrations.scoring.labels import LabelledJudgment, examples_of_criterion, select_examples
from rubric_integrations.submission.submission import Submission


class LMJudge(SavedPrompts):
    """A judge that calls one language model: for one criterion, for several in one request, or for an overall score.

    The judge uses its own model and its own DSPy adapter. Its calls do not appear in DSPy's trace. Therefore, inside
    `dspy.Evaluate` or an optimizer, it does not use the student's model and adds nothing to the student's few-shot
    examples. It does not use the response caches of DSPy and LangChain. To reuse judgments, use the ledger of a run or
    the cache of a metric.

    The judge can be optimized like any DSPy module. Its inputs are the fields of `JudgeCriterion`, `JudgeOption` or
    `JudgeScale`. Make the examples of the trainset from labelled judgments with `as_example`. A trainset optimizes only
    the predictors for the kinds of criteria that it contains. For GEPA, pass `component_selector="all"`. Otherwise,
    GEPA spends its budget on predictors without examples.

    `save("judge.json")` writes the prompts and `alignment`, but never the API key. To load the file, pass its path as
    the judge: `judge="judge.json"`.

    Args:
        model: A model name such as `openai/gpt-5-mini`, a `dspy.LM`, a LangChain chat model, or an async function
            `(system_prompt, user_prompt) -> reply`. A `dspy.BaseLM` subclass that has only a synchronous `forward` or
            `__call__` is called in threads. A call that exceeds the timeout continues in its thread until it returns.
            DSPy 3.5 does not call such a class: make an engine of it, `dspy.LM(name, engine=..., async_engine=...)`.
        settings: The settings of a model that you pass by name, such as `ModelSettings(max_tokens=500, seed=1)`. A
            model object has its own settings. With a model object, neither this argument nor `api_base`, `api_key` and
            `temperature` are allowed. These three are short forms of the settings with the same names.
        api_base: The base URL of an OpenAI-compatible server, such as `http://localhost:8000/v1`.
        api_key: The server's API key. By default, the key in the provider's environment variable, such as
            OPENAI_API_KEY. That key is sent only to the provider and to this machine. For a gateway or another server,
            pass the key here or set RUBRIC_INTEGRATIONS_API_KEY. A key from the environment is never sent over http to
            another machine. Without a key, a placeholder is sent.
        temperature: The sampling temperature, at least 0. By default, it is 0 for a model name, which makes repeated
            answers nearly equal. These models get no default temperature, because they refuse 0: the reasoning models
            that DSPy knows by name, any model with a `reasoning_effort`, and any model whose server has refused 0.
        system_prompt: Instructions that replace the built-in ones. The layout of the inputs and the format of the reply
            are added to them.
        examples: Labelled judgments that are shown as few-shot examples before each question about one criterion. An
            example about the text that is being graded is never shown.
        max_examples: The largest number of examples that are shown, at least 0. The verdicts are balanced as far as
            possible.
        confidence: Whether to request the probability of each verdict on binary criteria with DSPy's experimental
            `Choice`. The judgments then have `confidence` and `expected_value`. Has no effect if the installed DSPy
            lacks `Choice`.
        reason: Which answers have a reason: `always`; `if_lost`, only where points are lost, after the answer, which
            saves output tokens; or `never`. An overall score always has a reason. Nobody has measured how `if_lost` and
            `never` change a judge's accuracy: compare its agreement with your labels. With `never`, a question
            about the steps of a trajectory is a failure, because its answer would cite them without a reason.
        framework_cache: Whether to use the response cache of a `dspy.LM` or chat model if the model has one. It is off
            by default. With a cache, every retry would get the same reply. Equal judges of a panel would also get the
            same reply.
        name: A name that replaces the model, its address and its client in fingerprints and on panels. Use it, for
            example, for one model on several servers. Judges with the same name, settings and prompts share their
            stored judgments. Therefore, give the same name only to models whose answers are interchangeable.

    Attributes:
        lm: The language model, as a `dspy.LM`.
        alignment: How the judge was aligned with human labels, and its agreement with other labels. None if it was not
            aligned.
        criterion, option, scale, criteria, whole: The DSPy predictors: for a binary criterion, a criterion with
            options, a criterion with a scale, several criteria in one request, and an overall score.

    Raises:
        TypeError: `model` has none of the four types.
        ValueError: A setting is out of range or not allowed for this `model`, or a key from the environment would be
            sent to a server for which it is not intended.

    Example:
        >>> [LMJudge(model).lm.kwargs["temperature"] for model in ("openai/gpt-4.1", "openai/gpt-5-mini")]
        [0.0, None]
    """

    criterion: dspy.Predict
    option: dspy.Predict
    scale: dspy.Predict
    criteria: dspy.Predict
    whole: dspy.Predict

    def __init__(
        self,
        model: ModelLike,
        *,
        settings: ModelSettings = NO_SETTINGS,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        system_prompt: str | None = None,
        examples: Sequence[LabelledJudgment] = (),
        max_examples: int = 4,
        confidence: bool = False,
        reason: ReasonPolicy = "always",
        framework_cache: bool = False,
        name: str | None = None,
    ):
        super().__init__()
        if name is not None and not name.strip():
            raise ValueError("`name` is empty: all models without a name would share their stored judgments")
        self.name = name
        settings = settings.joined(ModelSettings(api_base, api_key, temperature))
        lm = to_lm(model, settings)
        self.lm = lm if framework_cache else without_framework_cache(lm)
        if reason not in get_args(ReasonPolicy):
            raise ValueError(f"`reason` must be 'always', 'if_lost' or 'never', got {reason!r}")
        self.confidence, self.reason = confidence, reason
        self.examples, self.max_examples = tuple(examples), max_examples
        if isinstance(max_examples, bool) or max_examples < 0:
            raise ValueError(f"`max_examples` must be at least 0, got {max_examples!r}")
        is_default = isinstance(model, str) and settings.temperature is None
        self._caller = ModelCaller(confidence, self.lm.kwargs.get("temperature") if is_default else None)
        for predictor, signature in self.signatures().items():
            used = signature.with_instructions(system_prompt) if system_prompt else signature
            setattr(self, predictor, dspy.Predict(used))
        self._own_bytes, self._fingerprint = Memo[int](), Memo[str | None]()

    def __copy__(self) -> Self:
        judge = super().__copy__()
        # A copy will be changed. With shared memos, each judge would overwrite the results of the other.
        judge._own_bytes, judge._fingerprint = Memo(), Memo()
        return judge

    def with_examples(self, examples: Sequence[LabelledJudgment], max_examples: int = 4) -> LMJudge:
        """Copy this judge with other few-shot examples."""
        judge = copy.copy(self)
        judge.examples, judge.max_examples = tuple(examples), max_examples
        return judge

    def without_cache(self) -> LMJudge:
        """Copy this judge with a model that uses no response cache of DSPy or LangChain."""
        judge = copy.copy(self)
        judge.lm = without_framework_cache(self.lm)
        return judge

    @property
    def runs_user_code(self) -> bool:
        """Whether an answer may run a user's code: a function, a LangChain chat model, or a subclass of `dspy.LM`."""
        return type(self) not in (LMJudge, Explainer) or not (is_plain_lm(self.lm) and is_priced(self.lm))

    @property
    def gives_reasons(self) -> bool:
        """Whether the answers to criteria may have reasons."""
        return self.reason != "never"

    async def prepare(self) -> None:
        """Load the model prices before the first call. Otherwise the first call would load them within its timeout."""
        await load_prices(self.lm)

    def highest_cost(
        self, text_bytes: int, reply_tokens: int | None = None, price: TokenPrice | None = None
    ) -> float | None:
        """Return the highest possible cost of a call, in US dollars. Returns None if the price is unknown.

        Args:
            text_bytes: The size of the texts of the call, in bytes of UTF-8.
            reply_tokens: The number of tokens in the reply. None for the longest reply that the model can write.
            price: The price of the tokens. None for the price in DSPy's price list.
        """
        state = (predictor_states(self), self.examples)
        size = self._own_bytes.get(state, lambda: own_bytes(self.dump_state(), self.examples))
        size = prompt_bytes(text_bytes, size)
        if price is not None and reply_tokens is not None:
            return price.cost(size, reply_tokens)
        return highest_cost(self.lm, size, reply_tokens)

    def fingerprint(self) -> str | None:
        """Return a text that identifies the model, endpoint, settings, instructions and examples of this judge.

        Two judges with the same fingerprint share stored judgments. Returns None if the model cannot be identified,
        such as a lambda without a `name`. A ledger refuses such a judge.
        """
        options = (self.examples, self.max_examples, self.confidence, self.name)
        state = (model_state(self.lm), options, self.alignment, predictor_states(self))

        def compute() -> str | None:
            seen = self.alignment.training_digest if self.alignment else ""
            return fingerprint_model_judge(self, self.lm, *options, seen)

        return self._fingerprint.get(state, compute)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Judge one criterion from the input fields of its DSPy signature. DSPy's optimizers call this method."""
        caller, form = self._caller, self._caller.form
        while True:
            predict, arguments, context = self._prepare(inputs, form)
            try:
                with context:
                    prediction = predict(**arguments)
            except DSPyError as error:
                form = caller.simpler_form(form, self.lm, failure_from_error(error, NO_SPEND, settings_of(self.lm)))
                if form is None:
                    raise
            else:
                caller.accepted(form)
                return prediction

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """Judge one criterion from the input fields of its DSPy signature, asynchronously."""
        caller, form = self._caller, self._caller.form
        while True:
            predict, arguments, context = self._prepare(inputs, form)
            try:
                with context:
                    prediction = await predict.acall(**arguments)
            except DSPyError as error:
                form = caller.simpler_form(form, self.lm, failure_from_error(error, NO_SPEND, settings_of(self.lm)))
                if form is None:
                    raise
            else:
                caller.accepted(form)
                return prediction

    def _prepare(
        self, inputs: Mapping[str, Any], form: RequestForm
    ) -> tuple[dspy.Predict, dict[str, Any], AbstractContextManager[None]]:
        predict, adapter = self._predictor_for(inputs), JudgeAdapter.for_inputs(inputs)
        adapter.reply_format = form.reply_format
        lm = with_async_call(self.lm if form.default_temperature else self._caller.without_default(self.lm))
        signature = select_fields(cast("Any", predict).signature, tuple(inputs), "trajectory" in inputs)
        return predict, {"lm": lm, "signature": signature, **inputs}, dspy.context(adapter=adapter)

    def _predictor_for(self, inputs: Mapping[str, Any]) -> dspy.Predict:
        return getattr(self, _predictor_name(inputs))

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: The model did not reply, or its reply is not an answer to the criterion.
        """
        prompt = self._checked(await run_on_texts(partial(render_question, question), *texts_of(question.submission)))
        # Read once: each attribute look-up of a `dspy.Module` is a function call.
        own = self.__dict__
        reply = await own["_caller"].call(
            own["lm"],
            own[_predictor_name(prompt.inputs)],
            prompt,
            self._demos(question) if own["examples"] or question.criterion.examples else (),
            warm_prompt_cache=question.warm_prompt_cache,
        )
        trained_on = is_trained_on(self.alignment, question)
        return interpret_fields(question, reply, prompt.neutralized, trained_on=trained_on)

    def _checked(self, prompt: PromptInputs) -> PromptInputs:
        """Refuse a question about numbered steps if the judge gives no reasons.

        Raises:
            JudgeFailure: The judge would see numbered steps, which it cites next to a reason.
        """
        if prompt.requests_evidence and not self.gives_reasons:
            raise JudgeFailure(
                "config",
                "a judge that sees the steps of a trajectory cites them next to its reason, and this one has "
                "`reason='never'`: use `reason='if_lost'`, or hide the steps (`show_trajectory`)",
            )
        return prompt

    def _demos(self, question: Question) -> list[dspy.Example]:
        """Select the few-shot examples that are shown before a question."""
        kind, response = question.criterion.kind, question.whole_response or question.submission.response
        examples = select_examples(self.examples, kind, self.max_examples, response)
        shown = (*examples, *examples_of_criterion(question.criterion, response))
        if self.reason == "if_lost":
            shown = [example.model_copy(update={"reason": ""}) if _is_best(example) else example for example in shown]
        return [as_example(example) for example in shown]

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria about one submission in one request.

        Raises:
            JudgeFailure: The model did not reply, or its reply contains no judgments.
        """
        first = next(iter(questions.values()))
        own, criteria = batch_inputs(questions), criteria_of_request(questions)
        render = partial(render_inputs, first.submission, first.guidelines, own, criteria)
        prompt = self._checked(await run_on_texts(render, *texts_of(first.submission)))
        reply = await self._caller.call(self.lm, self.criteria, prompt, warm_prompt_cache=first.warm_prompt_cache)
        batch = interpret_entries(questions, reply, prompt.neutralized)
        return mark_batch(self.alignment, questions, batch)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Give one overall score for a rubric. `judges/validation.py` checks that the score is between 0 and 100.

        Raises:
            JudgeFailure: The model did not reply, or its reply contains no score.
        """
        render = partial(render_inputs, submission, rubric.instructions, rubric_inputs(rubric), rubric.criteria)
        prompt = await run_on_texts(render, *texts_of(submission))
        reply = await self._caller.call(self.lm, self.whole, prompt)
        percent: float = reply.fields["overall_score"]
        return OverallResult(percent, reply.fields["explanation"], reply.spend, prompt.neutralized, reply.model)

    @property
    def request_form(self) -> RequestForm:
        """The form of the next request: its reply format, and whether it has the judge's default temperature."""
        return self._caller.form

    def use_request_form(self, form: RequestForm) -> None:
        """Use a form (a reply format, with or without the default temperature) for further requests and their replies.

        The form must be one that the server has accepted earlier, for example in another process.
        """
        self._caller.form = form

    def simpler_form(self, failure: JudgeFailure) -> RequestForm | None:
        """Return a form of the request that the server may accept after a refusal.

        Args:
            failure: The failure that reports the refusal.

        Returns:
            The form without the setting that the server refused. None if no other form would help.
        """
        return self._caller.simpler_form(self._caller.form, self.lm, failure)

    async def prepare_request(self, question: Question) -> JudgeRequest:
        """Make the HTTP request about one criterion, without sending it.

        `judge` would send the same bytes. The headers contain the API key, which is chosen by the same rules as in
        `judge`.

        Args:
            question: The criterion and the submission.

        Raises:
            JudgeFailure: The prompt is too long, the model cannot read a file, or only DSPy can send the requests of
                this judge. DSPy must send them if the protocol of the model is neither OpenAI's nor Anthropic's, or if
                the judge has `confidence`, `headers`, callbacks, or a cache of DSPy.

        Example:
            >>> import asyncio, json
            >>> from rubric_integrations import Criterion, Submission
            >>> from rubric_integrations.judges import LMJudge, Question
            >>> judge = LMJudge("openai/gpt-5-mini", api_key="sk-1")
            >>> question = Question(Submission(response="It is 42."), Criterion(requirement="States 42"))
            >>> request = asyncio.run(judge.prepare_request(question))
            >>> request.protocol, request.url, json.loads(request.body)["model"]
            ('openai', 'https://api.openai.com/v1/chat/completions', 'gpt-5-mini')
        """
        prompt = self._checked(await run_on_texts(partial(render_question, question), *texts_of(question.submission)))
        return await self._caller.prepare(self.lm, self._predictor_for(prompt.inputs), prompt, self._demos(question))

    async def read_reply(self, question: Question, body: bytes, *, status: int = 200) -> Judgment:
        """Make a judgment from the HTTP response to a request of `prepare_request`, as `judge` would.

        Args:
            question: The question that was passed to `prepare_request`.
            body: The body of the response.
            status: The HTTP status of the response.

        Returns:
            The judgment. Its cost is computed with the prices of ordinary calls, not of batch calls. It is not
            validated: graders validate the judgments of all judges.

        Raises:
            JudgeFailure: The response is an error, or is not an answer to the question.
        """
        prompt = await run_on_texts(partial(render_question, question), *texts_of(question.submission))
        predict, demos = self._predictor_for(prompt.inputs), self._demos(question)
        reply = await self._caller.read(self.lm, predict, prompt, demos, body, status)
        trained_on = is_trained_on(self.alignment, question)
        return interpret_fields(question, reply, prompt.neutralized, trained_on=trained_on)


class Explainer(LMJudge):
    """Explains answers that another judge has given, for `Explained`.

    Args:
        judge: The judge whose model, settings and name are used.

    Attributes:
        explanation: The DSPy predictor.
    """

    explanation: dspy.Predict

    def __init__(self, judge: LMJudge):
        super().__init__(judge.lm, framework_cache=True, name=judge.name)
        self._caller = ModelCaller(False, judge._caller.default_temperature)

    def signatures(self) -> dict[str, type[dspy.Signature]]:
        """Return the signature of the predictor, by its name."""
        return {"explanation": ExplainAnswer}

    async def judge(self, question: Question) -> Judgment:
        """Explain the answer of a question.

        Returns:
            A judgment with the given answer and the reason for it.

        Raises:
            JudgeFailure: The model did not reply, or its reply has no explanation.
        """
        prompt = await run_on_texts(partial(render_question, question), *texts_of(question.submission))
        # The judge that answers cites the steps.
        prompt = prompt._replace(requests_evidence=False)
        reply = await self._caller.call(self.lm, self.explanation, prompt)
        reason = reply.fields["explanation"].strip()
        if not reason:
            raise JudgeFailure("parse", "the explanation is empty", retryable=True, spend=reply.spend)
        judgment = to_judgment(question.criterion, question.given_answer, question.may_abstain)
        return judgment.model_copy(
            update={"reason": reason, "spend": reply.spend, "neutralized": prompt.neutralized},
        )


def _is_best(example: LabelledJudgment) -> bool:
    """Whether the label of an example loses no points."""
    criterion = example.criterion
    return to_judgment(criterion, example.verdict).value == (0.0 if criterion.is_penalty else 1.0)


def _predictor_name(inputs: Mapping[str, Any]) -> str:
    return "option" if "options" in inputs else "scale" if "scale" in inputs else "criterion"


def load_judge(path: str | os.PathLike[str], settings: ModelSettings = NO_SETTINGS) -> LMJudge:
    """Load a judge from a file, with the model and the settings with which it was aligned.

    Keys from the environment are chosen by the same rules as for a model name (see `models/keys.py`).

    Args:
        path: The file, as `LMJudge.save` wrote it.
        settings: Settings that replace those of the file, such as the address of the server.

    Raises:
        ValueError: The file cannot be read or is damaged, its judge was not aligned, or its judge was aligned for a
            model object, such as a function, which cannot be made from a name.
    """
    file = read_judge_file(path)
    try:
        name = file.model_name()
    except ValueError as error:
        how = f'`LMJudge("openai/gpt-5-mini").load({str(path)!r})`'
        raise ValueError(f"{path}: {error}: load it into a judge of your model, as in {how}") from None
    chosen: dict[str, Any] = {**file.settings.model_dump(exclude_none=True), **settings.chosen()}
    own = {argument: chosen.pop(argument) for argument in ("confidence", "reason") if argument in chosen}
    return LMJudge(name, settings=ModelSettings(**chosen), **own).load(path)


class JudgeWithModel(RequestWrapper):
    """A wrapper that lets the DSPy predictors of a judge use a model, unless a predictor has its own model.

    Args:
        judge: A judge that is written with DSPy, or an `LMJudge` of a function that calls DSPy predictors.
        lm: The model.

    Raises:
        ValueError: The judge calls no predictors, or it is an `LMJudge` with its own model.
    """

    def __init__(self, judge: Judge, lm: ModelLike):
        inner = innermost(judge)
        if isinstance(inner, OfflineJudge | Cascade) or (
            isinstance(inner, LMJudge) and not is_function_model(inner.lm)
        ):
            raise ValueError(
                "`judge_lm` is for a judge written with DSPy, such as a module or a function that awaits a predictor, "
                f"and has no effect on {type(inner).__name__}: pass the model as `judge`"
            )
        super().__init__(judge)
        self.lm = without_framework_cache(to_lm(lm))

    async def answer(self, request: Request) -> Any:
        """Answer a request, with the model as the default of `dspy.settings`."""
        with judge_context(self.lm):
            return await answer(self.inner, request)

    def fingerprint(self) -> str | None:
        """Return a text that identifies the judge and the model. Returns None if one of them cannot be identified."""
        parts = [fingerprint_of(self.inner), fingerprint_model_judge(dspy.Module(), self.lm, (), 0, confidence=False)]
        return None if None in parts else json.dumps(parts)
