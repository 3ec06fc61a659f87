"""Reads runs: files that `grade --out` wrote, or the results of `grade_many` in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from pydantic import ValidationError

from rubric_integrations._util.json_lines import read_json_lines
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.submission.submission import Submission

# A file of responses may have an `id` on each line too, but no line of it says whether the row passed.
_GRADE_FIELDS = {"id", "score", "passed"}


class RunFileError(ValueError):
    """A file cannot be read as a run."""


class GradedResult(Protocol):
    """A result that can be written as a line of a run file, such as `rubric_integrations.runs.Graded`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        ...


class GradedRow(NamedTuple):
    """One line of a run.

    Attributes:
        id: The row's id.
        submission: What was graded; None if there was nothing to grade.
        report: The grade, which may be incomplete; None if there is none.
        error: Why there is no grade, or why it is not complete.
    """

    id: str
    submission: Submission | None
    report: EvaluationReport | None
    error: str | None

    @property
    def is_graded(self) -> bool:
        """Whether the grade is valid: it is, despite an `error`, if a failure policy or a panel decided the score."""
        if self.report is None:
            return False
        return self.error is None or self.report.score is not None or self.report.score_range is not None


class RunFile(NamedTuple):
    """The results of one run.

    Attributes:
        name: The run's name on the page.
        rubric: The rubric's name, if it has one.
        judge: The judge's name, if the file has it.
        rows: The submissions, in order.
    """

    name: str
    rubric: str | None
    judge: str | None
    rows: tuple[GradedRow, ...]

    def rows_by_key(self) -> dict[tuple[str, int], GradedRow]:
        """Return the rows by their id and, among those with an equal id, their number from 1."""
        counts = Counter[str]()
        rows: dict[tuple[str, int], GradedRow] = {}
        for row in self.rows:
            counts[row.id] += 1
            rows[row.id, counts[row.id]] = row
        return rows

    @classmethod
    def of(
        cls, name: str, graded: Iterable[GradedResult], *, rubric: str | None = None, judge: str | None = None
    ) -> RunFile:
        """Make a run from results in memory.

        Args:
            name: The run's name on the page.
            graded: The results, as `grade_many` yields them.
            rubric: The rubric's name.
            judge: The judge's name.
        """
        return cls(name, rubric, judge, tuple(_row(result.to_dict()) for result in graded))


def read_run(path: Path) -> RunFile:
    """Read a file that `grade --out` wrote.

    A last line that a crash has cut off is skipped with a warning.

    Raises:
        RunFileError: The file cannot be read, is empty, or has a line that is not a grade.
    """
    objects = list(_objects(path))
    if not objects:
        raise RunFileError(f"{path}: is empty: name a file that `grade --out` wrote")
    rows: list[GradedRow] = []
    for number, fields in objects:
        try:
            if not fields.keys() >= _GRADE_FIELDS:
                missing = " and ".join(f"`{name}`" for name in sorted(_GRADE_FIELDS - fields.keys()))
                raise KeyError(f"it has no {missing}")
            rows.append(_row(fields))
        except (ValidationError, KeyError, TypeError) as error:
            problem = str(error.args[0] if isinstance(error, KeyError) else error).splitlines()[0]
            raise RunFileError(
                f"{path}:{number}: is no grade: {problem}: name a file that `grade --out` wrote"
            ) from None
    first = objects[0][1]
    return RunFile(path.stem, _text(first.get("rubric")), _text(first.get("judge")), tuple(rows))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        for number, fields in read_json_lines(path):
            if not isinstance(fields, dict):
                raise ValueError(f"{path}:{number}: is {type(fields).__name__}, not an object")
            yield number, cast("dict[str, Any]", fields)
    except OSError as error:
        raise RunFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunFileError(f"{error}: name a file that `grade --out` wrote") from None


def rubric_mismatch(runs: Sequence[RunFile]) -> str:
    """Describe the first criterion that not all rows of all runs have; empty if they are graded by one rubric.

    A criterion is another one if its name, its requirement or its weight differs: scores of different criteria, or of
    criteria with different weights, measure different things. Rows without criteria have nothing to compare.
    """
    first: tuple[str, dict[tuple[str, str, float], str]] | None = None
    for run in runs:
        for row in run.rows:
            criteria = row.report.criteria if row.report else ()
            described = {(c.name, c.requirement, c.weight): f"`{c.name}` {c.requirement!r}" for c in criteria}
            if not described:
                continue
            if first is None:
                first = run.name, described
            elif described.keys() != first[1].keys():
                key = min(described.keys() ^ first[1].keys())
                owner, other = (first[0], run.name) if key in first[1] else (run.name, first[0])
                criterion = first[1].get(key) or described[key]
                return f"{owner} has the criterion {criterion} (weight {key[2]:g}), which rows of {other} do not have"
    return ""


def _row(fields: dict[str, Any]) -> GradedRow:
    submission = Submission.model_validate(fields["submission"]) if fields.get("submission") else None
    # A line also holds the row's own fields, which the report's model does not know.
    report_fields = {name: fields[name] for name in EvaluationReport.model_fields if name in fields}
    report = EvaluationReport.model_validate(report_fields) if "report" in report_fields else None
    return GradedRow(str(fields["id"]), submission, report, _text(fields.get("error")))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
