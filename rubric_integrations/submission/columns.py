"""The names of the columns and fields of an input (`COLUMNS`), and the search for them among the names of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from rubric_integrations.submission.messages import DOCUMENT_NAMES

TASK_ID = "task_id"
"""The name of an id that several rows may have. Each is then a sample of one task, as in HumanEval's files."""

COLUMNS = {
    "response": (
        "response", "output", "outputs", "completion", "answer", "structured_response", "text", "messages",
        "actual_output",
    ),
    "thinking": ("thinking",),
    "query": ("query", "input", "inputs", "prompt", "question", "instruction"),
    "reference": (
        "reference", "reference_output", "reference_answer", "expected_output", "expected_response", "expected",
    ),
    "context": DOCUMENT_NAMES,
    "attachments": ("attachments",),
    "trajectory": ("trajectory",),
    "respond": ("respond",),
    "id": ("id", TASK_ID),
    "rubric": ("rubric", "rubrics", "rubric_items", "rubric_json"),
    "labels": ("labels",),
    "metadata": ("metadata",),
}  # fmt: skip
"""The usual names of each field in a row or a mapping. The first name that is present and has a value is used.

Next to an `instruction`, as in Alpaca's data, an `input` is only a part of the task.
"""


SAMPLE_COLUMNS = ("responses", "samples", "completions", "outputs", "choices")
"""The names of columns with a list of samples. The first that is present is read, if the row has no response."""


MAX_NAMES, MAX_NAME = 20, 60


class ColumnNames(NamedTuple):
    """For each field, the column name that a caller chose. None means the usual names of the field."""

    response: str | None = None
    query: str | None = None
    reference: str | None = None
    id: str | None = None
    rubric: str | None = None


USUAL_COLUMNS = ColumnNames()


def has_id_column(names: Iterable[str], columns: ColumnNames = USUAL_COLUMNS) -> bool:
    """Return whether rows with these column names have a column of ids."""
    return bool(find_columns(tuple(names), columns)["id"])


def missing_column(names: Iterable[str], columns: ColumnNames) -> str | None:
    """Return the first required column that a row does not have, or None if no required column is missing.

    A row needs the columns that the caller named, and `response`.
    """
    names_of = find_columns(tuple(names), columns)
    named = {field: column for field, column in columns._asdict().items() if column is not None}
    return next((column for field, column in ({"response": "response"} | named).items() if not names_of[field]), None)


def field_columns(names: Iterable[str], columns: ColumnNames) -> list[str]:
    """Return the columns of a file whose values become fields of a submission."""
    return list(chain.from_iterable(find_columns(tuple(names), columns).values()))


@lru_cache(maxsize=256)
def repeated_column(names: tuple[str, ...], columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return a problem if two column names are the same, and are read as a field. None if there are no such names.

    Otherwise, only one of the two columns would be read, and which one would depend on the kind of the table.
    """
    counts = Counter(map(fold, names))
    if counts.total() == len(counts):
        return None
    repeated = next((name for name in field_columns(names, columns) if counts[fold(name)] > 1), None)
    if repeated is None:
        return None
    same = [name for name in names if fold(name) == fold(repeated)]
    return f"the columns {same!r}, which are one name: rename or remove one of them, or only one would be graded"


def describe_missing_column(names: Iterable[str], missing: str) -> str:
    """Return an error message about a missing column, with the columns of the file and a remedy."""
    names = tuple(names)
    listed = list_names(names, "columns")
    if missing == "response":
        misspelled = find_misspelled(names)
        one = f"{misspelled[0]!r} to {misspelled[1]!r}" if misspelled else "one of them"
        return (
            f"has no `response` column ({listed}): rename {one}, or name it by `response_column` (`--response-column`)"
        )
    return f"has no column {missing!r} ({listed}): write its name as in the file"


def fold(name: object) -> str:
    """Return a column name in lower case, with underscores instead of spaces and hyphens, for comparisons."""
    return str(name).strip().casefold().replace(" ", "_").replace("-", "_")


# Most rows of a file have the same columns.
@lru_cache(maxsize=256)
def find_columns(names: tuple[str, ...], columns: ColumnNames) -> dict[str, tuple[str, ...]]:
    """Return, for each field, the column names of a row that can contain its value, in the order of preference."""
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


@lru_cache(maxsize=256)
def find_unused(names: tuple[str, ...], columns: ColumnNames, ignored: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names in a mapping whose values are not read as fields of a submission.

    Args:
        names: The names in the mapping.
        columns: The names of columns that the caller chose, which are read.
        ignored: Fields that the caller does not read, such as `reference`. Their usual names are also returned.
    """
    chosen = {fold(column) for column in columns if column is not None}
    known = {name for field, usual in COLUMNS.items() if field not in ignored for name in usual} | chosen
    return tuple(str(name) for name in names if fold(name) not in known and fold(name))


@lru_cache(maxsize=256)
def find_misspelled(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first name in a mapping that is probably a misspelled name of a response, and the right name.

    None if there is no such name. A plural, a singular and a name with an addition, such as `answers`, `message` or
    `answer_2`, are not misspelled.

    Example:
        >>> find_misspelled(("answr", "page")), find_misspelled(("answers", "message", "test", "context"))
        (('answr', 'answer'), None)
    """
    for name in names[:MAX_NAMES]:
        folded = fold(name)
        # In a long name, one wrong character changes the similarity less.
        cutoff = max(_MIN_SIMILARITY, 1 - 1.1 / max(len(folded), 1))
        for usual in get_close_matches(folded, COLUMNS["response"], n=1, cutoff=cutoff):
            if not folded.startswith(usual) and f"{folded}s" != usual:
                return str(name), usual
    return None


# The similarity of `anwser` and `answer` is 0.83, and the similarity of `test` and `text` is 0.75.
_MIN_SIMILARITY = 0.82


def list_names(names: Iterable[str], what: str) -> str:
    """Return a phrase for an error message that lists some names.

    A long list of names is shortened to its first names and the number of the other names. A model may have written the
    names: long names are cut.

    Args:
        names: The names.
        what: The plural noun for these names, such as `columns`.
    """
    listed = [str(name)[:MAX_NAME] for name in names]
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return f"its {what} are {listed[:MAX_NAMES]!r}{more}"
