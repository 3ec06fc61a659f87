"""The command `serve`: what it refuses before it listens. `tests/server/` tests the server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.commands import run

TOKEN = "0123456789-secret-token"


def serve(files: Path, *options: object) -> tuple[int, str]:
    result = run("serve", files / "rubric.yaml", "--port", "0", "--judge", "offline", *options)
    return result.exit_code, result.output.replace("\n", " ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "grader.example"])
def test_address_that_other_machines_reach_needs_a_token(files: Path, host: str) -> None:
    code, output = serve(files, "--host", host)
    assert code == 2
    assert f"--host {host}: other machines can reach it, so it needs a token" in output


@pytest.mark.parametrize("content", [b"", b"short", b"two words and more\n", b"\xff" * 20])
def test_token_file_without_a_token_is_refused(files: Path, content: bytes) -> None:
    file = files / "token"
    file.write_bytes(content)
    code, output = serve(files, "--token-file", file)
    assert (code, str(file) in output) == (2, True)
    assert serve(files, "--token-file", files / "nowhere")[0] == 2


def test_short_token_of_the_environment_is_refused_without_showing_it(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRIC_INTEGRATIONS_TOKEN", "opensesame")
    code, output = serve(files)
    assert (code, "RUBRIC_INTEGRATIONS_TOKEN: the token has 10 characters" in output) == (2, True)
    assert "opensesame" not in output


def test_token_is_no_option(files: Path) -> None:
    code, output = serve(files, "--token", TOKEN)
    assert (code, "No such option" in output) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--run", "x"), "--run x: name the ledger"),
        (("--ledger", "mysql://host/x"), "is not the URL of a ledger"),
        (("--library", "nowhere.yaml"), "nowhere.yaml"),
        (("--api-base", "http://127.0.0.1:1"), "has no effect on the judge 'offline'"),
        (("--escalate-below", "0.5"), "--escalate-to"),
        (("--import", "no_such_module"), "no_such_module"),
        (("--deadline", "nan"), "Invalid value for '--deadline'"),
        (("--port", "70000"), "Invalid value for '--port'"),
        (("--on-failure", "abstain"), "No such option"),
        (("--stop-when-decided",), "No such option"),
    ],
)
def test_options_that_cannot_be_used_are_refused(files: Path, options: tuple[str, ...], message: str) -> None:
    code, output = serve(files, *options)
    assert (code, message in output) == (2, True), output


@pytest.mark.parametrize("options", [(), ("--escalate-to", "openai/m", "--escalate-below", "0.5")])
def test_server_without_a_named_judge_is_refused(files: Path, options: tuple[str, ...]) -> None:
    result = run("serve", files / "rubric.yaml", "--port", "0", *options)
    assert result.exit_code == 2
    assert "name the judge with `--judge`: a model, such as openai/gpt-5-mini; or `--judge offline`" in result.output


def test_rubric_that_is_missing_or_wrong_is_refused(files: Path) -> None:
    no_rubric = run("serve", "--port", "0", "--judge", "offline")
    assert (no_rubric.exit_code, "there is no `rubric`" in no_rubric.output) == (2, True)
    (files / "rubric.yaml").write_text("- {wieght: 1}\n")
    assert serve(files)[0] == 2


def test_port_that_is_in_use_is_refused(files: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = run("serve", files / "rubric.yaml", "--judge", "offline", "--port", str(other.getsockname()[1]))
    assert result.exit_code == 2
    assert "cannot listen there" in result.output
