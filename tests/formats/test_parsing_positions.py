"""The lines of faults and criteria in JSON, YAML and TOML files of every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations.formats.parsing import Positions
from rubric_integrations.reporting.validation import check_file
from tests.cli.commands import run

NATIVE = """\
name: figures
criteria:
  - name: answer
    weight: 3
    requirement: Says 42
  - requirement: The group
    criteria:
      - {requirement: a, weight: 1}
      - requirement: b
        weight: x
        check:
          number: {value: 1, tolrance: 2}
"""


@pytest.mark.parametrize(
    ("where", "field", "line"),
    [
        ("criteria[0]", "weight", 4),
        ("criteria[0]", "missing", 3),
        ("criteria[1].criteria[1]", "weight", 10),
        ("criteria[1].criteria[1]", "check.number.tolrance", 12),
        ("criteria[1].criteria[0]", "", 8),
        ("", "name", 1),
        ("", "", 1),
        ("nowhere[7]", "x", 1),
    ],
)
def test_line_of_a_fault_in_yaml(where: str, field: str, line: int) -> None:
    assert Positions(NATIVE).line(where, field) == line


def test_line_of_a_fault_in_json_with_tabs() -> None:
    criteria = '\t\t{"requirement": "a"},\n\t\t{\n\t\t\t"requirement": "b",\n\t\t\t"weight": "x"\n\t\t}'
    text = '{\n\t"criteria": [\n' + criteria + "\n\t]\n}"
    assert json.loads(text)
    assert Positions(text).line("criteria[1]", "weight") == 6


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        ("- {requirement: a}\n- {weight: 1}\n", "criteria[1]", 2),
        ("rubric:\n  name: x\n  criteria:\n    - {weight: 1}\n", "criteria[0]", 4),
        ("rubric:\n  - {weight: 1}\n", "rubric[0]", 2),
        ("weight: x\nrequirement: a\ncriteria: []\n", "criteria[0]", 1),
        ("sections:\n  - name: s\n    criteria:\n      - {weight: 1}\n", "sections[0].criteria[0]", 4),
    ],
)
def test_line_of_a_criterion_in_every_native_shape(text: str, where: str, line: int) -> None:
    assert Positions(text).line(where, "") == line


def test_line_of_a_requirement_in_any_format() -> None:
    text = "rubrics:\n  - Is polite\n  - id: x\n    expected_outcome: >-\n      Says\n      why\n"
    positions = Positions(text)
    assert (positions.line_of_text("Is polite"), positions.line_of_text("Says why")) == (2, 4)
    assert positions.line_of_text("is not there") == 1


@pytest.mark.parametrize("text", ["", "a: [", "[" * 10_000, "\x00", "- &a [*a]", "a: 1\na: 2\n"])
def test_line_in_a_document_that_cannot_be_parsed_is_the_first(text: str) -> None:
    assert Positions(text).line("criteria[0]", "weight") == 1


def test_sarif_and_json_have_the_line_of_each_fault_and_warning(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(NATIVE)
    (tmp_path / "syntax.yaml").write_text("criteria:\n  - {requirement: a\n")
    careless = "criteria:\n- {requirement: Says why}\n\n- {requirement: Is good and names the price}\n"
    (tmp_path / "vague.yaml").write_text(careless)
    files = [tmp_path / name for name in ("broken.yaml", "syntax.yaml", "vague.yaml")]
    log = json.loads(run("validate", *files, "--format", "sarif").stdout)
    lines: dict[str, list[int]] = {}
    for result in log["runs"][0]["results"]:
        location = result["locations"][0]["physicalLocation"]
        lines.setdefault(Path(location["artifactLocation"]["uri"]).name, []).append(location["region"]["startLine"])
    assert lines == {"broken.yaml": [10, 12], "syntax.yaml": [3], "vague.yaml": [4, 4]}
    faults = json.loads(run("validate", files[0], "--format", "json").stdout)[0]["faults"]
    assert [fault["line"] for fault in faults] == [10, 12]


def test_fault_of_a_toml_file_has_the_line_of_its_key_or_its_table(tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    path.write_text(
        '[judge]\nmode = "batched"\n\n[[criterion]]\ndescription = "Is kind"\n'
        "\n[[criterion]]\nweight = nan\nwight = 3\n"
    )
    checked = check_file(path)
    lines = {(fault.where, fault.field): line for fault, line in zip(checked.faults, checked.fault_lines, strict=True)}
    assert lines[("criterion[1]", "weight")] == 8
    assert lines[("criterion[1]", "wight")] == 9
    assert lines[("criterion[1]", "description")] == 7  # it is missing: the line of its table
    path.write_text("a = 1\n[[criterion]\n")
    assert check_file(path).fault_lines == (2,)
