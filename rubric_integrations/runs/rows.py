"""Turns whatever a user passes as submissions into rows, and finds their rubrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from typing import Any, cast

from rubric_integrations._util.threads import run_in_thread
from rubric_integrations.formats.healthbench import labels_of
from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.tables import rows_of_batch, rows_of_table
from rubric_integrations.submission.arrays import without_arrays
from rubric_integrations.submission.inputs import ToGradeInput, as_submission
from rubric_integrations.submission.rows import Row, read_row
from rubric_integrations.submission.submission import error_line


async def as_rows(submissions: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[tuple[Any, Row]]:
    """Yield each item with its row, numbered from 1, without reading ahead.

    The items of a table, and of batches of a table, are their rows.
    """
    source, number = rows_of_table(submissions), 0
    if isinstance(source, AsyncIterable):
        async for item in source:
            for row in rows_of_batch(item):
                number += 1
                yield row, as_row(row, number)
    else:
        for item in source:
            for row in rows_of_batch(item):
                number += 1
                yield row, as_row(row, number)


def as_row(item: Any, number: int) -> Row:
    """Return the row of one submission; its `error` is set if there is nothing to grade.

    Args:
        item: A `Row`, a mapping with the columns that `read_responses` reads, or anything that `Rubric.grade` accepts.
        number: The position of the submission, from 1: its id, unless it has one.

    Example:
        >>> as_row({"id": "a", "response": "It is 42."}, 1).id, as_row("It is 42.", 2).id
        ('a', '2')
    """
    if isinstance(item, Row):
        return item
    if hasattr(item, "tolist"):
        item = without_arrays(item)
    # A mapping of only these two keys is one response with its reasoning, which `as_submission` reads.
    if isinstance(item, Mapping) and not set(cast("Mapping[str, Any]", item)) <= {"thinking", "output"}:
        return read_row(cast("Mapping[str, Any]", item), number)
    try:
        return Row(str(number), as_submission(cast("ToGradeInput", item)))
    except (ValueError, TypeError) as error:
        return Row(str(number), None, f"row {number}: {error_line(error)}")


async def find_rubric(
    rubrics: RowRubrics, item: Any, row: Row, check_rubric: Callable[[Rubric], None]
) -> tuple[Row, Rubric | None, Rubric | None]:
    """Find the rubric of a row, if the row has something to grade.

    Args:
        rubrics: The rubrics of the run.
        item: The row as the caller passed it, for a function.
        row: The row.
        check_rubric: Raises a ValueError for a rubric that the grader cannot use.

    Returns:
        The row; the rubric that it brings, if it brings one; and the rubric by which it is graded. A row without a
        valid one has an error instead, and nothing to grade.
    """
    own = None
    if row.submission is None:
        return row, None, None
    try:
        if row.rubric is not None or rubrics.has_function:
            # In a thread, because it may be a file, or a function of the user's.
            own = await run_in_thread(lambda: rubrics.own_of(item, row.rubric))
        rubric = rubrics.join(own)
        check_rubric(rubric)
        if row.labels is None and rubrics.shared is None and (met := labels_of(row.rubric)):
            row = row._replace(labels={name: "MET" if is_met else "UNMET" for name, is_met in met.items()})
    except Exception as error:  # noqa: BLE001 -- whatever a row or a function holds stops no other row
        return row._replace(submission=None, error=f"row {row.id} {problem_of(error)}"), None, None
    return row, own, rubric
