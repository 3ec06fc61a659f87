"""Labels that do not fit the rubric are refused. `test_browser.py` reads back labels that the page exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations.results.labels import LabelsError, read_labels
from tests.reporting.page.runs import RUBRIC


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"criterion": "other", "verdict": "MET", "submission": {"response": "r"}}', "no criterion of that name"),
        ('{"criterion": "right", "verdict": "maybe", "submission": {"response": "r"}}', "is no verdict"),
        (
            '{"criterion": "right", "requirement": "Was right", "verdict": "MET", "submission": {}}',
            "when it was labelled",
        ),
        ('{"criterion": "right", "verdict": "MET"}', "has no 'submission'"),
        ("nope", "is not a label"),
    ],
)
def test_label_that_does_not_fit_the_rubric_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=message):
        read_labels(path, RUBRIC)
