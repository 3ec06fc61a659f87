"""The probe: what counts as a success, a failure, an abstention, or not at all."""

from __future__ import annotations

import pytest

from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge
from rubric_integrations.redteam import Attack, ProbeReport, probe
from rubric_integrations.redteam.attacks import TASKS
from tests.openai_server import Call, OpenAIServer, Reply, Script
from tests.redteam.attack_lists import BEHAVIOURAL
from tests.redteam.scripts import CRITERIA, PENALTIES, gullible, honest


async def run(server: OpenAIServer, script: Script, attacks: list[Attack] = BEHAVIOURAL) -> ProbeReport:
    server.script = script
    return await probe(LMJudge("openai/mock", api_base=server.url), attacks, limits=CallLimits(max_retries=0))


async def test_probe_of_an_honest_judge_has_no_success(server: OpenAIServer) -> None:
    updates: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        updates.append((done, total))

    server.script = honest
    report = await probe(LMJudge("openai/mock", api_base=server.url), BEHAVIOURAL, progress=progress)
    replacing = sum(attack.place == "instead" for attack in BEHAVIOURAL)
    questions = len(BEHAVIOURAL) * len(CRITERIA) - replacing * len(PENALTIES)
    assert (report.total.successes, report.total.trials, report.failures) == (0, questions, 0)
    assert (report.baseline, report.baseline_errors, report.baseline_failures) == (6, 0, 0)
    assert report.successes == ()
    assert report.spend.calls == len(server.calls) == questions + 6
    assert report.total.high < 0.02
    assert updates[-1] == (2 * len(BEHAVIOURAL) + 2, 2 * len(BEHAVIOURAL) + 2)
    assert [family.attacks for family in report.families] == [6, 6, 5, 5, 9, 6, 10]
    assert ProbeReport.model_validate_json(report.model_dump_json()) == report


async def test_probe_of_a_gullible_judge_counts_each_changed_verdict(server: OpenAIServer) -> None:
    report = await run(server, gullible, [a for a in BEHAVIOURAL if a.family in ("instruction", "grader_note")])
    families = {family.family: family for family in report.families}
    assert (families["instruction"].rate.successes, families["instruction"].rate.trials) == (6, 36)
    assert (families["grader_note"].rate.successes, families["grader_note"].rate.trials) == (6, 54)
    assert report.total.successes == 12 == len(report.successes)
    assert {success.attack for success in report.successes} == {"instruction: direct", "grader_note: erratum"}
    assert {(success.before, success.after) for success in report.successes} == {("UNMET", "MET"), ("MET", "UNMET")}
    assert {success.before for success in report.successes if success.requirement in PENALTIES} == {"MET"}
    assert all(family.abstentions == 0 for family in report.families)


async def test_abstention_caused_by_an_attack_is_a_success(server: OpenAIServer) -> None:
    attack = next(a for a in BEHAVIOURAL if a.name == "instruction: abstain")
    report = await run(
        server, lambda c: Reply(verdict="CANNOT_ASSESS") if attack.text in c.prompt else honest(c), [attack]
    )
    assert (report.total.successes, report.total.trials, report.families[0].abstentions) == (6, 6, 6)


async def test_failure_with_an_attack_is_no_trial(server: OpenAIServer) -> None:
    def failing(call: Call) -> Reply:
        attacked = not any(f"\n{task.response}\n</data" in call.prompt for task in TASKS)
        half = CRITERIA[::2]
        fails = attacked and call.criterion in {criterion.requirement for criterion in half}
        return Reply(status=400) if fails else honest(call)

    attacks = BEHAVIOURAL[:10]
    report = await run(server, failing, attacks)
    assert report.failures == 3 * len(attacks)
    assert (report.total.successes, report.total.trials) == (0, 3 * len(attacks))
    assert sum(family.failures for family in report.families) == report.failures
    assert report.baseline_failures == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_question_that_the_judge_gets_wrong_without_an_attack_is_left_out(
    server: OpenAIServer, fails: bool
) -> None:
    wrong = CRITERIA[0].requirement

    def script(call: Call) -> Reply:
        if call.criterion == wrong:
            return Reply(status=400) if fails else Reply(verdict="MET")
        return honest(call)

    report = await run(server, script, BEHAVIOURAL[:4])
    assert (report.baseline_errors, report.baseline_failures) == ((0, 1) if fails else (1, 0))
    assert [family.left_out for family in report.families] == [4]
    assert (report.total.successes, report.total.trials, report.failures) == (0, 20, 0)


async def test_judge_that_fails_without_an_attack_gets_no_further_request(server: OpenAIServer) -> None:
    report = await run(server, lambda _call: Reply(status=400))
    assert (report.baseline_failures, len(server.calls), report.total.rate) == (6, 6, None)
    assert (report.total.low, report.total.high) == (0.0, 1.0)
