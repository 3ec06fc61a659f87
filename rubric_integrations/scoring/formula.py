"""The scoring formula: pure functions that turn weights and judgment values into a score.

`w` is the weight of a criterion, and `v` in [0, 1] is the value of its judgment. The sums are over all criteria that
are not left out:

    P = sum of w > 0        N = sum of |w| for w < 0        S = sum of v * w

    the rubric has a positive weight:   score = clamp01(S / P)
    the rubric has only penalties:      score = clamp01(1 + S / N)

All criteria of the rubric, including abstentions, decide which of the two lines applies. Otherwise, an abstention could
change the line and raise the score. The score is None (undefined) if the divisor (P or N) is 0, because no criterion of
this sum was assessed. `scoring/vectorized.py` has the same formula for arrays.

In a rubric with groups (a tree), `w` and `v` are the weights and the values of the root nodes. The values are computed
from the leaves upwards. The value of a group is the weighted mean of the children that have a value, minus the
penalties of the group (`rubric/rubric.py`). The policy for abstentions applies to the leaves:

- With `zero`, `partial`, `fail` or a number, every leaf has a value. The score then equals one sum over all leaves with
  their effective weights, unless the penalties of a group reach its cap or its full value.
- With `skip`, the siblings of an abstention share the weight of the group. A group without any answered leaf is left
  out like a criterion. A root node that has a value counts with its full weight in the raw score S.
- With every policy, a criterion that does not apply is left out as with `skip`.

`score_range` computes the lowest and the highest final score that are possible while some criteria are not judged yet.
It computes the range of each group from the ranges of its children, and the range of the score from the root nodes. The
highest value of a group is found as follows. The lowest value is found in the opposite way.

- Each child that will certainly have a value has its best value: the highest, or the lowest for a penalty.
- A child that can still abstain may count or be left out. In the highest mean, the children with the largest values
  count, and the others are left out. Therefore, the children are sorted by their best values and added to the mean one
  after another. The largest of these means is the highest value of the group.

If children share a criterion or a condition, their values depend on each other. The range then includes every possible
score, but also some impossible scores. A decision based on the range is still right, but may be made later than
necessary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, assert_never

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Blend, Node, Rubric, group_value, node_value
from rubric_integrations.scoring.judgment import extreme_judgment, to_judgment
from rubric_integrations.scoring.policies import CannotAssess, validate_abstention_policy
from rubric_integrations.scoring.report import NOT_APPLICABLE

ROUNDING = 1e-9
"""The tolerance of comparisons with a threshold. Without it, a rounding error of the division could fail a release
gate.
"""


class WeightedValue(NamedTuple):
    """The weight and the value of one criterion, as input of the scoring formula.

    Attributes:
        weight: The criterion's weight.
        value: The value of its judgment in [0, 1]. None for an abstention.
        worst: The possible value in [0, 1] that gives the lowest score. Used by `cannot_assess="fail"`.
    """

    weight: float
    value: float | None
    worst: float


class Score(NamedTuple):
    """The result of the scoring formula.

    Attributes:
        normalized: The score in [0, 1]. None if it is undefined.
        raw: The weighted sum of the values. None if every criterion was left out.
    """

    normalized: float | None
    raw: float | None

    def reported(self, *, normalize: bool) -> float | None:
        """Return the score for a report: normalized or raw. In both modes, None if the normalized score is None."""
        return self.normalized if normalize or self.normalized is None else self.raw


def score_parts(parts: Sequence[WeightedValue], cannot_assess: CannotAssess = "skip") -> Score:
    """Compute the score from weights and values: sum of weight * value / sum of positive weights, clipped to [0, 1].

    A rubric with only penalties has the score 1 - (sum of |weight| * value) / (sum of |weight|).

    Args:
        parts: One entry for each criterion of the rubric, including abstentions. For a rubric with groups, one for each
            root.
        cannot_assess: How abstentions are scored.

    Example:
        >>> score_parts([WeightedValue(10, 1.0, 0.0), WeightedValue(8, None, 0.0), WeightedValue(-15, 0.0, 1.0)])
        Score(normalized=1.0, raw=10.0)
    """
    values = [(part.weight, scored_value(part, cannot_assess)) for part in parts]
    counted = [(weight, value) for weight, value in values if value is not None]
    if not counted:
        return Score(None, None)
    raw = math.fsum([weight * value for weight, value in counted])
    if any(part.weight > 0 for part in parts):
        divisor = math.fsum([weight for weight, _ in counted if weight > 0])
        return Score(_clamp(raw / divisor) if divisor else None, raw)
    divisor = math.fsum(-weight for weight, _ in counted)
    return Score(_clamp(1 + raw / divisor) if divisor else None, raw)


def score_values(
    rubric: Rubric,
    values: Sequence[float | None],
    cannot_assess: CannotAssess = "skip",
    not_applicable: Collection[int] = (),
) -> Score:
    """Compute the score of a rubric, with or without groups, from the values of its criteria.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion's judgment, in order. None for an abstention.
        cannot_assess: How abstentions are scored.
        not_applicable: The indices of the criteria that do not apply. They are left out, whatever their value.

    Example:
        >>> group = {"requirement": "A", "weight": 3, "criteria": [{"requirement": "a1"}, {"requirement": "a2"}]}
        >>> rubric = Rubric.from_dict([group, {"requirement": "B", "weight": 1}])
        >>> score_values(rubric, [1.0, None, 0.0])
        Score(normalized=0.75, raw=3.0)
    """
    leaves = [
        WeightedValue(c.full_weight, value, c.worst_value) for c, value in zip(rubric.criteria, values, strict=True)
    ]
    if rubric.tree is None and not not_applicable:
        return score_parts(leaves, cannot_assess)
    scored = [
        None if index in not_applicable else scored_value(leaf, cannot_assess) for index, leaf in enumerate(leaves)
    ]
    if rubric.tree is None:
        return score_parts(
            [WeightedValue(leaf.weight, value, leaf.worst) for leaf, value in zip(leaves, scored, strict=True)]
        )
    return score_parts([WeightedValue(root.weight, node_value(root, scored), 0.0) for root in rubric.tree])


def scored_value(part: WeightedValue, cannot_assess: CannotAssess) -> float | None:
    """Return the value of a criterion that is used in the sums of the score, or None if the criterion is left out."""
    if part.value is not None:
        return part.value
    match cannot_assess:
        case "skip":
            return None
        case "zero":
            return 0.0
        case "partial":
            return 0.5 if part.weight > 0 else 0.0
        case "fail":
            return part.worst
        case float() | int():
            return cannot_assess if part.weight > 0 else 0.0
        case _:
            assert_never(cannot_assess)


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def score_verdicts(
    rubric: Rubric, verdicts: Sequence[str | float], normalize: bool, cannot_assess: CannotAssess
) -> float | None:
    """Compute the score of known verdicts, one for each criterion. This implements `Rubric.compute_score`.

    Raises:
        ValueError: The number of verdicts differs from the number of criteria, a verdict does not answer its
            criterion, or a setting is invalid.
    """
    validate_abstention_policy(cannot_assess)
    if len(verdicts) != len(rubric):
        raise ValueError(f"`verdicts` has {len(verdicts)} entries for {len(rubric)} criteria: give one for each")
    values: list[float | None] = []
    not_applicable: set[int] = set()
    for index, (key, criterion, verdict) in enumerate(zip(rubric.keys, rubric.criteria, verdicts, strict=True)):
        if criterion.applies_when is not None and verdict == NOT_APPLICABLE:
            not_applicable.add(index)
            values.append(None)
            continue
        try:
            values.append(to_judgment(criterion, verdict).value)
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from None
    score = score_values(rubric, values, cannot_assess, not_applicable)
    return score.reported(normalize=normalize)


def root_weights(rubric: Rubric) -> list[float]:
    """Return the weights of the rubric's root nodes, or of its criteria if it has no groups."""
    return [root.weight for root in rubric.tree] if rubric.tree else [c.full_weight for c in rubric.criteria]


def score_overall(rubric: Rubric, percent: float) -> Score:
    """Convert an overall score from 0 to 100 into a `Score`.

    The normalized score is `percent / 100`. The raw score is `percent / 100 * P`, where P is the sum of the positive
    weights. For a rubric with only penalties, it is `-N * (1 - percent / 100)`, where N is the sum of the absolute
    weights. Therefore, the raw scores of all graders have the same scale.
    """
    share = percent / 100
    weights = root_weights(rubric)
    positive = math.fsum(weight for weight in weights if weight > 0)
    return Score(_clamp(share), share * positive if positive else math.fsum(weights) * (1 - share))


def blend_scores(score: float, metrics: Sequence[tuple[float, float]], blend: Blend) -> float:
    """Combine the judge's score with the hybrid metrics of a rubric.

        weighted_average   score * (1 - sum of w) + sum of w * h
        multiplicative     score * product of h ** w
        max, min           of the score and every h

    Args:
        score: The judge's score in [0, 1].
        metrics: Pairs of a weight `w` and a metric value `h`, both in [0, 1]. The weights sum to at most 1.
        blend: The rule to use: `weighted_average`, `multiplicative`, `max` or `min`.

    Example:
        >>> blend_scores(0.5, [(0.5, 1.0)], "weighted_average")
        0.75
    """
    if not metrics:
        return score
    values = [value for _, value in metrics]
    match blend:
        case "weighted_average":
            judge_weight = max(0.0, 1.0 - math.fsum(weight for weight, _ in metrics))
            return math.fsum([score * judge_weight, *(weight * value for weight, value in metrics)])
        case "multiplicative":
            return score * math.prod(value**weight for weight, value in metrics)
        case "max":
            return max(score, *values)
        case "min":
            return min(score, *values)
        case _:
            assert_never(blend)


def criterion_holds(criterion: Criterion, value: float | None) -> bool:
    """Return whether the value of a criterion is high enough for its gate (`required`, `min_score`).

    The value (for a penalty: 1 - value) must be above 0 and at least `min_score`. Abstentions and failures do not pass.
    """
    if value is None:
        return False
    quality = 1.0 - value if criterion.is_penalty else value
    return quality > 0 and quality >= (criterion.min_score or 0.0) - ROUNDING


def reaches_mark(score: float | None, pass_mark: float) -> bool:
    """Return whether a normalized score is at least the pass mark. False for an undefined score."""
    return score is not None and score >= pass_mark - ROUNDING


def coverage(rubric: Rubric, assessed: Sequence[bool], not_applicable: Collection[int] = ()) -> float:
    """Return the share in [0, 1] of the rubric's absolute weights that belongs to the assessed criteria.

    The share is the sum of the absolute weights of the assessed criteria, divided by this sum over all criteria.
    Criteria that do not apply are left out of both sums. If no criterion applies, the share is 1.

    In a rubric with groups, the weights are the effective weights of the leaves. Every abstention lowers the coverage.
    This is different from the score, in which the siblings of an abstention share its weight.
    """
    weights = [
        0.0 if i in not_applicable else abs(criterion.full_weight) for i, criterion in enumerate(rubric.criteria)
    ]
    covered = math.fsum([weight for weight, is_assessed in zip(weights, assessed, strict=True) if is_assessed])
    total = math.fsum(weights)
    return min(1.0, covered / total) if total else 1.0


class ScoreRange(NamedTuple):
    """The lowest and the highest normalized score that is still possible.

    Attributes:
        low: The lowest score in [0, 1]. None if the final score may be undefined. An undefined score reaches no pass
            mark, not even 0.
        high: The highest score in [0, 1].
    """

    low: float | None
    high: float


def score_range(
    rubric: Rubric,
    values: Mapping[int, float | None],
    cannot_assess: CannotAssess = "skip",
    applies: Mapping[int, bool] | None = None,
) -> ScoreRange:
    """Compute the range of the score over all possible answers to the criteria that are not judged yet.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion that has a judgment, by its index in the rubric. None for an
            abstention. A criterion without an entry is not judged yet.
        cannot_assess: How abstentions are scored.
        applies: Whether a criterion applies, by its index, for criteria whose condition is already decided. A criterion
            whose condition is not decided may still be left out.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 3, "requirement": "a"}, {"weight": 1, "requirement": "b"}])
        >>> score_range(rubric, {0: 1.0}, cannot_assess="zero")
        ScoreRange(low=0.75, high=1.0)
    """
    known = applies or {}
    leaves = [
        _if_applicable(
            _leaf_range(criterion, index in values, values.get(index), cannot_assess),
            known.get(index, True if criterion.applies_when is None else None),
        )
        for index, criterion in enumerate(rubric.criteria)
    ]
    if rubric.tree is None:
        roots = [_Part(c.full_weight, leaf) for c, leaf in zip(rubric.criteria, leaves, strict=True)]
    else:
        roots = [_Part(root.weight, _node_range(root, leaves)) for root in rubric.tree]
    weights = [root.weight for root in roots]

    def score(root_values: Sequence[float | None]) -> float | None:
        parts = [WeightedValue(weight, value, 0.0) for weight, value in zip(weights, root_values, strict=True)]
        return score_parts(parts).normalized

    lows, highs = _ends(roots, score)
    is_defined = score([root.range.required_low for root in roots]) is not None
    return ScoreRange(min(lows, default=None) if is_defined else None, max(highs, default=0.0))


class _ValueRange(NamedTuple):
    """The values that a criterion or a group can still have. Both ends are None if it can only abstain."""

    low: float | None
    high: float | None
    may_abstain: bool

    @property
    def required_low(self) -> float | None:
        """The lowest value, or None if the criterion or group can still abstain."""
        return None if self.may_abstain else self.low


class _Part(NamedTuple):
    """A weight, and the range of values that the criterion or group can still have."""

    weight: float
    range: _ValueRange


def _leaf_range(criterion: Criterion, is_known: bool, value: float | None, cannot_assess: CannotAssess) -> _ValueRange:
    """Return the range of one criterion. `value` is the value of its known judgment, or None for an abstention."""
    abstained = scored_value(WeightedValue(criterion.weight, None, criterion.worst_value), cannot_assess)
    if is_known:
        value = abstained if value is None else value
        return _ValueRange(value, value, may_abstain=value is None)
    ends = [extreme_judgment(criterion, end).value for end in ("low", "high")]
    possible = [value for value in (*ends, abstained) if value is not None]
    return _ValueRange(min(possible, default=0.0), max(possible, default=0.0), may_abstain=abstained is None)


def _if_applicable(value_range: _ValueRange, applies: bool | None) -> _ValueRange:
    """Return the range of a criterion that applies, does not apply, or whose condition is not known yet (None)."""
    if applies is None:
        return value_range._replace(may_abstain=True)
    return value_range if applies else _ValueRange(None, None, may_abstain=True)


def _node_range(node: Node, leaves: Sequence[_ValueRange]) -> _ValueRange:
    """Return the range of a group, computed from the ranges of its children."""
    if node.leaf is not None:
        return leaves[node.leaf]
    # The value of a group of penalties alone rises with the values of its children. In any other group, penalties lower
    # it.
    sign = -1.0 if node.has_only_penalties else 1.0
    children = [_Part(sign * child.weight, _node_range(child, leaves)) for child in node.children]
    mean = partial(group_value, node)

    lows, highs = _ends(children, mean)
    may_abstain = mean([child.range.required_low for child in children]) is None
    return _ValueRange(min(lows, default=None), max(highs, default=None), may_abstain)


def _ends(parts: Sequence[_Part], mean: Callable[[Sequence[float | None]], float | None]) -> tuple[list[float], ...]:
    """Return two lists of means: the first includes the lowest possible mean, the second the highest."""
    candidates = ([mean(values) for values in _selections(parts, best)] for best in (False, True))
    return tuple([value for value in values if value is not None] for values in candidates)


def _selections(parts: Sequence[_Part], best: bool) -> Iterator[Sequence[float | None]]:
    """Yield selections of values, with None for a part that is left out. In the first, all optional parts are left out.

    Args:
        parts: The parts of a group, or the roots.
        best: Whether to look for the highest mean. If False, for the lowest.
    """
    has_positive_weight = any(part.weight > 0 for part in parts)
    values: list[float | None] = [None] * len(parts)
    optional: list[tuple[float, int, float]] = []
    for index, (weight, value_range) in enumerate(parts):
        value = value_range.high if best != (weight < 0) else value_range.low
        if value is None:
            continue
        if not value_range.may_abstain:
            values[index] = value
        elif weight > 0 or not has_positive_weight:
            optional.append((1 - value if weight < 0 else value, index, value))
        elif not best:
            # In a rubric with positive weights, a penalty is not part of the divisor. Counting it can only lower the
            # score.
            values[index] = value
    yield tuple(values)
    for _, index, value in sorted(optional, reverse=best):
        values[index] = value
        yield tuple(values)


def tag_scores(
    rubric: Rubric,
    values: Sequence[float | None],
    cannot_assess: CannotAssess = "skip",
    not_applicable: Collection[int] = (),
) -> dict[str, Score]:
    """Compute the score of each tag, as if the criteria with this tag were a separate rubric.

    A tag with only penalties is scored like a rubric with only penalties. In a rubric with groups, the criteria count
    with their effective weights.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion's judgment, in order. None for an abstention.
        cannot_assess: How abstentions are scored.
        not_applicable: The indices of the criteria that do not apply. They are left out, whatever their value.

    Example:
        >>> criteria = [{"requirement": "a", "tags": ["style"]}, {"requirement": "b", "weight": -2, "tags": ["safety"]}]
        >>> tag_scores(Rubric.from_dict(criteria), [0.0, 0.0])["safety"]
        Score(normalized=1.0, raw=0.0)
    """
    parts: dict[str, list[WeightedValue]] = {tag: [] for tag in rubric.tags}
    for index, (criterion, value) in enumerate(zip(rubric.criteria, values, strict=True)):
        if not criterion.tags:
            continue
        leaf = WeightedValue(criterion.full_weight, value, criterion.worst_value)
        scored = None if index in not_applicable else scored_value(leaf, cannot_assess)
        for tag in criterion.tags:
            parts[tag].append(leaf._replace(value=scored))
    return {tag: score_parts(tagged) for tag, tagged in parts.items()}
