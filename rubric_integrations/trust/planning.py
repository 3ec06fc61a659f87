"""The number of labels that a conclusion needs, and a random choice of the judgments to label."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.matching import RunLike, is_trained_on, read_rows
from rubric_integrations.trust.questions import QuestionToLabel, question_of
from rubric_integrations.trust.statistics import normal_quantile


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
        question: What the rater reads besides, and the answers to offer.
    """

    id: str
    criterion: str
    requirement: str
    submission: Submission | None
    judged: str | None
    sampled: Sampled
    row: int
    question: QuestionToLabel

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers to offer, an abstention last; empty if the run does not tell them."""
        return tuple(answer.verdict for answer in self.question.answers)


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
    pairs = [_Judgment(place, row, index, entry) for place, row in rows for index, entry in _judged(row)]
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
    """A judgment with its row, the index of the row in the run, and its own index in the row's report."""

    place: int
    row: GradedRow
    position: int
    entry: CriterionReport


def _judged(row: GradedRow) -> Sequence[tuple[int, CriterionReport]]:
    if row.report is None or is_trained_on(row):
        return []
    entries = enumerate(row.report.criteria)
    return [(index, entry) for index, entry in entries if entry.was_judged and not entry.computed]


def _to_label(pair: _Judgment, sampled: Sampled) -> JudgmentToLabel:
    place, row, position, entry = pair
    return JudgmentToLabel(
        row.id, entry.name, entry.requirement, row.submission, entry.verdict, sampled, place, question_of(row, position)
    )


# With 20 labels, the lower end of a corrected figure is above the truth in up to 6.7 % of runs, where 2.5 % are
# promised; with 50, in up to 4.8 %. Gates therefore need as many.
FEWEST_LABELS = 50


def plan_labels(
    half_width: float,
    *,
    judged: int,
    rate: float | None = None,
    sd: float | None = None,
    correlation: float = 0.0,
    level: float = 0.95,
) -> int | None:
    """Return how many labels give a corrected figure the interval of a width; at least 50.

    `n = (1 - r^2) / ((h / (z sd))^2 - r^2 / N)`.

    Args:
        half_width: Half the width of the interval, h, above 0.
        judged: The number of judged submissions, N.
        rate: The expected rate, in [0, 1], for a pass rate.
        sd: The expected standard deviation of the scores, in place of `rate`.
        correlation: The expected correlation r of the judge with people, in [0, 1].
        level: The level of the interval.

    Returns:
        The number; None if even a label for every submission would not be enough.

    Raises:
        ValueError: An argument is out of range, or not exactly one of `rate` and `sd` is set.

    Example:
        >>> [plan_labels(0.05, judged=1000, rate=0.8, correlation=r) for r in (0, 0.5, 0.7, 0.9)]
        [246, 197, 143, 59]
    """
    if (rate is None) == (sd is None):
        raise ValueError("set exactly one of `rate` and `sd`")
    for name, value, least, most in (("half_width", half_width, 0, math.inf), ("correlation", correlation, -1, 1)):
        if not least <= value <= most or (name == "half_width" and value == 0):
            raise ValueError(f"`{name}` is out of range, got {value!r}")
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be in [0, 1], got {rate!r}")
    spread = math.sqrt(rate * (1 - rate)) if rate is not None else float(sd or 0.0)
    if spread == 0:
        return min(FEWEST_LABELS, judged)
    # What the judge explains beyond chance; one that contradicts people explains nothing.
    explained = max(0.0, correlation) ** 2
    precision = (half_width / (normal_quantile(level) * spread)) ** 2
    rest = precision - explained / judged
    if rest <= 0:
        return None
    needed = math.ceil((1 - explained) / rest)
    return None if needed > judged else max(min(FEWEST_LABELS, judged), needed)
