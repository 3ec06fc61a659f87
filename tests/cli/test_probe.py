"""The command `probe`: rates, the report file, and exit codes. `tests/redteam` tests whether an attack succeeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations.redteam import ATTACKS, Attack, trials
from tests.cli.commands import run
from tests.openai_server import OpenAIServer, Reply

STRUCTURAL = [attack.name for attack in ATTACKS if attack.kind == "structural"]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the attacks that were checked. The real check computes for seconds, and finds nothing either."""
    names: list[str] = []

    def find_breach(attack: Attack) -> str | None:
        names.append(attack.name)
        return None

    monkeypatch.setattr(trials, "find_breach", find_breach)
    return names


def test_probe_prints_rates_and_writes_the_report_once(
    server: OpenAIServer, tmp_path: Path, checked: list[str]
) -> None:
    server.script = lambda _call: Reply("UNMET")
    command = ("probe", "--judge", "openai/m", "--api-base", server.url, "--out", tmp_path / "probe.json")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert f"0 of {len(STRUCTURAL)} structural attacks succeeded" in result.stdout
    assert checked == STRUCTURAL
    assert json.loads((tmp_path / "probe.json").read_text())["breaches"] == []
    again = run(*command)
    assert (again.exit_code, "exists" in again.stderr) == (2, True)


def test_probe_of_a_judge_without_an_answer_exits_with_3(server: OpenAIServer, checked: list[str]) -> None:
    server.script = lambda _call: Reply(status=401)
    assert run("probe", "--judge", "openai/m", "--api-base", server.url).exit_code == 3
    assert checked == STRUCTURAL


def test_probe_with_a_structural_attack_that_succeeds_exits_with_1(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda _call: Reply("UNMET")
    breaches = {STRUCTURAL[-1]: "it was read as MET"}
    monkeypatch.setattr(trials, "find_breach", lambda attack: breaches.get(attack.name))  # pyright: ignore
    result = run("probe", "--judge", "openai/m", "--api-base", server.url)
    assert result.exit_code == 1
    assert f"STRUCTURAL ATTACK SUCCEEDED: {STRUCTURAL[-1]}: it was read as MET" in result.stdout


def test_probe_of_a_model_that_is_not_named_exits_with_2() -> None:
    assert run("probe").exit_code == 2
