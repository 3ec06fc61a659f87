"""The options of the program itself: `--version` and shell completion."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import shellingham
from typer.testing import CliRunner

from rubric_integrations.cli import app
from tests.cli.commands import run


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
