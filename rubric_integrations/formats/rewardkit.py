"""Harbor Reward Kit's judge files (TOML): `[[criterion]]` tables, with `[judge]` and `[scoring]`.

`likert` and `numeric` become scales and `rubric` becomes options from 0 to 1. `negate` turns a value v into 1 - v.
Therefore, it becomes options whose values are reversed. A penalty would change the denominator of the score, and
another wording would change the verdicts.

`required-pass`, `all-pass` and `threshold` replace the score there by 1 or 0. Here, they decide `passed`, and the score
remains the weighted mean. A timeout of the judge is 0 there, also for a negated criterion. Here, it is a failure. No
file that a judge file names is opened.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from rubric_integrations._util.records import Record
from rubric_integrations.formats.items import (
    Reading,
    criterion_losses,
    error_of,
    make_rubric,
    read_criterion,
    rubric_losses,
)
from rubric_integrations.formats.parsing import faults_from_error, short, unknown_key
from rubric_integrations.rubric.answers import Option
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_JUDGE_KEYS = frozenset({
    "judge", "model", "version", "files", "mode", "timeout", "reasoning_effort", "isolated", "cwd", "reference",
    "atif-trajectory", "atif_trajectory", "mcp_servers", "weight", "prompt_template", "samples", "guard",
})  # fmt: skip
_TABLES = ("judge", "criterion", "scoring")
_NATIVE_LISTS = frozenset({"criteria", "rubric", "rubrics", "requirement"})
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GATES = ("all-pass", "required-pass")
_MAX_LABEL = 500
_MAX_REVERSED = 10


class _Entry(Record):
    """A `[[criterion]]` table, with the defaults and limits of Reward Kit."""

    description: str
    type: Literal["binary", "likert", "numeric", "rubric"] = "binary"
    name: str | None = None
    id: str | None = None
    points: int = Field(default=5, strict=True, ge=2, le=1_000)
    levels: tuple[str, ...] = ()
    min: float = Field(default=0.0, strict=True, allow_inf_nan=False)
    max: float = Field(default=1.0, strict=True, allow_inf_nan=False)
    weight: float = Field(default=1.0, strict=True, allow_inf_nan=False)
    files: tuple[str, ...] = ()
    negate: bool = Field(default=False, strict=True)
    optional: bool = Field(default=False, strict=True)
    annotations: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def is_negated(self) -> bool:
        """Whether the value is reversed: by `negate` or, if it is not written, by `annotations.type`."""
        note = "negative" in str(self.annotations.get("type", "")).lower()
        return self.negate if "negate" in self.model_fields_set else note

    @property
    def is_optional(self) -> bool:
        """Whether `required-pass` ignores the criterion: by `optional` or `annotations.importance`."""
        note = "optional" in str(self.annotations.get("importance", "")).lower()
        return self.optional if "optional" in self.model_fields_set else note

    @property
    def slug(self) -> str:
        """The name that Reward Kit derives from the description."""
        return re.sub(r"[^a-z0-9]+", "_", self.description[:40].lower()).strip("_")


def matches(document: Any) -> bool:
    """Return whether parsed data is an object with a `judge` table, `criterion` tables or `reward` tables."""
    if not isinstance(document, Mapping) or _NATIVE_LISTS & document.keys():
        return False
    return isinstance(document.get("judge"), Mapping) or any(
        isinstance(tables := document.get(key), list) and bool(tables) and isinstance(tables[0], Mapping)
        for key in ("criterion", "reward")
    )


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a judge file.

    Raises:
        RubricError: The file has faults, or its score cannot be expressed. The error lists every fault.
    """
    data = {str(key): value for key, value in document.items()} if isinstance(document, Mapping) else {}
    faults: list[Fault] = []
    losses: list[str] = []
    if "reward" in data and "criterion" not in data:
        message = "combines the scores of other files, and has no criterion: read the TOML files of the judges instead"
        raise error_of(source, "rewardkit", [Fault("", "reward", message)])
    faults += [unknown_key("", key, _TABLES) for key in sorted(data.keys() - set(_TABLES))]
    judge = _table(data, "judge", _JUDGE_KEYS, faults)
    scoring = _table(data, "scoring", {"aggregation", "threshold"}, faults)
    _read_judge(judge, faults, losses)
    aggregation, fields = _read_scoring(scoring, faults, losses)
    entries = _entries(data.get("criterion"), faults)
    negative = [where for where, entry in entries if entry.weight < 0]
    if negative:
        message = "is negative, for which only `weighted-sum` is allowed there, and its score has no bounds"
        remedy = "describe the opposite with `negate = true` and a positive weight"
        faults += [Fault(where, "weight", f"{message}: {remedy}") for where in negative]
    if aggregation == "required-pass" and entries and all(entry.is_optional for _, entry in entries):
        faults.append(
            Fault("scoring", "aggregation", "is required-pass, and all criteria are optional: nothing decides")
        )
    names = _names(entries, faults, losses, can_repeat=judge.get("mode") == "individual")
    criteria: list[Criterion] = []
    for (where, entry), name in zip(entries, names, strict=True):
        is_gate = aggregation == "all-pass" or (aggregation == "required-pass" and not entry.is_optional)
        own = _native_fields(entry, where, faults)
        gate: dict[str, Any] = {"required": True} if entry.type == "binary" else {"min_score": 1.0}
        own |= {"name": name} if name else {}
        criteria += read_criterion(own | (gate if is_gate else {}), where, faults, {"requirement": "description"})
        if entry.files:
            losses.append(f"`{name}`: the `files` are kept in its metadata, and not shown to the judge")
    return Reading(make_rubric(criteria, fields, source, "rewardkit", faults), losses)


def _table(data: Mapping[str, Any], key: str, known: Any, faults: list[Fault]) -> dict[str, Any]:
    table: Any = data.get(key, {})
    if not isinstance(table, Mapping):
        faults.append(Fault("", key, f"must be a table, got {short(table)}"))
        return {}
    faults += [unknown_key(key, name, known) for name in sorted(map(str, table)) if name not in known]
    return {str(name): value for name, value in table.items()}


def _read_judge(judge: Mapping[str, Any], faults: list[Fault], losses: list[str]) -> None:
    """Report the settings of the judge, which a rubric does not have."""
    if judge.get("prompt_template") is not None:
        message = (
            "names a file with instructions, which is not opened: convert the file without this key, and write the "
            "instructions into `guidelines` of the result. Ignored, it would change the verdicts silently"
        )
        faults.append(Fault("judge", "prompt_template", message))
    left_out = [f"`{key}`" for key in sorted(judge) if key in _JUDGE_KEYS and key != "prompt_template"]
    if left_out:
        losses.append(f"{', '.join(left_out)} of `[judge]`: left out, because the judge is chosen for each grade")


def _read_scoring(scoring: Mapping[str, Any], faults: list[Fault], losses: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the aggregation and the fields of the rubric that express it."""
    aggregation: Any = scoring.get("aggregation", "weighted-mean")
    aggregation = aggregation.replace("_", "-") if isinstance(aggregation, str) else aggregation
    threshold: Any = scoring.get("threshold", 0.5)
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 <= threshold <= 1:
        faults.append(Fault("scoring", "threshold", f"must be a number from 0 to 1, got {short(threshold)}"))
    if aggregation == "any-pass":
        message = "is any-pass, where one criterion is enough: a rubric has no such score. Grade each criterion alone"
        faults.append(Fault("scoring", "aggregation", message))
    elif aggregation == "weighted-sum":
        losses.append("`weighted-sum`: the sum is the `raw_score` of a report. Its score is divided by the weights")
    elif aggregation in _GATES:
        losses.append(f"`{aggregation}`: its 1 or 0 is `passed`. The score is the weighted mean")
        return aggregation, {"pass_mark": 0.0}
    elif aggregation == "threshold":
        losses.append("`threshold`: its 1 or 0 is `passed`. The score is the weighted mean")
        return aggregation, {"pass_mark": threshold}
    elif aggregation != "weighted-mean":
        known = "weighted-mean, weighted-sum, all-pass, any-pass, threshold and required-pass"
        faults.append(Fault("scoring", "aggregation", f"is {short(aggregation)}, and not one of {known}"))
    return str(aggregation), {}


def _entries(tables: Any, faults: list[Fault]) -> list[tuple[str, _Entry]]:
    """Return the valid `[[criterion]]` tables with their places."""
    if not isinstance(tables, list) or not tables:
        message = "is missing: add a table" if tables is None else f"must be a list of tables, got {short(tables)}"
        faults.append(Fault("", "criterion", f"{message}, such as [[criterion]] with a `description`"))
        return []
    entries: list[tuple[str, _Entry]] = []
    for index, table in enumerate(tables):
        where = f"criterion[{index}]"
        if not isinstance(table, Mapping):
            faults.append(Fault(where, "", f"must be a table with a `description`, got {short(table)}"))
            continue
        try:
            entries.append((where, _Entry.model_validate({str(key): value for key, value in table.items()})))
        except ValidationError as error:
            faults += faults_from_error(where, _Entry, error)
    return entries


def _names(
    entries: Sequence[tuple[str, _Entry]], faults: list[Fault], losses: list[str], *, can_repeat: bool
) -> list[str]:
    """Return the name of each criterion, which is by default a slug of its description.

    Only a judge of the mode `individual` accepts the same name twice. The later one then gets a number.
    """
    names: list[str] = []
    for where, entry in entries:
        name = entry.slug if entry.name is None else entry.name
        if name and not _SAFE_NAME.fullmatch(name):
            message = f"must have 1 to 64 letters, digits, _ and -, got {short(name)}"
            faults.append(Fault(where, "name", message))
        elif name and name in names and can_repeat:
            number = next(n for n in range(2, len(entries) + 2) if f"{name}_{n}" not in names)
            losses.append(f"`{name}_{number}`: another criterion has the name {name!r}")
            name = f"{name}_{number}"
        elif name and name in names:
            message = f"{name!r} is the name of two criteria: give one of them another `name`"
            faults.append(Fault(where, "name", message))
        names.append(name)
    return names


def _native_fields(entry: _Entry, where: str, faults: list[Fault]) -> dict[str, Any]:
    """Return the fields of a criterion, without its name and its gate."""
    fields: dict[str, Any] = {"requirement": entry.description, "weight": entry.weight}
    metadata: dict[str, Any] = {"id": entry.id} if entry.id is not None else {}
    metadata |= {"files": list(entry.files)} if entry.files else {}
    metadata |= {"optional": True} if entry.is_optional else {}
    metadata |= {"annotations": entry.annotations} if entry.annotations else {}
    fields |= {"metadata": metadata} if metadata else {}
    if entry.type == "numeric":
        if not entry.min < entry.max or not math.isfinite(entry.max - entry.min):
            faults.append(Fault(where, "max", f"must be above `min` {entry.min!r}, got {entry.max!r}"))
        elif entry.is_negated:
            message = "is true for a number: a scale cannot be reversed. Ask for the opposite, without `negate`"
            faults.append(Fault(where, "negate", message))
        return {**fields, "scale": {"min": entry.min, "max": entry.max}}
    if entry.type == "likert" and not entry.is_negated:
        return {**fields, "scale": {"min": 1.0, "max": float(entry.points), "integer": True}}
    if entry.type == "likert" and entry.points > _MAX_REVERSED:
        message = f"is true for {entry.points} points, and at most {_MAX_REVERSED} are reversed: ask for the opposite"
        faults.append(Fault(where, "negate", message))
        return fields
    if entry.type == "likert":
        return {**fields, "options": _options([str(number + 1) for number in range(entry.points)], is_negated=True)}
    if entry.type == "rubric":
        if not 2 <= len(entry.levels) <= 10 or not all(level.strip() for level in entry.levels):
            message = f"must be 2 to 10 texts from the worst to the best, got {short(list(entry.levels))}"
            faults.append(Fault(where, "levels", message))
        return {**fields, "options": _options(entry.levels, is_negated=entry.is_negated)}
    return {**fields, "options": _options(["no", "yes"], is_negated=True)} if entry.is_negated else fields


def _options(levels: Sequence[str], *, is_negated: bool) -> list[dict[str, Any]]:
    """Return options with equidistant values from 0 to 1. A text that is too long for a label is its description."""
    texts = [
        {"label": text} if len(text) <= _MAX_LABEL else {"label": f"level {index}", "description": text}
        for index, text in enumerate(levels)
    ]
    last = max(len(texts) - 1, 1)
    return [{**text, "value": index / last} for index, text in enumerate(reversed(texts) if is_negated else texts)]


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as a judge file, with one message for each part that the format cannot express.

    Raises:
        RubricError: The rubric has penalties, conditions, checks, counts, or options at unequal distances.
    """
    faults = [fault for key, c in zip(rubric.keys, rubric.criteria, strict=True) for fault in _refusals(key, c)]
    if faults:
        raise RubricError("rewardkit", faults)
    messages = rubric_losses(rubric, kept=("pass_mark",))
    scoring = _scoring_of(rubric)
    aggregation = scoring.get("aggregation", "weighted-mean")
    if scoring:
        messages.append(f"`pass_mark` and required criteria become `{aggregation}`: the score is 1 or 0 there")
    gates = ("required", "min_score") if aggregation in _GATES else ()
    kept = ("name", "weight", "options", "scale", "metadata", *gates)
    names: list[str] = []
    tables: list[dict[str, Any]] = []
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        name = _safe_name(key, names)
        names.append(name)
        if name != criterion.name:
            messages.append(f"`{key}`: its name becomes {name!r}")
        messages += criterion_losses(key, criterion, kept)
        table: dict[str, Any] = {"name": name, "description": criterion.full_requirement}
        metadata = dict(criterion.metadata or {})
        is_optional = not criterion.is_gate if aggregation == _GATES[1] else metadata.get("optional") is True
        if metadata.get("optional") is is_optional:
            metadata.pop("optional")
        table |= _notes(key, metadata, messages) | _answers(key, criterion, messages)
        table |= {"optional": True} if is_optional else {}
        tables.append({**table, "weight": criterion.weight})
    return {"criterion": tables, **({"scoring": scoring} if scoring else {})}, messages


def _scoring_of(rubric: Rubric) -> dict[str, Any]:
    """Return the `[scoring]` table of a rubric. It is empty for the weighted mean."""
    gates = [criterion for criterion in rubric.criteria if criterion.is_gate]
    # A criterion with two answers has no other value above 0 than 1.
    are_full = all(c.min_score == 1.0 or (not c.min_score and len(c.choices) <= 2 and not c.scale) for c in gates)
    if gates and are_full and rubric.pass_mark == 0:
        return {"aggregation": _GATES[0] if len(gates) == len(rubric.criteria) else _GATES[1]}
    if "pass_mark" in rubric.model_fields_set:
        return {"aggregation": "threshold", "threshold": rubric.pass_mark}
    return {}


def _refusals(key: str, criterion: Criterion) -> list[Fault]:
    """Return a fault for each part of a criterion that would change the score if it were left out."""
    fields = [field for field in ("applies_when", "check", "per") if getattr(criterion, field) is not None]
    faults = [Fault(key, field, "has no place in Reward Kit: write another format") for field in fields]
    if criterion.is_penalty:
        faults.append(
            Fault(key, "weight", "is negative, and Reward Kit has no penalties: give it the options yes: 0 and no: 1")
        )
    values = sorted(option.value for option in criterion.choices)
    if len(values) > 10 or not _are_equidistant(values) or not all(c.label.strip() for c in criterion.choices):
        message = "must be at most 10 texts, at equal distances from 0 to 1: write another format"
        faults.append(Fault(key, "options", message))
    return faults


def _are_equidistant(values: Sequence[float]) -> bool:
    return all(math.isclose(value, index / (len(values) - 1)) for index, value in enumerate(values))


def _answers(key: str, criterion: Criterion, messages: list[str]) -> dict[str, Any]:
    """Return the keys that describe the answers of a criterion."""
    if criterion.scale is not None:
        scale = criterion.scale
        if scale.levels:
            messages.append(f"`{key}`: the `levels` of its scale have no place in the format")
        if scale.integer and scale.min == 1 and 2 <= scale.max <= 1_000 and scale.max == int(scale.max):
            return {"type": "likert", "points": int(scale.max)}
        if scale.integer:
            messages.append(f"`{key}`: its scale also takes fractions there")
        return {"type": "numeric", "min": scale.min, "max": scale.max}
    if not criterion.choices:
        return {}
    if criterion.na_option is not None:
        messages.append(f"`{key}`: the option {criterion.na_option.label!r} has no place in the format")
    if criterion.scale_type == "nominal":
        messages.append(f"`{key}`: its options are ordered there")
    choices = sorted(criterion.choices, key=lambda option: option.value)
    labels = [option.label for option in choices]
    if labels != [option.label for option in criterion.choices]:
        messages.append(f"`{key}`: its options are written from the worst to the best")
    if any(option.description and len(option.description) <= _MAX_LABEL for option in choices):
        messages.append(f"`{key}`: the descriptions of its options become parts of their levels")
    if labels == ["yes", "no"]:
        return {"negate": True}
    if labels == [str(number) for number in range(len(labels), 0, -1)]:
        return {"type": "likert", "points": len(labels), "negate": True}
    return {"type": "rubric", "levels": list(map(_level_of, choices))}


def _level_of(option: Option) -> str:
    """Return the text of a level. The label of a text that is too long for a label is left out."""
    if option.description and len(option.description) > _MAX_LABEL:
        return option.description
    return f"{option.label}: {option.description}" if option.description else option.label


def _notes(key: str, metadata: Mapping[str, Any], messages: list[str]) -> dict[str, Any]:
    """Return the metadata for which the format has a place."""
    notes: dict[str, Any] = {}
    for name, value in metadata.items():
        is_list = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        if (name == "id" and isinstance(value, str)) or (name == "files" and is_list):
            notes[name] = value
        elif name == "annotations" and isinstance(value, Mapping) and _is_writable(value):
            # Without these keys, the annotations would decide both.
            notes = {"negate": False, "optional": False, **notes, "annotations": value}
        else:
            messages.append(f"`{key}`: {short(name)} of its metadata has no place in the format")
    return notes


def _is_writable(value: Any) -> bool:
    """Return whether TOML can express some data: it has no None, and its keys are texts."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_writable(inner) for key, inner in value.items())
    return all(map(_is_writable, value)) if isinstance(value, list | tuple) else isinstance(value, str | int | float)


def _safe_name(key: str, taken: Sequence[str]) -> str:
    """Return a name for a criterion that Reward Kit accepts and that no earlier criterion has."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", key)[:64]
    number = 2
    unique = name
    while unique in taken:
        unique = f"{name[:60]}_{number}"
        number += 1
    return unique
