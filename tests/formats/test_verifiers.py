"""The rubric files of the package verifiers: their formula and their faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.formats import read_document
from rubric_integrations.formats.registry import detect
from rubric_integrations.testing import ScriptedJudge
from tests.cli.commands import run

CRITERIA: list[dict[str, Any]] = [
    {"name": "scope", "text": "Changes only the parser.", "weight": 2.0},
    {"name": "tests", "text": "How well is it tested?", "choices": ["not", "in part", "fully"]},
]
TOML = """
[[criteria]]
name = "scope"
text = "Changes only the parser."
weight = 2.0

[[criteria]]
name = "tests"
text = "How well is it tested?"
choices = ["not", "in part", "fully"]
"""


def test_toml_and_json_are_graded_alike_and_equal_in_the_native_format(tmp_path: Path) -> None:
    path, native = tmp_path / "criteria.toml", tmp_path / "native.yaml"
    path.write_text(TOML)
    assert "valid: 2 criteria" in run("validate", path).stdout
    converted = run("convert", path, "--to", "native", "--output", native)
    assert (converted.exit_code, converted.stderr) == (0, "")
    assert Rubric.from_file(native) == Rubric.from_file(path) == read_document({"criteria": CRITERIA}, "x")
    judge = ScriptedJudge({"scope": "MET", "tests": "in part"})
    assert Rubric.from_file(path).grade_sync("diff", PerCriterionGrader(judge)).score == pytest.approx(2.5 / 3)
    refused = run("convert", path, "--to", "verifiers")
    assert (refused.exit_code, "only read" in refused.stderr) == (2, True)


def test_score_equals_the_formula_of_verifiers_on_random_verdicts() -> None:
    # The same was compared with `verifiers.v1.judges.rubric` of verifiers 0.4.0 on 1,000 random files.
    chance = random.Random(51)
    for _ in range(1_000):
        criteria: list[dict[str, Any]] = []
        for index in range(chance.randint(1, 6)):
            choices = ["no", "yes"] if chance.random() < 0.5 else [f"c{rank}" for rank in range(chance.randint(2, 6))]
            criteria.append({
                "name": f"n{index}", "text": f"t{index}", "weight": chance.choice([0.5, 1, 3]), "choices": choices,
            })  # fmt: skip
        ranks = [chance.randrange(len(entry["choices"])) for entry in criteria]
        weights = [entry["weight"] for entry in criteria]
        shares = [rank / (len(entry["choices"]) - 1) for rank, entry in zip(ranks, criteria, strict=True)]
        expected = sum(w * v for w, v in zip(weights, shares, strict=True)) / sum(weights)
        answers = [
            ("UNMET", "MET")[rank] if entry["choices"] == ["no", "yes"] else entry["choices"][rank]
            for rank, entry in zip(ranks, criteria, strict=True)
        ]
        assert read_document({"criteria": criteria}, "x").compute_score(answers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"wieght": 2}, "criteria[0] `wieght`: is not a known key: did you mean `weight`"),
        ({"weight": -1}, "criteria[0] `weight`: must be at least 0, got -1"),
        ({"weight": float("nan")}, "criteria[0] `weight`: must be a finite number"),
        ({"weight": "2"}, "criteria[0] `weight`: must be a finite number, got '2'"),
        ({"weight": True}, "criteria[0] `weight`: must be a finite number, got True"),
        ({"weight": 0}, "has only zero weights"),
        ({"choices": ["yes"]}, "criteria[0] `choices`: must be at least two texts"),
        ({"choices": "yes"}, "criteria[0] `choices`: must be at least two texts"),
        ({"choices": ["a", "a"]}, "criteria[0] `choices`: has the label 'a' twice"),
        ({"choices": ["a", 1]}, "criteria[0] `choices`: must be at least two texts"),
        ({"text": 3}, "criteria[0] `text`: must be text"),
        ({"name": None}, "criteria[0] `name`: is missing"),
        ({"name": ["x"]}, "criteria[0] `name`: must be text"),
    ],
)
def test_fault_names_the_key_of_the_file(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read_document({"criteria": [{"name": "n", "text": "t", **entry}]}, "x")
    assert words in str(refusal.value)
    assert "is read as `verifiers`" in str(refusal.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"criteria": [*CRITERIA, CRITERIA[0]]}, "repeats the `name` 'scope'"),
        ({"criteria": [*CRITERIA, "x"]}, "criteria[2]: must be a criterion"),
        ({"criteria": CRITERIA, "weights": {}}, "`weights`: is not a known key"),
    ],
)
def test_file_with_a_repeated_name_another_key_or_another_entry_is_refused(document: Any, words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read_document(document, "x")
    assert words in str(refusal.value)


def test_bare_list_is_read_and_a_native_requirement_is_not_of_this_format() -> None:
    assert detect(CRITERIA) == "verifiers"
    assert detect([{"requirement": "r", "text": "t"}]) == "native"
