"""Reads the fields of labels: from the lines of a file, or from the rows of a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json_lines import read_json_lines
from rubric_integrations.results.labels import Sampled
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.csv_records import CsvError, read_csv
from rubric_integrations.submission.readers import UNSUPPORTED
from rubric_integrations.submission.rows import fold

FIELDS = (
    "id", "criterion", "verdict", "rater", "reason", "sampled", "judged", "blind", "requirement", "submission",
    "response", "query",
)  # fmt: skip
"""The names of the fields of a label."""

# The judge's answer, as report pages of earlier versions call it.
_EARLIER_NAMES = {"was": "judged"}


class LabelsError(ValueError):
    """Raised if labels cannot be read, or do not belong to the rubric or the run."""


class LabelLine(NamedTuple):
    """The fields of one label.

    Attributes:
        place: Where it is, for errors.
        fields: Its fields, without empty ones.
    """

    place: str
    fields: Mapping[str, Any]


def read_label_file(path: Path) -> Iterator[LabelLine]:
    """Yield the labels of a file; lines without a verdict are skipped with a warning.

    Raises:
        LabelsError: The file cannot be read, or has no label.
    """
    read_lines = _read_csv if path.suffix.lower() in (".csv", ".tsv") else _read_json
    count = unlabelled = 0
    try:
        for number, record in read_lines(path):
            count += 1
            fields = _known_fields(record)
            if "verdict" in fields:
                yield LabelLine(f"{path}:{number}", fields)
            elif "verdict" in {fold(name) for name in record}:
                unlabelled += 1
            else:
                raise LabelsError(f"{path}:{number}: is no label: it has no `verdict`")
    except OSError as error:
        raise LabelsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        remedy = UNSUPPORTED.get(path.suffix.lower(), "save it as UTF-8")
        raise LabelsError(f"{path}: is not text (byte {error.start}): {remedy}") from None
    if count == unlabelled:
        lines = "none of its lines has a `verdict`" if count else "it is empty"
        raise LabelsError(f"{path}: has no labels: {lines}; label some judgments, or name another file")
    if unlabelled:
        warnings.warn(
            f"{path}: {unlabelled:,} of {count:,} lines have no `verdict` and are skipped: if they were the difficult "
            "ones, the others are no random part of the run any more",
            stacklevel=3,
        )


def labels_of_rows(rows: Sequence[GradedRow], sampled: Sampled | None = None) -> Iterator[LabelLine]:
    """Yield the labels that the rows of a run bring; those in a list of answers are of different raters.

    They are `blind`, because they were there before the judge answered.

    Args:
        rows: The rows.
        sampled: How the judgments were drawn. By default, labels that cover each judgment of every criterion that has
            any, in all rows, are `random`, because nothing was chosen; others are `chosen`.

    Raises:
        LabelsError: No row brings labels.
    """
    answers = [_answers_of(row) for row in rows]
    labelled = {name for of_row in answers for name in of_row}
    if not labelled:
        raise LabelsError(
            "the run has no labels: its rows have no `labels`, which are people's answers by the name of the criterion"
        )
    judged = [_judged_names(row.report) for row in rows]
    is_census = all(
        bool(of_row) and names & labelled <= of_row.keys()
        for of_row, names in zip(answers, judged, strict=True)
        if names
    )
    drawn: Sampled = sampled or ("random" if is_census else "chosen")
    for row, of_row in zip(rows, answers, strict=True):
        for name, of_raters in of_row.items() if row.submission else ():
            for rater, verdict in of_raters.items():
                fields = {"criterion": name, "verdict": verdict, "submission": row.submission, "sampled": drawn}
                fields["blind"] = True  # the row had its labels before the judge answered
                yield LabelLine(f"row {row.id!r}", {"id": row.id} | fields | ({"rater": rater} if rater else {}))


def _answers_of(row: GradedRow) -> dict[str, dict[str, Any]]:
    """Return the answers of a row that are not empty: by criterion, and by rater, who is "" for a single answer."""
    answers: dict[str, dict[str, Any]] = {}
    for name, value in (row.labels or {}).items():
        of_raters = cast("list[Any]", value) if isinstance(value, list) else [value]
        known = {str(number): answer for number, answer in enumerate(of_raters, start=1) if not _is_empty(answer)}
        if known:
            answers[name] = known if isinstance(value, list) else {"": value}
    return answers


def _judged_names(report: EvaluationReport | None) -> set[str]:
    entries = report.criteria if report else ()
    return {entry.name for entry in entries if entry.was_judged}


def _known_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty, by the names that they have here."""
    fields: dict[str, Any] = {}
    for name, value in record.items():
        known = _EARLIER_NAMES.get(fold(name), fold(name))
        if known in FIELDS and not _is_empty(value):
            fields[known] = value
    return fields


def _is_empty(value: object) -> bool:
    """Whether a value is None, NaN or a text without a visible character."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())  # noqa: PLR0124


def _read_json(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        for number, value in read_json_lines(path):
            if not isinstance(value, dict):
                raise LabelsError(f"{path}:{number}: is {type(value).__name__}, not a label: write one object a line")
            yield number, cast("dict[str, Any]", value)
    except (LabelsError, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise LabelsError(f"{error}: name a file of labels, which has one JSON object per line") from None


def _read_csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        for record in read_csv(path, _find_problem):
            if record.error:
                raise LabelsError(f"{path}:{record.line}: {record.error}")
            yield record.line, record.fields
    except CsvError as error:
        raise LabelsError(f"{path}: {error}") from None


def _find_problem(names: Sequence[str]) -> str | None:
    folded = {fold(name) for name in names}
    missing = next((name for name in ("criterion", "verdict") if name not in folded), None)
    return None if missing is None else f"has no column `{missing}`; its columns are {list(names)[:20]!r}"
