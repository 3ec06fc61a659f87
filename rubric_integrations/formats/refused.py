"""Formats of other projects that are recognized and not read: the error names the project, the reason and a way.

Each of them would need weights that nobody published, or has a score that a rubric cannot express. Without this module,
the errors would be about keys that are missing in the native format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rubric_integrations.formats.items import LIST_KEYS
from rubric_integrations.rubric.rubric import Fault, RubricError

_RULE_LINE = re.compile(r"^[ \t]*\d+[.)] .*\[(?:Hard Rule|Principle)\][ \t\r]*$", re.MULTILINE)
_VERTEX = (
    "Google publishes neither the weights of its `importance` nor the formula of the score: write each description as "
    "a `requirement` of weight 1, and its `type` as a tag"
)
_APEX = (
    "criteria depend on each other, and their weights are words without published numbers: write each `description` as "
    "a `requirement`, with your `weight`"
)


class _Refused(NamedTuple):
    """A format that is not read.

    Attributes:
        name: The name of the project or the data set.
        keys: The keys by which an object of a document is recognized: a criterion, a row or the document.
        inner: A key of this object, and the keys that the object under it has. Empty if there is none.
        message: The reason, and the nearest way.
    """

    name: str
    keys: frozenset[str]
    inner: tuple[str, frozenset[str]]
    message: str

    def recognizes(self, entry: Mapping[Any, Any]) -> bool:
        """Return whether an object of a document has the keys of the format."""
        key, inner_keys = self.inner
        inner: Any = entry.get(key)
        has_inner = not inner_keys or (isinstance(inner, Mapping) and inner_keys <= inner.keys())
        return self.keys <= entry.keys() and has_inner


_NONE: tuple[str, frozenset[str]] = ("", frozenset())
_REFUSED = (
    _Refused("Vertex AI", frozenset({"rubric_groups"}), _NONE, _VERTEX),
    _Refused("Vertex AI", frozenset({"content"}), ("content", frozenset({"property"})), _VERTEX),
    _Refused(
        "SWE-Atlas",
        frozenset({"title"}),
        ("annotations", frozenset({"type", "importance"})),
        'its score is 1 if every "must have" is met, headings are in the same list, and negative verifiers are '
        "reversed: write each verifier as a `requirement`, with `required: true` for a must have and, for a negative "
        "one, the options yes with value 0 and no with value 1",
    ),
    _Refused(
        "PRBench",
        frozenset({"annotations"}),
        ("annotations", frozenset({"weight_class"})),
        "the weight is under a key that the `weight_class` names: write `criteria_description` as the `requirement`, "
        "and the number as the `weight`, negative for a detrimental class",
    ),
    _Refused(
        "ProfBench",
        frozenset({"criterion_description", "criterion_weight"}),
        _NONE,
        "its weights are words: write `criterion_description` as the `requirement` and, as its authors do, 4 for "
        "Critical, 3 for Major, 2 for Minor and 1 for Additional as the `weight`",
    ),
    _Refused(
        "RubricHub",
        frozenset({"criterion"}),
        ("tags", frozenset({"verifier"})),
        "its `tags` name code that decides some criteria (`verifier: rule`): write these as a `check`, and remove the "
        "`tags` of the others. `criterion` and `points` are then read as those of HealthBench",
    ),
    _Refused("APEX-v1", frozenset({"Rubric JSON"}), _NONE, _APEX),
    _Refused("APEX-v1", frozenset({"dependent_criteria"}), _NONE, _APEX),
    _Refused(
        "MLflow",
        frozenset({"builtin_scorer_class"}),
        _NONE,
        "a saved scorer asks a judge for one verdict about all its guidelines: write each guideline as a `requirement` "
        "with `required: true`",
    ),
)
_OPENRUBRICS = (
    "its rubric is one text for comparing two responses, without weights: write each line as a `requirement`, with "
    "`required: true` for a hard rule"
)
_GANDALF = "here, `criteria` is a list: write `requirement` instead, and its `weight` is read, also a negative one"


def refuse_known(document: Any, source: str) -> None:
    """Raise an error if parsed data has a format that is recognized and not read.

    Args:
        document: Parsed data, or an object with the text of a rubric under `rubric`.
        source: The name of the data, for the error.

    Raises:
        RubricError: The data has such a format. The error names it.
    """
    objects = list(_objects_of(document))
    reasons = [
        *((refused.name, refused.message) for entry in objects for refused in _REFUSED if refused.recognizes(entry)),
        *(("OpenRubrics", _OPENRUBRICS) for entry in objects if _has_rules(entry)),
        *([("gandalf-the-grader", _GANDALF)] if _is_gandalf(document) else []),
    ]
    if reasons:
        name, reason = reasons[0]
        raise RubricError(source, [Fault("", "", f"has the format of {name}, which is not read: {reason}")])


def _has_rules(entry: Mapping[Any, Any]) -> bool:
    text: Any = entry.get("rubric")
    return isinstance(text, str) and _RULE_LINE.search(text) is not None


def _is_gandalf(document: Any) -> bool:
    entries = document if isinstance(document, list | tuple) else ()
    return bool(entries) and all(
        isinstance(entry, Mapping) and set(entry) == {"criteria", "weight"} and isinstance(entry["criteria"], str)
        for entry in entries
    )


def _objects_of(document: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the objects of a document, and those in its lists of criteria. Native criteria are left out."""
    entries: Any = document if isinstance(document, list | tuple) else [document]
    for entry in entries:
        if not isinstance(entry, Mapping) or "requirement" in entry:
            continue
        yield entry
        for key, value in entry.items():
            is_criteria = str(key).lower() in LIST_KEYS and isinstance(value, list | tuple)
            inner: Any = value if is_criteria else [value] if str(key).startswith("criterion ") else ()
            yield from (item for item in inner if isinstance(item, Mapping) and "requirement" not in item)
