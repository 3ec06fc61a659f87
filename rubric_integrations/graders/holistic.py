"""One score for the whole submission: the fastest strategy, without a reason for each criterion."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rubric_integrations.graders.base import Grader, PanelMember
from rubric_integrations.judges.protocol import OverallJudge
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.results.usage import Spend, total_spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import (
    Score,
    WeightedValue,
    fallback_judgment,
    reaches_mark,
    score_overall,
    score_parts,
)
from rubric_integrations.submission.submission import Submission

_JOIN: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class OverallAnswer(NamedTuple):
    """One judge's score of 0 to 100, or why there is none."""

    judge: str
    percent: float | None
    reason: str
    spend: Spend


class RubricAsJudgeGrader(Grader):
    """Asks the judge for one score of 0 to 100.

    `score` is that score over 100, `raw_score` puts it on the scale of the weighted sum so that it compares with other
    graders, `llm_raw_score` is the judge's own number, and `report` is None. A rubric with required criteria never
    passes here, for nothing shows that they hold; checks are left to the judge's eye like every other criterion.
    A panel's scores are joined by `ordinal_aggregation`: `mean`, `median`, `min` or `max`.

    Example:
        >>> async def generate(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"explanation": "Good.", "overall_score": 85}'
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "Kind"}, {"weight": 5, "requirement": "Is apt"}])
        >>> report = rubric.grade_sync("Please.", grader=RubricAsJudgeGrader(generate))
        >>> report.score, report.raw_score, report.llm_raw_score
        (0.85, 12.75, 85.0)
    """

    def __init__(self, *args: Any, **settings: Any):
        """Set up a grader; see `Grader` for the settings.

        Raises:
            ValueError: A setting is missing, unknown, out of range, or one about single criteria.
            TypeError: The judge cannot score a submission as a whole.
        """
        super().__init__(*args, **settings)
        for name in ("sequential", "examples"):
            if settings.get(name):
                raise ValueError(f"`{name}` is about single criteria: it would have no effect on a score of the whole")
        if self.policies.strategies["ordinal"] not in _JOIN:
            raise ValueError(f"`ordinal_aggregation` of scores of the whole must be one of {', '.join(_JOIN)}")
        for member in self.panel:
            if not isinstance(member.judge, OverallJudge):
                raise TypeError(
                    f"the judge {type(member.judge).__name__} cannot score a submission as a whole: use "
                    "PerCriterionGrader, or give it a method `judge_overall`"
                )

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[OverallAnswer]:
        """Obtain each judge's score."""
        return await asyncio.gather(*(self._ask(member, rubric, submission) for member in self.panel))

    async def _ask(self, member: PanelMember, rubric: Rubric, submission: Submission) -> OverallAnswer:
        judge: Any = member.judge
        try:
            overall, lost = await self.call_limiter.ask(lambda: judge.judge_overall(submission, rubric))
        except JudgeFailure as failure:
            return OverallAnswer(member.name, None, str(failure), failure.spend)
        return OverallAnswer(member.name, overall.percent, overall.reason, overall.spend + lost)

    def aggregate(self, rubric: Rubric, submission: Submission, found: Sequence[OverallAnswer]) -> EvaluationReport:
        """Join the judges' scores into the report."""
        given = [opinion for opinion in found if opinion.percent is not None]
        lost = [opinion for opinion in found if opinion.percent is None]
        percents = {opinion.judge: opinion.percent for opinion in found}
        join = _JOIN[self.policies.strategies["ordinal"]]
        percent = join([p for p in percents.values() if p is not None]) if given else None
        score = self._instead(rubric) if percent is None else score_overall(rubric, percent)
        return EvaluationReport(
            score=score.normalized if self.policies.normalize else score.raw,
            raw_score=score.raw,
            llm_raw_score=percent,
            passed=bool(given)
            and reaches_mark(score.normalized, rubric.pass_mark)
            and not any(criterion.is_gate for criterion in rubric.criteria),
            complete=not lost,
            coverage=1.0 if given else 0.0,
            failed_count=0 if given else len(rubric),
            error=f"{len(lost)} of {len(found)} judges gave no score: {lost[0].reason}" if lost else None,
            spend=total_spend(opinion.spend for opinion in found),
            judge_scores=self._judge_scores(rubric, percents) if len(found) > 1 else {},
            report=None,
            reason="; ".join(opinion.reason for opinion in given),
        )

    def _instead(self, rubric: Rubric) -> Score:
        """The score that stands in for a failure: that of every criterion's fallback; undefined for an abstention."""
        answers = [fallback_judgment(criterion, self.policies.on_failure) for criterion in rubric.criteria]
        if any(answer is None for answer in answers):
            return Score(None, None)
        values = [answer.value if answer else math.nan for answer in answers]
        return score_parts(
            [WeightedValue(c.weight, v, c.worst_value) for c, v in zip(rubric.criteria, values, strict=True)]
        )

    def _judge_scores(self, rubric: Rubric, percents: dict[str, float | None]) -> dict[str, float | None]:
        scores = {
            judge: score_overall(rubric, p) if p is not None else Score(None, None) for judge, p in percents.items()
        }
        return {judge: s.normalized if self.policies.normalize else s.raw for judge, s in scores.items()}
