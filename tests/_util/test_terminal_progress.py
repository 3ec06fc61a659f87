"""The progress bar on stderr."""

from __future__ import annotations

import pytest

from rubric_integrations._util.terminal import counting_bar


def test_counting_bar_on_a_terminal_shows_the_description_and_the_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with counting_bar("grading", total=3) as count_step:
        for _ in range(3):
            count_step()
    assert "grading" in (error_output := capsys.readouterr().err)
    assert "3/3" in error_output


@pytest.mark.parametrize(("terminal", "enabled"), [("0", True), ("1", False)])
def test_counting_bar_without_a_terminal_or_switched_off_writes_nothing(
    terminal: str, enabled: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    with counting_bar("grading", total=1, enabled=enabled) as count_step:
        count_step()
    assert capsys.readouterr().err == ""
