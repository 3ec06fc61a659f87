"""Attacks on a grade: a catalogue, a check of the shield and the parser, and how often a judge falls for them."""

from rubric_integrations.probe.attacks import ATTACKS, Attack
from rubric_integrations.probe.behavioural import TASKS, Task, probe
from rubric_integrations.probe.report import ProbeReport, Rate, wilson
from rubric_integrations.probe.structural import breach, misread, survives_in_prompt

__all__ = [
    "ATTACKS", "TASKS", "Attack", "ProbeReport", "Rate", "Task", "breach", "misread", "probe", "survives_in_prompt",
    "wilson",
]  # fmt: skip
