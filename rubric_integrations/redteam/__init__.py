"""Attacks on a judge: a catalogue, checks of the sanitizer and the parser, and a probe that measures a judge.

To measure a judge, call `probe`. To add an attack, add an entry to the texts in `redteam/attacks.py`.
"""

from rubric_integrations.redteam.attacks import ATTACKS, Attack
from rubric_integrations.redteam.trials import ProbeReport, probe

__all__ = [
    "ATTACKS",
    "Attack",
    "ProbeReport",
    "probe",
]
