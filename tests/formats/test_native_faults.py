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
        (
            {"requirement": "x", "check": {"metric": {"type": "bleu", "variants": 1}}},
            "`check.metric.variants`: is not a known key: known are `config`, `type`. Ignored, it would",
        ),
        ({"requirement": "x", "check": "short"}, "`check`: must have keys and values, such as `{key: value}`"),
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


CUSTOM = "check: {metric: {type: custom, config: {metric_function: distinct_words}}}"


@pytest.mark.parametrize(
    ("metric", "yaml"),
    [
        ("distinct_words", CUSTOM),
        ({"type": "distinct_words"}, CUSTOM),
        ({"name": "distinct_words"}, CUSTOM),
        ({"type": "custom", "config": {"name": "distinct_words"}}, CUSTOM.replace("distinct_words", "NAME")),
        ("rouge", "check: {metric: {type: rouge}}"),
    ],
)
def test_metric_in_another_form_is_refused_with_the_yaml_to_write(metric: object, yaml: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict([{"requirement": "x", "check": {"metric": metric}}])
    assert yaml in str(refusal.value)
    if "NAME" not in yaml:
        assert Rubric.from_yaml(f"- {{requirement: x, {yaml}}}").criteria[0].check is not None


def test_hybrid_metric_in_another_form_is_refused_with_the_yaml_to_write() -> None:
    with pytest.raises(RubricError, match=r"hybrid_metrics: \[\{name: NAME, weight: 0.2, type: rouge\}\]"):
        Rubric.from_dict({"criteria": [{"requirement": "x"}], "hybrid_metrics": ["rouge"]})
