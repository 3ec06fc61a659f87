"""Attacks on a grade: a catalogue, a check of the shield and the parser, and how often a judge falls for them."""

from rubric_integrations.redteam.attacks import ATTACKS, Attack
from rubric_integrations.redteam.behavioural import TASKS, Task, probe
from rubric_integrations.redteam.report import ProbeReport, Rate, wilson
from rubric_integrations.redteam.structural import breach, misread, survives_in_prompt

__all__ = [
    "ATTACKS", "TASKS", "Attack", "ProbeReport", "Rate", "Task", "breach", "misread", "probe", "survives_in_prompt",
    "wilson",
]  # fmt: skip
