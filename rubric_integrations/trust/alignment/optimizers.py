"""DSPy's optimizers by name, the metric that they maximize, and the judge as the program that they optimize.

To add an optimizer, write a function that creates it and add the function to `OPTIMIZERS`.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, cast

import dspy
from dspy.teleprompt import MIPROv2, Teleprompter
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.metric_score import MetricScore
from rubric_integrations.judges.prompts.render import option_code
from rubric_integrations.judges.prompts.sanitize import neutralize
from rubric_integrations.judges.prompts.signatures import (
    ANSWER_FIELDS,
    as_example,
    read_probabilities,
    split_instructions,
)
from rubric_integrations.judges.protocol import Question
from rubric_integrations.rubric.criterion import Kind
from rubric_integrations.scoring.judgment import JudgeFailure, normalize_word, parse_verdict
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.trust.alignment.calls import AlignmentCalls, AlignmentStopped, CountedModel
from rubric_integrations.trust.alignment.keeping import LabelledQuestion

_PENALTY = "The criterion is a penalty: MET means that the submission commits the error."
# As `describe_scale` writes it.
_SCALE = re.compile(r"from (\S+) to (\S+), ")


def judge_metric(
    example: dspy.Example,
    prediction: dspy.Prediction | None,
    trace: object = None,
    pred_name: str | None = None,
    pred_trace: object = None,
) -> MetricScore:
    """Score a judge's answer by the human label. It is a metric for DSPy optimizers: `dspy.GEPA(metric=judge_metric)`.

    The score is 1 if both answers are equal and 0 if not. For different numbers on a scale, it is 1 minus the
    difference divided by the width of the scale. The answer passes, and can become a few-shot example, only if both are
    equal. An abstention of the judge is wrong if the label is not an abstention.

    Args:
        example: A labelled judgment, made by `as_example`.
        prediction: The judge's prediction. If the judge failed, it is None or has no answer.
        trace: Not used, because evaluation and bootstrapping use the same score.
        pred_name: Not used, because each example calls one predictor.
        pred_trace: Not used.

    Returns:
        The score, with feedback text that contains both answers and their reasons.

    Example:
        >>> from rubric_integrations import Criterion, Submission
        >>> from rubric_integrations.judges import as_example
        >>> from rubric_integrations.scoring import LabelledJudgment
        >>> label = LabelledJudgment(
        ...     submission=Submission(response="About 42."), criterion=Criterion(requirement="Says exactly 42"),
        ...     verdict="UNMET", reason="It is a guess.",
        ... )
        >>> print(judge_metric(as_example(label), dspy.Prediction(explanation="42 occurs", verdict="MET")).feedback)
        People answered UNMET, because: It is a guess. The judge answered MET, because: 42 occurs.
    """
    labels: dict[str, Any] = dict(example.items())
    field = next(field for field in dict.fromkeys(ANSWER_FIELDS.values()) if field in labels)
    people = str(labels[field])
    judge = _answer(prediction, field)
    is_equal = judge is not None and _canonical(judge) == _canonical(people)
    score = float(is_equal)
    if field == "score" and judge is not None and not is_equal:
        score = _closeness(judge, people, str(labels.get("scale", "")))
    reasons = labels.get("explanation"), getattr(prediction, "explanation", None)
    their_reason, own_reason = (_because(reason) for reason in reasons)
    options = str(labels.get("options", ""))
    if judge is None:
        message = (
            f"People answered {_display_answer(people, options)}{their_reason} The judge gave no answer{own_reason}"
        )
    elif is_equal:
        message = f"Right: people also answered {_display_answer(people, options)}{their_reason}"
    else:
        message = (
            f"People answered {_display_answer(people, options)}{their_reason} The judge answered "
            f"{_display_answer(judge, options)}{own_reason}"
        )
    if labels.get("kind") == "penalty":
        message = f"{message} {_PENALTY}"
    return MetricScore(score, is_equal, message)


def _answer(prediction: dspy.Prediction | None, field: str) -> str | None:
    value: object = getattr(prediction, field, None)
    if value is None:
        return None
    answer, _ = read_probabilities(value)
    return str(answer)


def _canonical(answer: str) -> str | float:
    try:
        return float(answer)
    except ValueError:
        return parse_verdict(answer) or normalize_word(answer) or answer


def _closeness(judge: str, people: str, scale: str) -> float:
    """Return 1 minus the difference of two numbers divided by the width of their scale, or 0 if one is not a number."""
    limits = _SCALE.search(scale)
    try:
        difference = abs(float(judge) - float(people))
        width = float(limits[2]) - float(limits[1]) if limits else 0.0
    except ValueError:
        return 0.0
    return max(0.0, 1.0 - difference / width) if width > 0 and difference < float("inf") else 0.0


def _because(reason: object) -> str:
    text = neutralize(str(reason or "").strip())
    return f", because: {text if text[-1] in '.!?' else f'{text}.'}" if text else "."


def _display_answer(answer: str, options: str) -> str:
    """Return an answer as text. The code of an option is shown with the option."""
    line = next((line for line in options.splitlines() if line.startswith(f"{answer}: ")), None)
    return neutralize(answer if line is None else f"`{line}`")


# ReAnchor is experimental, and any release of DSPy may remove it.
_ReAnchor: Any = (
    getattr(import_module("dspy.experimental"), "ReAnchor", None) if find_spec("dspy.experimental") else None
)

OptimizerName = Literal["gepa", "miprov2", "bootstrap", "reanchor"]
"""The names of optimizers that `align` accepts."""


class OptimizerSettings(NamedTuple):
    """The settings of an optimizer that is selected by name.

    Attributes:
        proposer: The model that proposes instructions.
        threads: The largest number of concurrent calls.
        seed: The random seed of the search.
    """

    proposer: dspy.BaseLM
    threads: int
    seed: int


def _gepa(settings: OptimizerSettings) -> Teleprompter:
    return GEPA(
        metric=cast("Any", judge_metric), auto="light", reflection_lm=cast("Any", settings.proposer),
        component_selector="all", num_threads=settings.threads, seed=settings.seed,
    )  # fmt: skip


def _miprov2(settings: OptimizerSettings) -> Teleprompter:
    return MIPROv2(
        metric=judge_metric, auto="light", prompt_model=settings.proposer, task_model=settings.proposer,
        num_threads=settings.threads, seed=settings.seed,
    )  # fmt: skip


def _bootstrap(settings: OptimizerSettings) -> Teleprompter:
    return dspy.BootstrapFewShot(metric=judge_metric)


def _reanchor(settings: OptimizerSettings) -> Teleprompter:
    if _ReAnchor is None:
        raise ValueError("`optimizer` 'reanchor' is not part of the installed DSPy: it is an experiment of DSPy 3.4")
    return _ReAnchor(metric=judge_metric, num_threads=settings.threads, require_cache=False)


OPTIMIZERS: dict[OptimizerName, Callable[[OptimizerSettings], Teleprompter]] = {
    "gepa": _gepa,
    "miprov2": _miprov2,
    "bootstrap": _bootstrap,
    "reanchor": _reanchor,
}
"""The optimizers by name. GEPA rewrites the instructions from the raters' reasons. MIPROv2 searches for instructions
and few-shot examples together. BootstrapFewShot collects few-shot examples. ReAnchor reweights stated probabilities."""


def make_optimizer(
    optimizer: Teleprompter | str, settings: OptimizerSettings, calls: AlignmentCalls
) -> tuple[Teleprompter, str]:
    """Return the DSPy optimizer to run and the name of its class.

    An optimizer that is selected by name is created with the settings. A DSPy optimizer that the user passes is copied,
    and keeps its own settings. The calls of the copy's models count towards the limits of the alignment.

    Raises:
        TypeError: `optimizer` is neither a name nor a DSPy optimizer.
        ValueError: There is no optimizer with this name, or the installed DSPy lacks it.
    """
    if isinstance(optimizer, str):
        make = OPTIMIZERS.get(cast("OptimizerName", optimizer))
        if make is None:
            names = ", ".join(map(repr, OPTIMIZERS))
            raise ValueError(f"`optimizer` must be one of {names}, or an optimizer of DSPy, got {optimizer!r}")
        made = make(settings)
        return made, type(made).__name__
    if not isinstance(cast("object", optimizer), Teleprompter):
        raise TypeError(
            f"`optimizer` must be a name or an optimizer of DSPy, such as `dspy.GEPA(metric=judge_metric, ...)`, got "
            f"{type(optimizer).__name__}"
        )
    own = copy.copy(optimizer)
    for name, value in vars(optimizer).items():
        if isinstance(value, dspy.BaseLM):
            setattr(own, name, CountedModel(value, calls))
    return own, type(optimizer).__name__


def decodes_again(optimizer: Teleprompter) -> bool:
    """Whether an optimizer computes different answers from the same model replies. Only DSPy's ReAnchor does.

    ReAnchor changes the weights of the probabilities that a reply states. For such an optimizer, the reply to each
    request is stored. Therefore, no request is sent twice.
    """
    return _ReAnchor is not None and isinstance(optimizer, _ReAnchor)


def run_optimizer(
    optimizer: Teleprompter, student: dspy.Module, trainset: list[dspy.Example], valset: list[dspy.Example]
) -> dspy.Module:
    """Run an optimizer on a student, and return the optimized program.

    `valset` is passed only to an optimizer that accepts it, to select among candidates.
    """
    parameters = inspect.signature(optimizer.compile).parameters
    sets = {"trainset": trainset, **({"valset": valset} if "valset" in parameters else {})}
    return cast("Any", optimizer).compile(student, **sets)


_PREDICTORS: dict[Kind, str] = {"binary": "criterion", "ordinal": "option", "nominal": "option", "scaled": "scale"}
_FENCE = re.compile(r"<data ([^\s>]+)")

_Inputs = tuple[tuple[str, str], ...]


class _Alignment:
    """The data that all copies of a student share. An optimizer copies the student, but must not copy this object."""

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
    """A judge as a DSPy program that an optimizer can change. It has only the predictors that the labels need.

    Its calls are made like the calls of a grader: they are retried and limited, and judgments in the ledger are not
    requested again. If the judge fails on a question, the prediction has no answer.

    Args:
        judge: The judge.
        items: The labels of train and dev. The optimizer can request answers only to their questions.
        calls: The calls of the alignment.
        code: The code in the fences (`<data CODE>`) around texts in examples. In other prompts, each process uses a
            random code. In examples, the code is fixed, because each process must create the same examples.
        model: The judge's model, if `decodes_again` is true for the optimizer. The model's replies are then stored.
            None for other optimizers. The judgments of each candidate are then stored.
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
                # An optimizer replaces all instructions, so the instructions about untrusted texts are kept separately.
                own, _ = split_instructions(predictor.signature.instructions)
                predictor.signature = predictor.signature.with_instructions(own)
            setattr(self, name, predictor)

    def example(self, item: LabelledQuestion) -> dspy.Example:
        """Convert a label to a DSPy example. Every process makes the same example from a label."""
        label: LabelledJudgment = item.label.model_copy(update={"verdict": item.answer})
        example = as_example(label)
        code = _FENCE.match(str(example.submission))
        fields = {
            name: value.replace(code[1], self._code) if code and isinstance(value, str) else value
            for name, value in example.items()
        }
        return dspy.Example(**fields).with_inputs(*example.inputs().keys())

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Let the candidate judge answer a labelled question.

        Raises:
            ValueError: The inputs are not the inputs of a label, because the optimizer changed an example.
            AlignmentStopped: No further call can be made.
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
        trace: list[object] | None = dspy.settings.trace
        if trace is not None:
            trace.append((getattr(self, _PREDICTORS[question.criterion.kind]), dict(inputs), prediction))
        return prediction

    def _candidate(self) -> LMJudge:
        shared = self._alignment
        if shared.model is None:
            return self.judge()
        judge = copy.copy(shared.judge)
        judge.lm = shared.model
        # These are the original predictors and not copies, because DSPy records their replies by their identity.
        for name, predictor in self.named_predictors():
            setattr(judge, name, predictor)
        return judge

    def judge(self) -> LMJudge:
        """Return a copy of the judge with the prompts that the optimizer has given to this program."""
        judge = copy.copy(self._alignment.judge)
        for name, predictor in cast("Any", self).named_predictors():
            # Optimizers give every predictor examples of all kinds. An example of another kind of criterion would teach
            # a wrong form of the answer.
            own, before = copy.copy(predictor), getattr(judge, name).signature
            own.demos = [demo for demo in predictor.demos if all(field in demo for field in before.output_fields)]
            _, about_texts = split_instructions(before.instructions)
            if about_texts and about_texts not in predictor.signature.instructions:
                own.signature = _with_more_instructions(predictor.signature, about_texts)
            setattr(judge, name, own)
        return judge


# Cached to make one signature for each candidate and not for each call, because DSPy caches data by the signature.
@lru_cache(maxsize=256)
def _with_more_instructions(signature: Any, text: str) -> Any:
    return signature.with_instructions(f"{signature.instructions.rstrip()}\n\n{text}")


def _key(inputs: Mapping[str, Any]) -> _Inputs:
    return tuple(sorted((name, str(value)) for name, value in inputs.items()))
