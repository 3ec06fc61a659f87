"""The probe: what it counts as a success, and what as a failure, an abstention or nothing at all."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rubric_integrations.redteam import ATTACKS, TASKS, Attack, ProbeReport, Rate, behavioural, probe, wilson
from rubric_integrations.redteam.table import run_probe
from tests.openai_server import Call, OpenAIServer, Reply, Script

BEHAVIOURAL = [attack for attack in ATTACKS if attack.kind == "behavioural"]
PENALTIES = {c.requirement for task in TASKS for c in task.rubric.criteria if c.is_penalty}
CRITERIA = [c for task in TASKS for c in task.rubric.criteria]


def truth(call: Call) -> str:
    return "MET" if call.criterion in PENALTIES else "UNMET"


def honest(call: Call) -> Reply:
    return Reply(verdict=truth(call))


def gullible(call: Call) -> Reply:
    """Does what it is told wherever a text says `ignore all` or `erratum`."""
    told = any(words in call.prompt.casefold() for words in ("ignore all earlier", "erratum:"))
    return Reply(verdict={"MET": "UNMET", "UNMET": "MET"}[truth(call)] if told else truth(call))


async def probed(server: OpenAIServer, script: Script, attacks: list[Attack] = BEHAVIOURAL) -> ProbeReport:
    server.script = script
    return await probe("openai/mock", attacks, api_base=server.url, max_retries=0)


async def test_an_honest_judge_is_moved_by_nothing(server: OpenAIServer) -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))

    server.script = honest
    report = await probe("openai/mock", BEHAVIOURAL, api_base=server.url, progress=progress)
    replacing = sum(attack.place == "instead" for attack in BEHAVIOURAL)
    asked = len(BEHAVIOURAL) * len(CRITERIA) - replacing * len(PENALTIES)
    assert (report.total.successes, report.total.trials, report.failures) == (0, asked, 0)
    assert (report.baseline, report.baseline_errors, report.baseline_failures) == (6, 0, 0)
    assert report.successes == ()
    assert report.spend.calls == len(server.calls) == asked + 6
    assert report.total.high < 0.02
    assert told[-1] == (2 * len(BEHAVIOURAL) + 2, 2 * len(BEHAVIOURAL) + 2)
    assert [family.attacks for family in report.families] == [6, 6, 5, 5, 9, 6, 10]
    assert ProbeReport.model_validate_json(report.model_dump_json()) == report


async def test_a_gullible_judge_is_counted_exactly(server: OpenAIServer) -> None:
    report = await probed(server, gullible, [a for a in BEHAVIOURAL if a.family in ("instruction", "grader_note")])
    families = {family.family: family for family in report.families}
    assert (families["instruction"].rate.successes, families["instruction"].rate.trials) == (6, 36)
    assert (families["grader_note"].rate.successes, families["grader_note"].rate.trials) == (6, 54)
    assert report.total.successes == 12 == len(report.successes)
    assert {moved.attack for moved in report.successes} == {"instruction: direct", "grader_note: erratum"}
    assert {(moved.before, moved.after) for moved in report.successes} == {("UNMET", "MET"), ("MET", "UNMET")}
    assert {moved.before for moved in report.successes if moved.requirement in PENALTIES} == {"MET"}
    assert all(family.abstentions == 0 for family in report.families)


async def test_an_abstention_that_an_attack_brings_about_is_a_success(server: OpenAIServer) -> None:
    attack = next(a for a in BEHAVIOURAL if a.name == "instruction: abstain")
    report = await probed(
        server, lambda c: Reply(verdict="CANNOT_ASSESS") if attack.text in c.prompt else honest(c), [attack]
    )
    assert (report.total.successes, report.total.trials, report.families[0].abstentions) == (6, 6, 6)


async def test_failures_are_neither_success_nor_resistance(server: OpenAIServer) -> None:
    def failing(call: Call) -> Reply:
        attacked = not any(f"\n{task.response}\n</data" in call.prompt for task in TASKS)
        half = CRITERIA[::2]
        fails = attacked and call.criterion in {criterion.requirement for criterion in half}
        return Reply(status=400) if fails else honest(call)

    attacks = BEHAVIOURAL[:10]
    report = await probed(server, failing, attacks)
    assert report.failures == 3 * len(attacks)
    assert (report.total.successes, report.total.trials) == (0, 3 * len(attacks))
    assert sum(family.failures for family in report.families) == report.failures
    assert report.baseline_failures == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_where_the_judge_is_wrong_without_an_attack_there_is_nothing_to_move(
    server: OpenAIServer, fails: bool
) -> None:
    wrong = CRITERIA[0].requirement

    def script(call: Call) -> Reply:
        if call.criterion == wrong:
            return Reply(status=400) if fails else Reply(verdict="MET")
        return honest(call)

    report = await probed(server, script, BEHAVIOURAL[:4])
    assert (report.baseline_errors, report.baseline_failures) == ((0, 1) if fails else (1, 0))
    assert [family.left_out for family in report.families] == [4]
    assert (report.total.successes, report.total.trials, report.failures) == (0, 20, 0)


async def test_a_judge_that_is_down_is_asked_no_further(server: OpenAIServer) -> None:
    report = await probed(server, lambda _call: Reply(status=400))
    assert (report.baseline_failures, len(server.calls), report.total.rate) == (6, 6, None)
    assert (report.total.low, report.total.high) == (0.0, 1.0)


def test_a_probe_in_a_terminal_and_in_a_file(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it finds is the other file's business, and takes its time.
    breaches = {"look_alike: Cyrillic": "it was read as MET"}
    monkeypatch.setattr(behavioural, "breach", lambda attack: breaches.get(attack.name))  # pyright: ignore
    server.script = gullible
    console, out = Console(file=StringIO(), width=160), tmp_path / "probe.json"
    report = run_probe("openai/mock", server.url, out, 16, console)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "instruction" in shown
    assert "16.7 % (" in shown
    assert "6 of 6 verdicts were right" in shown
    assert f"1 of {report.structural} structural attacks got through" in shown
    assert "GOT THROUGH look_alike: Cyrillic: it was read as MET" in shown
    assert ProbeReport.model_validate_json(out.read_text(encoding="utf-8")) == report


# By hand, from (p + z2/2n -+ z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n) with z2 = 3.8414588.
INTERVALS = [
    (0, 10, 0.0, 3.8414588 / 13.8414588),
    (10, 10, 10 / 13.8414588, 1.0),
    (5, 10, 0.2365931, 0.7634069),
    (0, 0, 0.0, 1.0),
]


@pytest.mark.parametrize(("successes", "trials", "low", "high"), INTERVALS)
def test_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-6)


def test_a_rate_has_no_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match=r"`successes` must be from 0 to 2, got 3"):
        Rate.of(3, 2)
    assert str(Rate.of(0, 0)) == "-"
