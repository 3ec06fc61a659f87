"""Reads lists of criteria with the field names of other projects and lists the parts that a format cannot express."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubric_integrations.formats.parsing import faults_from_error, short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError, has_caps

LIST_KEYS = ("rubrics", "rubric", "criteria")
"""The usual keys of the list of criteria in an object."""

_OWN_FIELDS = ("name", "description", "guidelines", "pass_mark", "min_coverage", "version")


class ItemList(NamedTuple):
    """A list of criteria in a document.

    Attributes:
        where: The place of the list in the document.
        entries: The entries of the list.
        fields: The rubric's fields that are next to the list in the document, such as `guidelines`.
        others: All other keys next to the list. They are left out of the rubric.
    """

    where: str
    entries: Sequence[Any]
    fields: Mapping[str, Any]
    others: Sequence[str]


class Reading(NamedTuple):
    """The result of reading a document.

    Attributes:
        rubric: The rubric.
        losses: One message for each part of the document that is left out of the rubric or changed.
        not_graded: Those of the messages that everybody who reads the document must see, because the part should be
            graded.
    """

    rubric: Rubric
    losses: list[str]
    not_graded: Sequence[str] = ()


Convert = Callable[[str, Mapping[str, Any], list[Fault], list[str]], dict[str, Any]]
"""Converts an entry to the fields of a native criterion, and appends to the faults and losses.

The arguments are the place of the entry, the entry, the faults and the losses.
"""


def find_list(document: Any) -> ItemList | None:
    """Return the list of criteria in a document: the document itself, or the list under one of the usual keys.

    Example:
        >>> find_list({"rubrics": [{"points": 1}], "name": "x"}).where
        'rubrics'
    """
    if isinstance(document, list | tuple):
        return ItemList("criteria", document, {}, ())
    if not isinstance(document, Mapping):
        return None
    data = {str(key): value for key, value in document.items()}
    keys = [key for key in LIST_KEYS if isinstance(data.get(key), list | tuple)]
    if len(keys) != 1:
        return None
    fields = {key: data[key] for key in _OWN_FIELDS if data.get(key) is not None}
    return ItemList(keys[0], data[keys[0]], fields, sorted(data.keys() - fields.keys() - set(keys)))


def objects_in(document: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a document's list of criteria. Objects with the native key `requirement` are left out."""
    items = find_list(document)
    entries = [e for e in (items.entries if items else ()) if isinstance(e, Mapping)]
    return [entry for entry in entries if "requirement" not in entry]


def read_list(
    items: ItemList | None,
    source: str,
    dialect: str,
    words: Mapping[str, str],
    convert: Convert,
    notes: Mapping[str, str],
) -> Reading:
    """Make a rubric from a list of criteria.

    Args:
        items: The list.
        source: The name of the document, for errors.
        dialect: The name of the document's format, for errors.
        words: The key in this format for each field of a `Criterion` that the format can express.
        convert: Converts one entry to the fields of a `Criterion`.
        notes: Keys of entries that are left out of the rubric, with the reason for each key.

    Raises:
        RubricError: The list has faults. The error lists every fault.
    """
    if items is None:
        raise error_of(source, dialect, [Fault("", "", "has no list of criteria")])
    faults: list[Fault] = []
    losses = [f"`{key}` beside the criteria is left out" for key in items.others]
    left_out: Counter[str] = Counter()
    changes: list[str] = []
    criteria: list[Criterion] = []
    for index, entry in enumerate(items.entries):
        where = f"{items.where}[{index}]"
        if not isinstance(entry, Mapping):
            example = ", ".join(f"{word}: ..." for word in words.values())
            faults.append(Fault(where, "", f"must be a criterion such as {{{example}}}, got {short(entry)}"))
            continue
        data = {str(key): value for key, value in entry.items()}
        for key in sorted(data.keys() - set(words.values())):
            if may_be_meant(key, words.values()) and key not in notes:
                faults.append(unknown_key(where, key, list(words.values())))
            else:
                left_out[key] += 1
        own = convert(where, data, faults, changes)
        criteria += read_criterion(own, where, faults, words)
    for key, count in sorted(left_out.items()):
        reason = f": {notes[key]}" if key in notes else ""
        losses.append(f"`{key}` of {count} {'criterion' if count == 1 else 'criteria'} is left out{reason}")
    return Reading(make_rubric(criteria, items.fields, source, dialect, faults), losses + changes)


def read_criterion(
    fields: Mapping[str, Any], where: str, faults: list[Fault], words: Mapping[str, str] | None = None
) -> list[Criterion]:
    """Return a list with the criterion of some fields. If they have faults, add these and return an empty list.

    Args:
        fields: The fields of a `Criterion`.
        where: The place of the criterion in its document.
        faults: The list to which faults are appended.
        words: The names of the fields in the document. By default, the names of a `Criterion`.
    """
    try:
        return [Criterion.model_validate(fields)]
    except ValidationError as error:
        own = faults_from_error(where, Criterion, error)
        faults += [fault._replace(field=(words or {}).get(fault.field, fault.field)) for fault in own]
        return []


def make_rubric(
    criteria: Sequence[Criterion], fields: Mapping[str, Any], source: str, dialect: str, faults: list[Fault]
) -> Rubric:
    """Make a rubric from criteria and the other fields of the rubric.

    Raises:
        RubricError: `faults` is not empty, or the criteria do not form a valid rubric.
    """
    if not faults:
        try:
            return Rubric.model_validate({**fields, "criteria": criteria})
        except ValidationError as error:
            faults = faults_from_error("", Rubric, error)
    raise error_of(source, dialect, faults)


def error_of(source: str, dialect: str, faults: Sequence[Fault]) -> RubricError:
    """Make the error for a document of another project, with a hint that names the format in which it was read."""
    hint = (
        f"is read as `{dialect}`: if it is another format, name it, as in "
        "`rubric-integrations convert FILE --from native --to native`"
    )
    return RubricError(source, [*faults, Fault("", "", hint)])


def refuse_penalties(rubric: Rubric, dialect: str) -> None:
    """Refuse to write a rubric with penalties in a format in which every text is a requirement.

    Raises:
        RubricError: The rubric has a penalty.
    """
    faults = [
        Fault(f"`{key}`", "", "is a penalty, and there a response would have to make this error: reword it first")
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        if criterion.is_penalty
    ]
    if faults:
        raise RubricError(dialect, faults)


def each_has_its_rubric(count: int) -> str:
    """Return the message of a fault for a file with several cases, each with its own rubric, and how to read it."""
    return (
        f"are {count}, each with its rubric: read the file with `load_eval_cases`, which returns them all; in "
        "the shell, name it with `--library`, and the column of the rows' ids with `--rubric-column`"
    )


def may_be_meant(key: str, known: Any) -> bool:
    """Return whether a key may be a misspelled key, or a native key that changes the score."""
    return key in Criterion.model_fields or bool(difflib.get_close_matches(key, list(known), n=1, cutoff=0.7))


def rubric_losses(rubric: Rubric, kept: Collection[str]) -> list[str]:
    """Return one message for each field of a rubric that a format cannot express.

    Groups of criteria are also reported, because the format has none.

    Args:
        rubric: The rubric.
        kept: The fields of the rubric that the format has.

    Example:
        >>> rubric_losses(Rubric([{"requirement": "Is polite"}], guidelines="Be strict."), kept=["name"])
        ['`guidelines` has no place in the format']
    """
    fields = sorted(rubric.model_fields_set - {"criteria", "tree", *kept})
    losses = [
        f"`{field}` has no place in the format" for field in fields if getattr(rubric, field) not in (None, (), {})
    ]
    if rubric.tree is not None:
        losses.append("the tree is flattened into its leaves, with their effective weights")
        if has_caps(rubric.tree):
            losses.append("`penalty_cap` has no place in the format: penalties take more than before")
    return losses


def criterion_losses(key: str, criterion: Criterion, kept: Collection[str]) -> list[str]:
    """Return one message for each field of a criterion that a format cannot express.

    Args:
        key: The criterion's key in its rubric.
        criterion: The criterion.
        kept: The fields of the criterion that the format has.
    """
    return [
        f"`{key}`: `{field}` has no place in the format"
        for field, described in Criterion.model_fields.items()
        if field not in {"requirement", *kept} and getattr(criterion, field) != described.get_default()
    ]
