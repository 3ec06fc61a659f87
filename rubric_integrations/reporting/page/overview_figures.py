"""Computes the overview of the report page: scores by metadata and by tag, and the settings of the grader.

As in `figures.py`, all figures are computed in one pass over the rows. Each class has a method `add` for one row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.scoring.report import ReplyModels, merge_models
from rubric_integrations.trust.comparable_runs import recorded_part
from rubric_integrations.trust.means import FEW_GROUPS, GroupedScores
from rubric_integrations.trust.model_versions import (
    FINGERPRINT_PARTS,
    NO_VERSION,
    fingerprints,
    replies_text,
    unversioned_models,
)

# The most keys of a row's metadata that become filters, and the most characters of a value.
_MAX_KEYS, _MAX_VALUE = 12, 60
# The most groups. With more values, such as an id for each row, grouping is not useful.
MOST_GROUPS = 20


def short_values(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the entries of metadata that are short enough to filter and group rows by, with their values as texts.

    These are the first 12 entries whose value is a text, a number or a boolean, without values of more than 60
    characters.
    """
    values = [(str(name), value) for name, value in (metadata or {}).items() if isinstance(value, str | int | float)]
    return {name: str(value) for name, value in values[:_MAX_KEYS] if len(str(value)) <= _MAX_VALUE}


class ScoreGroup(NamedTuple):
    """The submissions with one value of the metadata, or with one tag.

    Attributes:
        value: The value, or the tag.
        score: The mean score of these submissions. For a tag, the mean of their scores of this tag. `score.value` is
            None if there are no scores.
        submissions: The number of submissions.
        passed: The number of submissions that passed. None for a tag.
        address: The fragment of the page's URL that filters the table for these submissions. Empty for a tag.
    """

    value: str
    score: Estimate
    submissions: int
    passed: int | None = None
    address: str = ""

    @property
    def note(self) -> str:
        """A short warning, such as `few rows`, if the mean is missing or uncertain. Otherwise empty."""
        if self.score.n == 0:
            return "no score"
        if self.score.low is None:
            return "too few rows for an interval"
        return "few rows" if self.score.n < FEW_GROUPS else ""


class GroupTable(NamedTuple):
    """The groups by one key of the metadata, or by tag.

    Attributes:
        name: The key of the metadata, or `tag`.
        groups: The groups, in numeric or alphabetical order of their values.
        by_tag: Whether the groups are tags. A submission may have several tags.
    """

    name: str
    groups: list[ScoreGroup]
    by_tag: bool = False


class _Scores:
    """The scores of one group."""

    def __init__(self) -> None:
        self.submissions = self.passed = 0
        self.scores = GroupedScores()

    def add(self, row: GradedRow, score: float | None) -> None:
        self.submissions += 1
        if row.is_graded and row.report:
            self.passed += row.report.passed
            if score is not None:
                self.scores.add(score, row.group)


class GroupFigures:
    """Computes the scores by each key of the metadata that has 2 to 20 values, and by tag."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _Scores]] = {}
        self._tags: dict[str, _Scores] = {}

    def add(self, row: GradedRow) -> None:
        """Add one row."""
        for name, value in short_values(row.metadata).items():
            groups = self._by_name.setdefault(name, {})
            # One value more than the limit shows that the values are not useful as groups.
            if value in groups or len(groups) <= MOST_GROUPS:
                groups.setdefault(value, _Scores()).add(row, row.report.score if row.report else None)
        for tag, score in row.tags.items():
            if tag in self._tags or len(self._tags) <= MOST_GROUPS:
                self._tags.setdefault(tag, _Scores()).add(row, score)

    @property
    def tables(self) -> list[GroupTable]:
        """The tables of the metadata keys with 2 to 20 values, and of the tags if there are at most 20."""
        tables = [
            GroupTable(name, [_group(name, value, groups[value]) for value in sorted(groups, key=_order)])
            for name, groups in self._by_name.items()
            if 2 <= len(groups) <= MOST_GROUPS
        ]
        if 1 <= len(self._tags) <= MOST_GROUPS:
            tags = [ScoreGroup(tag, of.scores.estimate, of.submissions) for tag, of in sorted(self._tags.items())]
            tables.append(GroupTable("tag", tags, by_tag=True))
        return tables


def _group(name: str, value: str, of: _Scores) -> ScoreGroup:
    # The same form in which the script writes the filter of the table.
    pair = json.dumps([name, value], ensure_ascii=False, separators=(",", ":"))
    address = urlencode({"meta": pair, "sort": "low"}, errors="replace")
    return ScoreGroup(value, of.scores.estimate, of.submissions, of.passed, address)


def _order(value: str) -> tuple[float, str]:
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value


class RunFacts(NamedTuple):
    """The rubric and the settings with which a run was graded, as far as its rows record them.

    Attributes:
        written: The time in UTC at which the file was last written. Empty if the run is not in a file.
        rubric_hash: The first 12 digits of the SHA-256 of the parts of the rubric that scores depend on. Empty if the
            rows have several rubrics, or do not record their rubric.
        rubrics: The number of rubrics, up to 1,000.
        settings: Each set of settings in words with its number of rows, the most frequent first.
    """

    written: str
    rubric_hash: str
    rubrics: int
    settings: list[tuple[int, list[tuple[str, str]]]]


# Each row may have its own rubric.
_MOST_RUBRICS = 1_000
_MOST_SETTINGS = 3
# The fields that affect the answer to a criterion, or its value.
_OF_CRITERION = {"name", "requirement", "weight", "required", "options", "scale_type", "scale", "cap"}


class FactFigures:
    """Collects the `RunFacts` of one run.

    Args:
        run: The run whose rows are added one by one.
    """

    def __init__(self, run: RunFile) -> None:
        self._written = "" if run.written is None else f"{datetime.fromtimestamp(run.written, UTC):%Y-%m-%d %H:%M} UTC"
        self._rubrics = set[str]()
        self._settings = Counter[str]()
        self._models: ReplyModels = {}

    def add(self, row: GradedRow) -> None:
        """Add one row."""
        if row.report is None:
            return
        rubric, grader = recorded_part(row, "rubric"), recorded_part(row, "grader")
        if rubric and len(self._rubrics) < _MOST_RUBRICS:
            criteria = [
                entry.model_dump(mode="json", include=_OF_CRITERION, exclude_defaults=True)
                for entry in row.report.criteria
            ]
            self._rubrics.add(_text([criteria, rubric, recorded_part(row, "criteria")]))
        self._models = merge_models(self._models, row.report.reply_models)
        text = _text({**grader, "rubric": rubric}) if grader else ""
        if text in self._settings or len(self._settings) < _MOST_RUBRICS:
            self._settings[text] += 1

    @property
    def _replies(self) -> list[tuple[str, str]]:
        return [("replies", replies_text(self._models))] if self._models else []

    @property
    def facts(self) -> RunFacts:
        """The facts of the rows so far."""
        rubric = next(iter(self._rubrics)) if len(self._rubrics) == 1 else ""
        return RunFacts(
            self._written,
            hashlib.sha256(rubric.encode("utf-8", "replace")).hexdigest()[:12] if rubric else "",
            len(self._rubrics),
            [(count, [*_in_words(text), *self._replies]) for text, count in self._settings.most_common(_MOST_SETTINGS)],
        )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


_ABSTENTIONS = {
    "skip": "left out, with its weight",
    "zero": "counts 0",
    "partial": "counts 0.5",
    "fail": "counts as the worst answer",
}


def _in_words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting of a grader and a rubric."""
    if not text:
        yield "settings", "not recorded: a run of an earlier version, or one of another program"
        return
    settings: dict[str, Any] = json.loads(text)
    judges, rubric = settings.pop("judges", None), settings.pop("rubric")
    yield "strategy", str(settings.pop("strategy", "unknown"))
    yield "judge", ", ".join(map(str, settings.pop("names", None) or ["unknown"]))
    policy = settings.pop("cannot_assess", "skip")
    words = _ABSTENTIONS.get(policy) if isinstance(policy, str) else None
    yield "an answer that cannot be judged", f"{words or f'counts {policy}'} (cannot_assess: {policy})"
    is_normalized = settings.pop("normalize", True)
    yield "scores", "normalized to [0, 1]" if is_normalized else "weighted sums (normalize: false)"
    for name, value in sorted(settings.items()):
        yield name.replace("_", " "), _short(value)
    for model in unversioned_models(_text(judges)) if judges else ():
        yield "version", f"{model} {NO_VERSION}"
    for number, parts in enumerate(fingerprints(_text(judges)) if judges else (), start=1):
        for name, value in zip(FINGERPRINT_PARTS, parts, strict=True):
            if value:
                yield f"judge {number}: {name}", _short(value)
    for name, value in sorted(rubric.items()):
        yield f"rubric: {name.replace('_', ' ')}", _short(value)


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
