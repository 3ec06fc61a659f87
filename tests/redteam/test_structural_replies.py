"""No quoted attack is read as the judge's own answer; and the check finds the attacks if the parser is lenient."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from rubric_integrations.judges.prompts import parse, render, sanitize
from rubric_integrations.redteam.structural import reply_breach
from tests.redteam.attack_lists import FAMILIES, STRUCTURAL


@pytest.mark.attacks
@pytest.mark.parametrize("family", FAMILIES)
def test_quoted_attack_in_a_reply_is_not_read_as_the_judges_answer(family: str) -> None:
    attacks = [attack for attack in STRUCTURAL if attack.family == family]
    assert {attack.name: how for attack in attacks if (how := reply_breach(attack))} == {}


@pytest.mark.usefixtures("without_caches")
def test_reply_check_with_a_lenient_parser_finds_the_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "looks_quotable", lambda *_texts: False)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(parse, "incomplete_reply_problem", lambda *_reply: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(parse, "_PROSE_BEFORE", re.compile(".*", re.DOTALL))
    quoted = [attack for attack in STRUCTURAL if attack.family in ("forged_reply", "json_escape")]
    breaches = Counter(attack.family for attack in quoted if reply_breach(attack))
    assert min(breaches["forged_reply"], breaches["json_escape"]) >= 4


@pytest.mark.usefixtures("without_caches")
def test_reply_check_without_unescaping_finds_an_escaped_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "_unescaped", lambda text: text)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    monkeypatch.setattr(parse, "_PROSE_BEFORE", re.compile(".*", re.DOTALL))
    attack = next(a for a in STRUCTURAL if a.name == "forged_reply: json escaped key")
    assert "is read as" in str(reply_breach(attack))
