"""The judge that asks a language model: a DSPy module that can be saved, loaded and compiled."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import dspy
from dspy.utils.exceptions import DSPyError

from rubric_integrations.judges._direct.template import TemplateCache
from rubric_integrations.judges.models.usage import failure_from_error, first_line, spend_from_history
from rubric_integrations.judges.prompts import signatures
from rubric_integrations.judges.prompts.cache_control import CacheControlAdapter, supports_cache_control
from rubric_integrations.judges.prompts.parse import JudgeAdapter
from rubric_integrations.judges.prompts.probabilities import read_probabilities, with_probabilities
from rubric_integrations.judges.prompts.render import (
    PromptInputs,
    describe_batch,
    describe_rubric,
    interpret_reply,
    option_code,
    render_inputs,
    render_question,
)
from rubric_integrations.judges.protocol import BatchResult, OverallResult, Question
from rubric_integrations.judges.saving import add_schemas, check_schemas, prompt_state
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.labels import LabelledJudgment, choose_examples, own_examples
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.criterion import Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

# As whom a model is asked, not what: it must not be readable where a judge's state is kept.
_SECRET = re.compile(r"key|secret|password|credential|headers|auth|token(?!s)", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@]*@")

_ANSWERS: dict[Kind, str] = {"binary": "verdict", "ordinal": "choice", "nominal": "choice", "scaled": "score"}


class _Asked(NamedTuple):
    fields: Mapping[str, Any]
    spend: Spend


class LMJudge(dspy.Module):
    """Asks one language model: a criterion at a time, several in one call, or for a score of the whole.

    It runs on its own LM and adapter and leaves no trace, so that inside `dspy.Evaluate` or an optimizer it neither
    falls back on the student's model nor writes into the student's demonstrations. Called as a DSPy module, with the
    fields of `JudgeCriterion`, `JudgeOption` or `JudgeScale`, it can be optimized like any other, by labelled
    judgments that `as_example` turns into a trainset. `save("judge.json")` keeps the instructions and demonstrations,
    never the model or its key, and `load` refuses those made for questions of another form.

    Attributes:
        lm: The language model that judges.
        criterion, option, scale, criteria, whole: The DSPy predictors, one a signature.

    Example:
        >>> LMJudge(dspy.LM("openai/gpt-5-mini")).lm.model
        'openai/gpt-5-mini'
    """

    def __init__(self, lm: dspy.BaseLM, system_prompt: str | None = None, confidence: bool = False):
        """Make a judge.

        Args:
            lm: The language model.
            system_prompt: Instructions in place of the built-in ones. The layout of the inputs and the form of
                the reply are added to them.
            confidence: Whether to ask for the probability of each verdict on binary criteria, as DSPy's experimental
                `Choice` does, and report `confidence` and `expected_value`. Without effect where DSPy has no `Choice`.
        """
        super().__init__()
        self.lm = lm
        self.confidence = confidence
        self.examples: tuple[LabelledJudgment, ...] = ()
        self.n_examples = 0
        self._requests = TemplateCache()

        def predictor(signature: type[dspy.Signature]) -> dspy.Predict:
            return dspy.Predict(signature.with_instructions(system_prompt) if system_prompt else signature)

        self.criterion = predictor(with_probabilities(signatures.JudgeCriterion, confidence))
        self.option = predictor(signatures.JudgeOption)
        self.scale = predictor(signatures.JudgeScale)
        self.criteria = predictor(signatures.JudgeBatch)
        self.whole = predictor(signatures.JudgeOverall)

    def with_examples(self, examples: Sequence[LabelledJudgment], count: int) -> LMJudge:
        """This judge, shown at most `count` of these labelled judgments before each question on one criterion."""
        judge = copy.copy(self)
        judge.examples, judge.n_examples = tuple(examples), count
        return judge

    def without_cache(self) -> LMJudge:
        """This judge, asking its model anew where DSPy's cache would repeat an earlier answer."""
        judge = copy.copy(self)
        judge.lm = self.lm.copy(cache=False)
        return judge

    def fingerprint(self) -> str:
        """What this judge's answers depend on: model, endpoint, sampling, instructions and demonstrations."""
        sampling = {name: value for name, value in self.lm.kwargs.items() if not _SECRET.search(name)}
        for name in ("api_base", "base_url"):
            if name in sampling:
                sampling[name] = _USER_IN_URL.sub("", str(sampling[name]))
        shown = [example.model_dump(mode="json") for example in self.examples]
        engine = getattr(getattr(self.lm, "engine", None), "fingerprint", str)()
        state = [self.lm.model, sampling, engine, prompt_state(self), shown, self.n_examples, self.confidence]
        return json.dumps(state, default=str, sort_keys=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> LMJudge:
        """A copy whose prompts can be optimized; the model, with its connections and locks, is shared."""
        judge = copy.copy(self)
        judge.history = []
        for name, predictor in self.named_predictors():
            setattr(judge, name, copy.deepcopy(predictor, memo))
        return judge

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The instructions and demonstrations, without the model, as `save` writes them."""
        return add_schemas(self, super().dump_state(json_mode=json_mode))

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Take over what `dump_state` gave; the model stays this judge's own.

        Raises:
            ValueError: It was saved for questions of another form.
        """
        super().load_state(check_schemas(self, state), allow_unsafe_lm_state=allow_unsafe_lm_state)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Judge one criterion given as its signature's fields; for DSPy's optimizers."""
        predict = self._predictor_for(inputs)
        with dspy.context(adapter=JudgeAdapter.reading(inputs)):
            return predict(lm=self.lm, signature=_without_absent(predict.signature, inputs), **inputs)

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """`forward`, asynchronously."""
        predict = self._predictor_for(inputs)
        with dspy.context(adapter=JudgeAdapter.reading(inputs)):
            return await predict.acall(lm=self.lm, signature=_without_absent(predict.signature, inputs), **inputs)

    def _predictor_for(self, inputs: Mapping[str, Any]) -> dspy.Predict:
        return self.option if "options" in inputs else self.scale if "scale" in inputs else self.criterion

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: The model gave no reply, or one that is no answer.
        """
        kind = question.criterion.kind
        texts = render_question(question)
        shown = choose_examples(self.examples, kind, self.n_examples, question.submission.response)
        shown += own_examples(question.criterion, question.submission.response)
        predict, examples = self._predictor_for(texts.inputs), [as_example(example) for example in shown]
        asked = await self._ask(predict, texts, examples, question.warm_prompt_cache)
        answer, belief = read_probabilities(asked.fields[_ANSWERS[kind]])
        try:
            verdict, value = interpret_reply(question, str(answer))
        except ValueError as error:
            raise JudgeFailure("parse", str(error), retryable=True, spend=asked.spend) from None
        return Judgment(
            verdict=verdict,
            value=value,
            reason=asked.fields["explanation"],
            spend=asked.spend,
            neutralized=texts.neutralized,
            confidence=belief.confidence,
            expected_value=belief.expected_value,
        )

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria about one submission in one call.

        A missing, repeated or unreadable answer is a fault of its question alone; an answer under a number that was
        not asked is nobody's.

        Raises:
            JudgeFailure: The model gave no reply, or one that holds no judgments.
        """
        first = next(iter(questions.values()))
        texts = render_inputs(first.submission, first.guidelines, {"criteria": describe_batch(questions)})
        asked = await self._ask(self.criteria, texts, warm_prompt_cache=first.warm_prompt_cache)
        given: dict[int, list[signatures.CriterionJudgment]] = {}
        for entry in cast("list[signatures.CriterionJudgment]", asked.fields["judgments"]):
            given.setdefault(entry.id, []).append(entry)
        answers: dict[int, Judgment] = {}
        faults: dict[int, str] = {}
        for number, question in questions.items():
            entries = given.get(number, [])
            if len(entries) != 1:
                faults[number] = f"{len(entries)} answers" if entries else "no answer"
                continue
            try:
                verdict, value = interpret_reply(question, entries[0].answer)
            except ValueError as error:
                faults[number] = str(error)
                continue
            answers[number] = Judgment(
                verdict=verdict, value=value, reason=entries[0].explanation, neutralized=texts.neutralized
            )
        return BatchResult(answers, faults, asked.spend)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Give one score from 0 to 100 for the whole rubric.

        Raises:
            JudgeFailure: The model gave no reply, or a score that is none; it is never clamped.
        """
        texts = render_inputs(submission, rubric.instructions, {"criteria": describe_rubric(rubric)})
        asked = await self._ask(self.whole, texts)
        percent = cast("float", asked.fields["overall_score"])
        if not (math.isfinite(percent) and 0 <= percent <= 100):
            message = f"the score {percent!r} is not between 0 and 100"
            raise JudgeFailure("parse", message, retryable=True, spend=asked.spend)
        return OverallResult(percent, asked.fields["explanation"], asked.spend, texts.neutralized)

    async def _ask(
        self,
        predict: dspy.Predict,
        texts: PromptInputs,
        examples: Sequence[dspy.Example] = (),
        warm_prompt_cache: bool = False,
    ) -> _Asked:
        """Run one predictor on the judge's own LM and adapter, and keep the account."""
        entries: list[dict[str, Any]] = []
        fields: Any
        model = self.lm
        kind = CacheControlAdapter if warm_prompt_cache and supports_cache_control(model) else JudgeAdapter
        adapter, demos = kind.reading(texts.inputs, texts.quotable), [*predict.demos, *examples]
        signature, context = _without_absent(predict.signature, texts.inputs), partial(_alone, adapter)
        try:
            request = None
            if not self.confidence:  # probabilities are decoded beside the adapter
                request = await self._requests.of(predict, model, signature, demos, texts.inputs, context)
            if request is not None:
                reply = await request.ask(texts.inputs)
                entries.append(reply.entry)
                fields = adapter.read(signature, reply.text)
            else:
                # The copy sends what DSPy would append to its histories to us: tokens and cost, without the memory.
                lm = model.copy(num_retries=0, update_history=entries.append)
                with context():
                    fields = await predict.acall(lm=lm, signature=signature, demos=demos, **texts.inputs)
        except DSPyError as error:
            raise failure_from_error(error, spend_from_history(entries, model)) from error
        except (ValueError, TypeError, ImportError) as error:
            # What DSPy says of probabilities that do not fit is about the reply; anything else about the settings.
            about_reply = self.confidence and bool(entries)
            failed, spend = "parse" if about_reply else "config", spend_from_history(entries, model)
            raise JudgeFailure(failed, first_line(error), retryable=about_reply, spend=spend) from error
        return _Asked(fields, spend_from_history(entries, model))


def as_example(labelled: LabelledJudgment) -> dspy.Example:
    """A labelled judgment as an example for an optimizer of judges, or as a demonstration for a prompt.

    Its inputs are the fields of a question's signature, just as a judge gets them; its labels are `explanation`, and
    `verdict`, `choice` (the option's code) or `score` by the criterion's kind.

    Example:
        >>> from rubric_integrations import Criterion, Submission
        >>> right = LabelledJudgment(
        ...     submission=Submission(response="It is 42."), criterion=Criterion(requirement="Says 42"), verdict="MET"
        ... )
        >>> as_example(right).verdict
        'MET'
    """
    question = Question(labelled.submission, labelled.criterion)
    inputs = render_question(question).inputs
    field = _ANSWERS[labelled.criterion.kind]
    answer = option_code(question, labelled.verdict) if field == "choice" else labelled.verdict
    return dspy.Example(**inputs, explanation=labelled.reason, **{field: answer}).with_inputs(*inputs)


def _alone(adapter: JudgeAdapter) -> AbstractContextManager[None]:
    """A DSPy context in which the judge leaves no trace, and its calls are counted by us."""
    return dspy.context(
        adapter=adapter, trace=None, disable_history=False, track_usage=False, usage_tracker=None, send_stream=None
    )


def _without_absent(signature: Any, inputs: Mapping[str, Any]) -> Any:
    return _with_only(signature, tuple(inputs))


@lru_cache(maxsize=256)
def _with_only(signature: Any, inputs: tuple[str, ...]) -> Any:
    for name in set(signature.input_fields).difference(inputs):
        signature = signature.delete(name)
    return signature
