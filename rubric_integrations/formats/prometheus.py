"""The rubrics of Prometheus and BiGGen-Bench: one question, with a description of each score from 1 to 5.

The rubric of a row is under its key `score_rubric`. A file of rows is a list of rows, or an object with rows by
id. Each of its rows has its own rubric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import (
    Reading,
    criterion_losses,
    each_has_its_rubric,
    error_of,
    make_rubric,
    read_criterion,
    rubric_losses,
)
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_QUESTION = "criteria"
_TEXTS = tuple(f"score{score}_description" for score in range(1, 6))
_ROW_KEY = "score_rubric"


def matches(document: Any) -> bool:
    """Return whether parsed data is a rubric of Prometheus, a row with such a rubric, or a file of such rows."""
    return _is_rubric(document) or bool(rows_of(document))


def rows_of(document: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of a file with their ids. A single row is also accepted. The list is empty for other data."""
    if _is_row(document):
        return [(str(document.get("id") or "1"), document)]
    if isinstance(document, Mapping):
        rows = [(str(key), row) for key, row in document.items()]
    elif isinstance(document, list | tuple):
        rows = [(str(_get(row, "id") or number), row) for number, row in enumerate(document, start=1)]
    else:
        rows = []
    return rows if all(_is_row(row) for _, row in rows) else []


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric in this format, with one message for each part that the format cannot express.

    Raises:
        RubricError: The rubric does not consist of one criterion with a text for each whole number from 1 to 5.
    """
    scale = rubric.criteria[0].scale
    levels = {} if scale is None else {float(score): scale.text_at(score) for score in range(1, 6)}
    is_one_to_five = scale is not None and (scale.min, scale.max, scale.integer) == (1.0, 5.0, True)
    if len(rubric) != 1 or not is_one_to_five or not all(levels.values()):
        message = (
            "has one criterion on a scale of whole numbers from 1 to 5, with a text for each: write another format"
        )
        raise RubricError("prometheus", [Fault("", "", message)])
    messages = rubric_losses(rubric, kept=())
    messages += criterion_losses(rubric.keys[0], rubric.criteria[0], kept=("scale", "weight"))
    texts = dict(zip(_TEXTS, levels.values(), strict=True))
    return {_QUESTION: rubric.criteria[0].full_requirement, **texts}, messages


def _is_rubric(document: Any) -> bool:
    return isinstance(_get(document, _QUESTION), str) and _TEXTS[0] in document


def _is_row(document: Any) -> bool:
    return _is_rubric(_get(document, _ROW_KEY))


def _get(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, Mapping) else None


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a document with a single rubric.

    Raises:
        RubricError: The document has faults or several rows. The error lists every fault.
    """
    rows = rows_of(document)
    if len(rows) > 1:
        raise error_of(source, "prometheus", [Fault("rows", "", each_has_its_rubric(len(rows)))])
    where, messages = "", list[str]()
    if rows:
        [(_, row)] = rows
        where, document = _ROW_KEY, row[_ROW_KEY]
        messages = [f"`{key}` beside the rubric is left out" for key in sorted(map(str, set(row) - {_ROW_KEY}))]
    if not _is_rubric(document):
        message = f"must be a text beside {_TEXTS[0]} ... {_TEXTS[-1]}, got {short(document)}"
        raise error_of(source, "prometheus", [Fault(where, _QUESTION, message)])
    data = {str(key): value for key, value in document.items()}
    faults = [unknown_key(where, key, [_QUESTION, *_TEXTS]) for key in sorted(data.keys() - {_QUESTION, *_TEXTS})]
    missing = [key for key in _TEXTS if not (isinstance(data.get(key), str) and data[key].strip())]
    message = "must be the description of that score: the judge gives one from 1 to 5"
    faults += [Fault(where, key, message) for key in missing]
    levels = {score: data.get(key) for score, key in enumerate(_TEXTS, start=1)}
    scale = {"min": 1.0, "max": 5.0, "integer": True, "levels": levels}
    fields = {"requirement": data[_QUESTION], "weight": 1.0, "scale": scale}
    criteria = [] if faults else read_criterion(fields, where, faults)
    return Reading(make_rubric(criteria, {}, source, "prometheus", faults), messages)
