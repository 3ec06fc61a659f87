"""The evals of an Agent Skill (`evals/evals.json`): prompts, each with a list of texts that must be true.

The list is under `assertions` (the guide of agentskills.io) or `expectations` (Anthropic's skill-creator). Each text
becomes a binary criterion of weight 1, because the result of an eval is the share of its texts that passed. The
`expected_output` becomes the `context` of the criteria. It is not a criterion. The `files` are not opened.

A file with several evals has a rubric for each of them: `load_eval_cases` returns them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import (
    Reading,
    criterion_losses,
    each_has_its_rubric,
    error_of,
    make_rubric,
    may_be_meant,
    read_criterion,
    refuse_penalties,
    rubric_losses,
)
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric

LISTS = ("assertions", "expectations")
"""The keys of the list of texts of an eval."""

_KEYS = ("id", "prompt", "expected_output", "files", *LISTS)
# The keys of an eval of a skill, of which a file of other tests has none or one.
_MARKS = {"prompt", "expected_output", *LISTS}


def matches(document: Any) -> bool:
    """Return whether parsed data has a list of evals, each with a prompt, or the name of a skill next to the list."""
    data: Mapping[Any, Any] = document if isinstance(document, Mapping) else {}
    evals: Any = data.get("evals")
    if not isinstance(evals, list | tuple):
        return False
    entries = [entry for entry in evals if isinstance(entry, Mapping)]
    return "skill_name" in data or any("prompt" in entry and len(_MARKS & set(entry)) > 1 for entry in entries)


def rows_of(document: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the evals of a file with their ids, or with their numbers from 1. The list is empty for other data."""
    if not matches(document):
        return []
    rows = [entry if isinstance(entry, Mapping) else {"prompt": entry} for entry in document["evals"]]
    return [
        (str(number if row.get("id") in (None, "") else row["id"]), row) for number, row in enumerate(rows, start=1)
    ]


def has_texts(row: Any) -> bool:
    """Return whether an eval has a list of texts. In the first version of a file, evals often have none."""
    return any(row.get(key) for key in LISTS)


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as a file with one eval, with one message for each part that the format cannot express.

    Raises:
        RubricError: The rubric has penalties.
    """
    refuse_penalties(rubric, "agent_skills")
    messages = rubric_losses(rubric, kept=("name",))
    contexts = {criterion.context for criterion in rubric.criteria}
    kept = ("weight", "context") if len(contexts) == 1 else ("weight",)
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.weight != 1:
            messages.append(f"`{key}`: `weight` {criterion.weight:g} becomes 1")
        messages += criterion_losses(key, criterion, kept)
    messages.append("`prompt` is empty: write the task of the eval into it")
    entry: dict[str, Any] = {"id": 1, "prompt": ""}
    if "context" in kept and (context := rubric.criteria[0].context):
        entry["expected_output"] = context
    entry[LISTS[0]] = [criterion.full_requirement for criterion in rubric.criteria]
    return {"skill_name": rubric.name or "", "evals": [entry]}, messages


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a file with one eval.

    Raises:
        RubricError: The file has faults or several evals. The error lists every fault.
    """
    rows = rows_of(document)
    if len(rows) != 1:
        message = each_has_its_rubric(len(rows)) if rows else "must be a list of evals, each with a `prompt`"
        raise error_of(source, "agent_skills", [Fault("evals", "", message)])
    return parse_row(document, 0, source)


def parse_row(document: Mapping[str, Any], index: int, source: str) -> Reading:
    """Make the rubric of one eval of a file.

    Raises:
        RubricError: The file or the eval has faults. The error lists every fault.
    """
    faults: list[Fault] = []
    entry: Any = document["evals"][index]
    where = f"evals[{index}]"
    others = sorted(set(map(str, document)) - {"skill_name", "evals"})
    losses = [f"`{key}` beside the evals is left out" for key in others]
    ids = Counter(row_id for row_id, _ in rows_of(document))
    faults += [
        Fault("evals", "id", f"has {row_id!r} {count} times: responses are joined by it, so rename one")
        for row_id, count in ids.items()
        if count > 1
    ]
    if not isinstance(entry, Mapping):
        faults.append(Fault(where, "", f"must be an eval with a `prompt` and `assertions`, got {short(entry)}"))
        raise error_of(source, "agent_skills", faults)
    criteria = _criteria(entry, where, faults, losses)
    name: Any = document.get("skill_name")
    fields = {"name": name} if name else {}
    return Reading(make_rubric(criteria, fields, source, "agent_skills", faults), losses)


def _criteria(entry: Mapping[str, Any], where: str, faults: list[Fault], losses: list[str]) -> list[Criterion]:
    """Read the texts of an eval as criteria."""
    for key in sorted(str(key) for key in entry if key not in _KEYS):
        if may_be_meant(key, LISTS):
            faults.append(unknown_key(where, key, _KEYS))
        else:
            losses.append(f"`{key}` of `{where}` is left out")
    if entry.get("files"):
        losses.append(f"`files` of `{where}` are not opened: the judge sees only what a row of responses has")
    if entry.get("prompt"):
        losses.append(f"`prompt` of `{where}` is the query: give it to each row of responses as `query`")
    faults += [
        Fault(where, key, f"must be a text, got {short(entry[key])}")
        for key in ("prompt", "expected_output")
        if not isinstance(entry.get(key), str | None)
    ]
    keys = [key for key in LISTS if entry.get(key) is not None]
    if len(keys) != 1:
        others = ", ".join(f"`{key}`" for key in sorted(map(str, entry)))
        message = (
            "stands beside `expectations`: keep one of the lists"
            if keys
            else f"is missing (its keys are {others}): write what must be true as a list of texts. The "
            "`expected_output` alone is not graded"
        )
        faults.append(Fault(where, LISTS[0], message))
        return []
    texts: Any = entry[keys[0]]
    if not isinstance(texts, list | tuple) or not texts:
        faults.append(Fault(where, keys[0], f"must be a list of texts, got {short(texts)}"))
        return []
    expected: Any = entry.get("expected_output")
    context = {"context": expected} if isinstance(expected, str) and expected.strip() else {}
    criteria: list[Criterion] = []
    for number, text in enumerate(texts):
        place = f"{where}.{keys[0]}[{number}]"
        if isinstance(text, str):
            criteria += read_criterion({"requirement": text, "weight": 1.0, **context}, place, faults)
        else:
            faults.append(Fault(place, "", f"must be a text, got {short(text)}"))
    return criteria
