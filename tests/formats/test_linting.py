"""The lint rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations import Criterion, Rubric
from rubric_integrations.formats import lint
from rubric_integrations.formats.linting import RULES

RUBRIC_FILE = Path(__file__).resolve().parents[2] / "examples/quarterly_margin/rubric.yaml"

EXAMPLES = {
    "compound": "- {requirement: Is polite and names the price}\n- {requirement: Says why}",
    "vague": "- {requirement: Uses appropriate words}\n- {requirement: Says why}",
    "negated-penalty": "- {requirement: Does not mention the price, weight: -3}\n- {requirement: Says why}",
    "near-duplicate": "- {requirement: States the margin of it}\n- {requirement: States the margin of it.}",
    "unreachable-pass-mark": "- {requirement: r, options: [{label: a, value: 0}, {label: b, value: 0.5}]}\n- "
    "{requirement: s, weight: 1}",
    "use-a-check": "- {requirement: Has at most 90 words}\n- {requirement: Says why}",
    "count": "- {requirement: Says why}",
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_warns_of_its_mistake(rule: str) -> None:
    assert rule in [warning.rule for warning in lint(Rubric.from_yaml(EXAMPLES[rule]))]


def test_too_many_criteria_are_reported_with_the_effect_on_the_score() -> None:
    words = [f"{place} {place * 7919} names {place * 104729}" for place in range(41)]
    warnings = lint(Rubric([Criterion(requirement=word) for word in words]))
    message = "has 41 criteria: small weights have almost no effect on the score: group the criteria"
    assert message in [warning.message for warning in warnings if warning.rule == "count"]


def test_careful_rubric_has_no_warnings() -> None:
    assert lint(Rubric.from_file(RUBRIC_FILE)) == []
