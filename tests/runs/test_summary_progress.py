"""The progress bar of a run, and a run in one line."""

from __future__ import annotations

import pytest

from rubric_integrations.runs import RunSummary
from rubric_integrations.runs.summary import progress_bar, short_summary_line, summary_line
from rubric_integrations.scoring import Spend, TokenUsage

SUMMARY = RunSummary(
    submissions=10, failed=1, abstentions=2, reused=3, seconds=4.0,
    spend=Spend(calls=30, usage=TokenUsage(prompt_tokens=3000, completion_tokens=600), cost=0.25),
)  # fmt: skip


def test_summary_line_shows_results_spend_and_speed() -> None:
    assert summary_line(SUMMARY) == (
        "1 failed, 2 abstentions, 3 from the ledger, 30 calls, 3,600 tokens, $0.2500, 2.5/s"
    )
    assert short_summary_line(SUMMARY) == "1 failed, 2 abst., 3,600 tok, $0.25 2.5/s"


def test_summary_line_shows_unknown_tokens_and_price_as_unknown() -> None:
    unknown = RunSummary(submissions=1, spend=Spend(calls=2, usage=None, cost=None))
    assert summary_line(unknown) == "0 failed, 0 abstentions, 2 calls, tokens unknown, price unknown, -/s"
    assert short_summary_line(unknown) == "0 failed, 0 abst., tokens unknown, $? "


def test_progress_bar_is_not_shown_unless_stderr_is_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar(["a", "b"]) as show:
        show(SUMMARY)
    assert capfd.readouterr() == ("", "")


def test_progress_bar_on_a_terminal_shows_the_summary(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(range(20)) as show:
        show(SUMMARY)
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    assert "10/20" in stderr
    assert "1 failed, 2 abst." in stderr


def test_progress_bar_during_an_outage_shows_for_how_long_the_run_waits(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar(range(20), lambda: 40.2) as show:
        show(SUMMARY)
    stderr = capfd.readouterr().err
    assert "waiting for the endpoint, 40 s" in stderr
    assert "1 failed" not in stderr
