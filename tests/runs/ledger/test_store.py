"""A ledger returns what was stored, across crashes and processes, and records failures."""

from __future__ import annotations

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.runs import LedgerError, open_ledger
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from tests.openai_server import OpenAIServer
from tests.runs.ledger.callers import FULL, KEY, KEYS, MET, execute, request, start_process, stored_judgment

RUBRIC = [
    {"name": "kind", "weight": 5, "requirement": "Is kind"},
    {"name": "apt", "weight": 3, "requirement": "Is apt"},
]


@pytest.mark.parametrize(
    "judgment",
    [FULL, MET, Judgment(verdict="CANNOT_ASSESS", value=None, spend=Spend(cost=None)),
     Judgment(verdict="62.5", value=None, reason="half an emoji: \ud83d")],
)  # fmt: skip
async def test_judgment_after_reopening_is_equal_in_every_field(address: str, judgment: Judgment) -> None:
    with open_ledger(address) as ledger:
        await request(ledger, KEY, judgment=judgment)
        assert await stored_judgment(ledger) == judgment
        assert (len(ledger), ledger.stored, ledger.reused, ledger.spend) == (1, 1, 1, judgment.spend)
    with open_ledger(address) as ledger:
        assert await stored_judgment(ledger) == judgment
        assert (len(ledger), ledger.stored, ledger.reused, ledger.spend) == (1, 0, 1, Spend())
    with pytest.raises(LedgerError, match="is closed: keep it open until all grades are done"):
        await stored_judgment(ledger)


async def test_judgment_stored_twice_keeps_the_first(address: str) -> None:
    with open_ledger(address) as ledger:
        async with ledger.lease([KEY, KEY]) as lease:
            assert await lease.store({KEY: FULL}) == {KEY: FULL}
            assert await lease.store({KEY: MET, KEYS[1]: MET}) == {KEY: FULL, KEYS[1]: MET}
        assert await stored_judgment(ledger) == FULL
        assert (len(ledger), ledger.stored, ledger.spend) == (2, 2, FULL.spend + MET.spend)


async def test_judgments_of_a_killed_process_are_all_stored(address: str) -> None:
    code = """
async with ledger.lease(keys) as lease:
    for key in keys[:-1]:
        await lease.store({key: MET})
    os.kill(os.getpid(), 9)
"""
    start_process(address, code, *KEYS[:5]).communicate()
    with open_ledger(address) as ledger:
        assert len(ledger) == 4
        assert await request(ledger, *KEYS[:5]) == [KEYS[4]]


async def test_judgment_with_an_unknown_field_is_refused(address: str) -> None:
    with open_ledger(address) as ledger:
        await request(ledger, KEY)
        unknown = """judgment = '{"verdict": "MET", "value": 1.0, "mood": "good"}'"""
        execute(address, sqlite=f"UPDATE judgments SET {unknown}", postgres=f"UPDATE rubric_judgments SET {unknown}")
        with pytest.raises(LedgerError, match=f"has a judgment that this version cannot read, with the key '{KEY}'"):
            await stored_judgment(ledger)


async def test_failures_are_recorded_and_their_keys_requested_again(address: str) -> None:
    with open_ledger(address) as ledger:
        for failure in (JudgeFailure("parse", "no JSON"), JudgeFailure("transport", "no reply \ud83d" + "x" * 5000)):
            async with ledger.lease([KEY]) as lease:
                assert not lease.stored
                lease.record_failure(KEY, failure)
        async with ledger.lease([KEYS[1]]) as lease:
            lease.record_failure(KEYS[1], JudgeFailure("config", "no key"))
        last, first = ledger.failures()
        assert (last.key, last.kind, last.message, last.times) == (KEYS[1], "config", "no key", 1)
        assert (first.key, first.kind, first.message[:10], first.times) == (KEY, "transport", "no reply \\", 2)
        assert len(first.message) == 1000
        assert ledger.failures(limit=1) == [last]
        assert await request(ledger, KEY) == [KEY]
        assert len(ledger) == 1


async def test_lookup_returns_stored_judgments_and_leases_nothing(address: str) -> None:
    with open_ledger(address) as ledger, open_ledger(address) as other:
        await request(ledger, KEY)
        async with ledger.lease([KEYS[1]]):
            assert ledger.lookup(KEYS[:3]) == {KEY: MET}
        assert await request(other, *KEYS[:3]) == KEYS[1:3]


@pytest.mark.processes
def test_second_grade_in_this_and_in_another_process_makes_no_call(server: OpenAIServer, address: str) -> None:
    def grade() -> tuple[float | None, int, int]:
        with open_ledger(address) as ledger:
            grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url)).with_store(ledger)
            rubric = Rubric.from_dict(RUBRIC)
            report = rubric.grade_sync("Hello.", grader=grader, query="Greet.")
            assert rubric.grade_sync("Hello.", grader=grader, query="Greet.") == report
            return report.score, ledger.stored, ledger.reused

    assert grade() == (1.0, 2, 2)
    assert grade() == (1.0, 0, 4)
    code = f"""
from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
grader = PerCriterionGrader(LMJudge("openai/m", api_base={server.url!r})).with_store(ledger)
report = await Rubric.from_dict({RUBRIC!r}).grade("Hello.", grader=grader, query="Greet.")
print(report.score, ledger.stored, ledger.reused)
"""
    process = start_process(address, code)
    assert process.communicate()[0].split() == ["1.0", "0", "2"]
    assert len(server.calls) == 2
