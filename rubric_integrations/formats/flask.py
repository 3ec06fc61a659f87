"""FLASK's skills: a list of `{Skill, Criteria, Scoring}`, each with a description of every score from 1 to 5.

Each skill becomes a criterion of weight 1 on the scale from 1 to 5. The criterion has the name of the skill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import Reading, error_of, make_rubric, read_criterion
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_NAME, _QUESTION, _TEXTS = "Skill", "Criteria", "Scoring"
_KEYS = [_NAME, _QUESTION, _TEXTS]
_SCORES = range(1, 6)


def matches(document: Any) -> bool:
    """Return whether parsed data is a list of objects with `Skill` and `Scoring`."""
    entries = document if isinstance(document, list | tuple) else ()
    return bool(entries) and all(isinstance(entry, Mapping) and {_NAME, _TEXTS} <= set(entry) for entry in entries)


def write(_rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Raise `RubricError`, because this format can only be read."""
    raise RubricError("flask", [Fault("", "", "is a format that is only read: write another one")])


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from all skills.

    Raises:
        RubricError: The document has faults. The error lists every fault.
    """
    if not matches(document):
        example = "[{Skill: ..., Criteria: ..., Scoring: {1: ..., 5: ...}}]"
        raise error_of(source, "flask", [Fault("", "", f"must be a list such as {example}, got {short(document)}")])
    faults: list[Fault] = []
    criteria: list[Criterion] = []
    for index, entry in enumerate(document):
        where = f"[{index}]"
        data = {str(key): value for key, value in entry.items()}
        faults += [unknown_key(where, key, _KEYS) for key in sorted(data.keys() - set(_KEYS))]
        texts: Any = data[_TEXTS]
        levels = {str(score): text for score, text in texts.items()} if isinstance(texts, Mapping) else {}
        if set(levels) != {str(score) for score in _SCORES}:
            faults.append(Fault(where, _TEXTS, f"must have a text for each score from 1 to 5, got {short(texts)}"))
            continue
        scale = {"min": 1.0, "max": 5.0, "integer": True, "levels": {int(s): text for s, text in levels.items()}}
        fields = {"name": data[_NAME], "requirement": data.get(_QUESTION), "weight": 1.0, "scale": scale}
        criteria += read_criterion(fields, where, faults, {"name": _NAME, "requirement": _QUESTION})
    message = "a row of FLASK names the skills by which it is scored: here every response is graded by all of them"
    return Reading(make_rubric(criteria, {}, source, "flask", faults), [message])
