"""Rubrics of RaR (`title`, `description`, `weight`) and of ResearchRubrics (`criterion`, `weight`, `axis`).

A weight is a number or an importance: Essential, Important, Optional or Pitfall.

The text of a pitfall does not show whether MET is good or bad. Some of RaR's texts describe the mistake ("Does not
mention ultrasound"). Others describe how to avoid it ("Does not advise to wait"). Both have a negative weight. In RaR's
paper, a pitfall has a positive weight, which a response earns if it avoids the mistake. Therefore, the requirement is
reworded to fit both kinds of texts:

- With a negative weight, the requirement asks whether the response makes the mistake.
- With a positive weight, the requirement asks whether the response avoids the mistake.

A negative criterion of ResearchRubrics always describes the behaviour of a bad response. Its text is kept unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rubric_integrations._util.text import counted
from rubric_integrations.formats.items import Reading, criterion_losses, find_list, objects_in, read_list, rubric_losses
from rubric_integrations.formats.parsing import short
from rubric_integrations.rubric.criterion import IMPORTANCE_WEIGHTS
from rubric_integrations.rubric.rubric import Fault, Rubric

_WORDS = {"name": "title", "requirement": "description", "weight": "weight"}
_LITERAL_WORDS = {"name": "title", "requirement": "criterion", "weight": "weight", "tags": "axis"}

_IMPORTANCE_WEIGHTS: dict[str, float] = {**IMPORTANCE_WEIGHTS}

_CHOICES = "a number, or one of Essential, Important, Optional, Pitfall"
_PREFIX = re.compile(r"\s*(essential|important|optional|pitfall)(?:\s+criteri(?:a|on))?\s*:\s*", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")

_EITHER_WAY = "this mistake (the words describe it, or how a good response avoids it): "
_MADE, _AVOIDED = f"Makes {_EITHER_WAY}", f"Avoids {_EITHER_WAY}"
_PITFALL = "Pitfall Criteria: "


def matches(document: Any) -> bool:
    """Return whether parsed data has a list with a criterion of RaR or ResearchRubrics."""
    return any(_is_rar(entry) or _is_literal(entry) for entry in objects_in(document))


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric in RaR's format, with one message for each part that the format cannot express."""
    messages = rubric_losses(rubric, kept=())
    entries: list[dict[str, Any]] = []
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        text = criterion.full_requirement
        wording = _MADE if criterion.is_penalty else _AVOIDED
        if text.startswith(wording):
            text = _PITFALL + text.removeprefix(wording)
        elif criterion.is_penalty:
            text = _PITFALL + text
            messages.append(
                f"`{key}`: becomes a pitfall, whose words may be taken for the mistake or for its avoidance"
            )
        elif _PREFIX.match(text):
            messages.append(f"`{key}`: the beginning of its requirement is taken for its importance")
        messages += criterion_losses(key, criterion, kept=("name", "weight"))
        title = {"title": criterion.name} if criterion.name is not None else {}
        entries.append({**title, "description": text, "weight": criterion.weight})
    return {"rubrics": entries}, messages


def _is_rar(entry: Mapping[str, Any]) -> bool:
    return (
        "description" in entry and bool({"title", "weight"} & entry.keys()) and not {"criteria", "scale"} & entry.keys()
    )


def _is_literal(entry: Mapping[str, Any]) -> bool:
    return "criterion" in entry and bool({"weight", "axis"} & entry.keys())


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from the criteria of RaR or ResearchRubrics.

    Raises:
        RubricError: The document has faults. The error lists every fault.
    """
    is_literal = any(_is_literal(entry) for entry in objects_in(document))
    words = _LITERAL_WORDS if is_literal else _WORDS
    titles: dict[str, int] = {}
    prefixes: list[str] = []

    def convert(where: str, entry: Mapping[str, Any], faults: list[Fault], changes: list[str]) -> dict[str, Any]:
        native: dict[str, Any] = {field: entry[word] for field, word in words.items() if entry.get(word) is not None}
        if "tags" in native:
            native["tags"] = (native["tags"],)
        title: Any = native.pop("name", None)
        if title:
            native["name"] = _unique(title, titles, changes)
        text: Any = native.get("requirement")
        prefix = _PREFIX.match(text) if isinstance(text, str) and not is_literal else None
        native["weight"], is_pitfall = _weight(where, entry.get("weight"), prefix, faults)
        if isinstance(text, str):
            text = text[prefix.end() :] if prefix else text
            if prefix and not is_pitfall:
                prefixes.append(prefix[0].strip())
            if text.strip() and (is_pitfall or (_is_negative(native["weight"]) and not is_literal)):
                text = (_MADE if _is_negative(native["weight"]) else _AVOIDED) + text
                name = native.get("name", where)
                changes.append(f"`{name}`: the text of the pitfall is reworded, so that it asks for the mistake")
            native["requirement"] = text
        return native

    reading = read_list(find_list(document), source, "rar", words, convert, {})
    if prefixes:
        texts = ", ".join(map(repr, dict.fromkeys(prefixes)))
        reading.losses.append(f"{counted(len(prefixes), 'text loses its', 'texts lose their')} prefix ({texts})")
    return reading


def _weight(where: str, weight: Any, prefix: re.Match[str] | None, faults: list[Fault]) -> tuple[Any, bool]:
    """Return the weight as a number and whether it is called a pitfall. `Criterion` reports invalid numbers."""
    category = prefix[1].casefold() if prefix else ""
    word = weight.casefold().strip().removesuffix("criteria").strip() if isinstance(weight, str) else ""
    if word in _IMPORTANCE_WEIGHTS:
        if category and (word == "pitfall") != (category == "pitfall"):
            faults.append(_contradiction(where, f"is {weight!r}", prefix))
        return _IMPORTANCE_WEIGHTS[word], word == "pitfall"
    if _NUMBER.fullmatch(word):
        weight = float(word)
    elif word or (weight is None and not category):
        state = "is missing: add" if weight is None else f"is {short(weight)}: write"
        faults.append(Fault(where, "weight", f"{state} {_CHOICES}"))
        return 1.0, False
    if weight is None:
        return _IMPORTANCE_WEIGHTS[category], category == "pitfall"
    if _is_negative(weight) and category not in ("", "pitfall"):
        faults.append(_contradiction(where, "is negative", prefix))
    return weight, category == "pitfall"


def _contradiction(where: str, state: str, prefix: re.Match[str] | None) -> Fault:
    message = f"{state}, but the text begins with {prefix[1] if prefix else ''!r}: correct one of them"
    return Fault(where, "weight", f"{message}; otherwise a good response could lose points, or a bad one earn them")


def _is_negative(weight: Any) -> bool:
    return isinstance(weight, int | float) and weight < 0


def _unique(title: Any, titles: dict[str, int], changes: list[str]) -> Any:
    """Return a title, with a number added if another criterion has the same title."""
    if not isinstance(title, str):
        return title
    titles[title] = titles.get(title, 0) + 1
    if titles[title] == 1:
        return title
    name = f"{title} ({titles[title]})"
    changes.append(f"`{name}`: the title is repeated, and gets a number")
    return name
