"""The table of people's and the judge's answers to one criterion, and figures of it.

Rows are people's answers and columns the judge's. A table may have counts, or counts that are weighted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rubric_integrations.agreement.kappa import Matrix
from rubric_integrations.rubric.criterion import Criterion

# A scale with more numbers has no table of its answers: nearly all cells would be empty.
_MAX_LEVELS = 21


class VerdictAgreement(NamedTuple):
    """Agreement on one answer, such as MET.

    Attributes:
        precision: Of the judge's answers of this kind, the share that people give too; None if there is none.
        recall: Of people's answers of this kind, the share that the judge gives too; None if there is none.
        f1: The harmonic mean of both; None if precision and recall are both undefined.
        support: How often people give this answer.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


def answer_levels(criterion: Criterion) -> list[str]:
    """Return the answers of a criterion that are no abstentions, ordered ones from the lowest."""
    if criterion.kind == "binary":
        return ["UNMET", "MET"]
    if criterion.options is not None:
        in_order = sorted(criterion.choices, key=lambda option: option.value)
        return [option.label for option in (in_order if criterion.kind == "ordinal" else criterion.choices)]
    scale = criterion.scale
    if scale is None or not scale.integer or scale.max - scale.min >= _MAX_LEVELS:
        return []
    return [f"{number:g}" for number in range(int(scale.min), int(scale.max) + 1)]


def verdict_agreement(weighted: Matrix, table: Matrix, place: int) -> VerdictAgreement:
    """Measure agreement on the answer in one place of the levels.

    Args:
        weighted: The table, weighted if its labels were drawn by the judge's verdict.
        table: The counts.
        place: The place of the answer.
    """
    right, judge, people = weighted[place, place], weighted[:, place].sum(), weighted[place].sum()
    column = table[:, place].sum()  # all of one verdict: weights do not change the precision
    precision = float(table[place, place] / column) if column else None
    recall = float(right / people) if people else None
    f1 = float(2 * right / (judge + people)) if judge + people else None
    return VerdictAgreement(precision, recall, f1, int(table[place].sum()))


def phi_coefficient(table: Matrix) -> float | None:
    """Compute the correlation of both answers (Matthews), for two levels; None if one answer does not occur."""
    divisor = float(np.prod([table.sum(axis=0), table.sum(axis=1)])) ** 0.5
    return float(table[0, 0] * table[1, 1] - table[0, 1] * table[1, 0]) / divisor if divisor else None


def adjacent_share(table: Matrix) -> float | None:
    """Compute the share of answers that differ by one level at most; None without answers."""
    places = np.arange(len(table))
    near = np.abs(np.subtract.outer(places, places)) <= 1
    return float(table[near].sum() / table.sum()) if table.sum() else None


def chance_agreement(table: Matrix) -> float | None:
    """Compute the share of equal answers if both gave theirs at random, each as often as it does; None without answers.

    Example:
        >>> chance_agreement(np.array([[81.0, 9.0], [9.0, 1.0]]))
        0.82
    """
    total = float(table.sum())
    return float(table.sum(axis=0) @ table.sum(axis=1)) / total**2 if total else None
