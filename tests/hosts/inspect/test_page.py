"""The example of Inspect AI on the page of the hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.page import run_example


def test_example_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    assert run_example("inspect")["log"].status == "success"
