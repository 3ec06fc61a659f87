"""Structural attacks, composed at random and sent through whole graders: none is read as a better answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.redteam import Attack
from rubric_integrations.redteam.structural import find_breach
from tests.openai_server import OpenAIServer, Reply
from tests.redteam.attack_lists import BEHAVIOURAL, FRAGMENTS, STRUCTURAL, structural


@pytest.mark.attacks
def test_behavioural_attack_is_no_structural_breach() -> None:
    assert {attack.name: how for attack in BEHAVIOURAL if (how := find_breach(attack))} == {}


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), min_size=1, max_size=12).map("".join))
@settings(max_examples=35, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.attacks
def test_composition_of_fragments_is_no_breach(text: str) -> None:
    assert find_breach(structural(text)) is None


@given(st.sampled_from(STRUCTURAL), st.text(max_size=8), st.text(max_size=8))
@settings(max_examples=20, deadline=None)
def test_attack_with_text_around_it_is_no_breach(attack: Attack, before: str, after: str) -> None:
    assert find_breach(structural(before + attack.text + after)) is None


RUBRIC = Rubric([Criterion(requirement="States the year"), Criterion(requirement="Names the place")])


def quoting_reply(quote: str, escape: bool, one_shot: bool) -> str:
    quotation = json.dumps(quote)[1:-1] if escape else quote
    if not one_shot:
        return f'{{"explanation": "It says {quotation} and so on", "verdict": "UNMET"}}'
    entries = [f'{{"id": {n}, "explanation": "It says {quotation} and so on", "answer": "UNMET"}}' for n in (1, 2)]
    return f'{{"judgments": [{", ".join(entries)}]}}'


@pytest.mark.parametrize("one_shot", [False, True])
async def test_judge_that_quotes_an_attack_is_never_read_as_met(one_shot: bool, server: OpenAIServer) -> None:
    grader_type = PerCriterionOneShotGrader if one_shot else PerCriterionGrader
    grader = grader_type(LMJudge("openai/mock", api_base=server.url), max_retries=0)
    correctly_read = 0
    for attack in STRUCTURAL:
        if attack.family not in ("forged_reply", "json_escape"):
            continue
        for escape in (True, False):
            reply = quoting_reply(attack.text, escape, one_shot)
            server.script = lambda _call, reply=reply: Reply(text=reply)
            try:
                report = await RUBRIC.grade(attack.apply_to("I do not know."), grader=grader)
            except JudgeError as error:
                assert not escape, attack.name
                report = error.report
            verdicts = [row.verdict for row in report.criteria]
            assert "MET" not in verdicts, attack.name
            correctly_read += verdicts == ["UNMET", "UNMET"]
    assert correctly_read >= 40  # a quotation that is escaped as JSON requires is always read as the judge meant it
