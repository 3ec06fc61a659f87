"""Rows of published data sets whose criteria have points: HealthBench, HealthBench Professional and gdpval.

A row has a task and a list of criteria. The table `DATASETS` has the names of their fields. A criterion with negative
points describes an error. The graders of these data sets answer that it is met if the response makes this error. A
native penalty works in the same way. Therefore, every text is kept unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rubric_integrations._util.records import encodable
from rubric_integrations.formats.items import (
    LIST_KEYS,
    Reading,
    criterion_losses,
    error_of,
    find_list,
    objects_in,
    read_list,
    rubric_losses,
)
from rubric_integrations.formats.parsing import load_text, short
from rubric_integrations.rubric.rubric import Fault, Rubric

_LABEL = "criteria_met"
_IDS = ("id", "prompt_id", "task_id")


class Dataset(NamedTuple):
    """A format of criteria with points: a `RubricFormat`.

    Attributes:
        name: The name of the format.
        column: The column of a row that has the criteria, as a list or as its JSON.
        words: The key for each field of a criterion.
        marks: The keys by which a criterion is detected.
        not_marks: The keys that no criterion of the format has.
        identifier: The key of a criterion's id, which is kept in its metadata. Empty if there is none.
    """

    name: str
    column: str
    words: Mapping[str, str]
    marks: frozenset[str]
    not_marks: frozenset[str] = frozenset()
    identifier: str = ""

    def matches(self, document: Any) -> bool:
        """Return whether parsed data is a list of the format's criteria, an object with such a list, or rows of it."""
        rows = _rows_in(document, self.column)
        if rows and self.column not in LIST_KEYS:
            return True
        return any(
            self.marks <= entry.keys() and not self.not_marks & entry.keys()
            for entry in objects_in(rows[0] if rows else document)
        )

    def parse(self, document: Any, source: str) -> Reading:
        """Make a rubric from criteria, or from the only row of a file.

        Raises:
            RubricError: The document has faults or several rows. The error lists every fault.
        """
        rows = _rows_in(document, self.column)
        if len(rows) > 1:
            message = (
                f"are {len(rows)}, each with its rubric: `grade` reads them, and `load_eval_cases` returns them all"
            )
            raise error_of(source, self.name, [Fault("rows", "", message)])
        notes = {_LABEL: "it is a label, and not part of the rubric"}
        words = {**self.words, **({"metadata": self.identifier} if self.identifier else {})}
        listed = find_list(self._with_list(rows[0], source) if rows else document)
        return read_list(listed, source, self.name, words, self._native_fields, notes)

    def _with_list(self, row: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Return a row with its list of criteria under `rubrics`."""
        criteria: Any = row[self.column]
        if isinstance(criteria, str):
            criteria = load_text(criteria, "json", f"{source}: {self.column}")
        return {**{key: value for key, value in row.items() if key != self.column}, "rubrics": criteria}

    def _native_fields(
        self, where: str, entry: Mapping[str, Any], faults: list[Fault], _changes: list[str]
    ) -> dict[str, Any]:
        points = self.words["weight"]
        if points not in entry:
            faults.append(Fault(where, points, "is missing: add it. Without it, the weight would be 10"))
        native = {field: entry[word] for field, word in self.words.items() if entry.get(word) not in (None, [])}
        identifier: Any = entry.get(self.identifier)
        if identifier is not None and not isinstance(identifier, str):
            faults.append(Fault(where, self.identifier, f"must be a text, got {short(identifier)}"))
        return {**native, "metadata": {"id": identifier}} if identifier else native

    def write(self, rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
        """Return a rubric in the format, with one message for each part that the format cannot express."""
        messages = rubric_losses(rubric, kept=())
        entries: list[dict[str, Any]] = []
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            data = {**criterion.model_dump(include={"weight", "required"}), "tags": list(criterion.tags)}
            data["requirement"] = criterion.full_requirement
            entry = {word: data[field] for field, word in self.words.items()}
            metadata = criterion.metadata or {}
            has_identifier = bool(self.identifier) and metadata.keys() == {"id"} and isinstance(metadata["id"], str)
            messages += criterion_losses(key, criterion, [*self.words, *(["metadata"] if has_identifier else [])])
            entries.append({self.identifier: metadata["id"], **entry} if has_identifier else entry)
        return {"rubrics": entries}, messages


HEALTHBENCH = Dataset(
    "healthbench",
    "rubrics",
    {"requirement": "criterion", "weight": "points", "tags": "tags"},
    marks=frozenset({"points"}),
    not_marks=frozenset({"description", "criterion_text"}),
)
DATASETS = (
    HEALTHBENCH,
    Dataset(
        "healthbench_professional",
        "rubric_items",
        {"requirement": "criterion_text", "weight": "points"},
        marks=frozenset({"criterion_text"}),
    ),
    Dataset(
        "gdpval",
        "rubric_json",
        {"requirement": "criterion", "weight": "score", "required": "required", "tags": "tags"},
        # Without `required`, a list with scores may be the results of a judge.
        marks=frozenset({"criterion", "score", "required"}),
        not_marks=frozenset({"points", "weight", "axis"}),
        identifier="rubric_item_id",
    ),
)
"""The data sets that are read, in the order of their detection."""


def dataset_of(document: Any) -> Dataset | None:
    """Return the data set of a list of rows, or None."""
    return next((dataset for dataset in DATASETS if rows_of(document, dataset)), None)


def rows_of(document: Any, dataset: Dataset) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of a data set with their ids. The list is empty for other data."""
    if not isinstance(document, list | tuple) or not dataset.matches(document):
        return []
    rows = enumerate(_rows_in(document, dataset.column), start=1)
    return [(encodable(str(next((row[key] for key in _IDS if row.get(key)), number))), row) for number, row in rows]


def _rows_in(document: Any, column: str) -> list[Mapping[str, Any]]:
    """Return the rows of a document if each of them has a column of criteria."""
    entries: Any = document if isinstance(document, list | tuple) else [document]
    return list(entries) if all(isinstance(entry, Mapping) and column in entry for entry in entries) else []


def input_of(row: Mapping[str, Any]) -> str:
    """Return the task of a row: its prompt, or its conversation as lines of `role: content`."""
    conversation: Any = row.get("conversation")
    turns: Any = conversation.get("messages") if isinstance(conversation, Mapping) else row.get("prompt")
    if not isinstance(turns, list | tuple):
        return turns if isinstance(turns, str) else ""
    messages = [turn for turn in turns if isinstance(turn, Mapping)]
    lines = [f"{message.get('role', 'user')}: {message.get('content', '')}" for message in messages]
    return str(messages[0].get("content", "")) if len(messages) == 1 else "\n".join(lines)


def labels_of(document: Any) -> dict[str, bool] | None:
    """Return the labels `criteria_met` in a list of graded criteria, by the criterion's key in the rubric.

    Args:
        document: A list of HealthBench's criteria, or an object with such a list under `rubrics`.

    Returns:
        The labels of the criteria that have one. None if the document has another format or no label.

    Raises:
        RubricError: A label is neither true nor false.

    Example:
        >>> labels_of([{"criterion": "Names the dose", "points": 5, "criteria_met": True}])
        {'c1': True}
    """
    items = find_list(document)
    if items is None or not HEALTHBENCH.matches(document):
        return None
    labels: dict[str, bool] = {}
    for index, entry in enumerate(items.entries):
        label = entry.get(_LABEL) if isinstance(entry, Mapping) else None
        if isinstance(label, bool):
            labels[f"c{index + 1}"] = label
        elif label is not None:
            fault = Fault(f"{items.where}[{index}]", _LABEL, f"must be true or false, got {short(label)}")
            raise error_of("rubric", "healthbench", [fault])
    return labels or None
