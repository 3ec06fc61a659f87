"""Formats that are recognized and not read: each error names the project, the reason and a way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import load_eval_cases
from rubric_integrations.formats.registry import detect
from rubric_integrations.formats.row_rubrics import RowRubrics
from tests.cli.commands import run

VERTEX: list[dict[str, Any]] = [
    {"rubricId": "r", "content": {"property": {"description": "Names it."}}, "type": "FACTUALITY", "importance": "HIGH"}
]
APEX: dict[str, Any] = {"criterion 1": {"description": "Names it", "weight": "Primary", "dependent_criteria": []}}
REFUSED: list[tuple[str, Any, str]] = [
    ("Vertex AI", VERTEX, "publishes neither the weights"),
    ("Vertex AI", [{"prompt": "p", "response": "r", "rubric_groups": {"general": VERTEX}}], "a `requirement`"),
    (
        "SWE-Atlas",
        [{"id": "a", "title": "1.1: Moves it", "annotations": {"type": "positive hli", "importance": "must have"}}],
        "`required: true`",
    ),
    (
        "PRBench",
        {"task": "t", "rubric": [{"title": "t", "annotations": {"weight_class": "important", "important_weight": 4}}]},
        "`criteria_description`",
    ),
    (
        "ProfBench",
        [{"task_id": "t", "rubrics": [{"criterion_description": "Names it", "criterion_weight": "Critical"}]}],
        "4 for Critical",
    ),
    (
        "RubricHub",
        [{"Rubrics": [{"criterion": "c", "points": 8, "tags": {"verifier": "llm"}}], "response": "r"}],
        "as a `check`",
    ),
    ("APEX-v1", APEX, "depend on each other"),
    ("APEX-v1", [{"Task ID": 1, "Rubric JSON": json.dumps(APEX)}], "your `weight`"),
    (
        "OpenRubrics",
        [{"instruction": "i", "rubric": "1. Is brief. [Hard Rule]\n2. Is warm. [Principle]"}],
        "two responses",
    ),
    ("gandalf-the-grader", [{"criteria": "Exists", "weight": 2.0}, {"criteria": "Cheats", "weight": -1.0}], "a list"),
    ("MLflow", {"name": "tone", "builtin_scorer_class": "Guidelines"}, "one verdict"),
]


@pytest.mark.parametrize(("name", "document", "words"), REFUSED)
def test_file_of_another_project_is_refused_by_its_name_with_a_way(
    name: str, document: Any, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rubric.json"
    path.write_text(json.dumps(document))
    refusals: list[RubricError] = []
    for read in (lambda: Rubric.from_file(path), lambda: list(load_eval_cases(path))):
        with pytest.raises(RubricError) as refusal:
            read()
        refusals.append(refusal.value)
    for refused in refusals:
        [fault] = refused.faults
        assert f"has the format of {name}, which is not read: " in fault.message
        assert words in fault.message
    for command in (("validate", path), ("convert", path, "--to", "native"), ("grade", path, path)):
        result = run(*command)
        assert result.exit_code in (1, 2)
        assert name in result.stderr
        assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("own", "name"),
    [
        (VERTEX, "Vertex AI"), ("1. Is brief. [Hard Rule]\n2. Is warm. [Principle]", "OpenRubrics"),
        ("# Notes: x\n1. Is: brief. [Principle]\n", "OpenRubrics"),
        ([{"criterion": "c", "points": 8, "tags": {"verifier": "rule"}}], "RubricHub"),
    ],
)  # fmt: skip
def test_rubric_of_a_row_is_refused_by_its_name(own: Any, name: str) -> None:
    with pytest.raises(RubricError, match=f"has the format of {name}, which is not read"):
        RowRubrics(None).of("a row", own)


@pytest.mark.parametrize(
    "document",
    [
        [{"requirement": "r", "metadata": {"annotations": {"weight_class": "x"}}}],
        {"criteria": [{"requirement": "r"}], "metadata": {"builtin_scorer_class": "x"}},
        {"rubrics": [{"criteria": "Is kind", "weight": 2.0}]},
        [{"criterion": "c", "points": 8, "tags": ["verifier"]}],
        [{"title": "t", "description": "d", "weight": 1}],
        [{"requirement": "1. Follows the [Principle]"}],
    ],
)
def test_similar_file_of_a_format_that_is_read_is_still_read(document: Any) -> None:
    rubric = Rubric.from_dict(document)
    assert len(rubric) == 1
    assert RowRubrics(None).of("a row", rubric.to_yaml()) == rubric


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([{"requirement": "r"}], "has one rubric, in the format native, and no cases: read it with `Rubric.from_file`"),
        ({"criteria": [{"name": "n", "text": "t"}]}, "has one rubric, in the format verifiers"),
        ({"checklist": ["Greets"]}, "has one rubric, in the format checklist"),
        ([{"id": "a", "response": "r"}], "is a list of rows"),
        ({"reward": [{"name": "r"}]}, "`reward`: combines the scores of other files"),
        ({"nothing": 1}, "`evalcases`: is missing or empty"),
        (["Greets"], "`evalcases`: is missing or empty"),
    ],
)
def test_file_without_cases_is_refused_by_the_name_of_its_format(document: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rubric.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RubricError) as refusal:
        list(load_eval_cases(path))
    assert words in str(refusal.value)
    assert detect(document)
