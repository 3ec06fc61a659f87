"""The statistical gate of `grade`: its decisions, what it says before the run, and the options that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations import Rubric, Submission
from rubric_integrations.scoring import LabelledJudgment
from tests.cli.commands import grade
from tests.cli.trust_files import write_labels

RUBRIC = "- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}}\n"


def write_responses(folder: Path, good: int, bad: int) -> Path:
    (folder / "rubric.yaml").write_text(RUBRIC)
    texts = ["It is 42."] * good + ["It is 41."] * bad
    lines = [json.dumps({"id": str(number), "response": text + "!" * number}) for number, text in enumerate(texts)]
    (folder / "responses.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_labels_of(folder: Path, labelled: int, good: int, sampled: str = "random") -> Path:
    """Write labels of the first and the last responses, by which `good` of them are correct."""
    criterion = Rubric.from_yaml(RUBRIC).criteria[0]
    rows = [json.loads(line) for line in (folder / "responses.jsonl").read_text().splitlines()]
    chosen = rows[:: max(1, len(rows) // labelled)][:labelled]
    labels = [
        LabelledJudgment(
            submission=Submission(response=row["response"]), criterion=criterion, id=row["id"],
            verdict="MET" if place < good else "UNMET", sampled=sampled,  # type: ignore[arg-type]
        )
        for place, row in enumerate(chosen)
    ]  # fmt: skip
    return write_labels(folder / "labels.jsonl", labels)


@pytest.mark.parametrize(
    ("good", "bad", "code", "words"),
    [
        (60, 0, 0, "gate passed: --min-score 0.8 --alpha 0.05: the mean score is 1.000 [0."),
        (85, 15, 1, "gate inconclusive: --min-score 0.8 --alpha 0.05: the mean score is 0.850 ["),
        (20, 40, 1, "gate failed: --min-score 0.8 --alpha 0.05: the mean score is 0.333 ["),
    ],
)
def test_mean_gate_decides_by_the_interval_and_passes_only_if_the_mean_is_surely_higher(
    tmp_path: Path, good: int, bad: int, code: int, words: str
) -> None:
    result = grade(write_responses(tmp_path, good, bad), "--gate", "--min-score", 0.8, "--alpha", 0.05)
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert ("more submissions would decide" in result.output) == ("inconclusive" in words)
    assert "--gate: " not in result.stderr


def write_samples(folder: Path, prompts: int, bad: int, samples: int = 10) -> Path:
    """Write rows with several samples of a prompt. All samples of a prompt are alike."""
    (folder / "rubric.yaml").write_text(RUBRIC)
    texts = ["It is 41."] * bad + ["It is 42."] * (prompts - bad)
    lines = [
        json.dumps({"id": f"q{n}", "query": f"{n}?", "responses": [text] * samples}) for n, text in enumerate(texts)
    ]
    (folder / "responses.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_mean_gate_counts_the_samples_of_a_prompt_as_one_input(tmp_path: Path) -> None:
    folder, options = write_samples(tmp_path, 20, 2), ("--gate", "--min-score", 0.8, "--alpha", 0.05)
    result = grade(folder, *options, "--out", tmp_path / "run.jsonl")
    assert (result.exit_code, "gate inconclusive" in result.output) == (1, True), result.output
    assert "0.900 [0." in result.output
    assert "such rows depend on each other" not in result.output
    # The same rows, each with its own id, would pass.
    rows = [json.loads(line) for line in (folder / "responses.jsonl").read_text().splitlines()]
    texts = [json.dumps({"response": f"{text}{'!' * n}"}) for n, row in enumerate(rows) for text in row["responses"]]
    (folder / "responses.jsonl").write_text("\n".join(texts))
    assert grade(folder, *options).exit_code == 0


def test_mean_gate_warns_that_the_prompts_are_too_few_to_pass(tmp_path: Path) -> None:
    result = grade(write_samples(tmp_path, 5, 0, samples=40), "--min-score", 0.8, "--alpha", 0.05)
    assert "submissions" not in result.stderr.partition("has 5:")[0].rpartition("needs")[0]
    assert "prompts, and" in result.stderr
    assert "has 5: this run cannot pass" in result.stderr


def test_gate_that_stops_early_bets_on_prompts(tmp_path: Path) -> None:
    result = grade(write_samples(tmp_path, 10, 0), "--min-score", 0.8, "--alpha", 0.05, "--stop-early")
    assert (
        "gate inconclusive: --min-score 0.8 --alpha 0.05 --stop-early: not decided after 10 submissions"
        in result.output
    )
    assert "such rows depend on each other" not in result.output


def test_mean_gate_without_alpha_compares_the_mean_as_before(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 85, 15)
    result = grade(folder, "--min-score", 0.8)
    assert (result.exit_code, "gate" in result.output) == (0, False), result.output


def test_mean_gate_of_a_small_file_says_first_how_many_submissions_it_needs(tmp_path: Path) -> None:
    result = grade(write_responses(tmp_path, 12, 0), "--min-score", 0.9, "--alpha", 0.05)
    assert result.exit_code == 1
    assert "needs at least 27 submissions, and " in result.stderr
    assert "has 12: this run cannot pass" in result.stderr
    assert result.stderr.index("needs at least 27") < result.stderr.index("gate inconclusive")


def test_mean_gate_counts_rows_without_a_score_for_and_against(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 100, 0)
    assert grade(folder, "--min-score", 0.9, "--alpha", 0.05).exit_code == 0
    with (folder / "responses.jsonl").open("a") as file:
        file.writelines(json.dumps({"id": f"empty{number}"}) + "\n" for number in range(20))
    result = grade(folder, "--min-score", 0.9, "--alpha", 0.05)
    assert "gate inconclusive" in result.stderr
    assert "20 rows without a score may be anything from 0 to 1" in result.stderr


@pytest.mark.parametrize(("good", "code", "words"), [(60, 0, "gate passed"), (30, 1, "gate failed")])
def test_mean_gate_with_labels_decides_by_the_corrected_mean(tmp_path: Path, good: int, code: int, words: str) -> None:
    folder = write_responses(tmp_path, 120, 0)
    labels = write_labels_of(folder, 60, good)
    result = grade(folder, "--min-score", 0.8, "--alpha", 0.05, "--labels", labels)
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert "corrected by labels" in result.output


def test_mean_gate_with_a_baseline_fails_if_the_run_is_worse(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 100, 0)
    assert grade(folder, "--out", folder / "old.jsonl").exit_code == 0
    options = ("--min-score", 0.5, "--alpha", 0.05, "--baseline", folder / "old.jsonl")
    write_responses(folder, 80, 20)
    worse = grade(folder, *options, "--margin", 0.02)
    assert (worse.exit_code, "gate failed" in worse.stderr) == (1, True), worse.output
    assert "the change from" in worse.stderr
    allowed = grade(folder, *options, "--margin", 0.4)
    assert (allowed.exit_code, "gate passed" in allowed.stdout) == (0, True), allowed.output
    own = grade(folder, *options, "--out", folder / "old.jsonl", "--overwrite")
    assert own.exit_code == 2, own.output


def test_mean_gate_with_a_baseline_names_its_decision(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 90, 10)
    assert grade(folder, "--out", folder / "old.jsonl").exit_code == 0
    options = ("--min-score", 0.5, "--alpha", 0.05, "--baseline", folder / "old.jsonl")
    same = grade(folder, *options)
    assert (same.exit_code, "; unchanged: the change from" in same.stdout.splitlines()[-1]) == (0, True), same.output
    lines = [json.loads(line) for line in (folder / "responses.jsonl").read_text().splitlines()]
    lines[0]["response"], lines[-2]["response"] = "It is 41.", "It is 42."
    (folder / "responses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))
    other = grade(folder, *options)
    assert other.exit_code == 1
    assert "; unclear: the change from" in other.stderr
    assert "1 row is in only one of the runs" in other.stderr
    assert "; --margin 0.0" in other.stderr
    assert other.stderr.splitlines()[-1] == "gate decision: inconclusive (against the baseline: unclear)"
    (folder / "rubric.yaml").write_text(RUBRIC.replace("number: 42", "number: 41"))
    refused = grade(folder, *options)
    assert (refused.exit_code, 'the check {"number": {"value": 42.0}} in old and {' in refused.stderr) == (2, True), (
        refused.output
    )
    marked = grade(folder, *options, "--anyway")
    assert (marked.exit_code, "warning: not comparable: " in marked.stderr) == (1, True), marked.output


def test_mean_gate_of_rows_in_groups_needs_their_column(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 60, 0)
    lines = [json.loads(line) for line in (folder / "responses.jsonl").read_text().splitlines()]
    (folder / "responses.jsonl").write_text(
        "".join(
            json.dumps({**line, "query": f"Q{number % 12}", "metadata": {"topic": number % 4}}) + "\n"
            for number, line in enumerate(lines)
        )
    )
    options = ("--gate", "--min-score", 0.7, "--alpha", 0.05)
    alone = grade(folder, *options)
    assert (alone.exit_code, "pass cluster='query' (in the shell --cluster query)" in alone.stderr) == (0, True)
    by_query = grade(folder, *options, "--cluster", "query")
    assert (by_query.exit_code, "warning" in by_query.stderr) == (0, False), by_query.output
    by_topic = grade(folder, *options, "--cluster", "topic")
    assert (by_topic.exit_code, "too few groups (4)" in by_topic.stderr) == (1, True), by_topic.output
    unknown = grade(folder, *options, "--cluster", "document")
    assert (unknown.exit_code, "this column: name one of id, query, topic" in unknown.stderr) == (2, True)
    assert "the tasks are in `query`" in unknown.stderr
    assert "graded" not in unknown.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--alpha", 0.05), "--alpha: needs --min-score"),
        (("--alpha", 0.05, "--min-score", 1), "`min_score` must be above 0 and below 1"),
        (("--alpha", 0.7, "--min-score", 0.8), "`alpha` must be above 0 and below 0.5"),
        (("--stop-early",), "--stop-early: is for a gate with --alpha"),
        (("--alpha", 0.05, "--min-score", 0.8, "--stop-early", "--baseline", "b.jsonl"), "decides by the scores alone"),
        (("--margin", 0.1), "--margin: is for a gate with --alpha"),
        (("--labels", "labels.jsonl"), "--labels: is for a gate with --alpha"),
        (("--cluster", "topic"), "--cluster: is for a gate with --alpha"),
        (("--floor", 0.5), "--floor: is for a gate with --alpha"),
        (("--alpha", 0.05, "--min-score", 0.8, "--floor", 0.9), "`floor` must be at least 0 and below `min_score`"),
        (("--alpha", 0.05, "--min-score", 0.8, "--stop-early", "--cluster", "topic"), "rows of one group would pass"),
        (("--alpha", 0.05, "--min-score", 0.8, "--stop-early", "--floor", 0.5), "would have no effect"),
        (("--alpha", 0.05, "--min-score", 0.8, "--margin", 0.1), "name the baseline, too"),
        (("--alpha", 0.05, "--min-score", 0.8, "--baseline", "none.jsonl"), "none.jsonl: cannot be read"),
    ],
)
def test_mean_gate_with_useless_or_wrong_options_is_refused_before_the_run(
    tmp_path: Path, options: tuple[object, ...], words: str
) -> None:
    result = grade(write_responses(tmp_path, 5, 0), "--quiet", *options)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output
    assert "graded" not in result.stdout


@pytest.mark.parametrize(
    ("labelled", "sampled", "words"), [(20, "random", "a gate needs 50"), (60, "chosen", "every label is `chosen`")]
)
def test_mean_gate_with_too_few_or_chosen_labels_is_refused_before_the_run(
    tmp_path: Path, labelled: int, sampled: str, words: str
) -> None:
    folder = write_responses(tmp_path, 120, 0)
    labels = write_labels_of(folder, labelled, labelled, sampled)
    result = grade(folder, "--min-score", 0.8, "--alpha", 0.05, "--labels", labels)
    assert (result.exit_code, words in result.stderr, "graded" in result.stdout) == (2, True, False), result.output


def test_mean_gate_with_labels_of_other_responses_ends_with_2_and_keeps_the_reports(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 60, 0)
    labels = write_labels_of(folder, 60, 60)
    lines = [json.loads(line) for line in labels.read_text().splitlines()]
    others = [{**line, "id": f"x{line['id']}", "submission": {"response": "42?"}} for line in lines]
    labels.write_text("".join(json.dumps(line) + "\n" for line in others))
    out = tmp_path / "run.jsonl"
    result = grade(folder, "--min-score", 0.8, "--alpha", 0.05, "--labels", labels, "--out", out)
    assert (result.exit_code, "none of the 60 labels belongs to a judgment" in result.stderr) == (2, True)
    assert len(out.read_text().splitlines()) == 60


@pytest.mark.parametrize(("good", "bad", "code", "words"), [(200, 0, 0, "gate passed"), (0, 200, 1, "gate failed")])
def test_gate_that_stops_early_ends_the_run_as_soon_as_it_is_decided_and_keeps_its_reports(
    tmp_path: Path, good: int, bad: int, code: int, words: str
) -> None:
    out = tmp_path / "run.jsonl"
    options = ("--min-score", 0.8, "--alpha", 0.05, "--stop-early", "--max-concurrency", 2, "--out", out)
    result = grade(write_responses(tmp_path, good, bad), *options)
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert "--stop-early: after " in result.output
    assert 3 < len(out.read_text().splitlines()) < 100
    assert "Stopped" not in result.output


def test_gate_that_stops_early_and_is_not_decided_at_the_end_is_inconclusive(tmp_path: Path) -> None:
    result = grade(write_responses(tmp_path, 19, 0), "--min-score", 0.8, "--alpha", 0.05, "--stop-early")
    assert result.exit_code == 1
    assert "needs at least 20 submissions" in result.stderr
    assert "gate inconclusive: --min-score 0.8 --alpha 0.05 --stop-early: not decided after 19" in result.stderr


def test_mean_gate_reads_labels_without_an_invalid_line_and_strict_refuses_them(tmp_path: Path) -> None:
    folder = write_responses(tmp_path, 60, 0)
    path = write_labels_of(folder, 55, 55)
    options = ["--min-score", 0.8, "--alpha", 0.05, "--labels", path]
    before = grade(folder, *options)
    text = path.read_text()
    path.write_text(text + text.splitlines()[-1].replace('"MET"', '"99"').replace("!", "") + "\n")
    result = grade(folder, *options)
    assert (before.exit_code, result.exit_code) == (0, 0), result.output
    assert "1 of 56 labels cannot be used and are left out" in result.stderr
    assert before.stdout.splitlines()[:1] == result.stdout.splitlines()[:1]
    refused = grade(folder, *options, "--strict")
    assert (refused.exit_code, "labels.jsonl:56: is not a label" in refused.stderr) == (2, True), refused.output
