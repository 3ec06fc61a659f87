"""The JSON objects of other tools and of pandas that contain rows (`DOCUMENTS`), and the search for these rows.

Any other object that contains rows is refused, because it would be graded as one response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject, split_path, value_at
from rubric_integrations.submission.columns import (
    USUAL_COLUMNS,
    ColumnNames,
    describe_missing_column,
    field_columns,
    missing_column,
    repeated_column,
)
from rubric_integrations.submission.dialects.claude_code import is_result
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.dialects.refused import refuse_provider_data
from rubric_integrations.submission.dialects.unread_tools import unread_tool
from rubric_integrations.submission.inputs import is_row, row_fields, warn_of_misspelled
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.request_logs import LOG_FORMATS
from rubric_integrations.submission.samples import has_task_columns, sample_column
from rubric_integrations.submission.text_files import LayoutError
from rubric_integrations.submission.tool_answers import (
    all_objects,
    as_mapping,
    has_keys,
    has_no_response,
)
from rubric_integrations.submission.traces import TRACE_FORMATS


class Document(NamedTuple):
    """A JSON object in which a tool writes rows.

    Attributes:
        name: The tool and its file, for messages.
        matches: Returns whether an object is such a document. It never raises an error.
        rows: Returns the rows. Raises a `LayoutError` if the object has no rows to grade.
    """

    name: str
    matches: Callable[[JsonObject], bool]
    rows: Callable[[JsonObject], Iterable[Any]]


def find_rows(data: JsonObject, columns: ColumnNames = USUAL_COLUMNS) -> Iterable[Any] | None:
    """Return the rows in a JSON object, or None if the object is a single row, a conversation or a response.

    Raises:
        LayoutError: The object seems to contain rows, but the place of the rows is not clear. The message names the
            possible places.

    Example:
        >>> list(find_rows({"columns": ["response"], "index": [0], "data": [["It is 42."]]}))
        [{'response': 'It is 42.'}]
    """
    if columns.response is None and (problem := unread_tool(data)) is not None:
        raise LayoutError(problem)
    document = next((document for document in DOCUMENTS if document.matches(data)), None)
    if document:
        return document.rows(data)
    if columns.response is not None and is_at(data, columns.response):
        return None
    names = [name for name in field_columns(data, USUAL_COLUMNS) if _is_counted(data[name])]
    if len(names) > 1:
        raise LayoutError(f"has the columns {names!r} of a pandas table, and other values beside them: write it again")
    if _may_have_index(data):
        raise LayoutError(
            f"may be a pandas table with the index {list(next(iter(data.values())))[:_MAX_LISTED]!r}, or one row whose "
            "values are objects: write rows by `to_json(orient='records')`, and one row within a list"
        )
    if columns.response is None and (is_single_row(data) or (dialect_of(data) is not None and not is_row(data))):
        return None
    if data.keys() >= SWE_AGENT_KEYS:
        raise LayoutError(
            "is a trajectory of SWE-agent, whose rows are not read without options: `--response-column history` grades "
            "its conversation, `--response-column info.submission` its patch"
        )
    refuse_rows_within(data)
    if columns.response is not None:
        raise LayoutError(describe_missing_column(data, columns.response))
    warn_of_misspelled(data)
    return None


def is_single_row(data: JsonObject) -> bool:
    """Return whether a JSON object is one row.

    It then has a response under a usual name, such as `response`, and this response is not a list of rows.
    """
    if has_task_columns(data) and sample_column(data) is not None:
        return True
    if missing_column(data, USUAL_COLUMNS) is not None or not is_row(data):
        return False
    fields = row_fields(data, warns=False)
    response = fields.get("response")
    # If the response is a number, the object is one JSON response, unless it also has a task, a reference or an id.
    is_value = response is None or isinstance(response, bool | int | float)
    if is_value and not fields.keys().isdisjoint(("id", "query", "reference")):
        return True
    return not is_value and (not _is_table(response) or is_conversation(response))


def refuse_rows_within(data: JsonObject) -> None:
    """Refuse a JSON object that contains several rows, because it would be graded as one response.

    Raises:
        LayoutError: The object contains, at any depth, a list of two or more objects. The message names up to five of
            these lists and the option `--rows`, which chooses one. Or the object itself maps ids to rows.
    """
    remedy = "a response that is such data is read from a `.txt` file"
    try:
        refuse_provider_data({name: value for name, value in data.items() if not _is_table(value)})
    except ValueError as error:
        raise LayoutError(str(error)) from None
    tables = _tables(data)
    if tables:
        listed = ", ".join(f"`{path}` ({count:,})" for path, count in tables[:_MAX_LISTED])
        more = f" and {len(tables) - _MAX_LISTED} more" if len(tables) > _MAX_LISTED else ""
        raise LayoutError(
            f"is one object with lists of objects: {listed}{more}; name the one with the rows by `rows` (`--rows "
            f"{tables[0][0]}`), or all would be graded as one response; {remedy}"
        )
    values = list(data.values())
    if len(values) > 1 and all(isinstance(v, Mapping) and is_single_row(v) and len(field_columns(v, USUAL_COLUMNS)) > 1
                               for v in values):  # fmt: skip
        raise LayoutError(
            f"is one object with {len(values):,} rows by their ids: write a list of them, each with its `id`, or all "
            f"would be graded as one response; {remedy}"
        )


_MAX_LISTED = 5


def _tables(data: JsonObject) -> list[tuple[str, int]]:
    """Return the paths and the lengths of the outermost lists of several objects, from the top level downwards."""
    tables: list[tuple[str, int]] = []
    level: list[tuple[str, Any]] = [(str(name), value) for name, value in data.items()]
    while level:
        inner: list[tuple[str, Any]] = []
        for path, value in level:
            if _is_table(value):
                tables.append((path, len(value)))
            elif isinstance(value, Mapping):
                inner += [(f"{path}.{name}", item) for name, item in cast("JsonObject", value).items()]
            elif isinstance(value, list):
                inner += [(f"{path}.{index}", item) for index, item in enumerate(cast("list[Any]", value))]
        level = inner
    return tables


def _is_table(value: object) -> bool:
    """Return whether a value is a list of more than one object."""
    return isinstance(value, list) and len(value) > 1 and all(isinstance(item, Mapping) for item in value)


def rows_at(data: object, path: str) -> Sequence[Any]:
    """Return the list at a path of a JSON document, such as `results.results`.

    Raises:
        LayoutError: The document has no list at this path.
    """
    try:
        rows = value_at(data, split_path(path))
    except LookupError as error:
        raise LayoutError(f"has no `{path}` for `rows` (`--rows`): {error}; write the path of the list") from None
    if not isinstance(rows, list):
        raise LayoutError(f"has no list at `{path}` for `rows` (`--rows`), but {type(rows).__name__}: name a list")
    return cast("list[Any]", rows)


def is_at(fields: JsonObject, path: str) -> bool:
    """Return whether a row has a value at a path, such as `response.text`."""
    with suppress(LookupError):
        return value_at(fields, split_path(path)) is not None
    return False


# Objects that contain rows.


def _inspect_rows(data: JsonObject) -> list[Any]:
    samples = data.get("samples")
    if not isinstance(samples, list) or not samples:
        raise LayoutError(
            f"is an Inspect log without samples (status {data.get('status')!r}): there is nothing to grade"
        )
    return cast("list[Any]", samples)


def _is_split_frame(data: JsonObject) -> bool:
    columns, rows = data.get("columns"), data.get("data")
    if not data.keys() <= {"columns", "index", "data", "index_names", "column_names"}:
        return False
    # With an index, it is a table of pandas, even if it is damaged.
    if "index" in data and "columns" in data and "data" in data:
        return True
    if not isinstance(columns, list) or not isinstance(rows, list):
        return False
    # Without an index, it could be a table that a model wrote as its response.
    has_response = not has_no_response(dict.fromkeys(map(str, cast("list[Any]", columns))))
    return has_response and all(isinstance(row, list) and len(row) == len(columns) for row in rows)


def _split_rows(data: JsonObject) -> Iterator[dict[str, Any]]:
    """Return the rows of a pandas table whose columns and rows are two lists."""
    columns, rows = data["columns"], data["data"]
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise LayoutError("is a pandas table whose `columns` and `data` are not two lists: write it again")
    if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in cast("list[Any]", columns)):
        raise LayoutError("is a pandas table with a column whose name is neither a text nor a number: write it again")
    if repeated := repeated_column(tuple(map(str, columns))):
        raise LayoutError(f"is a pandas table with {repeated}")
    for number, row in enumerate(cast("list[Any]", rows), start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise LayoutError(
                f"is a pandas table whose row {number} is not a list of its {len(columns)} columns: write it again, "
                "or all rows would be graded as one response"
            )
    return (dict(zip(map(str, data["columns"]), row, strict=True)) for row in data["data"])


def _is_column_frame(data: JsonObject) -> bool:
    """Return whether an object has columns with the same row numbers as keys."""
    columns = list(data.values())
    numbers = list(as_mapping(columns[0] if columns else None))
    if not numbers or not all(isinstance(column, Mapping) and list(column) == numbers for column in columns):
        return False
    # Other numbers could be the years in a response.
    is_counted = numbers == [str(number) for number in range(len(numbers))]
    return is_counted or (all(number.isdigit() for number in numbers) and not has_no_response(data))


def _may_have_index(data: JsonObject) -> bool:
    """Return whether an object has several columns, one of them a response, with the same several texts as keys."""
    columns = [list(as_mapping(column)) for column in data.values()]
    return len(columns) > 1 and len(columns[0]) > 1 and columns.count(columns[0]) == len(columns) and is_row(data)


def _is_counted(values: object) -> bool:
    """Return whether a value is a column of a table of several rows, with the row numbers as keys."""
    numbers = list(as_mapping(values))
    return len(numbers) > 1 and numbers == [str(number) for number in range(len(numbers))]


def _column_rows(data: JsonObject) -> Iterator[dict[str, Any]]:
    for number in next(iter(data.values())):
        yield {name: column[number] for name, column in data.items()}


def _is_table_frame(data: JsonObject) -> bool:
    return "data" in data and "pandas_version" in as_mapping(data.get("schema"))


def _deepeval_rows(data: JsonObject) -> Iterator[Any]:
    run = as_mapping(data.get("testRunData")) or data
    lists = [run[name] for name in _DEEPEVAL if isinstance(run.get(name), list)]
    cases = list[Any](chain.from_iterable(lists))
    if not cases:
        raise LayoutError("is a test run of deepeval without test cases: there is nothing to grade")
    names = [as_mapping(case).get("name") for case in cases]
    counts = Counter(map(str, names))
    for number, (case, name) in enumerate(zip(cases, names, strict=True), start=1):
        # The name of a test with parameters, or a name that a user chose, may occur several times.
        yield {**case, "name": f"{name}-{number}"} if name is not None and counts[str(name)] > 1 else case


_DEEPEVAL = ("testCases", "conversationalTestCases", "test_results")


def _is_deepeval(data: JsonObject) -> bool:
    run = as_mapping(data.get("testRunData")) or data
    is_run = isinstance(run.get("testCases"), list) and isinstance(run.get("metricsScores"), list)
    return is_run or all_objects(run.get("test_results"), has_keys("name", "metrics_data", "conversational"))


def _is_tau2(data: JsonObject) -> bool:
    return has_keys("tasks", "info")(data) and ("simulations" in data or "agent_info" in as_mapping(data["info"]))


def _tau2_rows(data: JsonObject) -> Sequence[Any]:
    if not data.get("simulations"):
        raise LayoutError(
            "is tau2's results without simulations: name one of the files that tau2 writes in the folder `simulations` "
            "beside it"
        )
    return rows_at(data, "simulations")


def _single_row(data: JsonObject) -> list[JsonObject]:
    return [data]


DOCUMENTS = (
    Document("promptfoo results", has_keys("evalId", "results"), partial(rows_at, path="results.results")),
    Document("Inspect log", has_keys("version", "eval", "plan"), _inspect_rows),
    Document("deepeval test run", _is_deepeval, _deepeval_rows),
    *(Document(known.name, known.matches, _single_row) for known in (*TRACE_FORMATS, *LOG_FORMATS)),
    Document("output of `claude -p`", is_result, _single_row),
    Document("tau2 results", _is_tau2, _tau2_rows),
    Document("pandas table", _is_split_frame, _split_rows),
    Document("pandas table", _is_table_frame, partial(rows_at, path="data")),
    Document("pandas table", _is_column_frame, _column_rows),
)
"""The objects that contain rows, by tool. The first one that matches is read."""


SWE_AGENT_KEYS = frozenset({"trajectory", "history", "info"})
