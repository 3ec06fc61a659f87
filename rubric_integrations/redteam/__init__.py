"""Attacks on a judge: the catalogue, checks of the sanitizer and the parser, and a probe that measures a judge.

To add an attack, add an entry to `attack_texts.py`. To measure a judge, call `probe`.
"""

from rubric_integrations.redteam.attacks import ATTACKS, Attack
from rubric_integrations.redteam.behavioural import probe
from rubric_integrations.redteam.report import ProbeReport

__all__ = [
    "ATTACKS",
    "Attack",
    "ProbeReport",
    "probe",
]
