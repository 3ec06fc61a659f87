"""Matches people's labels with the judgments of a run."""

from __future__ import annotations

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
        answers = self.answers
        counts = {answer: answers.count(answer) for answer in answers}
        most = [answer for answer, count in counts.items() if count == max(counts.values())]
        return most[0] if len(most) == 1 else None


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

    A label with an `id` is matched with the row of this id, if its submission is the same; a label without one with the
    first row of the same submission. In a run without submissions, the id decides.

    Raises:
        ChosenLabelsError: A label is `chosen`.
    """
    labels = list(labels)
    require_drawn(labels)
    by_id: dict[str, list[int]] = {}
    by_submission: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_id.setdefault(row.id, []).append(index)
        if row.submission is not None:
            by_submission.setdefault(_identity(row.submission), []).append(index)
    by_judgment: dict[tuple[int, int], list[LabelledJudgment]] = {}
    unmatched: list[LabelledJudgment] = []
    for label in labels:
        equal = by_submission.get(_identity(label.submission), [])
        of_id = by_id.get(label.id or "", [])
        candidates = [index for index in of_id if index in equal or rows[index].submission is None]
        place = next(iter(candidates or ([] if label.id is not None and of_id else equal)), None)
        entry = None if place is None else _entry_of(rows[place].report, label.criterion)
        if place is None or entry is None:
            unmatched.append(label)
        else:
            by_judgment.setdefault((place, entry), []).append(label)
    matches: list[Match] = []
    for (place, entry), of_judgment in sorted(by_judgment.items(), key=lambda item: item[0]):
        report = rows[place].report
        if report is not None:
            matches.append(Match(place, of_judgment[0].criterion, report.criteria[entry], tuple(of_judgment)))
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
    same = [index for index, entry in enumerate(entries) if entry.requirement == criterion.requirement]
    # Words may occur twice in a rubric; then the name decides.
    named = [index for index in same if criterion.name is not None and entries[index].name == criterion.name]
    return next(iter(named or same), None)


def _identity(submission: Submission) -> str:
    """Return what makes two submissions the same to a reader."""
    return submission.model_dump_json(include={"response", "query", "reference", "context"})
