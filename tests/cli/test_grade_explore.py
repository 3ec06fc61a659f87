"""`grade --explore MODEL`: a long run in a file is explored once, and the ledger keeps the replies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import grade, read_lines, run
from tests.fakes import tool_calls
from tests.openai_server import Call, OpenAIServer, Reply

REPLIES = [tool_calls(("list", {})), tool_calls(("submit", {"steps": [2]}))]


def reply(call: Call) -> Reply:
    if "list, whose" not in call.prompt:
        return Reply(verdict="MET")
    return Reply(text=REPLIES[sum(message["role"] == "assistant" for message in call.body["messages"])])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text("- {weight: 1, requirement: Is kind}\n- {weight: 1, requirement: Is right}\n")
    steps = [{"role": "user", "content": "Build it."}]
    steps += [{"role": "assistant", "content": f"part {number} {'x' * 2_000}"} for number in range(50)]
    rows = [
        {"id": "next to", "response": "Done.", "query": "Build it.", "trajectory": steps},
        {"id": "as response", "response": steps, "respond": "trajectory"},
        {"id": "conversation", "response": steps},
        {"id": "short", "response": steps[:3]},
    ]
    (tmp_path / "responses.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_long_runs_are_explored_once_and_short_ones_are_not(folder: Path) -> None:
    out = folder / "run.jsonl"
    with OpenAIServer(reply) as server:
        options = ("--judge", "openai/a", "--explore", "openai/b", "--api-base", server.url, "--out", out)
        result = grade(folder, *options)
        assert result.exit_code == 0, result.output
        explored = {row["id"]: row.get("exploration", {}).get("steps") for row in read_lines(out)}
        assert explored == {"next to": 1, "as response": 1, "conversation": 1, "short": None}
        assert {call.body["model"] for call in server.calls if "list, whose" in call.prompt} == {"b"}
        assert len(server.calls) == 3 * (2 + 2) + 2
        longest = max(len(call.raw) for call in server.calls)
        again = grade(folder, *options[:-1], folder / "again.jsonl", "--ledger", folder / "run.sqlite")
        assert again.exit_code == 0, again.output
        assert len(server.calls) == 3 * (2 + 2) + 2
    assert "8 judgments from the ledger" in again.stdout
    assert longest < 40_000


def test_limit_of_characters_decides_what_is_explored(folder: Path) -> None:
    out = folder / "run.jsonl"
    with OpenAIServer(reply) as server:
        models = ("--judge", "openai/a", "--explore", "openai/b", "--api-base", server.url)
        result = grade(folder, *models, "--explore-above", 1_000_000, "--out", out)
        assert result.exit_code == 0, result.output
        assert len(server.calls) == 8
    assert not any("exploration" in row for row in read_lines(out))


def test_cost_limit_needs_the_price_of_the_explorer_and_of_the_judge(folder: Path) -> None:
    with OpenAIServer(reply) as server:
        options = ("--judge", "openai/a", "--explore", "openai/b", "--api-base", server.url, "--max-cost", 5)
        for known, missing in (("openai/a", "openai/b"), ("openai/b", "openai/a")):
            result = grade(folder, *options, "--price", f"{known}=1,1")
            assert result.exit_code == 2
            assert f"`--price {missing}=IN,OUT`" in result.stderr
        assert server.calls == []
        result = grade(folder, *options, "--price", "openai/a=1,1", "--price", "openai/b=1,1")
        assert result.exit_code == 0, result.output


def test_limit_without_an_explorer_is_refused(folder: Path) -> None:
    result = grade(folder, "--judge", "openai/a", "--explore-above", 5)
    assert result.exit_code == 2
    assert "`--explore-above` has no effect without `--explore`" in result.stderr
    result = grade(folder, "--judge", "openai/a", "--explore", " ")
    assert result.exit_code == 2
    result = grade(folder, "--explore", "openai/b")
    assert result.exit_code == 2
    assert "`--explore` pays for steps that the judge 'offline' does not read" in result.stderr


def test_drift_explores_again_as_the_run_and_names_a_lacking_explorer(folder: Path) -> None:
    out = folder / "run.jsonl"
    with OpenAIServer(reply) as server:
        judge = ("--judge", "openai/a", "--api-base", server.url)
        assert grade(folder, *judge, "--explore", "openai/b", "--out", out).exit_code == 0
        same = run("drift", out, *judge, "--explore", "openai/b")
        assert same.exit_code == 0, same.output
        assert "explorer" not in same.stdout
        lacking = run("drift", out, *judge)
    assert "another explorer of long trajectories: openai/b in the run and none in this check" in " ".join(
        (lacking.stdout + lacking.stderr).split()
    )
