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
from rubric_integrations.trust.matching import Cluster, RunLike, group_rows, is_trained_on, read_rows
from rubric_integrations.trust.means import Groups
from rubric_integrations.trust.questions import QuestionToLabel, question_of
from rubric_integrations.trust.statistics import normal_quantile, student_quantile


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


def choose_for_labels(
    run: RunLike, n: int, *, by_verdict: bool = False, cluster: Cluster | None = None, seed: int = 0
) -> list[JudgmentToLabel]:
    """Draw judgments of a run for people to label.

    Criteria with a check, which code answers, are left out, and so are the submissions whose labels the judge was
    aligned with: these say nothing about it.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        n: How many submissions are drawn, with all their judgments; with `by_verdict`, how many judgments of each
            verdict on each criterion, where there are so many.
        by_verdict: Whether to draw among the judgments of each verdict, so that a rare one is read often enough. Such
            labels correct the rates of criteria, and not the mean score.
        cluster: Which rows depend on each other, such as the questions about one document: a column of the graded
            table, `"id"`, `"query"`, or a function of a row's id. The draw then covers as many groups as it can. Each
            submission still has the same chance.
        seed: Which draw; the same seed draws the same.

    Raises:
        ValueError: `n` is less than 1, the run has no answer of a judge, or a row does not have the column of
            `cluster`.
    """
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n!r}")
    all_rows = read_rows(run)
    groups = group_rows(all_rows, cluster)
    rows = [(place, row) for place, row in enumerate(all_rows) if _judged(row)]
    if not rows:
        raise ValueError("the run has no answers of a judge: there is nothing to label")
    pairs = [_Judgment(place, row, index, entry) for place, row in rows for index, entry in _judged(row)]
    rng = random.Random(seed)  # noqa: S311 -- a draw, not a secret
    if not by_verdict:
        drawn = _draw([place for place, _ in rows], n, groups, rng)
        of_row: dict[int, list[_Judgment]] = {}
        for pair in pairs:
            of_row.setdefault(pair.place, []).append(pair)
        return [_to_label(pair, "random") for place in drawn for pair in of_row[place]]
    strata: dict[tuple[str, str | None], dict[int, _Judgment]] = {}
    for pair in pairs:
        strata.setdefault((pair.entry.requirement, pair.entry.verdict), {})[pair.place] = pair
    chosen = [of_row[place] for of_row in strata.values() for place in _draw(list(of_row), n, groups, rng)]
    rng.shuffle(chosen)  # the order must not tell the verdict
    return [_to_label(pair, "by_verdict") for pair in chosen]


def _draw(places: Sequence[int], n: int, groups: Groups | None, rng: random.Random) -> list[int]:
    """Draw rows at random; of rows in groups, at equal steps through the groups, in random order."""
    n = min(n, len(places))
    if groups is None:
        return rng.sample(places, n)
    keys = {group: rng.random() for group in sorted({int(groups[place]) for place in places})}
    in_order = sorted(rng.sample(places, len(places)), key=lambda place: keys[int(groups[place])])
    step, start = len(places) / n, rng.random()
    drawn = [in_order[int((start + number) * step)] for number in range(n)]
    rng.shuffle(drawn)
    return drawn


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
    groups: float | None = None,
    icc: float = 0.0,
    level: float = 0.95,
) -> int | None:
    """Return how many labels give a corrected figure the interval of a width; at least 50.

    `n = (1 - r^2) / ((h / (z sd))^2 - r^2 / N)`. Rows in groups count less: `n = (1 - r^2) / ((h / (t sd))^2 - i / G -
    r^2 / N)`, with the quantile t of G - 1 degrees of freedom.

    Args:
        half_width: Half the width of the interval, h, above 0.
        judged: The number of judged submissions, N.
        rate: The expected rate, in [0, 1], for a pass rate.
        sd: The expected standard deviation of the scores, in place of `rate`.
        correlation: The expected correlation r of the judge with people, in [0, 1].
        groups: The number G of groups of submissions that depend on each other, such as documents with several
            questions, at least 2; None for independent submissions.
        icc: The expected correlation i of two submissions of a group (intraclass correlation), in [0, 1].
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The number; None if even a label for every submission would not be enough.

    Raises:
        ValueError: An argument is out of range, or not exactly one of `rate` and `sd` is set.

    Example:
        >>> [plan_labels(0.05, judged=1000, rate=0.8, correlation=r) for r in (0, 0.5, 0.7, 0.9)]
        [246, 197, 143, 59]
        >>> plan_labels(0.1, judged=1000, rate=0.8, groups=100, icc=0.3)
        78
    """
    if (rate is None) == (sd is None):
        raise ValueError("set exactly one of `rate` and `sd`")
    for name, value, least, most in (("half_width", half_width, 0, math.inf), ("correlation", correlation, -1, 1)):
        if not least <= value <= most or (name == "half_width" and value == 0):
            raise ValueError(f"`{name}` is out of range, got {value!r}")
    if not 0 <= icc <= 1:
        raise ValueError(f"`icc` must be in [0, 1], got {icc!r}")
    if groups is not None and not groups >= 2:
        raise ValueError(
            f"`groups` must be at least 2, got {groups!r}: nothing tells how one group differs from others"
        )
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be in [0, 1], got {rate!r}")
    spread = math.sqrt(rate * (1 - rate)) if rate is not None else float(sd or 0.0)
    if spread == 0:
        return min(FEWEST_LABELS, judged)
    # What the judge explains beyond chance; one that contradicts people explains nothing.
    explained = max(0.0, correlation) ** 2
    quantile = normal_quantile(level) if groups is None else student_quantile(groups - 1, level)
    of_groups = 0.0 if groups is None else icc / groups
    rest = (half_width / (quantile * spread)) ** 2 - of_groups - explained / judged
    if rest <= 0:
        return None
    needed = math.ceil((1 - explained) / rest)
    return None if needed > judged else max(min(FEWEST_LABELS, judged), needed)
