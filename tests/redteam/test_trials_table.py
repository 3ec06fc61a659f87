"""A probe in a terminal and as a file."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rubric_integrations.judges import LMJudge
from rubric_integrations.redteam import trials
from rubric_integrations.redteam.trials import run_probe
from tests.openai_server import OpenAIServer
from tests.redteam.scripts import gullible


def test_run_probe_prints_the_table(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real checks take seconds, and `test_structural.py` covers them.
    breaches = {"look_alike: Cyrillic": "it was read as MET"}
    monkeypatch.setattr(trials, "find_breach", lambda attack: breaches.get(attack.name))  # pyright: ignore
    server.script = gullible
    console = Console(file=StringIO(), width=160)
    report = run_probe(LMJudge("openai/mock", api_base=server.url), 16, console)
    assert isinstance(console.file, StringIO)
    output = console.file.getvalue()
    assert "instruction" in output
    assert "16.7 % (" in output
    assert "6 of 6 verdicts were right" in output
    assert f"1 of {report.structural} structural attacks succeeded" in output
    assert "STRUCTURAL ATTACK SUCCEEDED: look_alike: Cyrillic: it was read as MET" in output
