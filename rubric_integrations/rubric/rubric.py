"""The rubric: weighted criteria with a pass mark, alone or in groups, and methods to read, write, score and grade it.

A group divides its weight among its children. Judges answer only the leaves.

    effective weight of a child = effective weight of its parent * weight / sum of the positive weights of all children

    value of a group = sum of weight * value / sum of weight        (over its children that have a value)

Children with a negative weight are penalties. As in a rubric without groups, penalties lower the numerator, and their
weights are not part of the denominator. If the numerator is negative, the value of the group is 0. `penalty_cap` is the
largest amount that the penalties of a group subtract.

A group that contains only penalties is itself a penalty among its siblings. Its weight is `-penalty_cap`, and its value
is

    min(1, sum of |weight| * value / penalty_cap)

If a child has no value, its siblings share the full weight of the group. If no child with a positive weight has a
value, the group has no value either. A group that contains only penalties has no value if no child has a value.

The score is computed group by group. One sum over all leaves with their effective weights gives the same score if there
are no abstentions, if no group exceeds its `penalty_cap`, and if no group has a negative value that is raised to 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import IO, Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from rubric_integrations._util.records import MAX_WEIGHT, Record, UnitScore, Weight, html_table
from rubric_integrations.rubric.answers import CannotAssess, Scale
from rubric_integrations.rubric.case import Case, check_cases, renamed_cases, with_unique_names
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Criterion, Importance, ImportanceWeights, weight_of

T = TypeVar("T")
ToGrade = TypeVar("ToGrade", contravariant=True)  # noqa: PLC0105 -- users read the name in signatures
Report = TypeVar("Report", covariant=True)  # noqa: PLC0105 -- as above


class GraderLike(Protocol[ToGrade, Report]):
    """A grader, such as a `PerCriterionGrader`, by the types of its inputs and its reports."""

    async def grade(
        self, rubric: Rubric, to_grade: ToGrade, *, query: str | None = None, reference: str | None = None
    ) -> Report:
        """Grade one text against a rubric."""
        ...

    def grade_sync(
        self, rubric: Rubric, to_grade: ToGrade, *, query: str | None = None, reference: str | None = None
    ) -> Report:
        """Grade one text like `grade`, without `await`."""
        ...


class Fault(NamedTuple):
    """One thing that is wrong with a rubric.

    Attributes:
        where: The place in the document, such as `criteria[2]`. Empty for the document itself.
        field: The name of the field. Empty if the fault does not belong to one field.
        message: What is wrong and what to write instead.
    """

    where: str
    field: str
    message: str

    def __str__(self) -> str:
        place = " ".join(part for part in (self.where, f"`{self.field}`" if self.field else "") if part)
        return f"{place}: {self.message}" if place else self.message


class RubricError(ValueError):
    """Raised for a rubric that cannot be used. The message has one line for each fault.

    Attributes:
        source: The name of the file or value that was read.
        faults: All faults, in the order of the document.
    """

    def __init__(self, source: str, faults: Sequence[Fault]):
        self.source, self.faults = source, tuple(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))

    def __reduce__(self) -> Any:
        return type(self), (self.source, self.faults)


def require_grader(grader: T | None) -> T:
    """Check that the argument is a grader, and return it.

    Raises:
        TypeError: The argument is a judge or another object that cannot grade.
        ValueError: The argument is None.
    """
    if grader is not None and not hasattr(grader, "grade_sync"):
        got, judge = (repr(grader),) * 2 if isinstance(grader, str) else (type(grader).__name__, "...")
        raise TypeError(f"`grader` must be a grader, got {got}: pass `grader=PerCriterionGrader(judge={judge})`")
    if grader is None:
        raise ValueError(
            "`grader` is missing: pass one, such as PerCriterionGrader(judge='openai/gpt-5-mini'); "
            "with a default, your text would go to a model that you did not choose"
        )
    return grader


PenaltyCap = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0, le=MAX_WEIGHT)]
"""The largest amount that the penalties of a group subtract. Above 0."""


class Node(Record):
    """A node of the tree of criteria: a group, or a leaf with one criterion.

    Attributes:
        requirement: The requirement that the children cover. For a leaf, the requirement of its criterion.
        name: A short name.
        weight: The weight of the node, relative to its siblings.
        children: The nodes of the group. Empty for a leaf.
        penalty_cap: The largest amount that the penalties among the children subtract, in the unit of the children's
            weights. None for no limit.
        leaf: For a leaf, the index of its criterion in the rubric. None for a group. Several leaves may have the same
            criterion. Such a criterion is judged once and scored in the group of each leaf.
    """

    requirement: str
    name: str | None = None
    weight: Weight
    children: tuple[Node, ...] = ()
    penalty_cap: PenaltyCap | None = None
    leaf: int | None = None

    @model_validator(mode="after")
    def _has_consistent_weights(self) -> Self:
        if fault := group_fault(self.weight, [child.weight for child in self.children], self.penalty_cap):
            raise ValueError(fault)
        return self

    @property
    def has_only_penalties(self) -> bool:
        """Whether this is a group with penalties and without positive weights."""
        return only_penalties([child.weight for child in self.children])

    @property
    def divisor(self) -> float:
        """The number by which the weights of the children are divided.

        It is the sum of their positive weights. For a group with only penalties, it is `penalty_cap`.
        """
        if self.has_only_penalties:
            return self.penalty_cap or 0.0
        return math.fsum(child.weight for child in self.children if child.weight > 0)

    @property
    def leaves(self) -> list[int]:
        """The indexes of the criteria below this node, in order."""
        return [leaf for child in self.children for leaf in child.leaves] if self.leaf is None else [self.leaf]


class NodeValue(NamedTuple):
    """A node of a tree with its value.

    Attributes:
        depth: The depth of the node. 0 at the top.
        node: The group or the leaf.
        value: The value of the node in [0, 1]. None for a leaf that was not assessed, and for a group if no child with
            a positive weight has a value. For a group with only penalties, None if no child has a value.
    """

    depth: int
    node: Node
    value: float | None


def node_values(tree: Sequence[Node], values: Sequence[float | None], depth: int = 0) -> Iterator[NodeValue]:
    """Yield every node with its value, parents before their children.

    Args:
        tree: The nodes, such as `rubric.tree`.
        values: The value in [0, 1] of each criterion, or None for a criterion that was not assessed.
        depth: The depth to report for `tree`.
    """
    for node in tree:
        yield NodeValue(depth, node, node_value(node, values))
        yield from node_values(node.children, values, depth + 1)


def node_value(node: Node, values: Sequence[float | None]) -> float | None:
    """Return the value in [0, 1] of a node, computed from the values of its leaves, or None if it has no value."""
    if node.leaf is not None:
        return values[node.leaf]
    return group_value(node, [node_value(child, values) for child in node.children])


def group_value(group: Node, values: Sequence[float | None]) -> float | None:
    """Return the value in [0, 1] of a group: the weighted mean of its children that have a value, minus the penalties.

    The value of a group with only penalties is the sum of the penalties, divided by `penalty_cap`, at most 1.

    Args:
        group: The group.
        values: The value in [0, 1] of each child, or None for a child without a value.

    Returns:
        The value. None if no child with a positive weight has a value. For a group with only penalties, None if no
        child has a value.

    Example:
        >>> children = [Node(requirement="r", weight=weight, leaf=0) for weight in (2, 2, 6)]
        >>> group_value(Node(requirement="g", weight=1, children=tuple(children)), [1.0, 0.0, None])
        0.5
    """
    assessed = [(child.weight, value) for child, value in zip(group.children, values, strict=True) if value is not None]
    cap = math.inf if group.penalty_cap is None else group.penalty_cap
    taken = min(cap, math.fsum(-weight * value for weight, value in assessed if weight < 0))
    if group.has_only_penalties:
        return taken / cap if assessed else None
    total = math.fsum(weight for weight, _ in assessed if weight > 0)
    earned = math.fsum(weight * value for weight, value in assessed if weight > 0)
    return max(0.0, (earned - taken) / total) if total else None


def has_caps(tree: Sequence[Node]) -> bool:
    """Return whether any group of the tree, at any depth, has a `penalty_cap`."""
    return any(node.penalty_cap is not None or has_caps(node.children) for node in tree)


def only_penalties(weights: Sequence[float]) -> bool:
    """Return whether at least one weight is negative and no weight is positive."""
    return bool(weights) and max(weights) <= 0 and min(weights) < 0


def group_fault(weight: float, weights: Sequence[float], penalty_cap: float | None) -> str | None:
    """Check the penalties of a group. Return what is wrong and how to fix it, or None if nothing is wrong.

    Args:
        weight: The weight of the group.
        weights: The weights of its children.
        penalty_cap: The largest amount that its penalties subtract, or None.
    """
    if not any(child < 0 for child in weights):
        return None if penalty_cap is None else "has a `penalty_cap` and no penalty that it could limit: remove it"
    if only_penalties(weights):
        if penalty_cap is None:
            return (
                "has only penalties: set `penalty_cap` to the most that they take together, or give the criteria "
                "positive weights and the group a negative one"
            )
        if not math.isclose(weight, -penalty_cap):
            return f"has only penalties, and the weight {weight:g}: remove it, because `penalty_cap` is its weight"
    elif weight < 0:
        return "has a negative weight and a penalty in it, which would earn points: give one of them a positive weight"
    return None


def effective_weights(tree: Sequence[Node]) -> list[float]:
    """Return the effective weight of each criterion, in order: its weight in a sum over all leaves of the tree.

    A group divides its effective weight among its children, in proportion to their weights. The effective weight of a
    criterion with several leaves is the sum over these leaves.
    """

    def weights_below(node: Node, weight: float) -> Iterator[tuple[int | None, float]]:
        if not node.children:
            yield node.leaf, weight
        total, sign = node.divisor, -1.0 if node.has_only_penalties else 1.0
        for child in node.children:
            yield from weights_below(child, weight * sign * child.weight / total if total else 0.0)

    totals: dict[int | None, float] = {}
    for node in tree:
        for leaf, weight in weights_below(node, node.weight):
            totals[leaf] = totals.get(leaf, 0.0) + weight
    return list(totals.values())


MAX_CRITERIA = 1_000
# The limit for all leaves of a tree; each list in the tree may still have at most MAX_CRITERIA entries.
MAX_LEAVES = 10_000
# Shares in a file, such as three times 0.3333, may not sum to exactly 1.
_SHARE_TOLERANCE = 1e-6


def with_weight(criterion: Criterion, weight: float) -> Criterion:
    """Return a copy of a criterion with another weight.

    `model_fields_set` stays the same. Therefore, `has_derived_weight` still shows whether the author wrote a weight.
    """
    if weight == criterion.weight:
        return criterion
    return Criterion.model_construct(criterion.model_fields_set, **{**dict(criterion), "weight": weight})


def weigh(criterion: Criterion, weights: Mapping[Importance, float] | None) -> Criterion:
    """Return a criterion, with a new weight if its author wrote an `importance` and no weight.

    The new weight is the weight for this importance in `weights` or, if there is none, its default weight.
    """
    return (
        with_weight(criterion, weight_of(criterion.importance, weights)) if criterion.has_derived_weight else criterion
    )


def weigh_criteria(criteria: tuple[Criterion, ...], info: ValidationInfo) -> tuple[Criterion, ...]:
    """Set the weights of criteria from `importance` and `importance_weights`.

    The criteria of a rubric with groups are returned unchanged, because the code that reads the file has set their
    weights.

    Raises:
        ValueError: Some weights come from `importance`, and others do not. The two kinds of weights have no common
            scale. Therefore, the ratio between them would be arbitrary.
    """
    derived = [index for index, criterion in enumerate(criteria) if criterion.has_derived_weight]
    other = next((index for index, criterion in enumerate(criteria) if not criterion.has_derived_weight), None)
    if derived and other is not None:
        is_written = "weight" in criteria[other].model_fields_set
        problem = "a written `weight`" if is_written else "neither a `weight` nor an `importance`"
        raise ValueError(
            f"[{other}] has {problem}, while the weight of [{derived[0]}] comes from its `importance`: write a "
            "`weight` for each criterion, or an `importance` alone for each, because the two kinds have no common scale"
        )
    if info.data.get("tree") is not None:
        return criteria
    return tuple(weigh(criterion, info.data.get("importance_weights")) for criterion in criteria)


def criterion_keys(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    """Return a unique name for each criterion: its own name, or `c1`, `c2`, ... after its position."""
    names = {criterion.name for criterion in criteria if criterion.name is not None}
    keys = [criterion.name or f"c{number}" for number, criterion in enumerate(criteria, start=1)]
    for place, criterion in enumerate(criteria):
        while criterion.name is None and keys[place] in names:
            keys[place] += "_"
    return tuple(keys)


def check_criteria(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    """Check that the criteria can be scored and that their names differ.

    Raises:
        ValueError: There is no criterion, there are too many, all weights are 0, or two have the same name.
    """
    if not criteria:
        raise ValueError("has no criteria: add at least one")
    if len(criteria) > MAX_LEAVES:
        raise ValueError(f"has {len(criteria)} criteria, more than {MAX_LEAVES}: split the rubric")
    if all(criterion.weight == 0 for criterion in criteria):
        raise ValueError("has only zero weights, so that no answer could change the score: give one criterion a weight")
    first: dict[str, int] = {}
    for index, criterion in enumerate(criteria):
        if criterion.name is not None and first.setdefault(criterion.name, index) != index:
            earlier = first[criterion.name]
            raise ValueError(f"[{index}] repeats the `name` {criterion.name!r} of [{earlier}]: rename one of them")
    return criteria


CheckedCriteria = Annotated[tuple[Criterion, ...], AfterValidator(weigh_criteria), AfterValidator(check_criteria)]
"""The criteria of a rubric, with their weights."""


def check_hybrid_metrics(metrics: tuple[HybridMetric, ...]) -> tuple[HybridMetric, ...]:
    """Check that the weights of hybrid metrics sum to at most 1 and that their names differ.

    Raises:
        ValueError: The weights sum to more than 1, or two metrics have the same name.
    """
    total = math.fsum(metric.weight for metric in metrics)
    if total > 1 + _SHARE_TOLERANCE:
        raise ValueError(f"has weights that sum to {total:g}, more than 1: nothing would be left for the judge")
    names = [metric.name for metric in metrics]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"has the `name` {repeated!r} twice: rename one of them")
    return metrics


def check_tree(tree: Sequence[Node] | None, criteria: Sequence[Criterion]) -> None:
    """Check that the leaves and weights of a tree match the criteria. Without a tree, check the number of criteria.

    Raises:
        ValueError: The tree does not match the criteria, or there are too many criteria or leaves.
    """
    if tree is None:
        if len(criteria) > MAX_CRITERIA:
            raise ValueError(f"has {len(criteria)} criteria, more than {MAX_CRITERIA}: split the rubric")
    elif list(dict.fromkeys(leaves := [leaf for node in tree for leaf in node.leaves])) != list(range(len(criteria))):
        raise ValueError("has a `tree` whose leaves are not its criteria, in order")
    elif len(leaves) > MAX_LEAVES:
        raise ValueError(f"has a `tree` with {len(leaves)} leaves, more than {MAX_LEAVES}: split the rubric")
    else:
        repeated = [leaf for leaf, count in Counter(leaves).items() if count > 1 and criteria[leaf].name is None]
        if repeated:
            raise ValueError(f"has `criteria[{repeated[0]}]` in two groups of its `tree`: give it a `name`")
        for index, (weight, criterion) in enumerate(zip(effective_weights(tree), criteria, strict=True)):
            if not math.isclose(weight, criterion.full_weight, rel_tol=1e-6):
                raise ValueError(
                    f"has a `tree` with other effective weights than its criteria: `criteria[{index}]` has "
                    f"{criterion.full_weight:g}, its place in the tree gives {weight:g}"
                )


Blend = Literal["weighted_average", "multiplicative", "max", "min"]
"""The names of the functions that blend the values of hybrid metrics with the judge's score."""


def require_list(cases: object) -> object:
    """Check that the cases of a rubric are a list. A file may contain the name of another file instead.

    Raises:
        ValueError: The value is not a list.
    """
    if not isinstance(cases, list | tuple):
        raise ValueError(
            f"must be a list of test cases, got {type(cases).__name__}: to keep them in another file, save it as "
            "`NAME.cases.yaml` next to the rubric `NAME.yaml`, or name it by `--cases`"
        )
    return cast("object", cases)


def check_own_cases(cases: tuple[Case, ...], info: ValidationInfo) -> tuple[Case, ...]:
    """Check the cases of a rubric against its criteria (see `check_cases`). Without valid criteria, check nothing."""
    criteria: tuple[Criterion, ...] | None = info.data.get("criteria")
    return cases if criteria is None else check_cases(cases, criteria, criterion_keys(criteria))


class Rubric(Record):
    """Weighted criteria with a pass mark.

    A field that you do not set has its default value, and `to_dict` omits the field.

    You can join two rubrics with `+`. The result has the criteria, the `guidelines` and the `left_out` of both. For any
    other field that both rubrics set, the value of the right rubric is used.

    Args:
        criteria: 1 to 1,000 criteria (in a tree: up to 10,000 leaves). Reports list them in the same order.
        name: The name of the rubric in reports.
        description: A note for human readers. Judges do not see it.
        guidelines: Instructions for the judge that apply to every criterion.
        pass_mark: The smallest score in [0, 1] that passes. Default 0.8.
        min_coverage: The smallest coverage in [0, 1] that passes. The coverage is the sum of the absolute weights of
            the assessed criteria, divided by this sum over all criteria that apply. Default 0.5.
        version: The version of the rubric, for human readers.
        domain: The subject area, shown to the judge, such as `creative_writing`.
        scale: A scale to which reports convert the score, as an additional number.
        hybrid_metrics: Automatic metrics that are blended with the judge's score. Their weights sum to at most 1.
        blend: How the metrics are blended with the score: `weighted_average` (the default), `multiplicative`, `max` or
            `min`.
        metadata: Further data of the file. It has no effect.
        left_out: Requirements of the author that no criterion covers, one text for each. `select` and the functions
            that read other formats fill this list. If it is not empty, reports are `partial` and never `passed`.
        importance_weights: Weights by `importance` that replace some or all of the default weights (see `Criterion`).
        tree: The groups of the criteria. The functions that read files make it from nested criteria.
        cases: At most 1,000 test cases, which `trust.run_cases` runs. They have no effect on a grade, and rubrics that
            differ only in their cases are equal.

    Raises:
        RubricError: (a ValueError) The rubric is invalid. The message has one line for each fault.

    Example:
        >>> rubric = Rubric([Criterion(requirement="Is polite", weight=2), {"requirement": "Insults", "weight": -4}])
        >>> rubric.compute_score(["MET", "UNMET"])
        1.0
    """

    name: str | None = None
    description: str | None = None
    guidelines: str | None = None
    pass_mark: UnitScore = 0.8
    min_coverage: UnitScore = 0.5
    version: str | None = None
    domain: str | None = None
    scale: Scale | None = None
    hybrid_metrics: Annotated[tuple[HybridMetric, ...], AfterValidator(check_hybrid_metrics)] = ()
    blend: Blend = "weighted_average"
    metadata: dict[str, Any] | None = None
    left_out: tuple[str, ...] = ()
    importance_weights: ImportanceWeights | None = None
    tree: tuple[Node, ...] | None = None
    # After the other fields, because the weights of the criteria may depend on them. The cases depend on the criteria.
    criteria: CheckedCriteria
    cases: Annotated[tuple[Case, ...], BeforeValidator(require_list), AfterValidator(check_own_cases)] = ()

    def __init__(
        self,
        criteria: Iterable[Criterion | Mapping[str, Any]],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        guidelines: str | None = None,
        pass_mark: float | None = None,
        min_coverage: float | None = None,
        version: str | None = None,
        domain: str | None = None,
        scale: Scale | None = None,
        hybrid_metrics: Sequence[HybridMetric] | None = None,
        blend: Blend | None = None,
        metadata: dict[str, Any] | None = None,
        left_out: Sequence[str] | None = None,
        importance_weights: dict[Importance, float] | None = None,
        tree: Sequence[Node] | None = None,
        cases: Iterable[Case | Mapping[str, Any]] | None = None,
    ):
        fields = {
            "criteria": tuple(criteria),
            "name": name,
            "description": description,
            "guidelines": guidelines,
            "pass_mark": pass_mark,
            "min_coverage": min_coverage,
            "version": version,
            "domain": domain,
            "scale": scale,
            "hybrid_metrics": hybrid_metrics,
            "blend": blend,
            "metadata": metadata,
            "left_out": None if left_out is None else tuple(left_out),
            "importance_weights": importance_weights,
            "tree": tree,
            "cases": None if cases is None else tuple(cases),
        }
        try:
            # None means "not set": pydantic records the fields that it receives in `model_fields_set`.
            super().__init__(**{field: value for field, value in fields.items() if value is not None})
        except ValidationError as error:
            raise rubric_error(error) from None

    # As in pydantic's RootModel. Without it, `model_validate` would pass the fields of a file through `__init__`, where
    # None means "not set", and would accept `pass_mark: null`.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]

    @model_validator(mode="after")
    def _has_one_list_or_a_complete_tree(self) -> Self:
        check_tree(self.tree, self.criteria)
        return self

    @property
    def instructions(self) -> str:
        """The text that every judge receives in addition to the criteria: the guidelines and the domain."""
        if not self.domain:
            return self.guidelines or ""
        domain = f"The domain is {self.domain.replace('_', ' ')}."
        return f"{self.guidelines}\n\n{domain}" if self.guidelines else domain

    def __len__(self) -> int:
        return len(self.criteria)

    def __add__(self, other: Rubric) -> Rubric:
        """Join two rubrics, such as a shared rubric and the rubric of a case.

        Fields that the right rubric sets override the fields of the left one. The criteria, `guidelines`, `left_out`
        and `cases` of both are joined. Of the cases, only the expected verdicts are kept, because the expected scores
        are not scores of the joined rubric. A case with the name of an earlier one gets another name.
        """
        if self.tree is not None or other.tree is not None:
            raise ValueError("a rubric with a tree cannot be added to another: put one below a node of the other")
        fields = {
            field: getattr(rubric, field)
            for rubric in (self, other)
            for field in rubric.model_fields_set - {"criteria", "guidelines", "left_out", "cases"}
        }
        if self.left_out or other.left_out:
            fields["left_out"] = self.left_out + other.left_out
        fields["guidelines"] = "\n\n".join(text for text in (self.guidelines, other.guidelines) if text) or None
        if self.cases or other.cases:
            keys = iter(criterion_keys(self.criteria + other.criteria))
            named = [(rubric, dict(zip(rubric.keys, keys, strict=False))) for rubric in (self, other)]
            fields["cases"] = with_unique_names(
                case for rubric, names in named for case in renamed_cases(rubric.cases, names)
            )
        try:
            return Rubric.model_validate({"criteria": self.criteria + other.criteria, **fields})
        except ValidationError as error:
            raise rubric_error(error) from None

    def _repr_html_(self) -> str:
        rows = [
            (key, c.weight, c.kind, "required" if c.is_gate else "", c.requirement)
            for key, c in zip(self.keys, self.criteria, strict=True)
        ]
        title = f"{self.name or 'Rubric'}: {len(self)} criteria, passes from {self.pass_mark:g}"
        return html_table(title, ["criterion", "weight", "kind", "gate", "requirement"], rows)

    @property
    def keys(self) -> tuple[str, ...]:
        """A unique name for each criterion: its own name, or `c1`, `c2`, ... after its position."""
        return criterion_keys(self.criteria)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the criteria, in the order in which they first occur."""
        return tuple(dict.fromkeys(tag for criterion in self.criteria for tag in criterion.tags))

    @property
    def positive_weight(self) -> float:
        """The sum of the positive weights (P in the scoring formula)."""
        return math.fsum(c.full_weight for c in self.criteria if c.weight > 0)

    @property
    def negative_weight(self) -> float:
        """The sum of the absolute values of the negative weights (N in the scoring formula)."""
        return math.fsum(-c.full_weight for c in self.criteria if c.weight < 0)

    @classmethod
    def from_dict(cls, data: Sequence[Any] | Mapping[str, Any]) -> Rubric:
        """Read a rubric from lists and dictionaries, in any supported format.

        The native format has these forms: a list of criteria, a list of sections `{"criteria": [...]}`, and the objects
        `{"sections": [...]}`, `{"rubric": [...]}` and `{"criteria": [...], "guidelines": ..., ...}`.

        Raises `RubricError`, with one line for each fault: the place, the field, what is wrong and how to fix it.

        Example:
            >>> Rubric.from_dict([{"weight": 10.0, "requirement": "Is polite"}]).keys
            ('c1',)
        """
        from rubric_integrations.formats import read_document

        return read_document(data, source="rubric")

    @classmethod
    def from_json(cls, text: str) -> Rubric:
        """Read a rubric from JSON text. Raises `RubricError`."""
        from rubric_integrations.formats.registry import read_text

        return read_text(text, "json", source="rubric")

    @classmethod
    def from_yaml(cls, text: str) -> Rubric:
        """Read a rubric from YAML text (the safe subset, without tags that name code). Raises `RubricError`."""
        from rubric_integrations.formats.registry import read_text

        return read_text(text, "yaml", source="rubric")

    @classmethod
    def from_file(cls, source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
        """Read a rubric from a path or an open file, in the syntax of its extension. Raises `RubricError`."""
        from rubric_integrations.formats.registry import read_file

        return read_file(source)

    def to_dict(self) -> dict[str, Any]:
        """Return this rubric as lists and dictionaries. `from_dict` reads an equal rubric from them."""
        from rubric_integrations.formats import write_document

        return write_document(self)[0]

    def to_json(self) -> str:
        """Return this rubric as JSON text. `from_json` reads an equal rubric from it."""
        from rubric_integrations.formats.registry import write_text

        return write_text(self, "json")

    def to_yaml(self) -> str:
        """Return this rubric as YAML text. `from_yaml` reads an equal rubric from it."""
        from rubric_integrations.formats.registry import write_text

        return write_text(self, "yaml")

    def with_cases(self, cases: Iterable[Case | Mapping[str, Any]]) -> Rubric:
        """Return a copy of this rubric with other test cases instead of its own.

        Args:
            cases: The cases, as `Case` or as mappings of its fields. None of them removes the cases.

        Raises:
            RubricError: (a ValueError) A case is invalid. The message has one line for each fault.

        Example:
            >>> rubric = Rubric([{"name": "right", "requirement": "Says 42"}])
            >>> case = {"name": "wrong", "response": "It is 41.", "expect": {"verdicts": {"right": "UNMET"}}}
            >>> [case.name for case in rubric.with_cases([case]).cases]
            ['wrong']
        """
        fields = {field: getattr(self, field) for field in self.model_fields_set - {"cases"}}
        try:
            return Rubric.model_validate(fields | ({"cases": written} if (written := tuple(cases)) else {}))
        except ValidationError as error:
            raise rubric_error(error) from None

    def without_cases(self) -> Rubric:
        """Return this rubric without its test cases. This object, if it has none."""
        return self.with_cases(()) if self.cases else self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rubric) and (self.cases or other.cases):
            return self.without_cases() == other.without_cases()
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field) for field in Rubric.model_fields if field != "cases"))

    def with_weights(self, weights: Mapping[str, float], pass_mark: float | None = None) -> Rubric:
        """Return a copy of this rubric with other weights, such as weights that you tried on the report page.

        Args:
            weights: The new weights by the name of the criterion (see `keys`). The other criteria keep their weights.
                For a criterion with `per: occurrence`, this is the weight of one occurrence.
            pass_mark: The new pass mark in [0, 1]. None keeps the current one.

        Raises:
            RubricError: (a ValueError) A weight or the pass mark is invalid.
            ValueError: The rubric has groups, or `weights` has a name that no criterion has.

        Example:
            >>> rubric = Rubric.from_dict([{"name": "right", "requirement": "Is right", "weight": 1}])
            >>> rubric.with_weights({"right": 3.0}).criteria[0].weight
            3.0
        """
        if self.tree is not None:
            raise ValueError("the rubric has groups, which share their weights: write the new weights into its file")
        if unknown := [name for name in weights if name not in self.keys]:
            raise ValueError(f"`weights` names {unknown[0]!r}, which is none of the criteria {list(self.keys)!r}")
        try:
            criteria = [
                Criterion.model_validate(
                    {field: getattr(criterion, field) for field in criterion.model_fields_set}
                    | {"weight": weights[key]}
                )
                if key in weights
                else criterion
                for key, criterion in zip(self.keys, self.criteria, strict=True)
            ]
            fields = {field: getattr(self, field) for field in self.model_fields_set} | {"criteria": tuple(criteria)}
            return Rubric.model_validate(fields if pass_mark is None else fields | {"pass_mark": pass_mark})
        except ValidationError as error:
            raise rubric_error(error) from None

    def select(self, names: Sequence[str] = (), tags: Sequence[str] = ()) -> Rubric:
        """Return a rubric with some of the criteria, such as the only one that you are changing.

        The criteria keep their names, and a ledger has the same judgments for them, unless all criteria were in one
        request (`PerCriterionOneShotGrader`). Their score is the score of the full rubric if the other criteria did not
        apply. The names of the other criteria are added to `left_out`. Therefore, no report of the selection is
        `passed`.

        Args:
            names: The names of criteria (see `keys`).
            tags: Tags. A criterion with any of these tags is selected, too.

        Raises:
            ValueError: There is no such name or tag, or neither is passed.
            RubricError: (a ValueError) The selection cannot be a rubric: all its weights are 0.

        Example:
            >>> rubric = Rubric.from_dict([{"name": name, "requirement": f"Is {name}"} for name in ("right", "brief")])
            >>> rubric.select(["brief"]).keys, rubric.select(["brief"]).left_out
            (('brief',), ('the criterion `right` is not selected',))
        """
        from rubric_integrations.rubric.selection import select_criteria

        return select_criteria(self, *([value] if isinstance(value, str) else list(value) for value in (names, tags)))

    def compute_score(
        self,
        verdicts: Sequence[str | float],
        normalize: bool = True,
        cannot_assess: CannotAssess = "skip",
    ) -> float | None:
        """Compute the score of known verdicts, such as human labels, with the formula that every grader uses.

        Args:
            verdicts: One answer for each criterion, in order: `MET` or `UNMET`, an option's label, or a number on the
                scale. `CANNOT_ASSESS` is possible for any criterion.
            normalize: Whether to return a score in [0, 1]. If False, return the raw weighted sum.
            cannot_assess: How an abstention is scored: `skip`, `zero`, `partial`, `fail`, or a number in [0, 1] as the
                share of a positive weight that it earns. See `CannotAssess`.

        Returns:
            The score. None if no criterion with a positive weight was assessed. For a rubric with only penalties, None
            if no criterion was assessed.

        Raises:
            ValueError: The number of verdicts is not the number of criteria, or a verdict is unknown.
        """
        from rubric_integrations.scoring.formula import score_verdicts

        return score_verdicts(self, verdicts, normalize, cannot_assess)

    async def grade(
        self,
        to_grade: ToGrade,
        grader: GraderLike[ToGrade, Report] | None = None,
        query: str | None = None,
        reference: str | None = None,
        *,
        autograder: GraderLike[ToGrade, Report] | None = None,
    ) -> Report:
        """Grade one text against this rubric.

        Args:
            to_grade: The text, or `{"thinking": ..., "output": ...}`, or a `Submission`.
            grader: The grader, which contains the judge. There is no default.
            query: The task that the text answers.
            reference: A reference answer, shown to the judge for comparison.
            autograder: Another name for `grader`, for code that was written for the `rubric` package.

        Returns:
            The grader's report: an `EvaluationReport`, if the grader is one of `rubric_integrations.graders`.

        Raises:
            JudgeError: A criterion could not be judged and the grader's `on_failure` is `"raise"`.
            ValueError: There is nothing to grade, or no grader.
        """
        return await require_grader(grader or autograder).grade(self, to_grade, query=query, reference=reference)

    def grade_sync(
        self,
        to_grade: ToGrade,
        grader: GraderLike[ToGrade, Report] | None = None,
        query: str | None = None,
        reference: str | None = None,
        *,
        autograder: GraderLike[ToGrade, Report] | None = None,
    ) -> Report:
        """Grade one text like `grade`, without `await`. It also works in notebooks and threads with an event loop."""
        return require_grader(grader or autograder).grade_sync(self, to_grade, query=query, reference=reference)


def rubric_error(error: ValidationError, source: str = "Rubric") -> RubricError:
    """Return the error of a rubric's validation as a `RubricError`, with the name of what was validated."""
    from rubric_integrations.formats.parsing import faults_from_error

    return RubricError(source, faults_from_error("", Rubric, error))
