"""Reads tables: CSV, Parquet and spreadsheets."""

from __future__ import annotations

import csv
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import date, time
from decimal import Decimal
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from rubric_integrations._util.json import split_path
from rubric_integrations._util.lazy import install_command
from rubric_integrations.submission.columns import (
    SAMPLE_COLUMNS,
    USUAL_COLUMNS,
    ColumnNames,
    describe_missing_column,
    field_columns,
    fold,
    missing_column,
    repeated_column,
)
from rubric_integrations.submission.messages import Respond
from rubric_integrations.submission.submission import MAX_CHARS, error_line
from rubric_integrations.submission.text_files import (
    MAX_PARSED,
    SAVE_SHEET,
    LayoutError,
    first_text,
    open_text,
    read_lines,
    refuse_controls,
)
from rubric_integrations.submission.tool_answers import RawRow
from rubric_integrations.submission.tool_rows import PROMPTFOO_TABLE, find_row_format, is_promptfoo_table


class Layout(NamedTuple):
    """The places of the rows and their fields in a file, as the caller chose them.

    Attributes:
        columns: The names of columns that replace the usual names.
        rows: The path of the list of rows in a JSON file, or the sheet of a spreadsheet. None for the usual place.
        encoding: The encoding of a text file. None for UTF-8, and for UTF-16 with a byte order mark.
        respond: The part of each conversation that is graded. None uses the `respond` of each row.
        input_format: The format of the file, such as `jsonl`. None for the format of its suffix.
    """

    columns: ColumnNames = USUAL_COLUMNS
    rows: str | None = None
    encoding: str | None = None
    respond: Respond | None = None
    input_format: str | None = None


_DELIMITERS = (",", ";", "\t")
_SEPARATOR_LINE = re.compile(r"sep=([^\"\s]|\t)", re.IGNORECASE)


def read_csv(
    path: Path, find_problem: Callable[[Sequence[str]], str | None], encoding: str | None = None
) -> Iterator[RawRow]:
    """Yield the records of a CSV file, without its header and blank lines. The separator is a comma, semicolon or tab.

    The number of a record is the number of the line on which it begins. If a record is shorter than the header, its
    missing values are None. If it is longer, it has an error and no fields.

    If the first line names a separator, as in `sep=;`, this separator is used. Excel also uses this line, and does not
    show it. A line that contains only separators, such as `;;;`, counts as blank. Excel writes such a line for a row
    whose cells were cleared.

    Args:
        path: The file, in UTF-8, or in UTF-16 with a byte order mark.
        find_problem: A function that gets the names in the header. It returns a description of a problem, such as a
            missing column, or None if the header has no problem.
        encoding: The encoding of the file, if it is not one of these two.

    Raises:
        LayoutError: `find_problem` returns a problem, the header contains a name twice, a quotation mark is not closed,
            or the file is binary.
        OSError: The file cannot be read.
        UnicodeDecodeError: The file is not text in this encoding.
    """
    csv.field_size_limit(10 * MAX_CHARS)
    with open_text(path, encoding, newline="") as file:
        refuse_controls(first_text(file))
        lines = read_lines(file)
        header_line, skipped = _first_line(lines)
        named = _SEPARATOR_LINE.fullmatch(header_line.rstrip("\r\n"))
        if named:
            header_line, more = _first_line(lines)
            skipped += 1 + more
        if not header_line:
            return
        default = "\t" if path.suffix.lower() == ".tsv" else ","
        delimiter = named[1] if named else _find_delimiter(header_line, find_problem, default)
        # Without `strict`, an unclosed quote silently takes all following rows into one field.
        reader = csv.reader(chain([header_line], lines), delimiter=delimiter, strict=True)
        begins, header = 0, list[str]()
        try:
            for record in reader:
                line, begins = skipped + begins + 1, reader.line_num
                if not header:
                    header = record
                    _check_header(header, find_problem)
                elif len(record) == 1 or any(field.strip() for field in record):
                    yield _to_record(header, record, line, delimiter)
        except csv.Error as error:
            raise LayoutError(
                f'line {skipped + begins + 1}: {error}: close each quote ("), and write a quote within a quoted text '
                'twice ("")'
            ) from None


def _first_line(lines: Iterator[str]) -> tuple[str, int]:
    """Return the first line that is not blank, and the number of lines before it."""
    for skipped, line in enumerate(lines):
        if line.strip():
            return line, skipped
    return "", 0


def _find_delimiter(header: str, find_problem: Callable[[Sequence[str]], str | None], default: str) -> str:
    """Return the delimiter with which the header has the required columns, or else the most columns."""

    def rank(delimiter: str) -> tuple[bool, int, bool]:
        names = list[str]()
        with suppress(csv.Error):  # a field that is too long, unless another delimiter divides it
            names = next(csv.reader([header], delimiter=delimiter), names)
        return find_problem(names) is None, len(names), delimiter == default

    return max(_DELIMITERS, key=rank)


def _check_header(header: Sequence[str], find_problem: Callable[[Sequence[str]], str | None]) -> None:
    counts = Counter(fold(name) for name in header if name.strip())
    repeated = next((name for name in header if counts[fold(name)] > 1), None)
    if repeated is not None:
        last = next(name for name in reversed(header) if fold(name) == fold(repeated))
        if is_promptfoo_table(header):
            raise LayoutError(PROMPTFOO_TABLE)
        raise LayoutError(f"the column {last!r} is there twice: rename or remove one of them")
    if (problem := find_problem(header)) is not None:
        raise LayoutError(problem)
    # Its values would be left out.
    if (damaged := next((name for name in header if "\0" in name), None)) is not None:
        raise LayoutError(f"the column {damaged!r} has a NUL character: the file is damaged: write it again")


def _to_record(header: Sequence[str], record: Sequence[str], line: int, delimiter: str) -> RawRow:
    place, form = f"line {line}", f"CSV, separated by {delimiter!r}"
    if len(record) > len(header):
        message = (
            f"has {len(record)} fields, but the header has {len(header)}: put quotes around a text that contains "
            f"{delimiter!r}"
        )
        return RawRow({}, message, line, place, form)
    # A row may be shorter than the header: its last cells are empty.
    fields: dict[str, str | None] = dict.fromkeys(header)
    return RawRow(fields | dict(zip(header, record, strict=False)), None, line, place, form)


# The number of rows of a Parquet file in memory at a time. All rows of a small file may share one long text.
_PARQUET_ROWS = 100
# The largest number of rows of a sheet in Excel. A file can give its rows any numbers, and all rows in between would be
# read as empty rows.
_SHEET_ROWS = 1_048_576


def _missing_column(names: Sequence[str], columns: ColumnNames) -> str | None:
    """Return the first missing column of a table, or None. A table of another tool may have other columns."""
    # A path such as `response.body` is in the column `response`.
    paths = [path for path in columns if path and split_path(path)[0] in names]
    missing = missing_column([*names, *paths], columns)
    has_answers = any(fold(name) in SAMPLE_COLUMNS for name in names) or find_row_format(dict.fromkeys(names))
    return None if missing == "response" and columns.response is None and has_answers else missing


def _describe_missing(names: Sequence[str], columns: ColumnNames) -> str | None:
    missing = _missing_column(names, columns)
    return None if missing is None else describe_missing_column(names, missing)


def read_csv_rows(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the rows of a CSV file."""
    records = read_csv(path, lambda names: _describe_missing(names, layout.columns), layout.encoding)
    for number, record in enumerate(records, start=1):
        yield record._replace(number=number, error=record.error and f"{record.place} {record.error}")


def read_parquet(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the rows of a Parquet file. At most 100 rows are in memory at a time."""
    try:
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise LayoutError(f"a Parquet file needs pyarrow: {install_command('parquet')}") from None
    try:
        file, columns = ParquetFile(path), layout.columns
        names = file.schema_arrow.names
        if (missing := _missing_column(names, columns)) is not None:
            raise LayoutError(describe_missing_column(names, missing))
        if repeated := repeated_column(tuple(names), columns):
            raise LayoutError(f"has {repeated}")
        # Vectors and other large columns that are not fields are not read.
        plain = [column.name for column in file.schema_arrow if _is_plain(column.type)]
        roots = {split_path(path)[0] for path in columns if path} & set(names)
        is_foreign = columns.response is None and find_row_format(dict.fromkeys(names)) is not None
        samples = [name for name in names if fold(name) in SAMPLE_COLUMNS]
        needed, number = set(names) if is_foreign else {*field_columns(names, columns), *plain, *roots, *samples}, 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=sorted(needed)):
            if batch.nbytes > MAX_PARSED:
                raise LayoutError(
                    f"the {batch.num_rows} rows after row {number:,} have {batch.nbytes:,} bytes, more than "
                    f"{MAX_PARSED:,}: leave out their largest column"
                )
            for fields in batch.to_pylist():
                number += 1
                cells = {name: _plain_cell(value) for name, value in fields.items()}
                yield RawRow(cells, number=number, place=f"row {number}")
    except arrow.ArrowException as error:
        raise LayoutError(f"is no Parquet file that can be read: {error_line(error)}") from None


def _plain_cell(value: Any) -> Any:
    """Return the value of a cell, with a date, a time or a decimal number as its text."""
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _is_plain(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    return any(test(kind) for test in tests)


def read_sheet(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the rows of one sheet of a spreadsheet.

    It is the sheet with the name `layout.rows`. By default, it is the only visible sheet with a column of responses. If
    no sheet has such a column, it is the first visible sheet with any cells.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise LayoutError(f"a spreadsheet needs openpyxl: {install_command('xlsx')}; or {SAVE_SHEET}") from None
    try:
        with path.open("rb") as file, ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_PARSED:
                raise LayoutError(f"has {size:,} bytes unpacked, more than {MAX_PARSED:,}: {SAVE_SHEET}")
            book: Any = load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheet = _choose_sheet(book, layout)
            merged = _MergedCells(archive, sheet._worksheet_path)  # openpyxl has no public name for it
            with closing(book):
                yield from _read_cells(sheet, layout.columns, merged)
    except LayoutError:
        raise
    except (
        BadZipFile, SyntaxError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError,
        EOFError, zlib.error,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise LayoutError(
            f"is no spreadsheet that can be read ({reason}): remove its password, or {SAVE_SHEET}"
        ) from None


# The largest number of characters of an error of openpyxl, which may quote the XML.
_MAX_REASON = 300


def _choose_sheet(book: Any, layout: Layout) -> Any:
    """Return the sheet that the caller named, or the only visible sheet with responses."""
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    for sheet in sheets.values():
        sheet.reset_dimensions()  # Some programs write a wrong size, and no row would be read.
    if layout.rows is not None:
        if layout.rows not in sheets:
            raise LayoutError(f"has no sheet {layout.rows!r} for `rows` (`--rows`): it has {list(sheets)!r}")
        return sheets[layout.rows]
    visible = {title: sheet for title, sheet in sheets.items() if sheet.sheet_state == "visible"}
    headers = {title: _sheet_header(sheet) for title, sheet in visible.items()}
    titles = [title for title, header in headers.items() if _missing_column(header, layout.columns) is None]
    if len(titles) > 1:
        raise LayoutError(f"has responses on several sheets: name one of {titles!r} by `rows` (`--rows`)")
    filled = [title for title, header in headers.items() if header]
    return visible[next(iter(titles or filled or visible))]


def _sheet_header(sheet: Any) -> list[str]:
    rows = (cells for _, cells in _sheet_rows(sheet))
    cells = next((cells for cells in rows if any(cell.value is not None for cell in cells)), ())
    return ["" if cell.value is None else str(cell.value) for cell in cells]


def _sheet_rows(sheet: Any) -> Iterator[tuple[int, Sequence[Any]]]:
    for line, cells in enumerate(sheet.iter_rows(), start=1):
        if line > _SHEET_ROWS:
            raise LayoutError(f"sheet {sheet.title!r} has more than {_SHEET_ROWS:,} rows: {SAVE_SHEET}")
        yield line, cells


_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\s[^>]{0,100}?\bref\s*=\s*[\"']([A-Z]{1,3})([0-9]{1,7}):[A-Z]{1,3}([0-9]{1,7})[\"']"
)
_BLOCK, _MAX_RANGE = 1_000_000, 200


class _MergedCells:
    """The merged cells of a sheet over several rows. Their value is in the first row, and applies to all rows.

    openpyxl does not read them in its mode with bounded memory. They are after all rows of the sheet in its XML.
    """

    def __init__(self, archive: ZipFile, member: str):
        # The last row and the index of the column, by the first row.
        self._ranges: dict[int, set[tuple[int, int]]] = {}
        self._values: dict[int, tuple[int, Any]] = {}
        rest = b""
        with archive.open(member) as file:
            while block := file.read(_BLOCK):
                content = rest + block
                for column, first, last in _MERGED.findall(content):
                    if int(last) > int(first):
                        index = reduce(lambda number, letter: 26 * number + letter - 64, column, 0) - 1
                        self._ranges.setdefault(int(first), set()).add((int(last), index))
                if len(self._ranges) > _SHEET_ROWS:
                    raise ValueError(f"merged cells begin in more than {_SHEET_ROWS:,} rows")
                # A range may begin in one block and end in the next.
                rest = content[-_MAX_RANGE:]

    def begin(self, line: int, values: list[Any]) -> None:
        """Store the values of the cells that begin on a line."""
        for last, index in self._ranges.get(line, ()):
            if index < len(values):
                self._values[index] = last, values[index]

    def clear(self) -> None:
        """Forget the values, because they belong to the header."""
        self._values.clear()

    def fill(self, line: int, values: list[Any]) -> None:
        """Write the values of the cells that began before a line into the row of this line."""
        self._values = {index: cell for index, cell in self._values.items() if cell[0] >= line}
        for index, (_, value) in self._values.items():
            values.extend([None] * (index + 1 - len(values)))
            values[index] = value


def _read_cells(sheet: Any, columns: ColumnNames, merged: _MergedCells) -> Iterator[RawRow]:
    """Yield the rows of a sheet. The first row that is not empty is the header."""
    header, number = list[str](), 0
    for line, cells in _sheet_rows(sheet):
        # The value of a failed formula is a text such as `#REF!`.
        values: list[Any] = [None if cell.data_type == "e" else _plain_cell(cell.value) for cell in cells]
        merged.begin(line, values)
        if all(value is None or str(value).strip() == "" for value in values):
            continue
        if not header:
            header = ["" if value is None else str(value) for value in values]
            try:
                _check_header(header, lambda names: _describe_missing(names, columns))
            except LayoutError as error:
                raise LayoutError(f"sheet {sheet.title!r}: {error}") from None
            merged.clear()
            continue
        number += 1
        merged.fill(line, values)
        fields = {name: value for name, value in zip(header, values, strict=False) if name.strip()}
        fields = dict.fromkeys(filter(str.strip, header)) | fields
        yield RawRow(fields, None, number, f"line {line}", f"spreadsheet, sheet {sheet.title!r}")
