"""The answers from which a rubric is drafted: pairs, labelled answers and examples, and their split into three parts.

Answers to the same query belong to one group, and so do equal texts. A group is in one part only. The part is derived
from the seed and a digest of the group. Therefore, rows that are added later do not move the earlier ones, unless they
join two groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubric_integrations._util.json import read_json_lines
from rubric_integrations._util.records import EncodableText, Record, UnitScore
from rubric_integrations.runs.run import rows_of_table
from rubric_integrations.submission.inputs import as_row
from rubric_integrations.submission.submission import Submission

DraftPart = Literal["propose", "prune", "report"]
"""The use of a pair or labelled answer: to propose criteria, to prune them, or to report figures."""

# Each part ends at this share of the groups.
_ENDS: dict[DraftPart, float] = {"propose": 0.3, "prune": 0.65, "report": 1.0}

PARTS: tuple[DraftPart, ...] = ("propose", "prune", "report")

_BETTER, _WORSE = ("better", "chosen", "preferred"), ("worse", "rejected")
_LABELS, _REASONS = ("label", "rating", "score"), ("reason", "feedback", "comment")
_GOOD, _BAD = {"good", "pass", "passed", "met", "yes"}, {"bad", "fail", "failed", "unmet", "no"}


class AnswerPair(Record):
    """A better and a worse answer, usually to the same query.

    Attributes:
        id: The id of the pair.
        better: The answer that people prefer.
        worse: The other answer.
        reason: Why people prefer it. Empty if they gave no reason.
    """

    id: str
    better: Submission
    worse: Submission
    reason: EncodableText = ""


class LabelledAnswer(Record):
    """An answer with feedback of people: a label, a reason, or both. A report about no certain answer has a reason.

    Attributes:
        id: The id of the row.
        submission: The answer. None for a report about no certain answer.
        label: The rating in [0, 1], where 1 is good. None without one. Such a row is only used to propose criteria.
        reason: What people wrote, such as a review comment or a bug report.
    """

    id: str
    submission: Submission | None = None
    label: UnitScore | None = None
    reason: EncodableText = ""


PairsLike = str | PathLike[str] | Iterable[AnswerPair | Mapping[str, Any]]
"""The path of a file of JSON Lines, or rows with `better` and `worse` (or `chosen` and `rejected`)."""

FeedbackLike = str | PathLike[str] | Iterable[LabelledAnswer | Mapping[str, Any]]
"""The path of a file of JSON Lines, or rows with a `response`, a `label` and a `reason`."""


def read_pairs(source: PairsLike) -> list[AnswerPair]:
    """Read pairs of answers.

    Args:
        source: A path, or rows. A row has the columns `better` and `worse` (or `chosen` and `rejected`), and may have
            `query`, `reference`, `context`, `reason` and `id`. An answer may be a conversation.

    Raises:
        ValueError: A row has no pair, both of its answers are equal, or the file cannot be read.

    Example:
        >>> read_pairs([{"query": "6 x 7?", "chosen": "42", "rejected": "41"}])[0].better.response
        '42'
    """
    pairs: list[AnswerPair] = []
    for place, number, row in _rows(source, "pairs"):
        if isinstance(row, AnswerPair):
            pairs.append(row)
            continue
        data = _mapping(row, place)
        better, worse = (_value(data, names, place) for names in (_BETTER, _WORSE))
        rest = {name: value for name, value in data.items() if name not in (*_BETTER, *_WORSE, *_REASONS)}
        answers = [_submission({**rest, "response": answer}, number, place) for answer in (better, worse)]
        pairs.append(
            AnswerPair(
                id=str(data.get("id") or number), better=answers[0], worse=answers[1], reason=_reason(data, place)
            )
        )
    for pair in pairs:
        if pair.better.response.strip() == pair.worse.response.strip():
            raise ValueError(f"the pair {pair.id!r} has two equal answers, of which none is better: remove it")
    return pairs


def read_feedback(source: FeedbackLike) -> list[LabelledAnswer]:
    """Read answers with feedback of people.

    Args:
        source: A path, or rows. A row has a `response`, and a `label` (true or false, `good` or `bad`, or a number from
            0 to 1), a `reason` (or `feedback`, or `comment`), or both. Without a `response`, the `reason` is a report
            about no certain answer.

    Raises:
        ValueError: A row has neither label nor reason, a label is unknown, or the file cannot be read.

    Example:
        >>> read_feedback([{"response": "41", "label": "bad", "reason": "It is 42."}])[0].label
        0.0
    """
    answers: list[LabelledAnswer] = []
    for place, number, row in _rows(source, "feedback"):
        if isinstance(row, LabelledAnswer):
            answers.append(row)
            continue
        data = _mapping(row, place)
        name = next((name for name in _LABELS if data.get(name) is not None), None)
        label = None if name is None else _label(data[name], name, place)
        reason = _reason(data, place)
        rest = {name: value for name, value in data.items() if name not in (*_LABELS, *_REASONS)}
        is_report = not any(data.get(name) for name in ("response", "output", "answer", "completion", "messages"))
        if is_report and (label is not None or not reason):
            raise ValueError(f"{place} has no `response`: add it, or only a `reason` for a report")
        if label is None and not reason:
            raise ValueError(f"{place} has neither a `label` nor a `reason`: add one of them")
        submission = None if is_report else _submission(rest, number, place)
        answers.append(
            LabelledAnswer(id=str(data.get("id") or number), submission=submission, label=label, reason=reason)
        )
    return answers


def read_examples(example: Any) -> list[LabelledAnswer]:
    """Read one good answer, or a list of them, in any form that `Rubric.grade` accepts.

    Raises:
        ValueError: There is no answer.

    Example:
        >>> read_examples("It is 42.")[0].label
        1.0
    """
    values = list(example) if isinstance(example, list | tuple) else [example]
    if not values:
        raise ValueError("`example` is empty: pass at least one good answer")
    rows = [as_row(value, number) for number, value in enumerate(values, start=1)]
    for row in rows:
        if row.submission is None:
            raise ValueError(f"`example`: {row.error}")
    return [LabelledAnswer(id=row.id, submission=row.submission, label=1.0) for row in rows]


def _rows(source: Any, name: str) -> Iterable[tuple[str, int, Any]]:
    """Yield each row with its place for messages and its number."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        try:
            lines = list(read_json_lines(path))
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
        yield from ((f"{path}:{line}:", number, value) for number, (line, value) in enumerate(lines, start=1))
    elif isinstance(source, Mapping):
        raise ValueError(f"`{name}` is one row: put it into a list")
    else:
        table: Any = rows_of_table(source)
        yield from ((f"`{name}`: row {number}", number, row) for number, row in enumerate(table, start=1))


def _mapping(row: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"{place} is {type(row).__name__} and not an object with columns: write one object a line")
    return row


def _value(data: Mapping[str, Any], names: Sequence[str], place: str) -> Any:
    name = next((name for name in names if data.get(name)), None)
    if name is None:
        known = " or ".join(f"`{name}`" for name in names[:2])
        raise ValueError(f"{place} has no {known}: a pair needs a better and a worse answer")
    return data[name]


def _reason(data: Mapping[str, Any], place: str) -> str:
    reason = next((data[name] for name in _REASONS if data.get(name)), "")
    if not isinstance(reason, str):
        raise ValueError(f"{place} has a `reason` that is {reason!r}, and not a text")
    return reason.strip()


def _label(value: Any, name: str, place: str) -> float:
    """Return a label as a number in [0, 1]."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (word := value.strip().casefold()) in _GOOD | _BAD:
        return float(word in _GOOD)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise ValueError(
        f"{place} has the `{name}` {value!r}: write good or bad, true or false, or a number from 0 to 1, since another "
        "scale would be read wrongly"
    )


def _submission(data: Mapping[str, Any], number: int, place: str) -> Submission:
    row = as_row(data, number, warns=False)
    if row.submission is None:
        raise ValueError(f"{place} {(row.error or '').removeprefix(f'row {row.id}').lstrip(': ')}")
    return row.submission


class SplitSource(NamedTuple):
    """Pairs or labelled answers in three disjoint parts.

    Attributes:
        parts: The part of each row.
        groups: The group of each row, numbered from 0. Rows of one group depend on each other and are in one part.
    """

    parts: list[DraftPart]
    groups: list[int]

    def rows(self, part: DraftPart) -> list[int]:
        """Return the places of the rows of a part."""
        return [place for place, own in enumerate(self.parts) if own == part]


def split_source(rows: Sequence[AnswerPair | LabelledAnswer], seed: int = 0) -> SplitSource:
    """Split pairs or labelled answers into three parts, by group: 30 % to propose, 35 % to prune, 35 % to report.

    Groups without a label, such as reports about no certain answer, are always in the part to propose.

    Example:
        >>> pairs = read_pairs([{"query": f"{n}?", "better": f"{n}", "worse": "-"} for n in range(100)])
        >>> len(set(split_source(pairs).parts))
        1
        >>> pairs = read_pairs([{"query": f"{n}?", "better": f"{n}", "worse": f"-{n}"} for n in range(1, 100)])
        >>> sorted(set(split_source(pairs).parts))
        ['propose', 'prune', 'report']
    """
    keys = [_keys(row) for row in rows]
    groups = _joined(keys)
    # If there is a query, it alone names the group. A further answer to it then does not change its part.
    of_group: dict[int, tuple[bool, str]] = {}
    for group, own in zip(groups, keys, strict=True):
        name = min((not key.startswith("query "), key) for key in own)
        of_group[group] = min(of_group.get(group, name), name)
    place = {group: _unit(f"{seed}\n{name[1]}") for group, name in of_group.items()}
    tested = {group for group, row in zip(groups, rows, strict=True) if _can_be_tested(row)}
    part_of: dict[int, DraftPart] = {
        group: _part_at(value) if group in tested else "propose" for group, value in place.items()
    }
    if rows and "propose" not in part_of.values():
        part_of[min(place, key=place.__getitem__)] = "propose"
    parts: list[DraftPart] = [part_of[group] for group in groups]
    return SplitSource(parts, groups)


def _can_be_tested(row: AnswerPair | LabelledAnswer) -> bool:
    return isinstance(row, AnswerPair) or (row.label is not None and row.submission is not None)


def _part_at(place: float) -> DraftPart:
    return next(part for part, end in _ENDS.items() if place < end)


def sample_groups(rows: Sequence[AnswerPair | LabelledAnswer], most: int, seed: int = 0) -> list[int]:
    """Return the places of at most so many rows, drawn by group with a seed, in their order.

    Example:
        >>> pairs = read_pairs([{"query": f"{n}?", "better": f"{n}", "worse": f"-{n}"} for n in range(1, 100)])
        >>> len(sample_groups(pairs, 10))
        10
    """
    if len(rows) <= most:
        return list(range(len(rows)))
    groups = _joined([_keys(row) for row in rows])
    first = {group: min(_keys(rows[place])) for place, group in reversed(list(enumerate(groups)))}
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    drawn: list[int] = []
    for group in sorted(members, key=lambda each: _unit(f"{seed} sample\n{first[each]}")):
        if len(drawn) + len(members[group]) <= most:
            drawn += members[group]
    return sorted(drawn)


def _unit(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    return int(sha256(text.encode()).hexdigest()[:13], 16) / 16**13


def _keys(row: AnswerPair | LabelledAnswer) -> list[str]:
    """Return the keys of a row. Rows with a common key belong to one group."""
    submissions = [row.better, row.worse] if isinstance(row, AnswerPair) else [row.submission] if row.submission else []
    queries = [f"query {' '.join((each.query or '').split()).casefold()}" for each in submissions]
    texts = [f"text {' '.join(each.response.split()).casefold()}" for each in submissions]
    reports = [] if submissions else [f"report {' '.join(row.reason.split()).casefold()}"]
    return list(dict.fromkeys([*(key for key in queries if key != "query "), *texts, *reports]))


def _joined(keys: Sequence[Sequence[str]]) -> list[int]:
    """Return the group of each row, numbered from 0: rows are joined that share a key, also through other rows."""
    parent = list(range(len(keys)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    owner: dict[str, int] = {}
    for place, own in enumerate(keys):
        for key in own:
            first = owner.setdefault(key, place)
            parent[root(place)] = root(first)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(place), len(numbers)) for place in range(len(keys))]


def pair_answers(answers: Sequence[LabelledAnswer], groups: Sequence[int]) -> tuple[list[AnswerPair], list[int]]:
    """Make pairs of labelled answers with different labels. Each answer is in at most one pair.

    Answers of one group are paired first, because they usually answer the same query.

    Args:
        answers: The labelled answers of one part. Answers without a label are left out.
        groups: The group of each answer.

    Returns:
        The pairs, and the group of each pair. Pairs that join two groups make one group of them.

    Example:
        >>> rows = [{"response": f"{n}", "label": n > 2} for n in range(6)]
        >>> [pair.id for pair in pair_answers(read_feedback(rows), range(6))[0]]
        ['4 and 1', '5 and 2', '6 and 3']
    """
    labelled = [place for place, each in enumerate(answers) if each.label is not None and each.submission is not None]
    by_group: dict[int, list[int]] = {}
    for place in labelled:
        by_group.setdefault(groups[place], []).append(place)
    couples = [couple for members in by_group.values() for couple in _couples(members, answers)]
    paired = {place for couple in couples for place in couple}
    couples += _couples([place for place in labelled if place not in paired], answers)
    joined = _joined([[str(groups[better]), str(groups[worse])] for better, worse in couples])
    pairs = [
        AnswerPair(
            id=f"{answers[better].id} and {answers[worse].id}",
            better=answers[better].submission or Submission(response="-"),
            worse=answers[worse].submission or Submission(response="-"),
        )
        for better, worse in couples
    ]
    return pairs, joined


def _couples(places: Sequence[int], answers: Sequence[LabelledAnswer]) -> list[tuple[int, int]]:
    """Pair the better half of some answers with the worse half, without pairs of equal labels."""
    ordered = sorted(places, key=lambda place: answers[place].label or 0.0)
    half = len(ordered) // 2
    return [
        (better, worse)
        for worse, better in zip(ordered[:half], ordered[len(ordered) - half :], strict=True)
        if answers[worse].label != answers[better].label
    ]
