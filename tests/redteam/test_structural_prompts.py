"""No structural attack is read as structure in a prompt; and the check finds the attacks if the sanitizer fails."""

from __future__ import annotations

import pytest

from rubric_integrations.judges.prompts import sanitize
from rubric_integrations.redteam.attacks import CONTROL_TOKENS
from rubric_integrations.redteam.structural import prompt_breach
from tests.redteam.attack_lists import FAMILIES, STRUCTURAL


@pytest.mark.attacks
@pytest.mark.parametrize("family", FAMILIES)
def test_structural_attack_in_a_prompt_is_not_read_as_structure(family: str) -> None:
    attacks = [attack for attack in STRUCTURAL if attack.family == family]
    assert {attack.name: how for attack in attacks if (how := prompt_breach(attack))} == {}


@pytest.mark.parametrize("family", ["forged_reply", "control_token", "custom_type", "look_alike"])
@pytest.mark.usefixtures("without_caches")
def test_prompt_check_without_the_sanitizer_finds_the_attacks(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "neutralize", lambda text: text)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    breaches = [attack.name for attack in STRUCTURAL if attack.family == family and prompt_breach(attack)]
    assert breaches
    if family == "control_token":
        assert len(breaches) == len(CONTROL_TOKENS)


@pytest.mark.usefixtures("without_caches")
def test_prompt_check_with_a_guessable_fence_code_finds_closing_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubric_integrations.judges.prompts.render.fence_code", lambda *_texts: "deadbeef0123")  # pyright: ignore[reportUnknownLambdaType]
    closing = [attack for attack in STRUCTURAL if attack.family == "closing_tag"]
    assert [attack.name for attack in closing if prompt_breach(attack)] == ["closing_tag: guess deadbeef0123"]
