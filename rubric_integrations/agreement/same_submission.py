"""Which row of a run has the submission of a label, which may lack what the row has."""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.submission import Submission

_Parts = tuple[str, ...]
# A label may lack these; the report page, for example, exports no documents.
_OPTIONAL_PARTS = ("query", "reference", "context")


def _parts_of(submission: Submission) -> _Parts:
    """Return the names of what makes two submissions the same to a reader, as far as a submission has it."""
    return ("response", *(name for name in _OPTIONAL_PARTS if getattr(submission, name)))


def _text_of(submission: Submission, parts: _Parts) -> tuple[object, ...]:
    values = (getattr(submission, name) for name in parts)
    # Programs that edit tables change the line breaks within a cell.
    return tuple(value.replace("\r\n", "\n").strip() if isinstance(value, str) else value for value in values)


def may_be(submission: Submission | None, labelled: Submission) -> bool:
    """Whether a row's submission is the labelled one, as far as the label has it; also if the row has none."""
    parts = _parts_of(labelled)
    return submission is None or _text_of(submission, parts) == _text_of(labelled, parts)


class RowsByText:
    """The rows of a run by what their submissions say."""

    def __init__(self, rows: Sequence[GradedRow]):
        self._submissions = [(index, row.submission) for index, row in enumerate(rows) if row.submission is not None]
        # Made for each set of parts that a label has: a few of eight.
        self._first: dict[_Parts, dict[tuple[object, ...], int | None]] = {}

    def find(self, submission: Submission) -> int | None:
        """Return the index of the first row with the same submission; None without one, or if several may be meant."""
        parts = _parts_of(submission)
        if parts not in self._first:
            self._first[parts] = self._index(parts)
        return self._first[parts].get(_text_of(submission, parts))

    def _index(self, parts: _Parts) -> dict[tuple[object, ...], int | None]:
        first: dict[tuple[object, ...], int | None] = {}
        whole: dict[tuple[object, ...], tuple[object, ...]] = {}
        for index, submission in self._submissions:
            key, everything = _text_of(submission, parts), _text_of(submission, ("response", *_OPTIONAL_PARTS))
            first.setdefault(key, index)
            if whole.setdefault(key, everything) != everything:
                first[key] = None
        return first
