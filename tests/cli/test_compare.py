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


def test_compare_says_unchanged_in_the_row_of_a_criterion_and_of_equal_runs(runs: Path) -> None:
    write_run(runs / "half.jsonl", run_of(RUBRIC, [[first, "MET"] for first, _ in GOOD]))
    lines = run("compare", runs / "good.jsonl", runs / "half.jsonl").stdout.splitlines()
    assert ["unchanged" in line for line in lines if line.startswith("\u2502")] == [True, False]
    (runs / "copy.jsonl").write_bytes((runs / "good.jsonl").read_bytes())
    equal = run("compare", runs / "good.jsonl", runs / "copy.jsonl").stdout
    assert equal.startswith("unchanged: ")
    assert equal.count("unchanged") == 3


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
    assert (result.exit_code, "over 60 rows in 20 groups" in result.stdout) == (0, True), result.output
    assert "worse: the mean score of the rows changed by -0.333 [-0." in result.stdout
    refused = run("compare", runs / "good.jsonl", runs / "bad.jsonl", "--cluster-by", "#")
    assert (refused.exit_code, "no id of the run has it" in refused.stderr) == (2, True)


def test_compare_of_runs_that_cannot_be_compared_exits_with_2_and_one_line(runs: Path) -> None:
    good = runs / "good.jsonl"
    write_run(runs / "wider.jsonl", run_of(binary_rubric(3), [["MET"] * 3] * 60))
    apart = write_run(runs / "apart.jsonl", [row._replace(id=f"x{row.id}") for row in run_of(RUBRIC, GOOD)])
    cases = {
        "is the same file": (good, good),
        "No such file": (good, runs / "missing.jsonl"),
        "no scored row in common": (good, apart),
        "pass anyway=True (in the shell --anyway)": (good, runs / "wider.jsonl"),
        "two ways to say": (good, runs / "bad.jsonl", "--cluster", "id", "--cluster-by", "/"),
        "`cluster` is 'topic', and the row '1' has no such column": (good, runs / "bad.jsonl", "--cluster", "topic"),
        "--labels are 3 files": (good, runs / "bad.jsonl", *["--labels", "labels.jsonl"] * 3),
    }
    for words, arguments in cases.items():
        result = run("compare", *arguments)
        assert (result.exit_code, result.stdout, words in result.stderr) == (2, "", True), result.output
        assert len(result.stderr.splitlines()) == 1
    marked = run("compare", good, runs / "wider.jsonl", "--anyway")
    assert (marked.exit_code, marked.stdout.startswith("NOT COMPARABLE, and better: ")) == (0, True), marked.output
    assert "warning: not comparable: the row '1' has the criterion `c2`" in marked.stderr


def test_gate_of_compare_does_not_pass_a_total_collapse(tmp_path: Path) -> None:
    cases = {
        "one": (binary_rubric(1), ["MET"], ["UNMET"], "worse: the mean score changed by -1.000 [-1.000, -0.969]"),
        "two": (RUBRIC, ["MET", "MET"], ["MET", "UNMET"], "worse: the mean score changed by -0.500 [-0.508, -0.477]"),
    }
    for name, (rubric, before, after, words) in cases.items():
        first = write_run(tmp_path / f"{name}-before.jsonl", run_of(rubric, [before] * 200))
        second = write_run(tmp_path / f"{name}-after.jsonl", run_of(rubric, [after] * 200))
        result = run("compare", first, second, "--gate")
        assert (result.exit_code, words in result.stdout) == (1, True), result.output
        assert result.stderr.splitlines()[-1].startswith("gate failed: --gate: worse: ")


def test_gate_of_compare_does_not_pass_a_change_without_an_interval(tmp_path: Path) -> None:
    files = [write_run(tmp_path / f"{answer}.jsonl", run_of(RUBRIC, [[answer, "MET"]])) for answer in ("MET", "UNMET")]
    result = run("compare", *files, "--gate")
    assert (result.exit_code, "The change has no interval" in result.stdout) == (1, True), result.output
    assert result.stderr.splitlines()[-1].startswith("gate inconclusive: --gate: unclear: the change has no interval")


@pytest.mark.parametrize(
    ("kept", "lost", "options", "exit_code"),
    [
        (30, 0, (), 1),  # the file has half of the rows
        (60, 30, (), 1),  # half of the rows failed
        (54, 0, (), 0),
        (60, 3, (), 0),
        (90, 0, (), 0),  # further rows
        (30, 0, ("--anyway",), 0),
    ],
)
def test_gate_of_compare_is_inconclusive_if_the_second_run_has_lost_rows(
    runs: Path, kept: int, lost: int, options: tuple[str, ...], exit_code: int
) -> None:
    failed: list[list[str | None]] = [[None, None]] * lost
    write_run(runs / "partial.jsonl", run_of(RUBRIC, [*failed, *(GOOD * 2)[lost:kept]]))
    result = run("compare", runs / "good.jsonl", runs / "partial.jsonl", "--gate", *options)
    is_named = "more than a tenth of the scored rows of" in result.stderr.splitlines()[-1:][0] if exit_code else False
    assert (result.exit_code, is_named) == (exit_code, bool(exit_code)), result.output
    assert ("30 of 60 scored rows of the first run have no score" in result.stderr) == (max(60 - kept, lost) == 30)


def test_gate_of_compare_names_its_decision_in_the_last_line(runs: Path) -> None:
    write_run(runs / "same.jsonl", run_of(RUBRIC, GOOD, "same"))
    same = run("compare", runs / "good.jsonl", runs / "same.jsonl", "--gate")
    assert (same.exit_code, same.stdout.splitlines()[-1].split(": /")[0]) == (0, "gate passed: --gate: unchanged")
    as_json = run("compare", runs / "good.jsonl", runs / "same.jsonl", "--gate", "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["decision"]) == (0, "unchanged")


@pytest.mark.parametrize(
    ("options", "exit_code", "line"),
    [
        ((), 0, "gate: not shown to be worse: --gate: unclear: {after} may still be worse than {before}; --margin "),
        (
            ("--margin", 0.02),
            1,
            "gate inconclusive: --gate: unclear: {after} may be worse than {before} by",
        ),
        (
            ("--margin", 0.2),
            0,
            "gate passed: --gate: unclear: {after} is shown not to be worse than {before} by",
        ),
    ],
)
def test_gate_of_compare_passes_an_unclear_change_only_with_proof(
    tmp_path: Path, options: tuple[object, ...], exit_code: int, line: str
) -> None:
    before, after = (
        write_run(tmp_path / f"{name}.jsonl", run_of(binary_rubric(1), [["MET"]] * met + [["UNMET"]] * (200 - met)))
        for name, met in (("before", 153), ("after", 151))
    )
    result = run("compare", before, after, "--gate", *options)
    stream = result.stderr if exit_code else result.stdout
    assert result.exit_code == exit_code, result.output
    assert stream.splitlines()[-1].startswith(line.format(before=before, after=after))
    figures = run("compare", before, after, "--gate", "--json", *options)
    assert (figures.exit_code, json.loads(figures.stdout)["margin"]) == (exit_code, options[-1] if options else 0.0)


def test_compare_of_rows_in_groups_is_of_the_mean_of_the_rows(tmp_path: Path) -> None:
    rows = [row._replace(metadata={"topic": int(row.id) % 6}) for row in run_of(RUBRIC, BAD)]
    files = [tmp_path / name for name in ("before.jsonl", "after.jsonl")]
    write_run(files[0], run_of(RUBRIC, GOOD))
    lines = [json.loads(line) for line in write_run(files[1], rows).read_text().splitlines()]
    topics = [{**line, "metadata": row.metadata} for line, row in zip(lines, rows, strict=True)]
    files[1].write_text("".join(json.dumps(line) + "\n" for line in topics))
    result = run("compare", *files, "--cluster", "topic")
    assert "the mean score of the rows changed by -0.333 [-0." in result.stdout
    assert "over 60 rows in 6 groups" in result.stdout
    assert "warning: few groups (6): the intervals are wide" in result.stderr


def test_compare_counts_changed_answers_in_words_and_json(tmp_path: Path) -> None:
    rubric = binary_rubric()
    before = [["MET" if row % 2 else "UNMET"] for row in range(100)]
    after = [["UNMET" if row % 2 else "MET"] if row < 30 else answers for row, answers in enumerate(before)]
    paths = [
        write_run(tmp_path / f"{name}.jsonl", run_of(rubric, answers))
        for name, answers in (("one", before), ("two", after))
    ]
    result = run("compare", *paths)
    assert "30 of 100 answers to equal responses changed, which does not mean that they are wrong." in result.stdout
    assert "30 of 100 │ 0.40 [" in " ".join(result.stdout.split())
    figures = json.loads(run("compare", *paths, "--json").stdout)
    assert (figures["criteria"]["c0"]["changed"], figures["criteria"]["c0"]["answers"]) == (30, 100)
    assert figures["criteria"]["c0"]["kappa"]["value"] == pytest.approx(0.4)
