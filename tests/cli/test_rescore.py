"""The command `rescore`: what its reports cost. `test_runs.py` tests the scores."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import grade, read_lines, run
from tests.openai_server import OpenAIServer, Reply


def test_rescored_reports_cost_nothing_since_no_call_was_made(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("MET")
    options = ("--judge", "openai/one", "--judge", "openai/two", "--api-base", server.url, "--out", files / "run.jsonl")
    assert grade(files, *options).exit_code == 0
    assert read_lines(files / "run.jsonl")[0]["spend"]["calls"] == 2
    out = files / "new.jsonl"
    assert run("rescore", files / "run.sqlite", "--rubric", files / "rubric.yaml", "--out", out).exit_code == 0
    nothing = {"calls": 0, "usage": {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}, "cost": 0.0}
    for line in read_lines(out):
        assert line["spend"] == nothing
        assert [row["spend"] for row in line["report"]] == [nothing, nothing]
        assert [vote.get("spend", nothing) for row in line["report"] for vote in row["votes"]] == [nothing] * 2
    assert run("report", out, "--output", files / "page.html").exit_code == 0


def test_rescored_reports_name_the_rubric(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("MET")
    options = ("--judge", "openai/one", "--api-base", server.url, "--out", files / "run.jsonl")
    assert grade(files, *options).exit_code == 0
    (files / "new.yaml").write_text("name: second\ncriteria:\n" + (files / "rubric.yaml").read_text())
    run("rescore", files / "run.sqlite", "--rubric", files / "new.yaml", "--out", files / "new.jsonl")
    assert [line["rubric"] for line in read_lines(files / "new.jsonl")] == ["second"] * 3
