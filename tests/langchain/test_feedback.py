"""`feedback_config`: how LangSmith displays the feedback of each kind of criterion."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Criterion, Option, Scale
from rubric_integrations.langchain.feedback import feedback_config

CONTINUOUS = {"type": "continuous", "min": 0.0, "max": 1.0}


def make_options(*values: float) -> list[Option]:
    return [Option(label=f"option {number}", value=value) for number, value in enumerate(values)]


def make_categories(**labels: float) -> dict[str, Any]:
    categories = [{"value": value, "label": label.replace("_", " ")} for label, value in labels.items()]
    return {"type": "categorical", "categories": categories}


@pytest.mark.parametrize(
    ("criterion", "config"),
    [
        (Criterion(requirement="a"), make_categories(MET=1.0, UNMET=0.0)),
        (
            Criterion(requirement="a", weight=-1),
            {
                "type": "categorical",
                "categories": [
                    {"value": 1.0, "label": "MET: the error was committed"},
                    {"value": 0.0, "label": "UNMET: it was not"},
                ],
            },
        ),
        (Criterion(requirement="a", options=make_options(0, 0.5)), make_categories(option_0=0.0, option_1=0.5)),
        (Criterion(requirement="a", options=make_options(0, 0.5, 0.5)), CONTINUOUS),
        (Criterion(requirement="a", scale=Scale(min=1, max=5)), CONTINUOUS),
    ],
    ids=["binary", "penalty", "options", "options of equal value", "scale"],
)
def test_feedback_config_shows_categories_where_values_differ(criterion: Criterion, config: dict[str, Any]) -> None:
    assert feedback_config(criterion) == config
