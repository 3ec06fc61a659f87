"""Rubrics of Google's Agent Development Kit (ADK): `criteria` by metric in `test_config.json`, and evaluation sets.

Each metric with rubrics is a rubric: criteria of weight 1, and `threshold` as the pass mark. In an evaluation set, the
rubrics of a case and of an invocation belong to the metric of their `type`. Each invocation is a case here.

There, a rubric without a verdict is skipped, and a rubric that does not apply counts as met. Here, a missing verdict is
a failure of the judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from rubric_integrations._util.records import encodable
from rubric_integrations.formats.items import Reading, error_of, make_rubric, read_criterion
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

# The metrics with rubrics, by the type of the rubrics of cases and invocations.
_METRICS = {
    "FINAL_RESPONSE_QUALITY": "rubric_based_final_response_quality_v1",
    "TOOL_USE_QUALITY": "rubric_based_tool_use_quality_v1",
    "TRAJECTORY_QUALITY": "rubric_based_multi_turn_trajectory_quality_v1",
}
_OF_RESPONSES = _METRICS["FINAL_RESPONSE_QUALITY"]
_LEFT_OUT = ("judge_model_options", "include_intermediate_responses_in_final")
_CASE_KEYS = ("eval_id", "conversation", "conversation_scenario", "rubrics")
_TURN_KEYS = ("invocation_id", "user_content", "final_response", "rubrics")
_RUBRIC_KEYS = ("rubric_id", "rubric_content", "description", "type")


class Part(NamedTuple):
    """A rubric of a file: of a metric, or of an invocation of a case.

    Attributes:
        id: The name of the metric, or the id of the case.
        input: The text of the user. Empty for a metric.
        expected: The expected response. Empty if there is none.
        rubrics: The parsed rubrics, each with its place in the file.
        metric: The name of the metric.
        config: The parsed configuration of the metric. Empty in an evaluation set.
    """

    id: str
    input: str
    expected: str
    rubrics: list[tuple[str, Any]]
    metric: str
    config: Mapping[str, Any]


def matches(document: Any) -> bool:
    """Return whether parsed data has `eval_cases`, or `criteria` by metric."""
    if not isinstance(document, Mapping):
        return False
    criteria = document.get("criteria")
    has_metrics = isinstance(criteria, Mapping) and any(
        _is_number(value) or (isinstance(value, Mapping) and bool({"threshold", "rubrics"} & value.keys()))
        for value in criteria.values()
    )
    return has_metrics or bool({"eval_cases", "evalCases"} & document.keys())


def write(_rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Raise `RubricError`, because this format can only be read."""
    raise RubricError("adk", [Fault("", "", "is a format that is only read: write another one")])


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a file with one metric that has rubrics, or from an evaluation set with one invocation.

    Raises:
        RubricError: The file has faults, or several rubrics. The error lists every fault.
    """
    parts = list(parts_of(document, source))
    if len(parts) > 1:
        ids = ", ".join(part.id for part in parts[:5])
        message = (
            f"are {len(parts)} rubrics ({ids}), each with its own pass mark: read the file with `load_eval_cases`, "
            "which returns them all; in the shell, choose one with `convert FILE --case ID --to native`"
        )
        raise error_of(source, "adk", [Fault("criteria" if parts[0].config else "eval_cases", "", message)])
    return read_part(document, parts[0], source)


def parts_of(document: Any, source: str) -> Iterator[Part]:
    """Yield each rubric of a file. There is at least one.

    Raises:
        RubricError: The file has faults, or no rubric.
    """
    data: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    count = 0
    for part in _metric_parts(data) if "criteria" in data else _case_parts(data, source):
        count += 1
        yield part
    if not count:
        message = f"has no metric with `rubrics`, such as {_OF_RESPONSES!r}: there is nothing to grade"
        raise error_of(source, "adk", [Fault("", "criteria" if "criteria" in data else "eval_cases", message)])


def read_part(document: Any, part: Part, source: str) -> Reading:
    """Make the rubric of a part of a file.

    Raises:
        RubricError: The part has faults. The error lists every fault.
    """
    faults: list[Fault] = []
    losses: list[str] = []
    fields: dict[str, Any] = {}
    left_out: list[str] = []
    if part.config:
        fields["pass_mark"] = _read_config(part, faults, losses)
        losses += [f"`{key}` is left out" for key in sorted(map(str, document.keys() - {"criteria"}))]
        left_out = [
            f"`{name}` is another metric, and is not graded"
            for name, value in document["criteria"].items()
            if not _has_rubrics(str(name), value)
        ]
    else:
        losses.append("the pass mark is not in an evaluation set, but in `test_config.json`")
    criteria: list[Criterion] = []
    for where, entry in part.rubrics:
        own = _native_fields(entry, where, part.metric, faults)
        criteria += read_criterion(own, where, faults) if own else []
    fields |= {"left_out": tuple(left_out)} if left_out else {}
    return Reading(make_rubric(criteria, fields, source, "adk", faults), [*left_out, *losses], not_graded=left_out)


def _metric_parts(data: Mapping[str, Any]) -> Iterator[Part]:
    criteria: Any = data["criteria"]
    for name, config in criteria.items() if isinstance(criteria, Mapping) else ():
        if _has_rubrics(str(name), config):
            own = {_snake(str(key)): value for key, value in config.items()}
            place = f"criteria.{name}.rubrics"
            rubrics: Any = own["rubrics"]
            entries = rubrics if isinstance(rubrics, list | tuple) else [rubrics]
            listed = [(f"{place}[{index}]", entry) for index, entry in enumerate(entries)]
            yield Part(str(name), "", "", listed, str(name), own)


def _has_rubrics(name: str, config: Any) -> bool:
    """Return whether a metric reads rubrics. Other metrics ignore them."""
    return name in _METRICS.values() and isinstance(config, Mapping) and bool(config.get("rubrics"))


def _case_parts(data: Mapping[str, Any], source: str) -> Iterator[Part]:
    """Yield a part for each invocation of each case, and for each metric that its rubrics are for."""
    cases: Any = data.get("eval_cases", data.get("evalCases"))
    if not isinstance(cases, list | tuple):
        raise error_of(source, "adk", [Fault("", "eval_cases", f"must be a list of cases, got {short(cases)}")])
    for index, entry in enumerate(cases):
        where = f"eval_cases[{index}]"
        case = _snake_keys(entry)
        turns: Any = case.get("conversation")
        if not isinstance(entry, Mapping) or not isinstance(turns, list | tuple) or not turns:
            is_scenario = case.get("conversation_scenario") is not None
            message = (
                "has a `conversation_scenario`, in which a model plays the user: run it there, and grade its traces"
                if is_scenario
                else "must be a case with a `conversation`"
            )
            raise error_of(source, "adk", [Fault(where, "", message)])
        for turn_index, turn_entry in enumerate(turns):
            turn = _snake_keys(turn_entry)
            place = f"{where}.conversation[{turn_index}]"
            faults = [*_misspelled(case, where, _CASE_KEYS), *_misspelled(turn, place, _TURN_KEYS)]
            if faults:
                raise error_of(source, "adk", faults)
            rubrics = [*_listed(case, where, source), *_listed(turn, place, source)]
            name = encodable(str(case.get("eval_id") or index + 1))
            name += encodable(f" {turn.get('invocation_id') or turn_index + 1}") if len(turns) > 1 else ""
            yield from _typed_parts(name, turn, rubrics)


def _typed_parts(name: str, turn: Mapping[str, Any], rubrics: Sequence[tuple[str, Any]]) -> Iterator[Part]:
    """Yield a part for each metric for which an invocation has rubrics. Rubrics of another type never count there."""
    types = [kind for kind in _METRICS if any(_type_of(entry) == kind for _, entry in rubrics)]
    if not types and rubrics:
        # They are read as those of a response, and `_native_fields` reports their type.
        types = ["FINAL_RESPONSE_QUALITY"]
    for kind in types:
        own = [(place, entry) for place, entry in rubrics if _type_of(entry) in (kind, None)]
        part_id = f"{name} {_METRICS[kind]}" if len(types) > 1 else name
        yield Part(part_id, _text_of(turn, "user_content"), _text_of(turn, "final_response"), own, _METRICS[kind], {})


def _type_of(entry: Any) -> str | None:
    """Return the type of a rubric, or None if no metric has such rubrics."""
    kind: Any = _snake_keys(entry).get("type")
    return kind if isinstance(kind, str) and kind in _METRICS else None


def _listed(holder: Mapping[str, Any], where: str, source: str) -> list[tuple[str, Any]]:
    entries: Any = holder.get("rubrics") or []
    if not isinstance(entries, list | tuple):
        raise error_of(source, "adk", [Fault(where, "rubrics", f"must be a list of rubrics, got {short(entries)}")])
    return [(f"{where}.rubrics[{index}]", entry) for index, entry in enumerate(entries)]


def _text_of(turn: Mapping[str, Any], key: str) -> str:
    content: Any = turn.get(key)
    parts: Any = content.get("parts") if isinstance(content, Mapping) else None
    texts = [part.get("text") for part in parts or () if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _read_config(part: Part, faults: list[Fault], losses: list[str]) -> float:
    """Return the pass mark of a metric, and report its other settings."""
    where = f"criteria.{part.metric}"
    known = ("threshold", "rubrics", *_LEFT_OUT)
    misspelled = _misspelled(part.config, where, known)
    faults += misspelled
    others = part.config.keys() - {"threshold", "rubrics", *(fault.field for fault in misspelled)}
    losses += [f"`{key}` of `{part.metric}` is left out: the judge is chosen for each grade" for key in sorted(others)]
    threshold: Any = part.config.get("threshold")
    if not _is_number(threshold) or not 0 <= threshold <= 1:
        faults.append(Fault(where, "threshold", f"must be a number from 0 to 1, got {short(threshold)}"))
        return 0.0
    return float(threshold)


def _misspelled(data: Mapping[str, Any], where: str, known: Sequence[str]) -> list[Fault]:
    """Return a fault for each key that is probably a misspelled known key. ADK has more keys than these."""
    keys = sorted(data.keys() - set(known))
    return [unknown_key(where, key, known) for key in keys if get_close_matches(key, known, n=1, cutoff=0.8)]


def _native_fields(entry: Any, where: str, metric: str, faults: list[Fault]) -> dict[str, Any] | None:
    """Return the fields of a criterion. None if the rubric has faults."""
    if not isinstance(entry, Mapping):
        faults.append(Fault(where, "", f"must be a rubric with `rubricId` and `rubricContent`, got {short(entry)}"))
        return None
    data = _snake_keys(entry)
    before = len(faults)
    if len(data) < len(entry):
        faults.append(Fault(where, "", "has a key in two spellings, such as `rubricId` and `rubric_id`: remove one"))
    faults += [unknown_key(where, key, _RUBRIC_KEYS) for key in sorted(data.keys() - set(_RUBRIC_KEYS))]
    content: Any = data.get("rubric_content")
    text = _snake_keys(content).get("text_property")
    if not isinstance(text, str) or _snake_keys(content).keys() != {"text_property"}:
        faults.append(Fault(where, "rubricContent", f"must be {{textProperty: a text}}, got {short(content)}"))
    if not isinstance(data.get("rubric_id"), str):
        faults.append(Fault(where, "rubricId", f"must be a text, got {short(data.get('rubric_id'))}"))
    kind: Any = data.get("type")
    is_of_case = not where.startswith("criteria.")
    if is_of_case and (not isinstance(kind, str) or kind not in _METRICS):
        message = f"must be one of {', '.join(_METRICS)}, got {short(kind)}: the rubric would never count there"
        faults.append(Fault(where, "type", message))
    elif kind is not None and not isinstance(kind, str):
        faults.append(Fault(where, "type", f"must be a text, got {short(kind)}"))
    if len(faults) > before:
        return None
    description: Any = data.get("description")
    return {
        "name": data["rubric_id"],
        "requirement": text,
        "weight": 1.0,
        **({"tags": [kind]} if kind else {}),
        **({"metadata": {"description": description}} if description else {}),
        **({"needs": ["trajectory"]} if metric != _OF_RESPONSES else {}),
    }


def _snake_keys(value: Any) -> dict[str, Any]:
    return {_snake(str(key)): inner for key, inner in value.items()} if isinstance(value, Mapping) else {}


def _snake(key: str) -> str:
    return "".join(f"_{character.lower()}" if character.isupper() else character for character in key)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
