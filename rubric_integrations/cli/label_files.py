"""Reads a file of people's labels of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rubric_integrations._util.json_lines import read_json_lines
from rubric_integrations.results.labels import LabelledJudgment, read_labels
from rubric_integrations.results.report import CriterionReport
from rubric_integrations.rubric.answers import Option
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import RunFile

_BINARY = {"MET", "UNMET", "CANNOT_ASSESS"}


def read_labels_of(path: Path, run: RunFile) -> list[LabelledJudgment]:
    """Read people's labels of a run; if a rater labels a judgment twice, the later label counts.

    Raises:
        LabelsError: The file cannot be read, or a line is not a label of this run.
    """
    values: dict[str, dict[str, float]] = {}
    rows = [row for row in run.rows if row.report]
    for row in rows:
        for entry in row.report.criteria if row.report else ():
            if entry.verdict is not None and entry.value is not None:
                values.setdefault(entry.requirement, {})[entry.verdict] = entry.value
    rubrics = {
        row.id: Rubric([_criterion(entry, values.get(entry.requirement, {})) for entry in row.report.criteria])
        for row in rows
        if row.report
    }
    labels = read_labels(path, rubrics)
    lines: list[dict[str, Any]] = [fields for _, fields in read_json_lines(path)]
    marks = ("id", "rater", "sampled", "judged", "blind")
    latest: dict[tuple[object, ...], LabelledJudgment] = {}
    for label, line in zip(labels, lines, strict=True):
        marked = label.model_copy(update={name: line[name] for name in marks if line.get(name) is not None})
        key = (marked.id, marked.submission.response, marked.criterion.name, marked.criterion.requirement, marked.rater)
        latest[key] = marked
    return list(latest.values())


def _criterion(entry: CriterionReport, values: dict[str, float]) -> Criterion:
    options = None if values.keys() <= _BINARY else [Option(label=name, value=value) for name, value in values.items()]
    return Criterion(name=entry.name, requirement=entry.requirement, weight=entry.weight, options=options)
