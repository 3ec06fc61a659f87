"""Grades a sample of a training run with a second judge, and compares it with the judge that makes the reward."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rubric_integrations.formats.rubric_like import as_rubric
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.results.usage import NO_SPEND, Spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.runs.runner import grade_many
from rubric_integrations.submission.rows import Row
from rubric_integrations.training.health.columns import Columns
from rubric_integrations.training.health.result import JudgeGap, SecondJudge
from rubric_integrations.training.health.rollout_scores import CriterionKey, RunRows, is_compared, score_of
from rubric_integrations.training.health.trends import DIFFERENCE, UNIT, Thirds, measure_shortfall, measure_trend

if TYPE_CHECKING:
    from rubric_integrations.formats.rubric_like import RubricLike
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike


class PairedScores(NamedTuple):
    """The scores of both judges for one criterion of one completion."""

    judge: float
    second: float
    weight: float


class SecondGrades(NamedTuple):
    """What a second judge has graded.

    Attributes:
        sampled: The number of completions that were drawn.
        pairs: The criteria on which both judges have decided, by the number of the completion.
        failed: The number of completions on which the second judge failed.
        spend: What it cost.
        stopped: Why not all of the sample was graded; None if it was.
    """

    sampled: int
    pairs: Mapping[int, Mapping[CriterionKey, PairedScores]]
    failed: int = 0
    spend: Spend = NO_SPEND
    stopped: str | None = None


class SecondGrading(NamedTuple):
    """How a second judge grades. The attributes are the arguments of `reward_report`."""

    second: JudgeLike | Grader
    rubric: RubricLike | None
    sample: int
    seed: int
    ledger: LedgerLike | None
    max_cost: float | None
    max_concurrency: int

    def grade(self, rows: RunRows, columns: Columns) -> SecondGrades:
        """Grade a sample of the completions.

        Raises:
            ValueError: A setting is out of range, or no completion can be graded a second time.
        """
        rubric = None if self.rubric is None else as_rubric(self.rubric)
        grader = self.second if isinstance(self.second, Grader) else PerCriterionGrader(self.second)
        chosen: dict[int, GradedRow] = {}
        for number in _draw(columns.steps, self.seed):
            if len(chosen) == self.sample:
                break
            row = rows[columns.sources[number]]
            if _can_be_graded(row):
                chosen[number] = row
        if not chosen:
            raise ValueError(
                "`second` can grade no completion: the run needs its submissions, without attachments, and criteria on "
                "which its judge has decided; pass the file of `RubricReward(record=...)`"
            )
        # In the random order of the draw: if `max_cost` ends the run, the steps still have about equal numbers.
        run = grade_many(
            [Row(str(number), row.submission, rubric=rubric or _rubric_of(row)) for number, row in chosen.items()],
            None,
            grader,
            ledger=self.ledger,
            max_cost=self.max_cost,
            max_concurrency=self.max_concurrency,
        )
        pairs: dict[int, dict[CriterionKey, PairedScores]] = {}
        failed = 0
        for graded in run:
            number = int(graded.row.id)
            if graded.report is None or graded.report.failed_count or graded.judge_error:
                failed += 1
            elif of_both := _pair(chosen[number].report, graded.report):
                pairs[number] = of_both
        if not pairs and not failed and not run.summary.stopped:
            raise ValueError(
                "the judges have decided on no criterion in common: pass the rubric of the training run as `rubric`"
            )
        return SecondGrades(len(chosen), pairs, failed, run.summary.spend, run.summary.stopped)


def compare_judges(grades: SecondGrades, columns: Columns, level: float) -> tuple[SecondJudge, Any, Any]:
    """Compare both judges on the sample.

    Returns:
        The comparison; the score of each completion by the judge, and by the second one: NaN outside of the sample.
    """
    judge, second = np.full(len(columns.steps), math.nan), np.full(len(columns.steps), math.nan)
    of_criteria: dict[CriterionKey, tuple[list[int], list[float], list[float]]] = {}
    for number, pairs in grades.pairs.items():
        weights = [abs(pair.weight) for pair in pairs.values()]
        total = math.fsum(weights)
        if total:
            judge[number], second[number] = (
                math.fsum(weight * score for weight, score in zip(weights, scores, strict=True)) / total
                for scores in ([pair.judge for pair in pairs.values()], [pair.second for pair in pairs.values()])
            )
        for key, pair in pairs.items():
            places, of_judge, of_second = of_criteria.setdefault(key, ([], [], []))
            places.append(number)
            of_judge.append(pair.judge)
            of_second.append(pair.second)
    names, gaps = columns.names(), dict[str, JudgeGap]()
    for key in columns.criteria:
        if key in of_criteria:
            places, of_judge, of_second = of_criteria[key]
            gaps[names[key]] = _gap(np.array(of_judge), np.array(of_second), columns.thirds.at(places), level)
    comparison = SecondJudge(
        sampled=grades.sampled,
        compared=int((~np.isnan(judge)).sum()),
        score=_gap(judge, second, columns.thirds, level),
        criteria=gaps,
        spend=grades.spend,
    )
    return comparison, judge, second


def second_warnings(grades: SecondGrades) -> Iterator[str]:
    """Yield what limits the comparison with a second judge."""
    if grades.failed:
        yield f"the second judge failed on {grades.failed:,} of {grades.sampled:,} completions, which are left out"
    if grades.stopped:
        yield f"the second judge did not grade the whole sample: {grades.stopped}"


def _gap(judge: Any, second: Any, thirds: Thirds, level: float) -> JudgeGap:
    shortfall, p_value = measure_shortfall(judge, second, thirds, level)
    return JudgeGap(
        judge=measure_trend(judge, thirds, level, UNIT),
        second=measure_trend(second, thirds, level, UNIT),
        gap=measure_trend(judge - second, thirds, level, DIFFERENCE),
        shortfall=shortfall,
        p_value=p_value,
    )


def _draw(steps: Any, seed: int) -> Iterator[int]:
    """Yield all completions in a random order, in which each part has about as many of each step.

    A draw passes through the steps in an order that covers the run evenly from the beginning (by bit reversal), and
    takes one completion of each.
    """
    rng = random.Random(seed)  # noqa: S311 -- a sample, and no secret
    count = int(steps.max()) + 1
    bits = max(1, (count - 1).bit_length())
    order = [step for place in range(1 << bits) if (step := int(f"{place:0{bits}b}"[::-1], 2)) < count]
    waiting: list[list[int]] = [[] for _ in range(count)]
    for number, step in enumerate(steps.tolist()):
        waiting[step].append(number)
    for of_step in waiting:
        rng.shuffle(of_step)
    while order:
        order = [step for step in order if waiting[step]]
        for step in order:
            yield waiting[step].pop()


def _can_be_graded(row: GradedRow) -> bool:
    """Whether a row has its submission without attachments, and criteria on which its judge has decided."""
    report = row.report
    if row.submission is None or report is None or row.attachments or report.failed_count or not row.is_graded:
        return False
    return any(is_compared(entry) for entry in report.criteria)


def _rubric_of(row: GradedRow) -> Rubric:
    report = row.report
    return Rubric([entry.to_criterion() for entry in report.criteria if is_compared(entry)] if report else [])


def _pair(report: EvaluationReport | None, second: EvaluationReport) -> dict[CriterionKey, PairedScores]:
    others = {(entry.name, entry.requirement): score_of(entry) for entry in second.criteria if is_compared(entry)}
    pairs: dict[CriterionKey, PairedScores] = {}
    for entry in report.criteria if report else ():
        key = entry.name, entry.requirement
        judge, other = score_of(entry) if is_compared(entry) else None, others.get(key)
        if judge is not None and other is not None:
            pairs[key] = PairedScores(judge, other, entry.weight)
    return pairs
