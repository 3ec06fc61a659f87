"""Messages about files of other projects: each names the project, and none advises to remove a weight."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"requirement": "x", "points": 5}, "`points`: is not a known key: it is the word of HealthBench for `weight`"),
        (
            {"requirement": "x", "outcome": "y"},
            "`outcome`: is not a known key: it is the word of AgentV for `requirement`",
        ),
        ({"requirement": "x", "title": "y"}, "`title`: is not a known key: it is the word of RaR for `name`"),
        ({"requirement": "x", "wieght": 5}, "`wieght`: is not a known key: did you mean `weight`?"),
    ],
)
def test_key_of_another_project_is_named_with_the_native_word(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict([entry])
    assert message in str(refusal.value)


def test_file_of_rows_with_rubrics_of_their_own_is_refused_in_one_line() -> None:
    rows = [{"prompt": "p", "rubrics": [{"criterion": "x", "points": 1}]}, {"prompt": "q", "rubric": ["y"]}]
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(rows)
    assert str(refusal.value) == (
        "rubric: is a list of rows, of which 2 have a response or their own rubric: it is not a rubric, but a file of "
        "responses for `rubric-integrations grade`, which has its place after the rubric"
    )
