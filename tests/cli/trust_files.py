"""Writes runs and labels as files, for the tests of the commands about trust."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import LabelledJudgment


def write_run(path: Path, rows: Sequence[GradedRow]) -> Path:
    """Write a run as `grade --out` does."""
    lines = [
        {
            "id": row.id,
            "submission": row.submission.model_dump(mode="json", exclude_none=True) if row.submission else None,
            "metadata": row.metadata,
            **(row.report.model_dump(mode="json") if row.report else {"score": None, "passed": False}),
        }
        for row in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_labels(path: Path, labels: Iterable[LabelledJudgment]) -> Path:
    """Write labels as the report page exports them."""
    lines = [
        {
            "id": label.id,
            "criterion": label.criterion.name,
            "requirement": label.criterion.requirement,
            "verdict": label.verdict,
            "submission": label.submission.model_dump(mode="json", exclude_none=True),
            "sampled": label.sampled,
            "rater": label.rater,
        }
        for label in labels
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
