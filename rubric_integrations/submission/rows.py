"""Converts a row of named fields, from a file or a caller, to a submission."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.submission.arrays import without_arrays
from rubric_integrations.submission.attachment_inputs import attachment_fields, read_paths
from rubric_integrations.submission.dialects.registry import dialect_of
from rubric_integrations.submission.submission import Submission, error_line

COLUMNS = {
    "response": ("response", "output", "completion", "answer", "text", "messages"),
    "thinking": ("thinking",),
    "query": ("query", "input", "prompt", "question"),
    "reference": ("reference", "reference_output", "reference_answer", "expected_output"),
    "context": ("context", "documents"),
    "attachments": ("attachments",),
    "trajectory": ("trajectory",),
    "respond": ("respond",),
    "id": ("id",),
    "rubric": ("rubric", "rubrics"),
    "labels": ("labels",),
    "metadata": ("metadata",),
}
"""The column names of each field; the first that is present and has a value is used."""

_MAX_NAMES = 20


class Row(NamedTuple):
    """One row of a file of responses.

    Attributes:
        id: The row's `id` column, or its number from 1 (JSON Lines: its line number); for a text file, its name.
        submission: The submission to grade; None if the row cannot be graded.
        error: Why the row cannot be graded; None if it can.
        rubric: The row's own rubric as it was written, in any form that a rubric may have; None if it has none.
        labels: People's answers, by the name of the criterion; None if the row has none.
        metadata: What else the row says about itself; it is carried to the results, and neither judged nor scored.
    """

    id: str
    submission: Submission | None
    error: str | None = None
    rubric: Any = None
    labels: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


class Columns(NamedTuple):
    """The names of the columns that a caller chose; None where the usual names hold."""

    response: str | None = None
    query: str | None = None
    reference: str | None = None
    id: str | None = None
    rubric: str | None = None


USUAL_COLUMNS = Columns()


def read_row(
    data: Mapping[str, Any],
    number: int,
    query: str | None = None,
    columns: Columns = USUAL_COLUMNS,
    folder: Path | None = None,
) -> Row:
    """Convert one row of named fields, from a file or a caller, to a submission.

    Names of columns are compared without regard to case, outer white space, and to spaces for underscores. None, NaN
    and the missing values of pandas are missing. Arrays are read as lists.

    Args:
        data: A `response` and optionally a `query`, `reference`, `context`, `attachments`, `trajectory`, `thinking`,
            `id`, `rubric`, `labels` and `metadata`, each under any usual name. Attachments, the trajectory and the last
            three are lists or mappings, or texts with these as JSON.
        number: The number of the row, from 1; its id if it has none.
        query: The task, if the row has none.
        columns: The names of columns that replace the usual ones.
        folder: The folder in which an attachment may name a file by its `path`; None where it may name none.

    Example:
        >>> read_row({"output": "42", "question": "6 x 7?"}, 1).submission.query
        '6 x 7?'
    """
    data = without_arrays(data)
    names_of = _find_columns(tuple(data), columns)
    fields = {
        field: data[name]
        for field, names in names_of.items()
        if (name := next((name for name in names if not _is_missing(data[name])), None)) is not None
    }
    _warn_of_other_response(data, names_of["response"])
    row_id = str(fields.pop("id", "")).strip() or str(number)
    rubric, labels, metadata = (fields.pop(name, None) for name in ("rubric", "labels", "metadata"))
    if "trajectory" in fields:
        fields["trajectory"] = _parsed(fields["trajectory"])
    has_steps = "trajectory" in fields and fields.get("respond") == "trajectory"
    if dialect_of(fields.get("response")) is None and not has_steps:
        # `respond` is only for conversations: beside a text, it is a column without a meaning here, with any content.
        fields.pop("respond", None)
    missing = missing_column(data, columns)
    if missing is not None:
        names = _list_names(data, "fields")
        if missing == "response":
            return Row(row_id, None, f"row {row_id} has no `response` ({names}): nothing to grade")
        return Row(row_id, None, f"row {row_id} has no column {missing!r} ({names}): it cannot be graded")
    if "response" not in fields or isinstance(fields["response"], bool | int | float):
        column = names_of["response"][0]
        return Row(row_id, None, f"row {row_id}: `{column}` {_not_a_text(fields.get('response', data[column]))}")
    try:
        if "attachments" in fields:
            entries = attachment_fields(fields["attachments"])
            fields["attachments"] = entries if folder is None else read_paths(entries, folder)
    except ValueError as error:
        return Row(row_id, None, f"row {row_id}: `attachments` {error}")
    try:
        submission = Submission.model_validate({"query": query, **fields})
    except ValidationError as error:
        return Row(row_id, None, f"row {row_id}: {error_line(error)}")
    return Row(row_id, submission, None, rubric, _mapping(labels), _mapping(metadata))


def _warn_of_other_response(data: Mapping[str, Any], names: Iterable[str]) -> None:
    present = [name for name in names if not _is_missing(data[name]) and data[name] != ""]
    other = next((name for name in present[1:] if str(data[name]) != str(data[present[0]])), None)
    if other is not None:
        # Without the row's id, so that Python prints it once for a file.
        warnings.warn(
            f"a row has both `{present[0]}` and `{other}`: `{present[0]}` is graded, and `{other}` is not read; remove "
            "or rename one of them, or name the one to grade by `response_column` (`--response-column`)",
            stacklevel=3,
        )


def missing_column(names: Iterable[str], columns: Columns) -> str | None:
    """Return the first column that a row must have but has not: one that the caller named, or `response`."""
    names_of = _find_columns(tuple(names), columns)
    named = {field: column for field, column in columns._asdict().items() if column is not None}
    return next((column for field, column in ({"response": "response"} | named).items() if not names_of[field]), None)


def needed_columns(names: Iterable[str], columns: Columns) -> list[str]:
    """Return those columns of a file that a row is made of."""
    return list(chain.from_iterable(_find_columns(tuple(names), columns).values()))


def describe_missing_column(names: Iterable[str], missing: str) -> str:
    """Say that a file has no column `missing`, which columns it has, and what to do."""
    listed = _list_names(names, "columns")
    if missing == "response":
        return (
            f"has no `response` column ({listed}): rename one of them, or name it by `response_column` "
            "(`--response-column`)"
        )
    return f"has no column {missing!r} ({listed}): write its name as in the file"


def fold(name: object) -> str:
    """Return the form in which names of columns are compared."""
    return str(name).strip().casefold().replace(" ", "_").replace("-", "_")


# Most rows of a file have the same columns.
@lru_cache(maxsize=256)
def _find_columns(names: tuple[str, ...], columns: Columns) -> dict[str, tuple[str, ...]]:
    """Return, for each field, the names of a row that can hold it, the preferred one first."""
    by_name: dict[str, str] = {}
    for name in names:
        # A name that is written exactly as expected is preferred to one that differs in case.
        if fold(name) not in by_name or name == fold(name):
            by_name[fold(name)] = name
    exact = {name: name for name in by_name.values()}
    names_of: dict[str, tuple[str, ...]] = {}
    for field, usual in COLUMNS.items():
        own = getattr(columns, field, None)
        wanted = usual if own is None else (own,)
        present = (exact.get(name) or by_name.get(fold(name)) for name in wanted)
        names_of[field] = tuple(name for name in present if name is not None)
    return names_of


def _list_names(names: Iterable[str], what: str) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return f"its {what} are {listed[:_MAX_NAMES]!r}{more}"


def _is_missing(value: object) -> bool:
    """Whether a value is None or NaN, which a data frame has in place of an empty cell."""
    return value is None or (isinstance(value, float) and value != value)  # noqa: PLR0124


def _parsed(value: object) -> object:
    """Return the value that a text holds as JSON; any other value unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            return parse_json(value)
    return value


def _mapping(value: object) -> Mapping[str, Any] | None:
    """Return a mapping, or the one that a text holds as JSON; None for a column of another meaning."""
    value = _parsed(value)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _not_a_text(value: object) -> str:
    """Say why a value that is not a text cannot be graded."""
    if value is None:
        return "is null: there is nothing to grade"
    if _is_missing(value):
        return "is NaN, an empty cell: there is nothing to grade"
    number = "" if isinstance(value, bool) else "the number "
    return f"is {number}{value!r}, not a text: write {str(value)!r}"
