"""The one scorer over arrays: the formula of `scoring`, for a million verdicts at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import VERDICT_VALUES
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import CannotAssess, validate_abstention_policy


def score_many(
    rubric: Rubric,
    verdicts: Any,
    *,
    normalize: bool = True,
    cannot_assess: CannotAssess = "skip",
    partial_credit: float = 0.5,
) -> NDArray[np.float64]:
    """Score many submissions at once: `Rubric.compute_score` for every row, but for rounding.

    Args:
        rubric: The rubric.
        verdicts: One row a submission, one column a criterion, in its order: texts as `compute_score` takes them
            (`"MET"`, an option's label, a number on the scale as text), or numbers, which are values in [0, 1] with
            NaN for an abstention.
        normalize: Whether scores are in [0, 1]; if not, they are raw weighted sums.
        cannot_assess: What an abstention counts.
        partial_credit: The share of a positive weight that `partial` gives.

    Returns:
        One score a row, NaN where it is undefined.

    Raises:
        ValueError: The shape does not fit the rubric, a verdict is no answer, or a value is outside [0, 1].

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 8, "requirement": "a"}, {"weight": -2, "requirement": "b"}])
        >>> score_many(rubric, [["MET", "MET"], ["MET", "UNMET"], ["CANNOT_ASSESS", "UNMET"]])
        array([0.75, 1.  ,  nan])
    """
    validate_abstention_policy(cannot_assess, partial_credit)
    values = _values(rubric, np.asarray(verdicts))
    weights = np.array([criterion.weight for criterion in rubric.criteria])
    if cannot_assess != "skip":
        worst = np.array([criterion.worst_value for criterion in rubric.criteria])
        instead = {"zero": 0.0 * worst, "partial": np.where(weights > 0, partial_credit, 0.0), "fail": worst}
        values = np.where(np.isnan(values), instead[cannot_assess], values)
    counted = ~np.isnan(values)
    raw = np.where(counted, values, 0.0) @ weights
    raw[~counted.any(axis=1)] = np.nan
    if not normalize:
        return raw
    positive = bool((weights > 0).any())
    divisor = counted @ (np.maximum(weights, 0.0) if positive else -weights)
    share = np.divide(raw, divisor, out=np.full_like(raw, np.nan), where=divisor > 0)
    return np.clip(share if positive else 1 + share, 0.0, 1.0)


def _values(rubric: Rubric, verdicts: NDArray[Any]) -> NDArray[np.float64]:
    if verdicts.ndim != 2 or verdicts.shape[1] != len(rubric):
        raise ValueError(
            f"`verdicts` has the shape {verdicts.shape!r}, but the rubric has {len(rubric)} criteria: give one row a "
            "submission and one column a criterion"
        )
    if verdicts.dtype.kind in "fiub":
        values = verdicts.astype(np.float64)
        if ((values < 0) | (values > 1)).any():
            raise ValueError("`verdicts` has numbers outside [0, 1]: numbers are values; write a scale's own as texts")
        return values
    columns = zip(rubric.keys, rubric.criteria, verdicts.T, strict=True)
    return np.stack([_column(key, criterion, column) for key, criterion, column in columns], axis=1)


def _column(key: str, criterion: Criterion, column: NDArray[Any]) -> NDArray[np.float64]:
    """The values of one criterion's verdicts; the usual words by comparison, which is quick, the others one by one."""
    values = np.full(len(column), np.nan)
    unread = np.ones(len(column), dtype=bool)
    if criterion.kind == "binary":
        for verdict, value in VERDICT_VALUES.items():
            said = column == verdict
            values[said] = np.nan if value is None else value
            unread &= ~said
    for text in set(column[unread].tolist()):
        try:
            value = to_judgment(criterion, text).value
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from None
        values[column == text] = np.nan if value is None else value
    return values
