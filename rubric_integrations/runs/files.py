"""Reads and writes runs: the files of `grade --out`, of `rescore --out` and of a training run, or results in memory.

Every line of such a file is written by `run_line`, and read by `read_run`.
"""

from __future__ import annotations

import gc
import sys
import warnings
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, overload

from pydantic import ValidationError

from rubric_integrations._util.json import json_lines, parse_json, read_json_lines
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.submission.attachments import StoredAttachment
from rubric_integrations.submission.submission import Submission

# A file of responses can have an `id` on each line too, but none of its lines has `passed`.
_GRADE_FIELDS = {"id", "score", "passed"}

CRITERION_TEXTS = ("applies_when", "context", "aspects")
"""Fields of a criterion that its judge reads and its report does not have. A run file adds them to the report entry."""

IMPORTED = "imported"
"""The `strategy` of the grader in the record of a run that `read_judgments` made."""
MISSING_REPLY = "no reply is recorded"
"""The error of a judgment that an imported run needs and that its file does not have."""


class RunFileError(ValueError):
    """Raised if a file cannot be read as a run."""


class IncompleteRunWarning(UserWarning):
    """A run has fewer rows than it was given submissions: it was stopped, or is still in progress."""


class GradedResult(Protocol):
    """A result that can be written as a line of a run file, such as `rubric_integrations.runs.Graded`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as the JSON object of its line in a run file."""
        ...


def run_line(result: GradedResult, **fields: object) -> str:
    """Return a result as a line of a run file, with its line break.

    Args:
        result: The result.
        fields: Additional fields of the line, such as the name of the judge.
    """
    line: dict[str, Any] = {**result.to_dict(), **fields}
    spends: list[dict[str, Any]] = [part["spend"] for part in (line, *(line.get("report") or ())) if part.get("spend")]
    # Earlier versions of this library ignore unknown fields of a line, but not of a `spend`.
    if True in [spend.pop("is_lower_bound", False) for spend in spends]:
        line["spend_is_lower_bound"] = True
    return f"{json_lines([line])}\n"


class GradedRow(NamedTuple):
    """One line of a run file.

    Attributes:
        id: The row's id.
        submission: The graded submission, without its attachments. None if the row had nothing to grade, or if an
            imported run has no texts.
        report: The grade, which can be incomplete. None if the row has no grade.
        error: The reason why there is no grade, or why the grade is incomplete. None for a complete grade.
        tags: The score of each tag of the row's criteria. None for a tag without a score, for example
            because one of its criteria has no answer.
        criterion_tags: The tags of each criterion, in the order of the report. Empty if there is no report.
        attachments: The submission's attachments. A large attachment is described without its bytes.
        labels: Human labels by the name of the criterion. None if the row has no labels.
        metadata: Additional facts about the row, such as the step of a training run. None if the row has no metadata.
        guidelines: The instructions of the row's rubric, which apply to all its criteria. Empty for a rubric without
            instructions.
        criterion_texts: For each criterion, the texts that its judge reads in addition to the requirement and the
            possible answers: `applies_when` (described in words), `context` and `aspects`. Absent fields are left out.
        scoring: The settings that the score depends on and that the report does not have: `rubric`, `criteria` and
            `grader` (see `record_rubric` and `Grader.scoring_record`). None in runs of earlier versions.
        group: The prompt of which this row is one of several samples, as in `Row.group`. None for an independent row.
    """

    id: str
    submission: Submission | None
    report: EvaluationReport | None
    error: str | None
    tags: Mapping[str, float | None] = MappingProxyType({})
    criterion_tags: tuple[tuple[str, ...], ...] = ()
    attachments: tuple[StoredAttachment, ...] = ()
    labels: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    guidelines: str = ""
    criterion_texts: tuple[Mapping[str, Any], ...] = ()
    scoring: Mapping[str, Any] | None = None
    group: str | None = None

    @property
    def is_graded(self) -> bool:
        """Whether the row has a grade that can be used.

        False without a `report`. A report with an `error` can be used only if it has a `score` or a `score_range`, for
        example because a failure policy decided the score.
        """
        if self.report is None:
            return False
        return self.error is None or self.report.score is not None or self.report.score_range is not None


RowKey = tuple[str, int]


class RunFile(NamedTuple):
    """The results of one run.

    Attributes:
        name: The run's name on the report page.
        rubric: The rubric's name. None if the rubric has no name, or if the rows have different rubrics.
        judge: The judge's name. None if the name is unknown, or if the rows have different judges.
        rows: The rows of the run, in order. The rows of a file are read from the file each time they are used.
        pass_mark: The score that a submission needs to pass. None if this score is unknown, or if the rows have
            different pass marks.
        written: The time when the file was last written, in seconds since 1970. None for results in memory and from a
            pipe.
        expected: The number of submissions that the run was given. None if it is unknown, for example because they came
            from a generator.
    """

    name: str
    rubric: str | None
    judge: str | None
    rows: Sequence[GradedRow]
    pass_mark: float | None = None
    written: float | None = None
    expected: int | None = None

    @property
    def missing(self) -> int:
        """The number of submissions that have no row, because the run was stopped or is still in progress.

        0 if `expected` is unknown.
        """
        return max(0, (self.expected or 0) - len(self.rows))

    @property
    def stop_note(self) -> str:
        """A text about the missing rows, for a run that has `missing` rows."""
        return f"{self.name}: {describe_stop(len(self.rows), self.expected)}"

    def warn_if_incomplete(self) -> None:
        """Issue an `IncompleteRunWarning` with the `stop_note` if the run has `missing` rows."""
        if self.missing:
            warnings.warn(self.stop_note, IncompleteRunWarning, stacklevel=4)

    def row_keys(self) -> list[RowKey]:
        """Return the key by which each row is matched with the rows of another run.

        The key is the row's id, and the row's number among the rows with the same id, from 1.
        """
        ids = self.rows.ids if isinstance(self.rows, _RowsOfFile) else [row.id for row in self.rows]
        counts = Counter[str]()
        keys: list[RowKey] = []
        for row_id in ids:
            counts[row_id] += 1
            keys.append((row_id, counts[row_id]))
        return keys

    def row_groups(self) -> Sequence[str | None]:
        """Return the prompt of which each row is one of several samples (`GradedRow.group`)."""
        return self.rows.groups if isinstance(self.rows, _RowsOfFile) else [row.group for row in self.rows]

    @classmethod
    def of(
        cls, name: str, graded: Iterable[GradedResult], *, rubric: str | None = None, judge: str | None = None
    ) -> RunFile:
        """Make a run from results in memory.

        Args:
            name: The run's name on the report page.
            graded: The results, as `grade_many` yields them.
            rubric: The rubric's name.
            judge: The judge's name. By default, the name in the results, if all results have the same judge.
        """
        lines = [result.to_dict() for result in graded]
        judges = {_text(line.get("judge")) for line in lines}
        judge = judge or (judges.pop() if len(judges) == 1 else None)
        mark = _shared_pass_mark({_mark(line) for line in lines})
        expected = expected_rows(line.get("run") for line in lines)
        return cls(name, rubric, judge, tuple(map(_row, lines)), mark, expected=expected)


def describe_stop(rows: int, expected: int | None) -> str:
    """Describe a run that has fewer rows than it was given submissions. Empty if it is complete or nothing is known.

    Example:
        >>> describe_stop(65, 200), describe_stop(200, 200), describe_stop(65, None)
        ('65 of 200 rows: the run was stopped or is still in progress', '', '')
    """
    if expected is None or rows >= expected:
        return ""
    return f"{rows:,} of {expected:,} rows: the run was stopped or is still in progress"


def expected_rows(marks: Iterable[object]) -> int | None:
    """Return the number of submissions that a run was given, from the field `run` of each of its lines.

    The first line has `{"id": ..., "rows": ...}` if the number is known. Other lines may repeat it, and a file that is
    the concatenation of several runs has one for each.

    Example:
        >>> expected_rows([{"id": "a", "rows": 3}, None, {"id": "b", "rows": 2}]), expected_rows([None])
        (5, None)
    """
    rows: dict[str, int] = {}
    for place, mark in enumerate(marks):
        fields = _mapping(mark) or {}
        count = fields.get("rows")
        if isinstance(count, int):
            rows[str(fields.get("id"))] = count
        elif not place:
            return None
    return sum(rows.values()) if rows else None


class _RowsOfFile(Sequence[GradedRow]):
    """The rows of a run file. Memory contains only their ids, their groups and the positions of their lines."""

    def __init__(self, path: Path, ids: Sequence[str], groups: Sequence[str | None]):
        self.ids, self.groups = ids, groups
        self._path = path
        self._starts = array("q")
        with path.open("rb") as lines:
            start = 0
            for line in lines:
                if line.strip():
                    self._starts.append(start)
                start += len(line)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> GradedRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[GradedRow]: ...

    def __getitem__(self, index: int | slice) -> GradedRow | Sequence[GradedRow]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        try:
            with self._path.open("rb") as file:
                file.seek(self._starts[place])
                row = _row(parse_json(file.readline().decode("utf-8-sig")))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            row = None
        if row is None or row.id != self.ids[place]:
            raise RunFileError(f"{self._path}: changed while it was read: repeat the command when the run has ended")
        return row


def read_run(path: str | Path, *, in_memory: bool = False) -> RunFile:
    """Read a file that `grade --out` wrote.

    If a crash has cut off the last line, the line is skipped with a warning. A warning also tells if the file has fewer
    rows than the run was given submissions.

    Args:
        path: The file.
        in_memory: Whether to read all rows into memory, which is faster if all of them are used. By default, rows stay
            in the file, and memory contains one at a time.

    Raises:
        RunFileError: The file cannot be read, is empty, or has a line that is not a grade. If the file changes after
            this call, access to a row raises this error.
    """
    path = Path(path)
    # A pipe cannot be read a second time.
    if path.is_file() and not in_memory:
        return _read_run(path, None)
    with _no_garbage_collection():
        return _read_run(path, [])


def _read_run(path: Path, kept: list[GradedRow] | None) -> RunFile:
    """Read a run and append its rows to `kept` unless it is None."""
    ids: list[str] = []
    groups: list[str | None] = []
    names: dict[str, set[str | None]] = {"rubric": set(), "judge": set()}
    marks, runs = set[float | None](), list[object]()
    for number, fields in _objects(path):
        try:
            if not fields.keys() >= _GRADE_FIELDS:
                missing = " and ".join(f"`{name}`" for name in sorted(_GRADE_FIELDS - fields.keys()))
                raise KeyError(f"it has no {missing}")
            row = _row(fields)
        except (ValidationError, KeyError, TypeError, AttributeError) as error:
            problem = str(error.args[0] if isinstance(error, KeyError) else error).splitlines()[0]
            raise RunFileError(
                f"{path}:{number}: is no grade: {problem}: name a file that `grade --out` wrote"
            ) from None
        for field, seen in names.items():
            seen.add(_text(fields.get(field)))
        marks.add(_mark(fields))
        runs.append(fields.get("run"))
        ids.append(row.id)
        groups.append(row.group)
        if kept is not None:
            kept.append(row)
    if not ids:
        raise RunFileError(f"{path}: is empty: name a file that `grade --out` wrote")
    rows = _RowsOfFile(path, ids, groups) if kept is None else tuple(kept)
    # If rows have different rubrics or judges, the run has no name for them.
    rubric, judge = (seen.pop() if len(seen) == 1 else None for seen in names.values())
    written = path.stat().st_mtime if path.is_file() else None
    run = RunFile(path.stem, rubric, judge, rows, _shared_pass_mark(marks), written, expected_rows(runs))
    run.warn_if_incomplete()
    return run


def _mark(line: Mapping[str, Any]) -> float | None:
    mark = line.get("pass_mark")
    return float(mark) if isinstance(mark, int | float) else None


def _shared_pass_mark(marks: set[float | None]) -> float | None:
    """Return the pass mark of all rows, or None if they have different ones. Rows with nothing to grade have none."""
    known = marks - {None}
    return known.pop() if len(known) == 1 else None


def is_run_file(path: Path) -> bool:
    """Whether a file is a run file: its first line is a grade, as in the files that `grade --out` writes.

    False for a pipe, because its first line could not be read again.
    """
    return _first_line(path).keys() >= _GRADE_FIELDS


def run_date(path: Path) -> str | None:
    """Return the date of a run from its first line: the field `date`, or the `date` of its `metadata`.

    Returns:
        The time in UTC as ISO 8601 text, such as 2026-11-22T08:14:00+00:00. A date without a time zone is read as UTC.
        None if the line has no date, or if the date is not in ISO 8601.
    """
    fields = _first_line(path)
    value = fields.get("date") or (_mapping(fields.get("metadata")) or {}).get("date")
    try:
        date = datetime.fromisoformat(str(value)) if value else None
        return date and (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def _first_line(path: Path) -> dict[str, Any]:
    """Return the object in the first line of a file. Empty if the line is not an object, or if the file is a pipe."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as lines:
            return _mapping(parse_json(next((line for line in lines if line.strip()), b"").decode("utf-8-sig"))) or {}
    except (OSError, ValueError):
        return {}


def matched_rows(runs: Sequence[RunFile]) -> Iterator[tuple[RowKey, list[GradedRow | None]]]:
    """Yield the key of each row, and a list with its row in every run. A run without that row has None in the list.

    Rows are matched by their ids. If several rows of a run have the same id, the first is matched with the first, the
    second with the second, and so on. Rows that the first run does not have come last.
    """
    places = [{key: place for place, key in enumerate(run.row_keys())} for run in runs]
    for key in dict.fromkeys(key for run in places for key in run):
        yield key, [run.rows[of_run[key]] if key in of_run else None for run, of_run in zip(runs, places, strict=True)]


def import_notes(rows: Sequence[GradedRow]) -> list[str]:
    """Describe an imported run: its file, the number of unreadable replies, and the number of missing texts.

    Args:
        rows: The rows of a run. A run that was not imported has no notes.
    """
    grader = (rows[0].scoring or {}).get("grader") or {} if rows else {}
    if grader.get("strategy") != IMPORTED:
        return []
    outcomes = [
        outcome.error
        for row in rows
        for entry in (row.report.criteria if row.report else ())
        if not entry.computed and not entry.not_applicable
        for outcome in (entry.votes or [entry])
        if outcome.error is None or not outcome.error.endswith(MISSING_REPLY)
    ]
    unread = sum(error is not None for error in outcomes)
    files = dict.fromkeys(str(judge.get("file")) for judge in grader.get("judges") or ())
    notes = [f"imported from {', '.join(files)}: {unread:,} of {len(outcomes):,} replies could not be read"]
    if lacking := sum(row.submission is None for row in rows):
        rest = "no texts" if lacking == len(rows) else f"{lacking:,} of {len(rows):,} rows have no text"
        notes[0] += f"; {rest}: labels belong to a row by its id alone"
    return notes


@contextmanager
def _no_garbage_collection() -> Generator[None]:
    """Switch off the search for reference cycles.

    Rows have no cycles. Each search would go through all rows that were read so far, and take more than half of the
    reading time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line of a run file."""
    if path.suffix.lower() == ".parquet" or any(path.glob("*.parquet")):
        raise RunFileError(
            f"{path}: Parquet files of grades have neither the submissions nor the requirements: name the file of "
            "`grade --out run.jsonl`, which a second run with the same ledger writes without a call"
        )
    try:
        for number, fields in read_json_lines(path):
            if not isinstance(fields, dict):
                raise ValueError(f"{path}:{number}: is {type(fields).__name__}, not an object")
            yield number, fields
    except OSError as error:
        raise RunFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunFileError(f"{error}: name a file that `grade --out` wrote") from None


def _row(fields: dict[str, Any]) -> GradedRow:
    """Convert a line of a run file to a row."""
    submission, attachments = _submission(fields["submission"]) if fields.get("submission") else (None, ())
    tags: dict[str, float | None] = fields.get("tags") or {}
    entries: list[dict[str, Any]] = fields.get("report") or []
    # A line also has the fields of the row and the tags, which `EvaluationReport` does not have.
    report_fields = {name: fields[name] for name in EvaluationReport.model_fields if name in fields}
    if entries:
        known = CriterionReport.model_fields.keys()
        report_fields["report"] = [{name: entry[name] for name in entry.keys() & known} for entry in entries]
    if fields.get("spend_is_lower_bound") and "spend" in report_fields:
        report_fields["spend"] = {**report_fields["spend"], "is_lower_bound": True}
    report = EvaluationReport.model_validate(report_fields) if "report" in report_fields else None
    criterion_tags = tuple(tuple(map(str, entry.get("tags") or ())) for entry in entries)
    texts = tuple({name: _shared(entry[name]) for name in CRITERION_TEXTS if name in entry} for entry in entries)
    return GradedRow(
        str(fields["id"]), submission, report, _text(fields.get("error")), tags, criterion_tags, attachments,
        _mapping(fields.get("labels")), _mapping(fields.get("metadata")),
        _shared(_text(fields.get("guidelines")) or ""), texts if any(texts) else (), _mapping(fields.get("scoring")),
        _text(fields.get("group")),
    )  # fmt: skip


def _shared(value: Any) -> Any:
    """Intern a text that is equal in most rows. Memory then contains it once."""
    return sys.intern(value) if isinstance(value, str) else value


def _submission(fields: dict[str, Any]) -> tuple[Submission, tuple[StoredAttachment, ...]]:
    attachments = tuple(StoredAttachment.model_validate(entry) for entry in fields.get("attachments") or ())
    others = {name: value for name, value in fields.items() if name != "attachments"}
    return Submission.model_validate(others), attachments


def _mapping(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
