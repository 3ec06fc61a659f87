"""What `grade --out` wrote, read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.submission.submission import Submission


class RunFileError(ValueError):
    """A file is no run."""


class GradedRow(NamedTuple):
    """One line of a run.

    Attributes:
        id: The row's name.
        submission: What was graded; None where the row had nothing to grade.
        report: Its grade; None where there is none.
        error: Why there is none, or why it is not complete.
    """

    id: str
    submission: Submission | None
    report: EvaluationReport | None
    error: str | None

    @property
    def is_graded(self) -> bool:
        """Whether the grade stands: a failure that a policy answered, or a panel's lost vote, does not undo it."""
        if self.report is None:
            return False
        return self.error is None or self.report.score is not None or self.report.score_range is not None


class RunFile(NamedTuple):
    """A run.

    Attributes:
        name: What to call it.
        rubric: The name of the rubric, if it has one.
        judge: Who judged, if the file says so.
        rows: The submissions, in order.
    """

    name: str
    rubric: str | None
    judge: str | None
    rows: tuple[GradedRow, ...]

    @classmethod
    def of(cls, name: str, graded: Iterable[Any], *, rubric: str | None = None, judge: str | None = None) -> RunFile:
        """A run in memory: what iterating `grade_many` gave."""
        return cls(name, rubric, judge, tuple(_row(item.to_dict()) for item in graded))


def read_run(path: Path) -> RunFile:
    """Read a run.

    Raises:
        RunFileError: It cannot be read, a line is no grade, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    told = list(_dicts(path, lines))
    if not told:
        raise RunFileError(f"{path}: is empty: give a file that `grade --out` wrote")
    rows: list[GradedRow] = []
    for number, line in told:
        try:
            rows.append(_row(line))
        except (ValidationError, KeyError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise RunFileError(f"{path}:{number}: is no grade: {first}: give a file that `grade --out` wrote") from None
    first = told[0][1]
    return RunFile(path.stem, _text(first.get("rubric")), _text(first.get("judge")), tuple(rows))


def _dicts(path: Path, lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise RunFileError(f"{path}:{number}: is not JSON: give a file that `grade --out` wrote") from None
        if not isinstance(row, dict):
            raise RunFileError(f"{path}:{number}: is {type(row).__name__}: give a file that `grade --out` wrote")
        yield number, cast("dict[str, Any]", row)


def _row(line: dict[str, Any]) -> GradedRow:
    submission = Submission.model_validate(line["submission"]) if line.get("submission") else None
    fields = {name: line[name] for name in EvaluationReport.model_fields if name in line}
    report = EvaluationReport.model_validate(fields) if "report" in fields else None
    return GradedRow(str(line["id"]), submission, report, _text(line.get("error")))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
