"""The options `--max-cost` and `--price`, and the line about the command that goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.commands import grade
from tests.openai_server import OpenAIServer


def test_price_of_a_model_gives_the_run_a_cost(files: Path, server: OpenAIServer) -> None:
    options = ("--judge", "openai/mine", "--api-base", server.url, "--max-cost", 5)
    result = grade(files, *options)
    assert result.exit_code == 2
    assert "pass `prices={'openai/mine': (input, output)}`" in result.stderr
    assert "`--price openai/mine=IN,OUT`" in result.stderr
    assert "To go on" not in result.stderr
    assert server.calls == []
    result = grade(files, *options, "--price", "openai/mine=0.25,2")
    assert result.exit_code == 0, result.output
    assert "$0.00" in result.stdout


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("openai/mine", "`--price` 'openai/mine' must be NAME=IN,OUT"),
        ("openai/mine=1", "`--price` 'openai/mine=1' must be NAME=IN,OUT"),
        ("openai/mine=1,-2", "`prices` of 'openai/mine' must be two numbers of at least 0"),
        ("openai/other=1,2", "`prices` names 'openai/other', and the judges are 'openai/mine'"),
    ],
)
def test_wrong_price_is_refused(files: Path, price: str, message: str) -> None:
    result = grade(files, "--judge", "openai/mine", "--price", price)
    assert result.exit_code == 2
    assert message in result.stderr


def test_command_that_would_stop_at_once_is_not_printed(
    files: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--judge", "openai/m", "--api-base", server.url, "--out", files / "run.jsonl")
    stopped = grade(files, *options, "--max-cost", 0.000001, "--price", "openai/m=1,1")
    assert (stopped.exit_code, server.calls) == (4, [])
    assert "To go on, raise the limit." in stopped.stderr
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["rubric-integrations", "grade", "--max-calls", "1", "--run", "nightly"])
        stopped = grade(files, *options, "--max-calls", 1, "--run", "nightly")
    assert (stopped.exit_code, len(server.calls)) == (4, 1)
    assert "To go on, raise the limit." in stopped.stderr
    stopped = grade(files, *options, "--max-calls", 1)
    assert (stopped.exit_code, len(server.calls)) == (4, 2)
    assert "To go on: rubric-integrations" in stopped.stderr
