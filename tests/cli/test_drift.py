"""The command `drift`: its table, its JSON, its ledger, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Rubric, Submission
from tests.cli.commands import run
from tests.cli.trust_files import write_labels
from tests.openai_server import Call, OpenAIServer, Reply
from tests.trust.runs import labels_of

JUDGE = ("--judge", "openai/mock", "--api-key", "none")
ROWS = 30


def answer(call: Call) -> Reply:
    number = re.search(r"text (\d+) of them", call.prompt)
    assert number is not None
    return Reply(verdict="MET" if int(number[1]) % 2 else "UNMET")


@pytest.fixture
def folder(tmp_path: Path, server: OpenAIServer) -> Path:
    server.script = answer
    (tmp_path / "rubric.yaml").write_text("- {name: kind, requirement: Is kind}\n")
    lines = [json.dumps({"id": str(number), "response": f"text {number} of them"}) for number in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    result = run(
        "grade", tmp_path / "rubric.yaml", tmp_path / "rows.jsonl", *JUDGE, "--api-base", server.url,
        "--out", tmp_path / "run.jsonl",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    server.calls.clear()
    return tmp_path


def check(folder: Path, server: OpenAIServer, *options: object) -> Any:
    return run("drift", folder / "run.jsonl", *JUDGE, "--api-base", server.url, *options)


def test_judge_that_has_not_changed_passes_the_gate(folder: Path, server: OpenAIServer) -> None:
    result = check(folder, server, "--gate", "--sample", 20, "--repeat", 2)
    assert result.exit_code == 0, result.output
    assert len(server.calls) == 40
    assert (folder / "run.drift.sqlite").exists()
    assert "The judge's fingerprint equals the recorded one." in result.stdout
    assert "The judge is not shown to have changed, by 20 rows." in result.stdout
    assert "kind │ 0.00 [" in " ".join(result.stdout.split())


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--gate"], 1)])
def test_judge_that_has_changed_fails_only_the_gate(
    folder: Path, server: OpenAIServer, options: list[str], code: int
) -> None:
    server.script = lambda _call: Reply(verdict="MET")
    result = check(folder, server, *options)
    assert result.exit_code == code, result.output
    assert "The judge has changed: the answers to kind moved in one direction" in result.stdout


def test_json_has_the_report_alone(folder: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(verdict="MET")
    figures: dict[str, Any] = json.loads(check(folder, server, "--json").stdout, parse_constant=pytest.fail)
    assert (figures["decision"], figures["shown_by"], figures["same_judge"]) == ("changed", ["direction", "mean"], True)
    assert figures["criteria"]["kind"]["flips"]["value"] == 0.5
    assert figures["headline"].startswith("The judge has changed")


def test_check_that_a_limit_stopped_exits_with_4_and_continues(folder: Path, server: OpenAIServer) -> None:
    result = check(folder, server, "--max-calls", 10, "--gate")
    assert result.exit_code == 4, result.output
    assert "inconclusive: the check was stopped after 10 of 30 rows" in result.stdout
    assert "run.drift.sqlite, and are not requested again" in result.stderr
    result = check(folder, server, "--max-calls", 20, "--gate")
    assert (result.exit_code, len(server.calls)) == (0, 30)
    assert "and was continued" in result.stderr
    # The next check asks again.
    server.script = lambda _call: Reply(verdict="MET")
    assert check(folder, server, "--gate").exit_code == 1
    assert len(server.calls) == 60


def test_unknown_price_is_no_reason_to_repeat_the_same_command(folder: Path, server: OpenAIServer) -> None:
    result = check(folder, server, "--max-cost", 1)
    assert (result.exit_code, len(server.calls)) == (3, 0)
    assert "--price openai/mock=IN,OUT" in " ".join(result.stdout.split())
    assert "repeat the command" not in result.stderr


def test_level_is_printed_with_its_digits(folder: Path, server: OpenAIServer) -> None:
    assert "[99.9% intervals]" in check(folder, server, "--alpha", 0.001).stdout


def test_gate_does_not_pass_another_judge(folder: Path, server: OpenAIServer) -> None:
    result = run("drift", folder / "run.jsonl", "--judge", "openai/other", "--api-key", "none", "--api-base",
                 server.url, "--gate")  # fmt: skip
    assert result.exit_code == 1, result.output
    assert "inconclusive: this check asked another judge than the run's" in " ".join(result.stdout.split())


def test_labels_are_compared_then_and_now(folder: Path, server: OpenAIServer) -> None:
    rubric = Rubric([Criterion(name="kind", requirement="Is kind")])
    labels = labels_of(rubric, [["MET" if number % 2 else "UNMET"] for number in range(ROWS)])
    write_labels(
        folder / "labels.jsonl",
        [
            label.model_copy(update={"id": str(n), "submission": Submission(response=f"text {n} of them")})
            for n, label in enumerate(labels)
        ],
    )
    server.script = lambda _call: Reply(verdict="MET")
    result = check(folder, server, "--labels", folder / "labels.jsonl")
    assert "no longer hold (accuracy 1.000 then and 0.500 now" in result.stdout


def test_bad_input_exits_with_2_and_an_unusable_judge_with_3(folder: Path, server: OpenAIServer) -> None:
    assert "`--judge`: name the judge of the run" in run("drift", folder / "run.jsonl").stderr
    result = check(folder, server, "--rubric", folder / "none.yaml")
    assert result.exit_code == 2
    (folder / "other.yaml").write_text("- {name: kind, requirement: Is polite}\n")
    result = check(folder, server, "--rubric", folder / "other.yaml")
    assert (result.exit_code, "`rubric` lacks the criterion `kind`" in result.stderr) == (2, True)
    assert server.calls == []
    # The ledger of another run.
    (folder / "run.drift.sqlite").unlink(missing_ok=True)
    (folder / "run.drift.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    result = check(folder, server)
    assert (result.exit_code, "is the ledger of a run" in result.stderr) == (2, True)
    (folder / "run.drift.sqlite").unlink()
    server.script = lambda _call: Reply(status=401)
    result = check(folder, server)
    assert result.exit_code == 3, result.output


def test_table_has_the_abstentions_where_they_moved(folder: Path, server: OpenAIServer) -> None:
    assert "abstained" not in check(folder, server).stdout
    server.script = lambda _call: Reply(verdict="CANNOT_ASSESS")
    text = " ".join(check(folder, server).stdout.split())
    assert ("abstained" in text, "+1.00 [" in text) == (True, True)


def test_gate_does_not_pass_another_strategy_or_a_model_that_replies_name_otherwise(
    folder: Path, server: OpenAIServer
) -> None:
    server.script = lambda call: Reply(
        text=json.dumps({"judgments": [{"id": 1, "explanation": "e", "answer": answer(call).verdict}]}), model="mock-2"
    )
    result = check(folder, server, "--gate", "--strategy", "one-shot")
    assert result.exit_code == 1, result.output
    assert "equals the recorded one, but it is asked otherwise: the grader's `strategy`" in result.stdout
    assert "the replies name the model mock in the run and mock-2 in this check" in result.stderr
