"""Draws the judgments that people should read, so that their labels measure the judge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.agreement.rows import RunLike, is_trained_on, read_rows
from rubric_integrations.agreement.tables import answer_levels
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.labels import Sampled
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.submission import Submission

_CANNOT_ASSESS = "CANNOT_ASSESS"


class JudgmentToLabel(NamedTuple):
    """One judgment that people should read.

    Attributes:
        id: The row's id.
        criterion: The criterion's name in the rubric.
        requirement: Its requirement.
        submission: What was graded; None if the run does not have it.
        judged: The judge's answer. Do not show it to the rater, who would tend to agree with it.
        sampled: How it was drawn: the mark that its label must carry.
        row: The index of its row in the run.
        answers: The answers to offer, CANNOT_ASSESS last; empty if the run does not tell them, so that the rater must
            type one.
    """

    id: str
    criterion: str
    requirement: str
    submission: Submission | None
    judged: str | None
    sampled: Sampled
    row: int
    answers: tuple[str, ...]


def choose_for_labels(run: RunLike, n: int, *, by_verdict: bool = False, seed: int = 0) -> list[JudgmentToLabel]:
    """Draw judgments of a run for people to label.

    Criteria with a check, which code answers, are left out, and so are the submissions whose labels the judge was
    aligned with: these say nothing about it.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        n: How many submissions are drawn, with all their judgments; with `by_verdict`, how many judgments of each
            verdict on each criterion, where there are so many.
        by_verdict: Whether to draw among the judgments of each verdict, so that a rare one is read often enough. Such
            labels correct the rates of criteria, and not the mean score.
        seed: Which draw; the same seed draws the same.

    Raises:
        ValueError: `n` is less than 1, or the run has no answer of a judge.
    """
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n!r}")
    rows = [(place, row) for place, row in enumerate(read_rows(run)) if _judged(row)]
    if not rows:
        raise ValueError("the run has no answers of a judge: there is nothing to label")
    pairs = [_Judgment(place, row, entry) for place, row in rows for entry in _judged(row)]
    rng = random.Random(seed)  # noqa: S311 -- a draw, not a secret
    if not by_verdict:
        drawn = [place for place, _ in rng.sample(rows, min(n, len(rows)))]
        of_row: dict[int, list[_Judgment]] = {}
        for pair in pairs:
            of_row.setdefault(pair.place, []).append(pair)
        return [_to_label(pair, "random") for place in drawn for pair in of_row[place]]
    groups: dict[tuple[str, str | None], list[_Judgment]] = {}
    for pair in pairs:
        groups.setdefault((pair.entry.requirement, pair.entry.verdict), []).append(pair)
    chosen = [pair for group in groups.values() for pair in rng.sample(group, min(n, len(group)))]
    rng.shuffle(chosen)  # the order must not tell the verdict
    return [_to_label(pair, "by_verdict") for pair in chosen]


class _Judgment(NamedTuple):
    """A judgment with its row, and the index of the row in the run."""

    place: int
    row: GradedRow
    entry: CriterionReport


def _judged(row: GradedRow) -> Sequence[CriterionReport]:
    if row.report is None or is_trained_on(row):
        return []
    return [entry for entry in row.report.criteria if entry.was_judged and not entry.computed]


def _answers_to(entry: CriterionReport) -> tuple[str, ...]:
    """Return the answers to offer: MET and UNMET, the options, or the numbers of a short scale."""
    try:
        levels = answer_levels(entry.to_criterion())
    except ValueError:
        # A run of an earlier version has no options. The judge's own answers, if offered, would reveal its answer.
        return ()
    in_order = reversed(levels) if levels == ["UNMET", "MET"] else levels
    return (*in_order, _CANNOT_ASSESS) if levels else ()


def _to_label(pair: _Judgment, sampled: Sampled) -> JudgmentToLabel:
    place, row, entry = pair
    return JudgmentToLabel(
        row.id, entry.name, entry.requirement, row.submission, entry.verdict, sampled, place, _answers_to(entry)
    )
