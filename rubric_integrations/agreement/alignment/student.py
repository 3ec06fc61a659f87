"""A judge as DSPy's optimizers see it: the predictors that the labels are about, each call counted and stored."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import dspy

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.agreement.alignment.calls import AlignmentCalls, AlignmentStopped
from rubric_integrations.agreement.alignment.counted_model import CountedModel
from rubric_integrations.agreement.alignment.label_sets import LabelledQuestion
from rubric_integrations.judges.examples import ANSWER_FIELDS, as_example
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.prompts.render import option_code
from rubric_integrations.judges.prompts.signatures import split_instructions
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.criterion import Kind

_PREDICTORS: dict[Kind, str] = {"binary": "criterion", "ordinal": "option", "nominal": "option", "scaled": "scale"}
_FENCE = re.compile(r"<data ([^\s>]+)")

_Inputs = tuple[tuple[str, str], ...]


class _Alignment:
    """What all copies of a student share; an optimizer copies the student, and must not copy this."""

    def __init__(
        self,
        judge: LMJudge,
        calls: AlignmentCalls,
        questions: Mapping[_Inputs, Question],
        model: CountedModel | None,
    ):
        self.judge, self.calls, self.questions, self.model = judge, calls, questions, model

    def __deepcopy__(self, memo: object) -> _Alignment:
        return self


class JudgeStudent(dspy.Module):
    """A judge as a DSPy program, with the predictors that labels exercise, and no others.

    Its calls go the same way as those of a grader: they are retried and limited, and what a ledger has is not requested
    again. Where the judge fails on one question, the prediction has no answer.

    Args:
        judge: The judge.
        items: The labels of train and dev: the optimizer can ask about nothing else.
        calls: The calls of the alignment.
        code: What encloses texts in examples, in place of the code of this process, so that each process makes the same
            examples.
        model: The judge's model, if its replies are to be stored by their requests, and not by the candidate: for an
            optimizer that decodes the same replies again and again.
    """

    def __init__(
        self,
        judge: LMJudge,
        items: Sequence[LabelledQuestion],
        calls: AlignmentCalls,
        code: str,
        model: CountedModel | None = None,
    ):
        super().__init__()
        self._code = code
        questions = {_key(dict(self.example(item).inputs().items())): item.question for item in items}
        self._alignment = _Alignment(judge, calls, questions, model)
        for name in sorted({_PREDICTORS[item.question.criterion.kind] for item in items}):
            predictor = copy.deepcopy(getattr(judge, name))
            if model is None:
                # An optimizer replaces the whole instructions: those against instructions in a text must stay.
                own, _ = split_instructions(predictor.signature.instructions)
                predictor.signature = predictor.signature.with_instructions(own)
            setattr(self, name, predictor)

    def example(self, item: LabelledQuestion) -> dspy.Example:
        """Return a label as a DSPy example, equal in each process."""
        label: LabelledJudgment = item.label.model_copy(update={"verdict": item.answer})
        example = as_example(label)
        code = _FENCE.match(str(example.submission))
        fields = {
            name: value.replace(code[1], self._code) if code and isinstance(value, str) else value
            for name, value in example.items()
        }
        return dspy.Example(**fields).with_inputs(*example.inputs().keys())

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Answer a question of the labels.

        Raises:
            ValueError: The optimizer changed the inputs of an example.
            AlignmentStopped: No further call is made.
        """
        shared = self._alignment
        question = shared.questions.get(_key(inputs))
        if question is None:
            raise ValueError("the optimizer calls the judge with inputs that are those of no label")
        field = ANSWER_FIELDS[question.criterion.kind]
        try:
            judgment = run_sync(shared.calls.judge(self._candidate(), question, is_counted=shared.model is not None))
        except JudgeFailure as failure:
            if failure.kind == "transport":
                raise AlignmentStopped(failure.message) from None
            return dspy.Prediction(**{"explanation": failure.message, field: None})
        answer = option_code(question, judgment.verdict) if field == "choice" else judgment.verdict
        prediction = dspy.Prediction(**{"explanation": judgment.reason, field: answer})
        trace = cast("list[object] | None", dspy.settings.trace)
        if trace is not None:
            trace.append((getattr(self, _PREDICTORS[question.criterion.kind]), dict(inputs), prediction))
        return prediction

    def _candidate(self) -> LMJudge:
        shared = self._alignment
        if shared.model is None:
            return self.judge()
        judge = copy.copy(shared.judge)
        judge.lm = shared.model
        # The predictors themselves: DSPy records by them what they decode.
        for name, predictor in cast("Any", self).named_predictors():
            setattr(judge, name, predictor)
        return judge

    def judge(self) -> LMJudge:
        """Return the judge with the prompts of this student."""
        judge = copy.copy(self._alignment.judge)
        for name, predictor in cast("Any", self).named_predictors():
            # Optimizers give every predictor demonstrations of any example; those of another kind would teach a wrong
            # form of the answer.
            own, before = copy.copy(predictor), getattr(judge, name).signature
            own.demos = [demo for demo in predictor.demos if all(field in demo for field in before.output_fields)]
            _, about_texts = split_instructions(before.instructions)
            if about_texts and about_texts not in predictor.signature.instructions:
                own.signature = _with_more_instructions(predictor.signature, about_texts)
            setattr(judge, name, own)
        return judge


# One signature for each candidate, and not for each call: what is computed of it is cached.
@lru_cache(maxsize=256)
def _with_more_instructions(signature: Any, text: str) -> Any:
    return signature.with_instructions(f"{signature.instructions.rstrip()}\n\n{text}")


def _key(inputs: Mapping[str, Any]) -> _Inputs:
    return tuple(sorted((name, str(value)) for name, value in inputs.items()))
