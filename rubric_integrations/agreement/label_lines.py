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


def labels_of_rows(rows: Sequence[GradedRow]) -> Iterator[LabelLine]:
    """Yield the labels that the rows of a run bring; those of one list of answers are of different raters.

    Labels that cover each judgment of every criterion that has any are `random`: nothing was chosen.

    Raises:
        LabelsError: No row brings labels.
    """
    labelled = {name for row in rows for name in row.labels or ()}
    if not labelled:
        raise LabelsError(
            "the run has no labels: its rows have no `labels`, which are people's answers by the name of the criterion"
        )
    is_census = all(
        row.labels is not None and all(name in row.labels for name in _judged_names(row.report) & labelled)
        for row in rows
        if _judged_names(row.report)
    )
    sampled: Sampled = "random" if is_census else "chosen"
    for row in rows:
        if row.submission is None:
            continue
        for name, answers in (row.labels or {}).items():
            of_raters = enumerate(cast("list[Any]", answers), start=1) if isinstance(answers, list) else [(0, answers)]
            for rater, answer in of_raters:
                fields = {
                    "id": row.id, "criterion": name, "verdict": answer, "submission": row.submission,
                    "sampled": sampled, "rater": str(rater) if rater else None,
                }  # fmt: skip
                yield LabelLine(f"row {row.id!r}", {key: value for key, value in fields.items() if value is not None})


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
