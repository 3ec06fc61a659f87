"""The scoring formula on NumPy arrays, for many submissions.

`scoring/formula.py` defines the scores. `tests/scoring/test_vectorized.py` checks that both modules compute the same
scores. This is a separate module because it imports NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Node, Rubric
from rubric_integrations.scoring.formula import WeightedValue, scored_value
from rubric_integrations.scoring.judgment import VERDICT_VALUES, to_judgment
from rubric_integrations.scoring.policies import CannotAssess, validate_abstention_policy
from rubric_integrations.scoring.report import NOT_APPLICABLE


def score_many(
    rubric: Rubric,
    verdicts: Any,
    *,
    normalize: bool = True,
    cannot_assess: CannotAssess = "skip",
    not_applicable: Any = None,
) -> NDArray[np.float64]:
    """Compute the scores of many submissions. Each score equals `Rubric.compute_score`, except for rounding.

    Args:
        rubric: The rubric.
        verdicts: An array-like with one row per submission and one column per criterion, in the rubric's order. The
            entries are either texts as for `compute_score` (`"MET"`, an option's label, a number on the scale as text),
            or numbers. A number is a value in [0, 1], not a number on a scale. NaN is an abstention.
        normalize: Whether scores are in [0, 1]. If False, they are raw weighted sums.
        cannot_assess: How abstentions are scored.
        not_applicable: An array-like of booleans with the shape of `verdicts`. True means that the criterion does not
            apply to the submission. By default, a criterion with `applies_when` does not apply if its verdict is
            `"NOT_APPLICABLE"`.

    Returns:
        One score per row. NaN if the score is undefined.

    Raises:
        ValueError: The shape does not match the rubric, a verdict does not answer its criterion, or a value is
            outside [0, 1].

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 8, "requirement": "a"}, {"weight": -2, "requirement": "b"}])
        >>> score_many(rubric, [["MET", "MET"], ["MET", "UNMET"], ["CANNOT_ASSESS", "UNMET"]])
        array([0.75, 1.  ,  nan])
    """
    validate_abstention_policy(cannot_assess)
    texts = np.asarray(verdicts)
    values = _to_values(rubric, texts)
    left_out = _not_applicable(rubric, texts) if not_applicable is None else np.asarray(not_applicable, dtype=bool)
    if left_out.shape != values.shape:
        raise ValueError(f"`not_applicable` has the shape {left_out.shape!r}, and `verdicts` {values.shape!r}")
    weights = np.array([criterion.full_weight for criterion in rubric.criteria])
    if cannot_assess != "skip":
        abstentions = [WeightedValue(c.full_weight, None, c.worst_value) for c in rubric.criteria]
        replacements = [scored_value(abstention, cannot_assess) for abstention in abstentions]
        values = np.where(np.isnan(values), np.array(replacements), values)
    values = np.where(left_out, np.nan, values)
    if rubric.tree is not None:
        weights = np.array([root.weight for root in rubric.tree])
        values = np.stack([_node_values(root, values) for root in rubric.tree], axis=1)
    counted = ~np.isnan(values)
    raw = np.where(counted, values, 0.0) @ weights
    has_positive_weight = bool((weights > 0).any())
    divisor = counted @ (np.maximum(weights, 0.0) if has_positive_weight else -weights)
    if not normalize:
        return np.where(divisor > 0, raw, np.nan)
    quotient = np.divide(raw, divisor, out=np.full_like(raw, np.nan), where=divisor > 0)
    return np.clip(quotient if has_positive_weight else 1 + quotient, 0.0, 1.0)


def _not_applicable(rubric: Rubric, verdicts: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the verdicts NOT_APPLICABLE on criteria with a condition."""
    conditional = np.array([criterion.applies_when is not None for criterion in rubric.criteria])
    if verdicts.dtype.kind in "fiub" or not conditional.any():
        return np.zeros(verdicts.shape, dtype=bool)
    return (verdicts == NOT_APPLICABLE) & conditional


def _to_values(rubric: Rubric, verdicts: NDArray[Any]) -> NDArray[np.float64]:
    """Convert verdicts to values in [0, 1]. An abstention becomes NaN."""
    if verdicts.ndim != 2 or verdicts.shape[1] != len(rubric):
        raise ValueError(
            f"`verdicts` has the shape {verdicts.shape!r}, but the rubric has {len(rubric)} criteria: give one row per "
            "submission and one column per criterion"
        )
    if verdicts.dtype.kind in "fiub":
        values = verdicts.astype(np.float64)
        if ((values < 0) | (values > 1)).any():
            raise ValueError(
                "`verdicts` has numbers outside [0, 1]: numbers are values, so pass the numbers of a scale as texts"
            )
        return values
    columns = zip(rubric.keys, rubric.criteria, verdicts.T, strict=True)
    return np.stack([_column_to_values(key, criterion, column) for key, criterion, column in columns], axis=1)


def _node_values(node: Node, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value of a node for every row, as `node_value` computes it. NaN if it has no value."""
    if node.leaf is not None:
        return values[:, node.leaf]
    weights = np.array([child.weight for child in node.children])
    below = np.stack([_node_values(child, values) for child in node.children], axis=1)
    counted, known = ~np.isnan(below), np.nan_to_num(below)
    taken = known @ np.maximum(-weights, 0.0)
    if node.penalty_cap is not None:
        taken = np.minimum(taken, node.penalty_cap)
    if node.has_only_penalties:
        return np.where(counted.any(axis=1), taken / node.divisor, np.nan)
    total = counted @ np.maximum(weights, 0.0)
    earned = known @ np.maximum(weights, 0.0)
    value = np.divide(earned - taken, total, out=np.full_like(total, np.nan), where=total > 0)
    return np.maximum(value, 0.0)


def _column_to_values(key: str, criterion: Criterion, column: NDArray[Any]) -> NDArray[np.float64]:
    """Convert the verdicts on one criterion.

    MET, UNMET and CANNOT_ASSESS are compared for all rows in one NumPy operation, which is fast. Every other distinct
    text is interpreted once.
    """
    values = np.full(len(column), np.nan)
    remaining = np.ones(len(column), dtype=bool)
    if criterion.kind == "binary":
        for verdict, value in VERDICT_VALUES.items():
            is_verdict = column == verdict
            values[is_verdict] = np.nan if value is None else value
            remaining &= ~is_verdict
    if criterion.applies_when is not None:
        remaining &= column != NOT_APPLICABLE
    for text in set(column[remaining].tolist()):
        try:
            value = to_judgment(criterion, text).value
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from None
        values[column == text] = np.nan if value is None else value
    return values
