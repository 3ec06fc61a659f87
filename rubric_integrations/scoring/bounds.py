"""The range in which a score can still end while some criteria are not judged yet.

The range of a group follows from those of its children, which do not depend on each other: its value is highest if
every child that counts has its highest value. A child that can still abstain may be left out. A sum of
`value * weight` over a sum of weights is highest if the children with the best values are counted and the others are
left out, from some value on; it is lowest the other way round. Hence it is enough to sort these children by their best
(or worst) value and to count them one after another: one of these means is the end of the range. The same holds for
the scoring formula, which is applied to the roots.

Children that share a criterion or a condition do depend on each other. Then the range includes scores that cannot occur
together, and every one that can: a decision that it allows is right, and may come later than it could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rubric_integrations.results.interpret import extreme_judgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.tree import Node, group_value
from rubric_integrations.scoring.formula import WeightedValue, score_parts, scored_value
from rubric_integrations.scoring.policies import CannotAssess


class ScoreRange(NamedTuple):
    """The lowest and the highest normalized score that is still possible.

    Attributes:
        low: The lowest score in [0, 1]; None if the score can also end undefined, which reaches no pass mark, not
            even 0.
        high: The highest score in [0, 1].
    """

    low: float | None
    high: float


def score_range(
    rubric: Rubric,
    values: Mapping[int, float | None],
    cannot_assess: CannotAssess = "skip",
    partial_credit: float = 0.5,
    applies: Mapping[int, bool] | None = None,
) -> ScoreRange:
    """Compute the range of the score over all possible answers to the open criteria, including abstentions.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion that has a judgment, by its index in the rubric; None for an
            abstention. All other criteria are open.
        cannot_assess: How abstentions are scored.
        partial_credit: The value in [0, 1] of an abstention on a positive weight under `cannot_assess="partial"`.
        applies: For the criteria with a condition that is already decided, by index, whether they apply. Where it is
            open, the criterion may still be left out.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 3, "requirement": "a"}, {"weight": 1, "requirement": "b"}])
        >>> score_range(rubric, {0: 1.0}, cannot_assess="zero")
        ScoreRange(low=0.75, high=1.0)
    """
    known = applies or {}
    leaves = [
        _if_applicable(
            _leaf_range(criterion, index in values, values.get(index), cannot_assess, partial_credit),
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
    """The values that a criterion or a group can still have; both ends are None if it can only abstain."""

    low: float | None
    high: float | None
    may_abstain: bool

    @property
    def required_low(self) -> float | None:
        """The lowest value, or None if it can still abstain."""
        return None if self.may_abstain else self.low


class _Part(NamedTuple):
    """A weight and the values that can still have it."""

    weight: float
    range: _ValueRange


def _leaf_range(
    criterion: Criterion, is_known: bool, value: float | None, cannot_assess: CannotAssess, partial_credit: float
) -> _ValueRange:
    """Return the range of one criterion; its known judgment has the value `value`, None for an abstention."""
    abstained = scored_value(
        WeightedValue(criterion.weight, None, criterion.worst_value), cannot_assess, partial_credit
    )
    if is_known:
        value = abstained if value is None else value
        return _ValueRange(value, value, may_abstain=value is None)
    ends = [extreme_judgment(criterion, end).value for end in ("low", "high")]
    possible = [value for value in (*ends, abstained) if value is not None]
    return _ValueRange(min(possible, default=0.0), max(possible, default=0.0), may_abstain=abstained is None)


def _if_applicable(value_range: _ValueRange, applies: bool | None) -> _ValueRange:
    """Return the range of a criterion that applies, that is left out, or of which neither is known yet (None)."""
    if applies is None:
        return value_range._replace(may_abstain=True)
    return value_range if applies else _ValueRange(None, None, may_abstain=True)


def _node_range(node: Node, leaves: Sequence[_ValueRange]) -> _ValueRange:
    """Return the range of a group from those of its children."""
    if node.leaf is not None:
        return leaves[node.leaf]
    # The value of a group of penalties rises with theirs; in any other group they lower it, as in a rubric.
    sign = -1.0 if node.has_only_penalties else 1.0
    children = [_Part(sign * child.weight, _node_range(child, leaves)) for child in node.children]
    mean = partial(group_value, node)

    lows, highs = _ends(children, mean)
    may_abstain = mean([child.range.required_low for child in children]) is None
    return _ValueRange(min(lows, default=None), max(highs, default=None), may_abstain)


def _ends(parts: Sequence[_Part], mean: Callable[[Sequence[float | None]], float | None]) -> tuple[list[float], ...]:
    """Return means that include the lowest possible one, and means that include the highest."""
    candidates = ([mean(values) for values in _selections(parts, best)] for best in (False, True))
    return tuple([value for value in values if value is not None] for values in candidates)


def _selections(parts: Sequence[_Part], best: bool) -> Iterator[Sequence[float | None]]:
    """Yield the values of the parts, None for a part that is left out: first with all optional parts left out.

    Args:
        parts: The parts of a group, or the roots.
        best: Whether the values are those with the highest mean; if not, those with the lowest.
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
            # A penalty beside positive weights is not part of the divisor: counting it can only lower the score.
            values[index] = value
    yield tuple(values)
    for _, index, value in sorted(optional, reverse=best):
        values[index] = value
        yield tuple(values)
