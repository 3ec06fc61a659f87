"""`RubricAsJudgeGrader`: one call for one overall score. The fastest strategy, without reasons for single criteria."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rubric_integrations.graders.grader import DEFAULT_OPTIONS, Grader
from rubric_integrations.graders.rounds import Round
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.protocol import OverallJudge, Request, answer, innermost
from rubric_integrations.judges.spend import gather_calls
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import OverallAnswer, aggregate_overall
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission, missing_evidence

_JOIN: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class RubricAsJudgeGrader(Grader):
    """A grader that asks the judge for one overall score from 0 to 100.

    In the report, `score` is this number divided by 100. `raw_score` is converted to the scale of the weighted sum, for
    comparison with other graders. `llm_raw_score` is the judge's number, and `report` is None. With required criteria,
    a submission never passes, because there are no verdicts on them. The judge also decides checks and conditions
    (`applies_when`).

    An overall score cannot leave out a criterion. Therefore, if the submission lacks the evidence that a criterion
    `needs`, the grade fails without a call. A rubric with criteria that name a `judge` is refused.

    The arguments are the same as for `Grader`, except `options`. The scores of a panel are joined by `voting.ordinal`:
    `mean`, `median`, `min` or `max`.

    Raises:
        ValueError: A setting is missing, unknown, out of range, or about single criteria. Raised before any request.
        TypeError: `judge` cannot give an overall score.

    Example:
        >>> async def generate(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"explanation": "Good.", "overall_score": 85}'
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "Kind"}, {"weight": 5, "requirement": "Is apt"}])
        >>> report = rubric.grade_sync("Please.", grader=RubricAsJudgeGrader(generate))
        >>> report.score, report.raw_score, report.llm_raw_score
        (0.85, 12.75, 85.0)
    """

    explores_trajectories = True

    def check_settings(self) -> None:
        """Check that each judge can give an overall score and that no setting is about single criteria.

        Raises:
            ValueError: A setting or an example of a judge is about single criteria.
            TypeError: A judge cannot give an overall score.
        """
        super().check_settings()
        if self.options != DEFAULT_OPTIONS:
            raise ValueError("`options` are about single criteria: they have no effect on a score of the whole")
        if self.voting.sequential:
            raise ValueError("`voting.sequential` is about single criteria: it has no effect on a score of the whole")
        if (ordinal := self.voting.ordinal) not in _JOIN:
            raise ValueError(
                f"`voting.ordinal` of scores of the whole must be one of {', '.join(_JOIN)}, got {ordinal!r}"
            )
        for member in self.panel:
            judge = innermost(member.judge)
            if isinstance(judge, Cascade):
                raise TypeError(
                    "a Cascade cannot score a submission as a whole, because nothing says how sure its cheap judge is "
                    "of a score: use PerCriterionGrader"
                )
            if not isinstance(judge, OverallJudge):
                raise TypeError(
                    f"the judge {type(judge).__name__} cannot score a submission as a whole: use PerCriterionGrader, "
                    "or give it a method `judge_overall`"
                )
            if getattr(judge, "examples", ()):
                raise ValueError("`examples` are about single criteria: they have no effect on a score of the whole")

    def settings(self) -> dict[str, Any]:
        """Return, as JSON, the constructor arguments that affect questions and scores."""
        return {name: value for name, value in super().settings().items() if name != "options"}

    def check_rubric(self, rubric: Rubric) -> None:
        """Check, before any request, that no criterion of the rubric names a judge.

        Raises:
            ValueError: A criterion names a judge.
        """
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            if criterion.judge is not None:
                raise ValueError(
                    f"`{key}` has the `judge` {criterion.judge!r}, and a score of the whole has no answers to single "
                    "criteria: use PerCriterionGrader, or remove `judge`. Otherwise every judge would decide about it"
                )

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[OverallAnswer]:
        """Obtain the overall score of each judge."""
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            if missing := missing_evidence(criterion, submission):
                advice = "a score of the whole cannot leave it out, PerCriterionGrader can"
                failure = JudgeFailure("config", f"`{key}` {missing}: {advice}")
                return [OverallAnswer(member.name, None, str(failure), NO_SPEND) for member in self.panel]
        state = self.round_in_progress()
        if failure := await self.explore(rubric, submission, state):
            names = [member.name for member in self.panel]
            return [OverallAnswer(name, None, str(failure), NO_SPEND, failure) for name in names]
        return await gather_calls(
            self._request(position, rubric, submission, state) for position in range(len(self.panel))
        )

    async def _request(self, position: int, rubric: Rubric, submission: Submission, state: Round) -> OverallAnswer:
        """Request a judge's score, unless the judge has given it in an earlier round."""
        member, spend = self.panel[position], NO_SPEND
        earlier = state.earlier[position] if state.earlier else None
        if isinstance(earlier, OverallAnswer):
            state.is_continued = True
            if earlier.percent is not None:
                return earlier
            spend = earlier.spend
        request = Request(self.shown(submission), rubric=rubric, retries=state.retries)
        overall, lost = await self.call_limiter.outcome(partial(answer, member.judge, request), state.retries)
        if isinstance(overall, JudgeFailure):
            return OverallAnswer(member.name, None, str(overall), spend + overall.spend, overall)
        return OverallAnswer(
            member.name, overall.percent, overall.reason, spend + overall.spend + lost, model=overall.model
        )

    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[OverallAnswer]) -> EvaluationReport:
        """Join the judges' overall scores into the report."""
        return aggregate_overall(rubric, answers, _JOIN[self.voting.ordinal], self.policies)
