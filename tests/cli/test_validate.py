"""The command `validate`: faults, warnings, and both as JSON and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import EXAMPLES, run


def test_validate_prints_one_line_per_fault(files: Path) -> None:
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}\n- {weight: x, requirement: ''}\n")
    assert run("validate", files / "rubric.yaml").exit_code == 0
    result = run("validate", files / "rubric.yaml", files / "broken.yaml", files / "nowhere.yaml")
    assert result.exit_code == 1
    assert "rubric.yaml: valid: 2 criteria" in result.stdout
    assert "3 files: 1 valid, 2 invalid" in result.stdout
    faults = result.stderr.splitlines()
    assert len(faults) == 4
    assert "broken.yaml: criteria[0] `wieght`" in faults[0]
    assert "broken.yaml: criteria[1] `weight`" in faults[1]


def test_validate_of_a_vague_rubric_warns_in_text_json_and_sarif(files: Path) -> None:
    (files / "vague.yaml").write_text("- {requirement: Is good and names the price}\n- {requirement: Says why}\n")
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}")
    text = run("validate", files / "vague.yaml")
    assert (text.exit_code, "warning: criteria[0]: has several requirements" in text.stdout) == (0, True)
    assert "warning" not in run("validate", files / "vague.yaml", "--no-warnings").stdout
    result = run("validate", files / "vague.yaml", files / "broken.yaml", "--format", "json")
    assert result.exit_code == 1
    vague, broken = json.loads(result.stdout)
    assert (vague["sound"], [w["rule"] for w in vague["warnings"]]) == (True, ["compound", "vague"])
    assert (broken["sound"], broken["faults"][0]["field"]) == (False, "wieght")
    log = json.loads(run("validate", files / "vague.yaml", files / "broken.yaml", "--format", "sarif").stdout)
    assert log["version"] == "2.1.0"
    results = log["runs"][0]["results"]
    assert [(r["ruleId"], r["level"]) for r in results] == [
        ("compound", "warning"), ("vague", "warning"), ("broken", "error"),
    ]  # fmt: skip
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert {r["ruleId"] for r in results} <= rules
    assert results[2]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("broken.yaml")


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
@pytest.mark.parametrize(
    ("names", "exit_code", "number"),
    [
        (["rubric.yaml"], 0, 0),
        (["rubric.yaml", "vague.yaml"], 1, 2),
        (["broken.yaml"], 1, 0),
        (["broken.yaml", "vague.yaml"], 1, 2),
    ],
)
def test_validate_that_fails_on_warnings_has_exit_code_1_and_says_how_many(
    files: Path, form: str, names: list[str], exit_code: int, number: int
) -> None:
    (files / "vague.yaml").write_text("- {requirement: Is good and names the price}\n")
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}")
    paths = [files / name for name in names]
    result = run("validate", "--fail-on-warnings", "--format", form, *paths)
    assert result.exit_code == exit_code
    assert (f"--fail-on-warnings: {number} warnings\n" in result.stderr) is (number > 0)
    without = run("validate", "--format", form, *paths)
    assert (without.exit_code, without.stdout) == (int("broken.yaml" in names), result.stdout)


def test_validate_that_fails_on_warnings_is_refused_if_it_shall_not_print_them(files: Path) -> None:
    result = run("validate", files / "rubric.yaml", "--fail-on-warnings", "--no-warnings")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "without the warnings that are the reason: leave out one of them" in result.stderr


def test_validate_of_an_eval_file_counts_the_criteria_of_every_case() -> None:
    result = run("validate", EXAMPLES / "agentv" / "code_review.yaml", EXAMPLES / "openrubricrl" / "dialogue.yaml")
    assert (result.exit_code, "2 cases, 7 criteria" in result.stdout) == (0, True)


MARKDOWN = "- (10) States the margin as 17.2%\n- (-5) Blames the customer\n"


@pytest.mark.parametrize("name", ["rubric.md", "rubric.txt", "rubric.csv", "RUBRIC.MD", "rubric.mdx"])
def test_rubric_in_another_format_is_refused_with_the_remedy(files: Path, name: str) -> None:
    (files / name).write_text(MARKDOWN)
    for result in (run("validate", files / name), run("grade", files / name, files / "responses.jsonl")):
        assert result.exit_code in (1, 2)
        assert "write it as YAML or JSON, such as `- {weight: 10, requirement: Names a source}`" in result.stderr
    is_markdown = name.lower().endswith("md")
    words = "in which the weight of a criterion" if is_markdown else "in which the weights of the criteria"
    assert words in result.stderr
    assert ("is a table" in result.stderr) == name.endswith("csv")
    assert ("line 1: has '(10)'" in result.stderr) == is_markdown


def test_markdown_that_is_named_yaml_is_read_in_a_format_that_is_named_and_warned_about(files: Path) -> None:
    (files / "list.yaml").write_text(MARKDOWN)
    result = run("validate", files / "list.yaml")
    assert (result.exit_code, result.stdout.count("[weight-in-text]")) == (0, 2)
    assert "2 criteria, 0 of them penalties, 0 with a check; read in the format agentv" in result.stdout
    graded = run("grade", files / "list.yaml", files / "responses.jsonl", "--judge", "offline")
    assert "graded by the rubric (agentv format): " in graded.stdout
    assert graded.stderr.count("has '(-5)' in its text, and the weight 1: no format reads a weight there") == 1


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_line_breaks_of_ids_names_and_errors_begin_no_line_of_the_output(files: Path, quiet: list[str]) -> None:
    command = "\n::error::injected"
    rubric = {"name": f"r{command}", "criteria": [{"requirement": f"x{command}", "check": {"contains": f"y{command}"}}]}
    rows = [
        {"id": f"a{command}", "response": f"x{command}"},
        {"id": f"b{command}\x1b[2J", "response": ""},
        {"id": "c", "response": "x", "rubric": f"none{command}"},
        {"id": "d", "response": "x", f"column{command}": 1},
    ]
    (files / "lines.yaml").write_text(json.dumps(rubric))
    (files / "broken.yaml").write_text(json.dumps([{f"key{command}": 1}, {f"other{command}": 1}]))
    (files / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = [files / "lines.yaml", files / "lines.jsonl"]
    results = [
        run("grade", *names, "--judge", "offline", "--out", files / "run.jsonl", "--overwrite", *quiet),
        run("grade", *reversed(names), "--judge", "offline"),
        run("validate", files / "lines.yaml", files / "broken.yaml"),
        run("grade", files / "broken.yaml", files / "lines.jsonl"),
        run("grade", f"{files / 'none'}{command}.yaml", files / "lines.jsonl"),
        run("compare", files / "run.jsonl", files / "run.jsonl"),
    ]
    lines = [line for result in results for line in (result.stdout + result.stderr).splitlines()]
    assert not [line for line in lines if line.lstrip().startswith("::")]
    assert any("a\\n::error::injected" in line for line in lines) or quiet
    assert sum("broken.yaml: criteria[" in line for line in lines) >= 4
