"""Finds out whether runs can be compared: whether each row is graded by the same criteria wherever it appears."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rubric_integrations.runs.run_files import GradedRow, RunFile

_Key = tuple[str, str, float]


def rubric_mismatch(runs: Sequence[RunFile]) -> str:
    """Describe why the grades of one run or of two measure different things; empty if they can be compared.

    Rows may have criteria of their own. What is compared are rows with an equal id, whose criteria must be the same: a
    criterion is another one if its name, its requirement or its weight differs. If no id is in both runs, one rubric
    must be. Rows without criteria have nothing to compare.
    """
    ids = [[row_id for row_id, _ in run.row_keys()] for run in runs]
    counts = Counter(row_id for of_run in ids for row_id in of_run)
    is_disjoint = len(runs) > 1 and set(ids[0]).isdisjoint(ids[1])
    first_by_id: dict[str, tuple[int, int, int]] = {}
    rubrics = [set[int]() for _ in runs]
    for number, (run, of_run) in enumerate(zip(runs, ids, strict=True)):
        for place, row_id in enumerate(of_run):
            if counts[row_id] == 1 and not is_disjoint:
                continue
            criteria = _criteria(run.rows[place])
            if not criteria:
                continue
            digest = hash(criteria)
            rubrics[number].add(digest)
            before = first_by_id.setdefault(row_id, (number, place, digest))
            if before[2] != digest:
                other = runs[before[0]]
                key = min(criteria ^ _criteria(other.rows[before[1]]))
                where = f"{other.name} and {run.name}" if before[0] != number else f"its rows in {run.name}"
                criterion = f"`{key[0]}` {key[1]!r} (weight {key[2]:g})"
                return f"the row {row_id!r} has the criterion {criterion} in only one of {where}"
    if is_disjoint and all(rubrics) and rubrics[0].isdisjoint(rubrics[1]):
        return f"{runs[0].name} and {runs[1].name} have no row and no rubric in common"
    return ""


def _criteria(row: GradedRow) -> frozenset[_Key]:
    return frozenset((c.name, c.requirement, c.weight) for c in (row.report.criteria if row.report else ()))
