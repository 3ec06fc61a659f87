"""Checks whether structural attacks succeed against the sanitizer and the parser, without a model."""

from __future__ import annotations

from rubric_integrations.redteam.attacks import Attack
from rubric_integrations.redteam.prompt_check import prompt_breach
from rubric_integrations.redteam.reply_check import reply_breach


def find_breach(attack: Attack) -> str | None:
    """Describe how an attack succeeds against the sanitizer or the parser; None if it fails, as it should.

    Example:
        >>> from rubric_integrations.redteam import ATTACKS
        >>> find_breach(ATTACKS[0]) is None
        True
    """
    return prompt_breach(attack) or reply_breach(attack)
