"""The command `compare`: the change that it prints, its gate, and the inputs that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations.trust import RunComparison
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.runs import binary_rubric, labels_of, run_of

RUBRIC = binary_rubric(2)
GOOD = [["MET", "MET"], ["MET", "MET"], ["MET", "UNMET"]] * 20
BAD = [["MET", "UNMET"], ["UNMET", "MET"], ["MET", "UNMET"]] * 20


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path / "good.jsonl", run_of(RUBRIC, GOOD))
    write_run(tmp_path / "bad.jsonl", run_of(RUBRIC, BAD, "other"))
    return tmp_path


def test_compare_says_what_changed_and_its_gate_fails_if_the_second_run_is_worse(runs: Path) -> None:
    worse = run("compare", runs / "good.jsonl", runs / "bad.jsonl")
    assert worse.exit_code == 0, worse.output
    assert "worse: the mean score changed by -0.333 [-0.3" in worse.stdout
    assert "over 60 inputs" in worse.stdout
    gated = run("compare", runs / "good.jsonl", runs / "bad.jsonl", "--gate", "--json")
    assert gated.exit_code == 1
    assert "gate failed: --gate: " in gated.stderr
    assert RunComparison.model_validate_json(gated.stdout).decision == "worse"
    assert run("compare", runs / "good.jsonl", runs / "bad.jsonl", "--gate", "--margin", 0.5).exit_code == 0
    assert run("compare", runs / "bad.jsonl", runs / "good.jsonl", "--gate").exit_code == 0


def test_compare_with_labels_decides_by_the_corrected_change(runs: Path) -> None:
    before, after = labels_of(RUBRIC, GOOD), labels_of(RUBRIC, GOOD, text="other")
    one = write_labels(runs / "one.jsonl", before)
    two = write_labels(runs / "two.jsonl", after)
    both = write_labels(runs / "both.jsonl", [*before, *after])
    command = ("compare", runs / "good.jsonl", runs / "bad.jsonl", "--json", "--gate", "--labels")
    separate, joined = run(*command, one, "--labels", two), run(*command, both)
    assert (separate.exit_code, joined.exit_code) == (0, 0), separate.output
    assert separate.stdout == joined.stdout
    figures = json.loads(joined.stdout)
    assert (figures["decision"], figures["corrected"]["value"], figures["corrected"]["n"]) == ("unclear", 0.0, 60)
    half = run(*command, one)
    assert (half.exit_code, "in both runs" in half.stderr) == (2, True), half.output


def test_compare_counts_samples_of_one_input_once(runs: Path) -> None:
    for name in ("good", "bad"):
        lines = [json.loads(line) for line in (runs / f"{name}.jsonl").read_text().splitlines()]
        renamed = [{**line, "id": f"q{place // 3}/{place % 3}"} for place, line in enumerate(lines)]
        (runs / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in renamed))
    result = run("compare", runs / "good.jsonl", runs / "bad.jsonl", "--cluster-by", "/")
    assert (result.exit_code, "over 20 inputs" in result.stdout) == (0, True), result.output
    assert "All inputs changed alike, so that the change has no interval" in result.stdout
    assert "warning: fewer than 50 inputs" in result.stderr
    refused = run("compare", runs / "good.jsonl", runs / "bad.jsonl", "--cluster-by", "#")
    assert (refused.exit_code, "no id of the first run has it" in refused.stderr) == (2, True)


def test_compare_of_runs_that_cannot_be_compared_exits_with_2_and_one_line(runs: Path) -> None:
    good = runs / "good.jsonl"
    write_run(runs / "wider.jsonl", run_of(binary_rubric(3), [["MET"] * 3] * 60))
    apart = write_run(runs / "apart.jsonl", [row._replace(id=f"x{row.id}") for row in run_of(RUBRIC, GOOD)])
    cases = {
        "is the same file": (good, good),
        "No such file": (good, runs / "missing.jsonl"),
        "no scored row in common": (good, apart),
        "pass --mixed": (good, runs / "wider.jsonl"),
        "--labels are 3 files": (good, runs / "bad.jsonl", *["--labels", "labels.jsonl"] * 3),
    }
    for words, arguments in cases.items():
        result = run("compare", *arguments)
        assert (result.exit_code, result.stdout, words in result.stderr) == (2, "", True), result.output
        assert len(result.stderr.splitlines()) == 1
    assert run("compare", good, runs / "wider.jsonl", "--mixed").exit_code == 0
