"""Chooses the columns of the table of submissions: what all rows share, so that rows with their own rubrics fit in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.runs.run_files import GradedRow

# More columns than this do not fit in a window.
_MOST_TAGS = 30
# An underscore follows where a criterion has such a name of its own.
_POSITION = re.compile(r"c\d+_*")

ColumnKey = tuple[str, str]


class Columns(NamedTuple):
    """What the columns are.

    Attributes:
        kind: What a column shows: the answer to one criterion, or the score of one tag.
        keys: The keys of the criteria (see `column_key`), or the tags with an empty requirement.
    """

    kind: Literal["criteria", "tags"]
    keys: tuple[ColumnKey, ...]


def column_key(criterion: CriterionReport) -> ColumnKey:
    """Return the name of a criterion, with its requirement if the name is only a position, such as `c1`.

    Criteria with a name that the author chose measure the same thing in each row, though the words may differ.

    Example:
        >>> column_key(CriterionReport(name="c1", requirement="Says 42", weight=1, verdict=None, value=None))
        ('c1', 'Says 42')
        >>> column_key(CriterionReport(name="fact", requirement="Says 42", weight=1, verdict=None, value=None))
        ('fact', '')
    """
    return criterion.name, criterion.requirement if _POSITION.fullmatch(criterion.name) else ""


class SharedColumns:
    """Finds what the rows share while they are read.

    Attributes:
        shared: The keys of the criteria that all rows so far have; empty before the first row with criteria.
        has_criteria: Whether a row has criteria; a holistic judge's have none.
    """

    def __init__(self) -> None:
        self.shared: dict[ColumnKey, None] = {}
        self.has_criteria = False
        self._rows = 0
        self._tags = Counter[str]()

    def add(self, grades: Sequence[GradedRow | None]) -> None:
        """Add one row with its grade in each run. Rows without criteria share nothing, and are not considered."""
        keys = dict.fromkeys(
            column_key(criterion) for row in grades if row and row.report for criterion in row.report.criteria
        )
        if not keys:
            return
        self._rows += 1
        self._tags.update({tag for row in grades if row for tag in tags_of(row)})
        if not self.has_criteria:
            self.shared, self.has_criteria = keys, True
        elif self.shared:
            self.shared = {key: None for key in self.shared if key in keys}

    @property
    def columns(self) -> Columns:
        """The criteria that all rows share; if there are none, the tags that most rows share."""
        if self.shared:
            return Columns("criteria", tuple(self.shared))
        shared = [tag for tag, count in self._tags.most_common(_MOST_TAGS) if count >= min(2, self._rows)]
        return Columns("tags", tuple((tag, "") for tag in sorted(shared)))


def tags_of(row: GradedRow) -> set[str]:
    """Return the tags of a row's criteria, and those with a score."""
    return {tag for tags in row.criterion_tags for tag in tags} | row.tags.keys()
