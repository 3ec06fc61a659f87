"""The command `benchmark`: the row of a judge beside the recorded ones, what it refuses, and how it resumes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.commands import read_lines, run
from tests.openai_server import Call, OpenAIServer, Reply
from tests.trust.benchmark_data import LEVELS, write_pairs, write_summaries

PEOPLE = "012012012012012012012012"
GOOD = "012012012012012012" + "120120"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_summaries(tmp_path / "data", {"good": GOOD}, people=PEOPLE)
    return tmp_path / "data"


def insight_of(call: Call) -> int:
    return int(call.prompt.rpartition("Covers this insight: Point i")[2].split()[0])


def as_people(call: Call) -> Reply:
    """Answer each question about an insight as people do."""
    return Reply(text=json.dumps({"explanation": "as scripted", "choice": LEVELS[int(PEOPLE[insight_of(call)])]}))


def of_data(data: Path) -> Sequence[object]:
    return ("--sets", "summhay", "--data", data, "--out", data.parent / "judges.jsonl")


def arguments(server: OpenAIServer, data: Path, *options: object) -> Sequence[object]:
    judge = ("--judge", "openai/mock", "--api-base", server.url, "--api-key", "none")
    return ("benchmark", *judge, *of_data(data), *options)


def test_benchmark_prints_the_judge_above_the_recorded_ones_with_paired_differences(data: Path) -> None:
    with OpenAIServer(as_people) as server:
        result = run(*arguments(server, data))
        assert result.exit_code == 0, result.output
        assert len(server.calls) == 24
    text = " ".join(result.stdout.split())
    assert "SummHay, fact in a text [95% intervals by subtopic]. Labels: one label each" in text
    assert "openai/mock, this run │ 24 │ 0 │ 0 │ 1.00 [" in text
    assert "good, one insight a call │ 24 │ 0 │ 0 │ 0.75 [" in text
    assert "All judges are measured on the questions of this run: 24 of 24" in text
    assert "always the most frequent answer │ 24 │ 0 │ 0 │ 0.33 [" in text
    assert "good, one insight a call │ +0.25 [" in text
    rows = read_lines(data.parent / "judges.jsonl")
    assert {row["metadata"]["set"] for row in rows} == {"summhay"}


def test_benchmark_measures_recorded_judges_on_the_questions_of_a_run_that_ends_early(data: Path) -> None:
    with OpenAIServer(as_people) as server:
        result = run(*arguments(server, data, "--max-calls", 10, "--max-concurrency", 1))
    text = " ".join(result.stdout.split())
    assert "All judges are measured on the questions of this run: 10 of 24" in text
    assert "openai/mock, this run │ 10 │ 0 │ 0 │" in text
    assert "good, one insight a call │ 10 │ 0 │ 0 │" in text


def test_benchmark_calls_a_judge_better_only_by_accuracy_and_kappa_and_names_the_other(data: Path) -> None:
    people, recorded = "0" * 84 + "1" * 18 + "2" * 18, "0" * 6 + "1" * 90 + "2" * 24
    write_summaries(data, {"lenient": recorded, "wrong": recorded[::-1]}, people=people)
    with OpenAIServer(lambda call: Reply(text=json.dumps({"explanation": "x", "choice": LEVELS[0]}))) as server:
        result = run(*arguments(server, data))
    text = " ".join(result.stdout.split())
    rows = text.rpartition("This run minus another judge")[2]
    assert "this run is better" in rows
    lenient = rows.rpartition("lenient, one insight a call")[2]
    assert "not shown: kappa" in lenient.partition("wrong, one insight")[0]
    always = rows.rpartition("always the most frequent answer")[2].partition("lenient")[0]
    assert "not shown: accuracy, kappa" in always


def test_benchmark_that_a_limit_stops_resumes_without_a_second_request(data: Path) -> None:
    with OpenAIServer(as_people) as server:
        result = run(*arguments(server, data, "--max-calls", 10, "--max-concurrency", 1))
        assert result.exit_code == 4, result.output
        assert len(server.calls) == 10
        result = run(*arguments(server, data))
        assert result.exit_code == 0, result.output
        assert len({call.raw for call in server.calls}) == len(server.calls) == 24


def test_benchmark_counts_a_judgment_that_failed_as_unread(data: Path) -> None:
    with OpenAIServer(lambda call: Reply(text="?") if insight_of(call) == 5 else as_people(call)) as server:
        result = run(*arguments(server, data, "--max-retries", 0))
    assert result.exit_code == 0, result.output
    assert "openai/mock, this run │ 23 │ 1 │ 0 │ 1.00 [" in " ".join(result.stdout.split()), result.stdout


@pytest.mark.processes
def test_benchmark_that_is_killed_resumes_without_a_second_stored_request(data: Path) -> None:
    with OpenAIServer(lambda call: Reply(delay=0.3, text=as_people(call).text)) as server:
        options = map(str, arguments(server, data, "--max-concurrency", 2))
        process = subprocess.Popen([sys.executable, "-m", "rubric_integrations", *options])
        while len(server.calls) < 10:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = len(server.calls)
        result = run(*arguments(server, data))
        assert result.exit_code == 0, result.output
        # Only requests without a response when the process was killed, two at most, are sent again.
        assert 24 <= len(server.calls) <= 26
        assert before >= 10


def test_benchmark_of_pairs_compares_the_ratings_of_both_outputs(data: Path) -> None:
    write_pairs(data, ratings=[("7", "3")] * 6, replies=[("Output (a) is better.", "Output (b) is better.")] * 6)

    def rate_first_higher(call: Call) -> Reply:
        score = 8 if "Output 1 of" in call.prompt else 2
        return Reply(text=json.dumps({"explanation": "as scripted", "score": score}))

    with OpenAIServer(rate_first_higher) as server:
        result = run(*arguments(server, data, "--sets", "llmbar"))
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "openai/mock, this run │ 12 │ 0 │ 0 │ 1.00 [" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sets", "devai"), "`--sets` 'devai': its public files have no responses"),
        (("--sets", "other"), "`--sets`: 'other' is not a set: name some of summhay"),
        (
            ("--sets", "ttcw"),
            "ttcw: there is no such folder: name the folder that has the subfolder 'ttcw' with --data",
        ),
        (("--sets", ","), "`--sets` ',' names no set"),
        (("--out", "judges.csv"), "`--out` 'judges.csv': name a file that ends with .jsonl"),
        (("--strategy", "holistic"), "`--strategy` 'holistic' answers no criterion"),
    ],
)
def test_benchmark_refuses_what_it_cannot_measure(data: Path, options: tuple[str, str], words: str) -> None:
    result = run("benchmark", "--judge", "openai/mock", *of_data(data), *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_benchmark_without_a_model_is_refused(data: Path) -> None:
    for judge in ((), ("--judge", "offline")):
        result = run("benchmark", *judge, *of_data(data))
        assert result.exit_code == 2
        assert "`--judge`: name a model" in result.stderr
