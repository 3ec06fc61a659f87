"""Measures how much a judge contradicts itself, and keeps GEPA from accepting candidates because of that noise."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import fmean, variance
from typing import Any

import numpy as np
from pydantic import Field

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations._util.text import counted
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.matching import RunLike, as_run

# The exchanges are drawn in parts, to save memory.
_EXCHANGES, _PARTS = 1_000, 20


class JudgeNoise(Record):
    """How much a judge contradicts itself about the same texts. `RubricMetric.noise` measures it.

    Attributes:
        scores: The scores in [0, 1] of each text from the repeated grades. An undefined score counts as 0.
        flip_rates: The share in [0, 1], by criterion, of answers that differ from the most frequent answer about the
            same text. An abstention counts as an answer.
        score_sd: The standard deviation of one text's score between repeated grades, pooled over the texts.
        program_sd: The standard deviation of the score between texts, without the part that the judge's noise causes.
    """

    scores: tuple[tuple[float, ...], ...]
    flip_rates: dict[str, UnitScore]
    score_sd: float = Field(ge=0.0)
    program_sd: float = Field(ge=0.0)

    @classmethod
    def of(cls, reports: Sequence[Sequence[EvaluationReport]]) -> JudgeNoise:
        """Compute the noise from repeated grades of the same texts.

        The variance of the texts' mean scores is `program_sd**2 + score_sd**2 / repeats`. The second term is caused by
        the judge. Source: one-way analysis of variance with random effects (Searle, Casella & McCulloch, *Variance
        Components*, 1992).

        Args:
            reports: The reports of each text. Every text has the same number of reports, at least two.
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

    def acceptance(self, false_accept_rate: float = 0.05, minibatch: int = 3) -> NoiseAwareAcceptance:
        """Return an acceptance criterion for GEPA that compares a candidate's gain with this noise.

        Args:
            false_accept_rate: The rate, at least 0.001 and below 0.5, at which candidates that are not better may be
                accepted.
            minibatch: The `reflection_minibatch_size` of GEPA.

        Raises:
            ValueError: The rate is out of range, or the noise was measured on too few texts for it.
        """
        return NoiseAwareAcceptance(self.scores, false_accept_rate, minibatch)


class NoiseAwareAcceptance:
    """An acceptance criterion for GEPA: accepts a candidate only if its gain exceeds the judge's noise.

    GEPA's default criterion accepts any gain. With a noisy judge, it also accepts some candidates that are not better.
    Two grades of the same text differ only by noise. If a candidate is not better, its gains on the texts of a
    minibatch are such differences, too: they could be exchanged with the differences of the measured texts, and each
    difference could have the other sign. The p-value is the share of such exchanges whose sum is at least the gain of
    the candidate (a permutation test). A candidate is accepted if the p-value is at most `false_accept_rate`.

    This test keeps its rate for every distribution of noise and every number of measured texts, if the texts of the
    minibatch are drawn like the measured ones. The texts may depend on each other, such as questions about one
    document, because the noise in the grades of different texts is independent. Small real gains are refused, too. A
    larger `reflection_minibatch_size` of GEPA accepts smaller gains.

    This class does not estimate how much better a candidate is on other inputs. A minibatch, for example of three
    inputs, is too small for such an estimate. Instead, compare the optimized program with the first program on a test
    set, with `compare_runs`.

    Args:
        scores: The scores of each text from repeated grades, at least two per text, as in `JudgeNoise.scores`.
        false_accept_rate: The rate, at least 0.001 and below 0.5, at which candidates that are not better may be
            accepted.
        minibatch: The `reflection_minibatch_size` of GEPA.

    Raises:
        ValueError: The rate is out of range, a text has fewer than two scores, or there are too few texts for the rate:
            30 are needed for 5 % and a minibatch of 3. With fewer, a gain on one text would always be refused.

    Example:
        >>> acceptance = NoiseAwareAcceptance([[0.75, 0.75, 0.875], [0.5, 0.5, 0.5]] * 15, false_accept_rate=0.05)
        >>> acceptance.p_value([0.5, 0.5, 0.5], [0.5, 0.625, 0.5]) > 0.05
        True
        >>> acceptance.p_value([0.5, 0.5, 0.5], [0.5, 1.0, 0.5]) <= 0.05
        True

    Pass it as `dspy.GEPA(..., gepa_kwargs={"acceptance_criterion": rubric_metric.noise(pairs).acceptance()})`.
    """

    def __init__(self, scores: Sequence[Sequence[float]], false_accept_rate: float = 0.05, minibatch: int = 3):
        if not 0.001 <= false_accept_rate < 0.5:
            raise ValueError(
                f"`false_accept_rate` must be at least 0.001 and below 0.5, got {false_accept_rate!r}: write 0.05 to "
                "accept 5 % of the candidates that are not better"
            )
        if not scores or min(map(len, scores)) < 2:
            raise ValueError("`scores` needs at least one text, and two scores of each: their difference is the noise")
        # Of the exchanges, minibatch / (texts + minibatch) contain a gain on one text, half of them with its sign.
        fewest = math.ceil(minibatch / (2 * false_accept_rate) - 1e-9)
        if len(scores) < fewest:
            raise ValueError(
                f"the noise was measured on {counted(len(scores), 'text')}, and for a minibatch of {minibatch} and a "
                f"`false_accept_rate` of {false_accept_rate:g} it takes {fewest:,}: measure it on more texts, or "
                "a gain on one text of the minibatch would always be refused"
            )
        self.false_accept_rate = false_accept_rate
        differences = [[first - second for first, second in permutations(text, 2)] for text in scores]
        self._differences = np.array([difference for text in differences for difference in text])
        self._counts = np.array([len(text) for text in differences])

    def p_value(self, before: Sequence[float], after: Sequence[float]) -> float:
        """Return how probable it is that noise alone causes at least this gain, above 0 and at most 1.

        Args:
            before: The score of each text of the minibatch with the earlier program.
            after: The score of each of these texts with the candidate, at least one, in the same order.
        """
        gains = np.subtract(after, before)
        # The differences of the measured texts, and then the gains of the minibatch with both signs.
        differences = np.concatenate([self._differences, np.column_stack([gains, -gains]).ravel()])
        counts = np.concatenate([self._counts, np.full(len(gains), 2)])
        starts = np.cumsum(counts) - counts
        generator, reached = np.random.default_rng(0), 0
        for _ in range(_PARTS):
            order = generator.random((_EXCHANGES, len(counts)), np.float32).argpartition(len(gains) - 1, axis=1)
            drawn = order[:, : len(gains)]
            places = starts[drawn] + (generator.random(drawn.shape) * counts[drawn]).astype(int)
            # Equal sums of decimal scores differ by rounding.
            reached += int((differences[places].sum(axis=1) >= gains.sum() - 1e-9).sum())
        return (1 + reached) / (1 + _EXCHANGES * _PARTS)

    def should_accept(self, proposal: Any, state: object) -> bool:
        """Decide whether GEPA accepts a candidate. GEPA calls this method (its `AcceptanceCriterion` protocol)."""
        before, after = _scores(proposal)
        return bool(after) and fmean(after) > fmean(before) and self.p_value(before, after) <= self.false_accept_rate

    def reject_reason(self, proposal: Any, state: object) -> str:
        """Explain a rejection for GEPA's log. GEPA calls this method."""
        before, after = _scores(proposal)
        if not after:
            return "it was not evaluated"
        gain = fmean(after) - fmean(before)
        return (
            f"its mean gain of {gain:.3f} may be the judge's noise (p = {self.p_value(before, after):.2g}, accepted up "
            f"to {self.false_accept_rate:g})"
        )


async def grade_repeatedly(
    grader: Grader, cases: Sequence[tuple[Rubric, Submission]], repeats: int, on_graded: Callable[[], None]
) -> list[list[EvaluationReport]]:
    """Grade each case several times, all concurrently. The grader limits the number of concurrent calls.

    Args:
        grader: The grader.
        cases: Pairs of a rubric and a submission.
        repeats: How often each case is graded.
        on_graded: A function that is called after each grade.

    Raises:
        JudgeError: A grade could not be completed. The other grades are cancelled.
    """

    async def grade_once(rubric: Rubric, submission: Submission) -> EvaluationReport:
        report = await grader.grade(rubric, submission)
        on_graded()
        return report

    tasks = [
        [asyncio.ensure_future(grade_once(rubric, submission)) for _ in range(repeats)] for rubric, submission in cases
    ]
    try:
        return [list(await asyncio.gather(*repeated)) for repeated in tasks]
    finally:
        for task in (task for repeated in tasks for task in repeated):
            task.cancel()


def noise(
    run: RunLike,
    grader: Grader,
    *,
    rubric: Rubric | None = None,
    sample: int = 50,
    repeats: int = 5,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> JudgeNoise:
    """Measure how much a judge contradicts itself about rows of a run: ask about each row several times.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        grader: The grader with the judge.
        rubric: The rubric of the run. By default, the criteria are read from the run (see `drift`).
        sample: The number of rows. They are drawn by a hash of their text.
        repeats: How often each row is asked, at least 2.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost in US dollars.
        max_calls: The largest number of calls to models.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: `repeats` is below 2, no row can be asked again, a limit stopped the measurement, or no row has a
            complete grade each time.
    """
    from rubric_integrations.trust.asked_again import ask_repeatedly, draw_rows

    if repeats < 2:
        raise ValueError(f"`repeats` must be at least 2, got {repeats!r}: one grade cannot contradict itself")
    drawn, _ = draw_rows(as_run(run, in_memory=True), rubric, sample)
    passes = ask_repeatedly(
        [(row.submission, row.rubric) for row in drawn], grader, repeats, max_concurrency=max_concurrency,
        max_cost=max_cost, max_calls=max_calls, prices=prices, progress=progress,
    )  # fmt: skip
    if passes[-1].stopped:
        raise ValueError(f"the measurement was stopped ({passes[-1].stopped}): raise the limit, or draw fewer rows")
    reports = [
        [report for report in of_row if report is not None and not report.failed_count]
        for of_row in zip(*(each_pass.reports for each_pass in passes), strict=True)
    ]
    complete = [of_row for of_row in reports if len(of_row) == repeats]
    if not complete:
        raise ValueError("no row has a complete grade each time: the judge failed on all of them")
    return JudgeNoise.of(complete)


def _scores(proposal: Any) -> tuple[list[float], list[float]]:
    return list(proposal.subsample_scores_before or ()), list(proposal.subsample_scores_after or ())
