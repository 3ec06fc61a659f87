"""One criterion of a rubric: binary, multi-choice, on a scale, or decided by a check.

The module defines the fields of a criterion and validates them. If the author wrote no weight, the weight comes from
the criterion's `importance`. If there is no `importance` either, the weight is 10.

A criterion may have a condition (`applies_when`), which is a separate question. Criteria with the same condition share
its answer. In the list of all questions, the criteria come first, followed by the distinct conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    field_validator,
    model_validator,
)

from rubric_integrations._util.records import MAX_WEIGHT, Record, SparseRecord, UnitScore, Weight
from rubric_integrations.rubric.answers import Option, Scale, counting_scale
from rubric_integrations.rubric.check import Check

DEFAULT_WEIGHT = 10.0

CONDITION_PREFIX = "The following is the case here, however good or bad the submission is: "
"""The beginning of the requirement when a condition in words is asked as a criterion."""


Importance = Literal["essential", "important", "optional", "pitfall"]
"""How much a criterion matters, in words. A `pitfall` is an error that the response should avoid."""

IMPORTANCE_WEIGHTS: dict[Importance, float] = {"essential": 10.0, "important": 7.0, "optional": 3.0, "pitfall": -8.0}
"""The weight of each importance, unless the rubric's `importance_weights` replaces it."""


def weight_of(importance: Importance | None, weights: Mapping[Importance, float] | None = None) -> float:
    """Return the weight of a criterion without a written weight: the weight of its importance, or 10.

    Args:
        importance: The criterion's importance.
        weights: Weights that replace some of `IMPORTANCE_WEIGHTS`.

    Example:
        >>> weight_of("pitfall"), weight_of("pitfall", {"pitfall": -2.0})
        (-8.0, -2.0)
    """
    return DEFAULT_WEIGHT if importance is None else {**IMPORTANCE_WEIGHTS, **(weights or {})}[importance]


def check_importance_weights(weights: dict[Importance, float]) -> dict[Importance, float]:
    """Check the signs of weights for `importance`.

    Raises:
        ValueError: The weight of `pitfall` is positive, or the weight of another importance is negative.
    """
    for importance, weight in weights.items():
        if weight > 0 if importance == "pitfall" else weight < 0:
            sign = "negative, or the score would reward the error" if importance == "pitfall" else "positive"
            raise ValueError(f"has {weight:g} for `{importance}`: this weight must be {sign}")
    return weights


ImportanceWeights = Annotated[dict[Importance, Weight], AfterValidator(check_importance_weights)]
"""Weights that replace some of `IMPORTANCE_WEIGHTS`."""


Kind = Literal["binary", "ordinal", "nominal", "scaled"]
"""The kind of answer: MET or UNMET, one of ordered (`ordinal`) or unordered (`nominal`) options, or a number."""

Evidence = Literal["trajectory", "reference", "query", "image", "context"]
"""The parts of a submission, other than its response, that a criterion may need."""

Sensitivity = Literal["length", "tone", "format"]
"""A property of a text, other than its content, on which a verdict may depend."""

BinaryStrategy = Literal["majority", "weighted", "unanimous", "any", "worst_case", "best_case"]
OrdinalStrategy = Literal["mean", "median", "weighted_mean", "mode", "min", "max", "worst_case", "best_case"]
NominalStrategy = Literal["mode", "weighted_mode", "unanimous"]

VOTE_STRATEGIES: dict[Kind, tuple[str, ...]] = {
    "binary": get_args(BinaryStrategy),
    "ordinal": get_args(OrdinalStrategy),
    "scaled": get_args(OrdinalStrategy),
    "nominal": get_args(NominalStrategy),
}
"""For each kind of criterion, the names of the strategies that join the votes of several judges into one answer."""


_OPERATORS = {
    "supports": "States or implies this (silence about it is not enough): ",
    "contradicts": "Contradicts this (silence about it is no contradiction): ",
}


class Aspect(Record):
    """One aspect of a criterion that the judge should consider.

    Attributes:
        name: A short name.
        description: What the judge should consider. Empty if the name is enough.
    """

    name: str = Field(min_length=1)
    description: str = ""


class WorkedExample(Record):
    """A sample response with the right answer to one criterion, for judges that answer one criterion per request.

    Attributes:
        output: The response.
        score: The right answer: a number on the criterion's scale, an option's label, or a verdict.
        explanation: The reason for the answer.
        input: The task that the response answers.
        level: The author's name for the quality of the response, for example `excellent`.
    """

    output: str = Field(min_length=1)
    score: float | str
    explanation: str = ""
    input: str | None = None
    level: str | None = None


TagName = Annotated[str, Field(min_length=1, max_length=200)]


def _without_repetition(texts: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := next((text for text in texts if texts.count(text) > 1), None):
        raise ValueError(f"has {repeated!r} twice: remove one of them")
    return texts


def _form_of(condition: Any) -> str:
    return "<check>" if isinstance(condition, Mapping | Check) else "<words>"


# The tags are not names of fields: `formats.faults` leaves texts in angle brackets out of a fault's place.
_Condition = Annotated[Annotated[str, Tag("<words>")] | Annotated[Check, Tag("<check>")], Discriminator(_form_of)]


class Criterion(SparseRecord):
    """One requirement for a response, with its weight.

    Attributes:
        requirement: The requirement, in words that a judge can answer with MET or UNMET.
        weight: The weight in the score. A negative weight makes the criterion a penalty: MET means that the error is
            present. Default: the weight of its `importance`, or 10.
        importance: How much the criterion matters, in words. It gives the weight if `weight` is not set: 10 for
            `essential`, 7 for `important`, 3 for `optional`, -8 for `pitfall`. `Rubric.importance_weights` can change
            these numbers.
        name: A short name for reports, feedback keys and overrides, unique in its rubric.
        tags: The topics of the criterion. A report has a score for each tag, over all criteria with the tag.
        metadata: Further data, copied into the report. Judges do not see it, and the score does not use it.
        required: Whether the response fails if this criterion is not met.
        min_score: The smallest value in [0, 1] at which the criterion counts as met. For a penalty, it is compared with
            1 - value. Implies `required`.
        check: Conditions by which code decides the criterion, without a judge.
        options: The answers of a multi-choice criterion: at least two options that are not `na`.
        scale_type: Whether the options are ordered (`ordinal`, the default) or not (`nominal`).
        scale: The range of numbers for the judge's answer, instead of MET or UNMET.
        applies_when: The condition under which the criterion applies: words, which the judge answers first, or a check.
            If the condition is false, the criterion is not applicable and is left out of the score.
        per: With `occurrence`, the judge counts how often the criterion is met. Each occurrence, up to `cap`, adds
            `weight` to the weighted sum. The `scale` is then from 0 to `cap`.
        cap: The largest number of occurrences that counts, from 1 to 1,000. Set together with `per`.
        context: A document that belongs to this criterion, such as its source or a reference, shown to the judge.
        aspects: Aspects to consider, shown to the judge.
        examples: Responses with their right answers, shown to the judge.
        aggregation: The strategy that joins a panel's votes on this criterion, instead of the grader's strategy.
        needs: The evidence that the criterion needs: `trajectory`, `reference`, `query`, `image` (an attachment) or
            `context`. If the submission lacks it, the verdict is CANNOT_ASSESS, without a call to a judge.
        operator: How the submission is compared with the requirement, which is then a statement. `supports`: MET if the
            submission states or implies the statement. `contradicts`: MET if it states or implies the opposite. With
            both operators, the verdict is UNMET if the submission does not mention the subject.
        judge: The name of the judge in the grader's panel that answers this criterion. The other judges do not answer
            it.
        sensitive_to: The properties of a text on which the verdict may depend: `length`, `tone` or `format`. Only tests
            of the rubric use it (see `probe_criteria`). Judges do not see it.

    Example:
        >>> Criterion(requirement="States the margin as 17.2%", weight=10, name="margin").weight
        10.0
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("needs", "operator", "judge", "sensitive_to")

    name: str | None = Field(default=None, min_length=1, max_length=200)
    weight: Weight = DEFAULT_WEIGHT
    importance: Importance | None = None
    requirement: str
    tags: Annotated[tuple[TagName, ...], AfterValidator(_without_repetition)] = ()
    metadata: dict[str, Any] | None = None
    required: bool = Field(default=False, strict=True)
    min_score: UnitScore | None = None
    check: Check | None = None
    options: Sequence[Option] | None = None
    scale_type: Literal["ordinal", "nominal"] = "ordinal"
    scale: Scale | None = None
    applies_when: _Condition | None = None
    per: Literal["occurrence"] | None = None
    cap: int | None = Field(default=None, strict=True, ge=1, le=1_000)
    context: str | None = Field(default=None, min_length=1)
    aspects: tuple[Aspect, ...] = ()
    examples: tuple[WorkedExample, ...] = ()
    aggregation: str | None = None
    needs: Annotated[tuple[Evidence, ...], AfterValidator(_without_repetition)] = ()
    operator: Literal["supports", "contradicts"] | None = None
    judge: str | None = Field(default=None, min_length=1)
    sensitive_to: Annotated[tuple[Sensitivity, ...], AfterValidator(_without_repetition)] = ()

    is_condition: ClassVar[bool] = False

    @field_validator("options")
    @classmethod
    def _can_be_chosen(cls, options: Sequence[Option] | None) -> tuple[Option, ...] | None:
        if options is not None:
            if sum(not option.na for option in options) < 2:
                raise ValueError("must have at least two options that are not `na`")
            labels = [_folded(option.label) for option in options]
            if repeated := next((label for label in labels if labels.count(label) > 1), None):
                raise ValueError(f"has the label {repeated!r} twice: rename one of them")
        return None if options is None else tuple(options)

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        """Check that the fields of the criterion belong to one kind of criterion."""
        if (self.per is None) != (self.cap is None):
            missing = "cap" if self.cap is None else "per"
            raise ValueError(f"has no `{missing}`: write both, `per: occurrence` and the most that count as `cap`")
        if abs(self.full_weight) > MAX_WEIGHT:
            raise ValueError(f"has a `weight` that exceeds {MAX_WEIGHT:g} when multiplied by `cap`: reduce one of them")
        names = ("check", "options", "scale") if self.cap is None else ("check", "options")
        kinds = [f"`{name}`" for name in names if getattr(self, name) is not None]
        if self.cap is not None:
            kinds += ["`per`", *(["`scale`"] if self.scale not in (None, counting_scale(self.cap)) else [])]
        if len(kinds) > 1:
            raise ValueError(f"has {' and '.join(kinds)}: keep only one of them")
        if kinds and self.operator is not None:
            raise ValueError(
                f"has {kinds[0]} and an `operator`, which is for MET and UNMET by a judge: remove one of them"
            )
        if self.check is not None and self.judge is not None:
            raise ValueError("has a `check` and a `judge`, which would never be asked: remove one of them")
        if self.aggregation is not None and self.aggregation not in VOTE_STRATEGIES[self.kind]:
            strategies = ", ".join(VOTE_STRATEGIES[self.kind])
            raise ValueError(f"has the `aggregation` {self.aggregation!r}: a {self.kind} criterion takes {strategies}")
        return self

    @field_validator("applies_when")
    @classmethod
    def _is_yes_or_no(cls, condition: str | Check | None) -> str | Check | None:
        if isinstance(condition, str) and not condition.strip():
            raise ValueError("is empty: write when the criterion applies, or remove it")
        if isinstance(condition, Check) and condition.measure is not None:
            raise ValueError(
                f"has a `{condition.measure}`, whose value is neither yes nor no: use another check, or words"
            )
        return condition

    @model_validator(mode="wrap")
    @classmethod
    def _derive_fields(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        criterion = validate(data)
        # An input that is already a `Criterion` has its weight, which may come from its rubric.
        if criterion is not data and criterion.has_derived_weight:
            # An assignment would count as a written weight, and a frozen record refuses it.
            object.__setattr__(criterion, "weight", weight_of(criterion.importance))
        if criterion is not data and criterion.cap is not None:
            object.__setattr__(criterion, "scale", counting_scale(criterion.cap))
        return criterion

    @field_validator("requirement")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: write what the judge should look for")
        return value

    @property
    def has_derived_weight(self) -> bool:
        """Whether the weight comes from `importance`: the author wrote an `importance` and no `weight`."""
        return self.importance is not None and "weight" not in self.model_fields_set

    @property
    def full_weight(self) -> float:
        """The weight in the score: the `weight`, multiplied by `cap` for a criterion with `per: occurrence`."""
        return self.weight * (self.cap or 1)

    @property
    def full_requirement(self) -> str:
        """The requirement for judges and reports: it begins with the meaning of the `operator`, if there is one."""
        return _OPERATORS[self.operator] + self.requirement if self.operator else self.requirement

    @property
    def is_penalty(self) -> bool:
        """Whether MET lowers the score."""
        return self.weight < 0

    @property
    def is_gate(self) -> bool:
        """Whether the response fails if this criterion is not met, whatever its score."""
        return self.required or self.min_score is not None

    @property
    def kind(self) -> Kind:
        """The kind of answer that the criterion takes. A criterion with a check is binary."""
        if self.options is not None:
            return self.scale_type
        return "binary" if self.scale is None and self.per is None else "scaled"

    @property
    def na_option(self) -> Option | None:
        """The first option that is an abstention, or None."""
        return next((option for option in self.options or () if option.na), None)

    @property
    def choices(self) -> tuple[Option, ...]:
        """The options that are not abstentions."""
        return tuple(option for option in self.options or () if not option.na)

    @property
    def worst_option(self) -> Option:
        """The option that gives the lowest score. For a penalty, it has the highest value. The first in a tie."""
        return max(self.choices, key=lambda o: o.value) if self.is_penalty else min(self.choices, key=lambda o: o.value)

    @property
    def worst_value(self) -> float:
        """The value in [0, 1] of the answer that gives the lowest score."""
        if self.options is not None:
            return self.worst_option.value
        return 1.0 if self.is_penalty else 0.0

    def find_option(self, label: str) -> Option | None:
        """Return the option with a label, or None. Case and outer white space are ignored."""
        return next((option for option in self.options or () if _folded(option.label) == _folded(label)), None)


def _folded(label: str) -> str:
    return label.strip().casefold()


class Condition(Criterion):
    """A condition (`applies_when`) as a binary criterion: MET if its criteria apply."""

    is_condition: ClassVar[bool] = True


def all_criteria(criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """Return the criteria of a rubric, followed by their distinct conditions, each as a `Condition`.

    Example:
        >>> words = "The user asks for a refund"
        >>> criteria = [Criterion(requirement=text, applies_when=words) for text in ("Is kind", "Is brief")]
        >>> [criterion.requirement for criterion in all_criteria(criteria)[:2]], len(all_criteria(criteria))
        (['Is kind', 'Is brief'], 3)
    """
    distinct = {_identity(c.applies_when): c.applies_when for c in criteria if c.applies_when is not None}
    return (*criteria, *map(_as_criterion, distinct.values()))


def condition_indices(criteria: Sequence[Criterion]) -> list[int | None]:
    """Return the index of each criterion's condition, or None if it has no condition.

    The index is a position in the list of all questions: first the criteria, then their distinct conditions.
    """
    indices: dict[str, int] = {}
    for criterion in criteria:
        if criterion.applies_when is not None:
            indices.setdefault(_identity(criterion.applies_when), len(criteria) + len(indices))
    return [None if c.applies_when is None else indices[_identity(c.applies_when)] for c in criteria]


def has_checks(criteria: Sequence[Criterion]) -> bool:
    """Return whether a check decides any of the criteria or their conditions."""
    return bool([c for c in criteria if c.check is not None or isinstance(c.applies_when, Check)])


def describe_condition(condition: str | Check) -> str:
    """Return a condition as text, for a judge that gives one overall score: its words, or its check as JSON."""
    if isinstance(condition, str):
        return " ".join(condition.split())
    return f"the submission passes the check {condition.model_dump_json(exclude_unset=True)}"


def _as_criterion(condition: str | Check) -> Condition:
    if isinstance(condition, Check):
        return Condition(requirement="The condition of a criterion holds", check=condition)
    words = f"{CONDITION_PREFIX}{condition}"
    return Condition(requirement=words, weight=1.0, aggregation="weighted")


def _identity(condition: str | Check) -> str:
    """Return a key that is the same only for equal conditions."""
    return f"words {condition}" if isinstance(condition, str) else f"check {condition.model_dump_json()}"
