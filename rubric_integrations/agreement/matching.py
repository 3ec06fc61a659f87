"""Matches people's labels with the judgments of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.report import CriterionReport, EvaluationReport
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.submission import Submission


class ChosenLabelsError(ValueError):
    """Raised if labels were chosen by people, so that they say nothing about how often the judge is right."""


class Match(NamedTuple):
    """One judgment of a run that people labelled.

    Attributes:
        row: The index of its row in the run.
        criterion: The criterion.
        judged: The judge's answer.
        labels: The labels of all raters.
    """

    row: int
    criterion: Criterion
    judged: CriterionReport
    labels: tuple[LabelledJudgment, ...]

    @property
    def answers(self) -> list[str]:
        """The raters' answers in canonical form, abstentions included."""
        return [to_judgment(self.criterion, label.verdict).verdict for label in self.labels]

    @property
    def consensus(self) -> str | None:
        """The answer that most raters gave; None if several answers are equally frequent."""
        counts = Counter(self.answers).most_common(2)
        return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else None


class Matches(NamedTuple):
    """The labels of a run.

    Attributes:
        matches: The judgments with labels, in the order of the run.
        unmatched: The labels of which the run has no judgment.
    """

    matches: list[Match]
    unmatched: list[LabelledJudgment]


def match_labels(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> Matches:
    """Match each label with the judgment of the same submission by the same words of the criterion.

    A label with the `id` of a row belongs to that row, if the submission is the same; any other label to the first row
    with the same submission. So labels of several samples with equal texts need ids, or all of them count for the first
    sample. What a label's submission lacks, such as the context, is not compared, unless rows differ in it. In a run
    without submissions, the id decides.

    Of several labels of one judgment by one rater, the last counts. Labels without a rater are of different people.

    Raises:
        ChosenLabelsError: A label is `chosen`.
    """
    labels = list(labels)
    require_drawn(labels)
    by_id: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_id.setdefault(row.id, []).append(index)
    by_text = _RowsByText(rows)
    by_judgment: dict[tuple[int, int], dict[str | int, LabelledJudgment]] = {}
    unmatched: list[LabelledJudgment] = []
    for label in labels:
        of_id = by_id.get(label.id, []) if label.id is not None else []
        if of_id:
            place = next((index for index in of_id if _may_be(rows[index].submission, label.submission)), None)
        else:
            place = by_text.find(label.submission)
        entry = None if place is None else _entry_of(rows[place].report, label.criterion)
        if place is None or entry is None:
            unmatched.append(label)
            continue
        of_raters = by_judgment.setdefault((place, entry), {})
        rater = len(of_raters) if label.rater is None else label.rater
        of_raters.pop(rater, None)
        of_raters[rater] = label
    matches: list[Match] = []
    for (place, entry), of_raters in sorted(by_judgment.items(), key=lambda item: item[0]):
        report, of_judgment = rows[place].report, tuple(of_raters.values())
        if report is not None:
            matches.append(Match(place, of_judgment[0].criterion, report.criteria[entry], of_judgment))
    return Matches(matches, unmatched)


def require_drawn(labels: Iterable[LabelledJudgment]) -> None:
    """Check that labels were drawn, and not chosen by people.

    Raises:
        ChosenLabelsError: One was chosen.
    """
    chosen = sum(label.sampled == "chosen" for label in labels)
    if chosen:
        raise ChosenLabelsError(
            f"{chosen:,} of the labels are `chosen`: people looked for judgments to correct, so that the judge would "
            "seem worse or better than it is. Draw what to read with `choose_for_labels`, or set `sampled` to 'random' "
            "or 'by_verdict' if they were drawn like that"
        )


def _entry_of(report: EvaluationReport | None, criterion: Criterion) -> int | None:
    entries = report.criteria if report else ()
    same = [index for index, entry in enumerate(entries) if entry.requirement == criterion.full_requirement]
    # Words may occur twice in a rubric; then the name decides.
    named = [index for index in same if criterion.name is not None and entries[index].name == criterion.name]
    return next(iter(named or same), None)


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


def _may_be(submission: Submission | None, labelled: Submission) -> bool:
    parts = _parts_of(labelled)
    return submission is None or _text_of(submission, parts) == _text_of(labelled, parts)


class _RowsByText:
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
