"""The options of the program itself: `--version` and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import get_args

import pytest
import shellingham
from typer.testing import CliRunner

from rubric_integrations.cli import COMMANDS, app
from rubric_integrations.cli.commands import API_KEYS
from rubric_integrations.cli.options import Strategy
from tests.cli.commands import run, write_inputs
from tests.openai_server import OpenAIServer

CHOICES = {
    "--strategy": get_args(Strategy),
    "--on-failure": ("raise", "abstain", "worst_case"),
    "--optimizer": ("gepa", "miprov2", "bootstrap"),
    "--cannot-assess": ("skip", "zero", "partial", "fail"),
}


def test_version_prints_the_installed_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout.strip()) == (0, f"rubric-integrations {version('rubric-integrations')}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_show_completion_prints_a_script_for_the_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, f"/bin/{shell}"))
    result = CliRunner().invoke(app, ["--show-completion"], prog_name="rubric-integrations")
    assert result.exit_code == 0, result.output
    assert "_RUBRIC_INTEGRATIONS_COMPLETE" in result.stdout


def test_help_names_version_and_completion() -> None:
    text = run("--help").stdout
    assert all(option in text for option in ("--version", "--install-completion", "--show-completion"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_each_choice_of_an_option_whole_at_80_columns(command: str) -> None:
    text = CliRunner(env={"COLUMNS": "80"}).invoke(app, [command, "--help"]).stdout
    assert "|" not in text  # as in <skip|zero|partial|fail>, which would be cut
    words = {word.strip(",.") for word in text.replace("│", " ").split()}
    options = {option for option in CHOICES if option in words}
    assert all(words.issuperset(CHOICES[option]) for option in options), command


@pytest.mark.processes
def test_message_of_a_command_is_its_first_line_without_a_network(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    variables = {name: value for name, value in os.environ.items() if name not in API_KEYS}
    # Where DSPy looks for newer prices: nothing is there.
    variables |= {"LITELLM_LOCAL_MODEL_COST_MAP": "", "LITELLM_MODEL_COST_MAP_URL": "http://127.0.0.1:1/"}
    variables["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "rubric_integrations", "grade", "rubric.yaml", "responses.jsonl", "--quiet"]
    command += ["--judge", "openai/gpt-5-mini"]
    process = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert process.stderr.startswith("No row was graded: ")


@pytest.mark.processes
@pytest.mark.parametrize("is_named_by_option", [True, False])
def test_grade_looks_for_no_newer_prices_if_api_base_is_a_local_server(
    is_named_by_option: bool, tmp_path: Path, server: OpenAIServer
) -> None:
    write_inputs(tmp_path)
    downloads: list[str] = []

    class PriceList(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            downloads.append(self.path)
            self.send_error(404)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    variables = {name: value for name, value in os.environ.items() if name not in API_KEYS}
    variables |= {"PYTHONPATH": str(Path(__file__).parents[2]), "LITELLM_LOCAL_MODEL_COST_MAP": ""}
    command = [sys.executable, "-m", "rubric_integrations", "grade", "rubric.yaml", "responses.jsonl"]
    command += ["--judge", "openai/m"]
    if is_named_by_option:
        command += ["--api-base", server.url]
    else:
        variables |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    with ThreadingHTTPServer(("127.0.0.1", 0), PriceList) as prices:
        Thread(target=prices.serve_forever, daemon=True).start()
        variables["LITELLM_MODEL_COST_MAP_URL"] = f"http://127.0.0.1:{prices.server_port}/prices"
        process = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        prices.shutdown()
    assert process.returncode == 0, process.stderr
    assert bool(downloads) is not is_named_by_option
