"""The catalogue of attacks."""

from __future__ import annotations

from collections import Counter

from rubric_integrations.redteam import ATTACKS
from tests.redteam.attack_lists import FAMILIES


def test_catalogue_has_every_family_and_unique_names() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len({attack.apply_to("poor") for attack in ATTACKS}) > len(ATTACKS) - 3
    counts = Counter(attack.family for attack in ATTACKS)
    assert len(counts) == 13
    assert min(counts.values()) >= 3
    assert {attack.kind for attack in ATTACKS if attack.family in FAMILIES} == {"structural"}
