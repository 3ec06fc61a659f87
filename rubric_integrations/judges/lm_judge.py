"""The judge that calls a language model: a DSPy module that can be saved, loaded and compiled."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dspy
from dspy.utils.exceptions import DSPyError

from rubric_integrations._util.threads import run_on_texts
from rubric_integrations.judges.alignment_record import is_trained_on, mark_batch
from rubric_integrations.judges.calling import ModelCaller, select_fields
from rubric_integrations.judges.examples import as_example
from rubric_integrations.judges.fingerprint import fingerprint_model_judge
from rubric_integrations.judges.models import ModelOptions, settings_of, to_lm, without_framework_cache
from rubric_integrations.judges.models.failures import failure_from_error
from rubric_integrations.judges.models.prices import highest_cost, load_prices, prompt_bytes
from rubric_integrations.judges.models.sync_only import with_async_call
from rubric_integrations.judges.prompts.adapter import JudgeAdapter
from rubric_integrations.judges.prompts.interpret import interpret_entries, interpret_fields
from rubric_integrations.judges.prompts.render import (
    batch_inputs,
    render_inputs,
    render_question,
    rubric_inputs,
    texts_of,
)
from rubric_integrations.judges.prompts.signatures import judge_signatures
from rubric_integrations.judges.protocol import BatchResult, OverallResult, Question, criteria_of_request
from rubric_integrations.judges.request_steps import RenderedQuestion, RequestSteps
from rubric_integrations.judges.saving import SavedPrompts
from rubric_integrations.judges.step_down import RequestForm
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.labels import LabelledJudgment, examples_of_criterion, select_examples
from rubric_integrations.results.usage import NO_SPEND
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges.models import ModelLike


class LMJudge(RequestSteps, SavedPrompts):
    """A judge that calls one language model: for one criterion, for several in one request, or for an overall score.

    The judge uses its own model and adapter and leaves no trace. Inside `dspy.Evaluate` or an optimizer it therefore
    neither falls back on the student's model nor adds to the student's few-shot examples. It does not use the
    response caches of DSPy and LangChain; ours are the ledger of a run and the cache of a metric.

    It can be optimized like any DSPy module: call it with the fields of `JudgeCriterion`, `JudgeOption` or
    `JudgeScale`, on a trainset that `as_example` makes of labelled judgments. Such a trainset exercises only the
    predictors of the kinds of criteria in it; for GEPA pass `component_selector="all"`, or it would spend
    its budget on predictors that no example reaches.

    `save("judge.json")` writes the prompts and `alignment`, never the model's key; `judge="judge.json"` loads them.

    Args:
        model: A model name such as `openai/gpt-5-mini`, a `dspy.LM`, a LangChain chat model, or an async function
            `(system_prompt, user_prompt) -> reply`. A `dspy.BaseLM` of your own that has only a synchronous `forward`
            or `__call__` is called in threads; a call that exceeds the timeout runs on there until it returns.
        api_base: The base URL of an OpenAI-compatible server, such as `http://localhost:8000/v1`. This option and the
            next seven go with a model name; other models are configured where they are made.
        api_key: The server's key; by default that of the provider's environment variable, such as OPENAI_API_KEY. That
            key goes to its provider and to this machine only: for a gateway or another server, pass the key here or set
            RUBRIC_INTEGRATIONS_API_KEY. No key of the environment is sent over http to another machine. Without a key,
            a placeholder is sent.
        temperature: The sampling temperature, at least 0. By default it is 0 for a model name, so that the same
            question has nearly the same answer each time. Reasoning models, which refuse it, get none: the names that
            DSPy knows, any model with a `reasoning_effort`, and any other whose server refuses the default.
        max_tokens: The most tokens of a reply, at least 1; by default the provider's.
        seed: The sampling seed, for providers that take one.
        reasoning_effort: The effort of a reasoning model, such as `low`.
        service_tier: The tier that prices and schedules a request, such as `flex`, for providers that have them.
        headers: HTTP headers that each request has in addition, by name, such as those that a gateway requires. DSPy
            sends such requests through LiteLLM, at about 11 ms of CPU instead of 1. The values may be secrets: they
            appear in no fingerprint, ledger or message; a fingerprint has a digest of those that are no credentials.
        system_prompt: Instructions in place of the built-in ones. The layout of the inputs and the form of the reply
            are added to them.
        examples: Labelled judgments, shown as few-shot examples before each question about one criterion. One about the
            text that is being graded is never shown.
        max_examples: The most examples that are shown, at least 0, as many of each verdict as there can be.
        confidence: Whether to request the probability of each verdict on binary criteria, as DSPy's experimental
            `Choice` does, and report `confidence` and `expected_value`. Has no effect where DSPy lacks `Choice`.
        framework_cache: Whether to use the response cache of a `dspy.LM` or chat model that has one switched on. A
            cached reply is repeated for every retry and every equal vote, so it is off by default.
        name: A name that stands for the model, its address and its client in fingerprints and on panels, such as that
            of one model on several servers. Judges with one name, equal settings and equal prompts share their stored
            judgments: give it only to models whose answers you would not tell apart.

    Attributes:
        lm: The language model, as a `dspy.LM`.
        alignment: How it was aligned with people's labels, and its figures on others; None if it was not.
        criterion, option, scale, criteria, whole: The DSPy predictors, one for each signature.

    Raises:
        TypeError: `model` is none of the four kinds.
        ValueError: An option is out of range, or does not go with `model`; or a key of the environment would be sent to
            a server that it is not meant for.

    Example:
        >>> [LMJudge(model).lm.kwargs["temperature"] for model in ("openai/gpt-4.1", "openai/gpt-5-mini")]
        [0.0, None]
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        reasoning_effort: str | None = None,
        service_tier: str | None = None,
        headers: Mapping[str, str] | None = None,
        system_prompt: str | None = None,
        examples: Sequence[LabelledJudgment] = (),
        max_examples: int = 4,
        confidence: bool = False,
        framework_cache: bool = False,
        name: str | None = None,
    ):
        super().__init__()
        if name is not None and not name.strip():
            raise ValueError("`name` is empty: all models without a name would share their stored judgments")
        self.name = name
        options = ModelOptions(
            api_base, api_key, temperature, max_tokens, seed, reasoning_effort, service_tier, headers
        )
        lm = to_lm(model, options)
        self.lm = lm if framework_cache else without_framework_cache(lm)
        self.confidence = confidence
        self.examples, self.max_examples = tuple(examples), max_examples
        if isinstance(max_examples, bool) or max_examples < 0:
            raise ValueError(f"`max_examples` must be at least 0, got {max_examples!r}")
        is_default = isinstance(model, str) and temperature is None
        self._caller = ModelCaller(confidence, self.lm.kwargs.get("temperature") if is_default else None)
        self.criterion, self.option, self.scale, self.criteria, self.whole = (
            dspy.Predict(signature.with_instructions(system_prompt) if system_prompt else signature)
            for signature in judge_signatures(confidence).values()
        )

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

    async def prepare(self) -> None:
        """Load what the first call needs, outside of its timeout."""
        await load_prices(self.lm)

    def highest_cost(self, text_bytes: int) -> float | None:
        """Return the most that a call about texts of so many bytes can cost, in US dollars; None if it is unknown."""
        return highest_cost(self.lm, prompt_bytes(text_bytes, self.dump_state(), self.examples))

    def fingerprint(self) -> str | None:
        """Describe what this judge's answers depend on: model, endpoint, settings, instructions and examples.

        None for a model that cannot be identified, such as a lambda without a `name`: a ledger refuses it.
        """
        seen = self.alignment.training_digest if self.alignment else ""
        return fingerprint_model_judge(
            self, self.lm, self.examples, self.max_examples, self.confidence, self.name, seen
        )

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Judge one criterion, whose signature's fields are the arguments; for DSPy's optimizers."""
        step_down, form = self._caller.step_down, self._caller.step_down.form
        while True:
            predict, arguments, context = self._prepare(inputs, form)
            try:
                with context:
                    prediction = predict(**arguments)
            except DSPyError as error:
                form = step_down.simpler(form, self.lm, failure_from_error(error, NO_SPEND, settings_of(self.lm)))
                if form is None:
                    raise
            else:
                step_down.accepted(form)
                return prediction

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """`forward`, asynchronously."""
        step_down, form = self._caller.step_down, self._caller.step_down.form
        while True:
            predict, arguments, context = self._prepare(inputs, form)
            try:
                with context:
                    prediction = await predict.acall(**arguments)
            except DSPyError as error:
                form = step_down.simpler(form, self.lm, failure_from_error(error, NO_SPEND, settings_of(self.lm)))
                if form is None:
                    raise
            else:
                step_down.accepted(form)
                return prediction

    def _prepare(
        self, inputs: Mapping[str, Any], form: RequestForm
    ) -> tuple[dspy.Predict, dict[str, Any], AbstractContextManager[None]]:
        predict, adapter = self._predictor_for(inputs), JudgeAdapter.for_inputs(inputs)
        adapter.reply_format = form.reply_format
        lm = with_async_call(self._caller.step_down.model_for(self.lm, form))
        signature = select_fields(cast("Any", predict).signature, tuple(inputs), "trajectory" in inputs)
        return predict, {"lm": lm, "signature": signature, **inputs}, dspy.context(adapter=adapter)

    def _predictor_for(self, inputs: Mapping[str, Any]) -> dspy.Predict:
        return self.option if "options" in inputs else self.scale if "scale" in inputs else self.criterion

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: The model did not reply, or its reply is no answer.
        """
        predict, prompt, demos = await self._render(question)
        warm = question.warm_prompt_cache
        reply = await self._caller.call(self.lm, predict, prompt, demos, warm_prompt_cache=warm)
        trained_on = is_trained_on(self.alignment, question)
        return interpret_fields(question, reply.fields, reply.spend, prompt.neutralized, trained_on=trained_on)

    async def _render(self, question: Question) -> RenderedQuestion:
        kind, response = question.criterion.kind, question.whole_response or question.submission.response
        prompt = await run_on_texts(partial(render_question, question), *texts_of(question.submission))
        examples = select_examples(self.examples, kind, self.max_examples, response)
        examples += examples_of_criterion(question.criterion, response)
        return RenderedQuestion(self._predictor_for(prompt.inputs), prompt, [as_example(e) for e in examples])

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria about one submission in one request.

        Raises:
            JudgeFailure: The model did not reply, or its reply contains no judgments.
        """
        first = next(iter(questions.values()))
        own, criteria = batch_inputs(questions), criteria_of_request(questions)
        render = partial(render_inputs, first.submission, first.guidelines, own, criteria)
        prompt = await run_on_texts(render, *texts_of(first.submission))
        reply = await self._caller.call(self.lm, self.criteria, prompt, warm_prompt_cache=first.warm_prompt_cache)
        batch = interpret_entries(questions, reply.fields["judgments"], reply.spend, prompt.neutralized)
        return mark_batch(self.alignment, questions, batch)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Give one score for the whole rubric; `judges/validation.py` checks that it is between 0 and 100.

        Raises:
            JudgeFailure: The model did not reply, or its reply contains no score.
        """
        render = partial(render_inputs, submission, rubric.instructions, rubric_inputs(rubric), rubric.criteria)
        prompt = await run_on_texts(render, *texts_of(submission))
        reply = await self._caller.call(self.lm, self.whole, prompt)
        percent = cast("float", reply.fields["overall_score"])
        return OverallResult(percent, reply.fields["explanation"], reply.spend, prompt.neutralized)
