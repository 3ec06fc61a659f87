"""Reads the records of a CSV file, whose header shows how its fields are separated."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TextIO

from rubric_integrations.submission.rows import fold
from rubric_integrations.submission.submission import MAX_CHARS

_DELIMITERS = (",", ";", "\t")


class CsvError(ValueError):
    """A CSV file cannot be read; the message does not name the file."""


class CsvRecord(NamedTuple):
    """One record of a CSV file.

    Attributes:
        line: The number, from 1, of the line on which it begins.
        fields: Its fields by the names of the header; None for those that a shorter record lacks.
        error: Why it has no fields; None if it has.
    """

    line: int
    fields: dict[str, str | None]
    error: str | None = None


def read_csv(path: Path, find_problem: Callable[[Sequence[str]], str | None]) -> Iterator[CsvRecord]:
    """Yield the records of a CSV file, separated by commas, semicolons or tabs, without its header.

    Args:
        path: The file, in UTF-8, with or without a byte order mark.
        find_problem: Says what a header of these names lacks; None if it lacks nothing.

    Raises:
        CsvError: The header has a problem, or one name twice, or a quote is not closed.
        OSError: The file cannot be read.
        UnicodeDecodeError: It is not text.
    """
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header_line, skipped = _first_line(lines)
        if not header_line:
            return
        default = "\t" if path.suffix.lower() == ".tsv" else ","
        delimiter = _find_delimiter(header_line, find_problem, default)
        # Without `strict`, an unclosed quote silently takes all following rows into one field.
        reader = csv.reader(chain([header_line], lines), delimiter=delimiter, strict=True)
        begins, header = 0, list[str]()
        try:
            for record in reader:
                line, begins = skipped + begins + 1, reader.line_num
                if not header:
                    header = record
                    _check_header(header, find_problem)
                elif record:
                    yield _to_record(header, record, line, delimiter)
        except csv.Error as error:
            raise CsvError(
                f'line {skipped + begins + 1}: {error}: close each quote ("), and write a quote within a quoted text '
                'twice ("")'
            ) from None


def _first_line(lines: TextIO) -> tuple[str, int]:
    """Return the first line that is not blank, and the number of lines before it."""
    skipped = 0
    while (line := lines.readline()) and not line.strip():
        skipped += 1
    return line, skipped


def _find_delimiter(header: str, find_problem: Callable[[Sequence[str]], str | None], default: str) -> str:
    """Return the delimiter by which the header has the needed columns; else the one that gives the most columns."""

    def rank(delimiter: str) -> tuple[bool, int, bool]:
        names = next(csv.reader([header], delimiter=delimiter), list[str]())
        return find_problem(names) is None, len(names), delimiter == default

    return max(_DELIMITERS, key=rank)


def _check_header(header: Sequence[str], find_problem: Callable[[Sequence[str]], str | None]) -> None:
    counts = Counter(fold(name) for name in header if name.strip())
    repeated = next((name for name in header if counts[fold(name)] > 1), None)
    if repeated is not None:
        last = next(name for name in reversed(header) if fold(name) == fold(repeated))
        raise CsvError(f"the column {last!r} is there twice: rename or remove one of them")
    if (problem := find_problem(header)) is not None:
        raise CsvError(problem)


def _to_record(header: Sequence[str], record: Sequence[str], line: int, delimiter: str) -> CsvRecord:
    if len(record) > len(header):
        message = (
            f"has {len(record)} fields, but the header has {len(header)}: put quotes around a text that contains "
            f"{delimiter!r}"
        )
        return CsvRecord(line, {}, message)
    # A row may be shorter than the header: its last cells are empty.
    fields: dict[str, str | None] = dict.fromkeys(header)
    return CsvRecord(line, fields | dict(zip(header, record, strict=False)))
