"""Attacks on a judge: the catalogue, checks of the sanitizer and the parser, and a probe that measures a judge.

To add an attack, add an entry to `attack_texts.py`. To measure a judge, call `probe`.
"""

from rubric_integrations.redteam.attacks import ATTACKS, Attack
from rubric_integrations.redteam.behavioural import probe
from rubric_integrations.redteam.prompt_check import prompt_breach
from rubric_integrations.redteam.reply_check import reply_breach
from rubric_integrations.redteam.report import ProbeReport, Rate, wilson_interval
from rubric_integrations.redteam.structural import find_breach
from rubric_integrations.redteam.tasks import TASKS, Task

__all__ = [
    "ATTACKS", "TASKS", "Attack", "ProbeReport", "Rate", "Task", "find_breach", "probe", "prompt_breach",
    "reply_breach", "wilson_interval",
]  # fmt: skip
