"""Draws the judgments that people should read, so that their labels measure the judge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.results.labels import Sampled
from rubric_integrations.results.report import CriterionReport
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.submission import Submission


class JudgmentToLabel(NamedTuple):
    """One judgment that people should read.

    Attributes:
        id: The row's id.
        criterion: The criterion's name in the rubric.
        requirement: Its requirement.
        submission: What was graded; None if the run does not have it.
        judged: The judge's answer. Do not show it to the rater, who would tend to agree with it.
        sampled: How it was drawn: the mark that its label must carry.
    """

    id: str
    criterion: str
    requirement: str
    submission: Submission | None
    judged: str | None
    sampled: Sampled


def choose_for_labels(run: RunLike, n: int, *, by_verdict: bool = False, seed: int = 0) -> list[JudgmentToLabel]:
    """Draw judgments of a run for people to label.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        n: How many submissions are drawn, with all their judgments; with `by_verdict`, how many judgments of each
            verdict on each criterion, where there are so many.
        by_verdict: Whether to draw among the judgments of each verdict, so that a rare one is read often enough. Such
            labels correct the rates of criteria, and not the mean score.
        seed: Which draw; the same seed draws the same.

    Raises:
        ValueError: `n` is less than 1, or the run has no judgments.
    """
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n!r}")
    rows = [row for row in read_rows(run) if row.report and any(entry.was_judged for entry in row.report.criteria)]
    if not rows:
        raise ValueError("the run has no judgments: there is nothing to label")
    rng = random.Random(seed)  # noqa: S311 -- a draw, not a secret
    if not by_verdict:
        drawn = rng.sample(rows, min(n, len(rows)))
        return [_to_label(row, entry, "random") for row in drawn for entry in _judged(row)]
    groups: dict[tuple[str, str | None], list[tuple[GradedRow, CriterionReport]]] = {}
    for row in rows:
        for entry in _judged(row):
            groups.setdefault((entry.requirement, entry.verdict), []).append((row, entry))
    chosen = [pair for group in groups.values() for pair in rng.sample(group, min(n, len(group)))]
    rng.shuffle(chosen)  # the order must not tell the verdict
    return [_to_label(row, entry, "by_verdict") for row, entry in chosen]


def _judged(row: GradedRow) -> Sequence[CriterionReport]:
    return [entry for entry in row.report.criteria if entry.was_judged] if row.report else []


def _to_label(row: GradedRow, entry: CriterionReport, sampled: Sampled) -> JudgmentToLabel:
    return JudgmentToLabel(row.id, entry.name, entry.requirement, row.submission, entry.verdict, sampled)
