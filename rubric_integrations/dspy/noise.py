"""How much of a gain is the judge's own noise: measured on frozen texts, and held against GEPA's candidates."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from statistics import fmean, variance
from typing import Any

import numpy as np
from pydantic import Field

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.graders import Grader
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

_DRAWS = 20_000


class JudgeNoise(Record):
    """How much a judge contradicts itself about the same texts.

    Attributes:
        scores: Those of each text, one for each time that it was judged, as DSPy sees them.
        flip_rates: By criterion, the share in [0, 1] of answers that differ from the most frequent one to the same
            text; an abstention is an answer.
        score_sd: The standard deviation of one text's score from judging to judging, pooled over the texts.
        program_sd: The standard deviation of the score from text to text, the judge's part taken off.
    """

    scores: tuple[tuple[float, ...], ...]
    flip_rates: dict[str, UnitScore]
    score_sd: float = Field(ge=0.0)
    program_sd: float = Field(ge=0.0)

    @classmethod
    def of(cls, reports: Sequence[Sequence[EvaluationReport]]) -> JudgeNoise:
        """Compute it from the reports of each text's repeats, at least two each.

        The variance of a text's mean is that between texts plus the judge's share, `score_sd**2 / repeats`: one-way
        analysis of variance with random effects (Searle, Casella & McCulloch, *Variance Components*, 1992).
        """
        scores = tuple(tuple(report.score or 0.0 for report in repeats) for repeats in reports)
        repeats = len(scores[0])
        within = fmean(variance(text) for text in scores)
        between = variance([fmean(text) for text in scores]) if len(scores) > 1 else 0.0
        answers: dict[str, list[Counter[str | None]]] = {}
        for text in reports:
            for rows in zip(*(report.criteria for report in text), strict=True):
                answers.setdefault(rows[0].name, []).append(Counter(row.verdict for row in rows))
        return cls(
            scores=scores,
            flip_rates={
                name: fmean(1 - max(count.values()) / repeats for count in counts) for name, counts in answers.items()
            },
            score_sd=math.sqrt(within),
            program_sd=math.sqrt(max(0.0, between - within / repeats)),
        )

    def acceptance(self, false_accept_rate: float = 0.05) -> NoiseAwareAcceptance:
        """A criterion for GEPA that holds a candidate's gain against this noise."""
        return NoiseAwareAcceptance(self.scores, false_accept_rate)


class NoiseAwareAcceptance:
    """Accepts a GEPA candidate only if its gain exceeds what the judge's noise explains.

    GEPA's default accepts any gain, so that with a noisy judge candidates that are no better pass by luck. This one
    asks how large a gain luck alone would give: two judgings of one text differ by nothing but noise, so the mean of
    `n` such differences, drawn from those measured, is the gain of a candidate that is no better on a minibatch of
    `n` (a bootstrap of the null hypothesis; scores move in steps, and a normal curve would be wrong about few of
    them). A candidate is accepted above the quantile of that at `1 - false_accept_rate`. A real gain that is smaller
    is refused with the rest; a larger `reflection_minibatch_size` lets smaller ones through.

    Example:
        >>> acceptance = NoiseAwareAcceptance([[0.75, 0.75, 0.875], [0.5, 0.5, 0.5]], false_accept_rate=0.05)
        >>> round(acceptance.least_gain(minibatch=3), 3)
        0.083

    Use it as `dspy.GEPA(..., gepa_kwargs={"acceptance_criterion": rubric_metric.noise(pairs).acceptance()})`.
    """

    def __init__(self, scores: Sequence[Sequence[float]], false_accept_rate: float = 0.05):
        """Set it up.

        Args:
            scores: Those of each text, one for each time that it was judged, at least two, as `JudgeNoise` has them.
            false_accept_rate: How often a candidate that is no better may be accepted, between 0 and 0.5.

        Raises:
            ValueError: The rate is out of range, or a text has fewer than two scores.
        """
        if not 0 < false_accept_rate < 0.5:
            raise ValueError(f"`false_accept_rate` must be between 0 and 0.5, got {false_accept_rate!r}")
        if not scores or min(map(len, scores)) < 2:
            raise ValueError("`scores` needs at least one text, and two scores of each: their difference is the noise")
        self.false_accept_rate = false_accept_rate
        self._differences = np.array([one - other for text in scores for one, other in permutations(text, 2)])
        self._least_gains: dict[int, float] = {}

    def least_gain(self, minibatch: int) -> float:
        """The mean gain that a candidate must exceed on a minibatch of this size."""
        if minibatch not in self._least_gains:
            chance = np.random.default_rng(0)
            sums = np.zeros(_DRAWS)
            for _ in range(minibatch):
                sums += chance.choice(self._differences, _DRAWS)
            least = np.quantile(sums / minibatch, 1 - self.false_accept_rate, method="higher")
            # Sums of a few digits differ by rounding where nothing was gained.
            self._least_gains[minibatch] = max(float(least), 0.0) + 1e-9
        return self._least_gains[minibatch]

    def should_accept(self, proposal: Any, state: object) -> bool:
        """GEPA's question: whether this candidate is to be kept."""
        before, after = _scores(proposal)
        return bool(after) and fmean(after) - fmean(before) > self.least_gain(len(after))

    def reject_reason(self, proposal: Any, state: object) -> str:
        """GEPA's question for its log: why not."""
        before, after = _scores(proposal)
        if not after:
            return "it was not evaluated"
        gain, least = fmean(after) - fmean(before), self.least_gain(len(after))
        return f"its mean gain of {gain:.3f} does not exceed {least:.3f}, which the judge's noise explains"


async def grade_repeatedly(
    grader: Grader, cases: Sequence[tuple[Rubric, Submission]], repeats: int
) -> list[list[EvaluationReport]]:
    """Grade each case several times; the calls under way at once are the grader's to cap.

    Raises:
        JudgeError: A grade could not be completed; the others are given up.
    """
    tasks = [
        [asyncio.ensure_future(grader.grade(rubric, submission)) for _ in range(repeats)]
        for rubric, submission in cases
    ]
    try:
        return [list(await asyncio.gather(*text)) for text in tasks]
    finally:
        for task in (task for text in tasks for task in text):
            task.cancel()


def _scores(proposal: Any) -> tuple[list[float], list[float]]:
    return list(proposal.subsample_scores_before or ()), list(proposal.subsample_scores_after or ())
