"""`RubricAsJudgeGrader`: one call for one overall score. The fastest strategy, without a reason for each criterion."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rubric_integrations.graders.grader import DEFAULT_LIMITS, DEFAULT_VOTING, Grader
from rubric_integrations.graders.settings import CallLimits, Voting, shown_to_judges
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.protocol import OverallJudge, Request, answer, innermost
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import OverallAnswer, aggregate_overall
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure
from rubric_integrations.scoring.length import LengthPenalty
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission, missing_evidence

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.models.names import GenerateFn

_JOIN: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class RubricAsJudgeGrader(Grader):
    """A grader that asks the judge for one score of 0 to 100.

    `score` is that score over 100; `raw_score` converts it to the scale of the weighted sum, so that it compares with
    other graders; `llm_raw_score` is the judge's own number; `report` is None. A rubric with required criteria never
    passes here, because nothing shows that they hold. Checks and conditions (`applies_when`) are left to the judge.

    One score cannot leave a criterion out. So if the submission lacks the evidence that a criterion `needs`, the grade
    is a failure without a call, and a rubric whose criteria name a `judge` is refused.

    Args:
        judge: A model name, a `dspy.LM`, a LangChain chat model, an async function, a `Judge`, or `"offline"`. There is
            no default: inside DSPy, a judge that is not named would use the student's own model.
        generate_fn: An async function `(system_prompt, user_prompt) -> reply` in place of `judge`, under the name that
            it has in the `rubric` package.
        judges: A panel of judges in place of `judge`.
        voting: How a panel votes: `ordinal` joins the scores, by `mean`, `median`, `min` or `max`.
        system_prompt: Instructions in place of the built-in ones; goes with a model, not with a `Judge`.
        normalize: Whether `score` is in [0, 1]; if not, it is the raw weighted sum.
        length_penalty: What long responses lose; in points where `normalize` is False. By default nothing.
        cannot_assess: How an abstention is scored: `skip`, `zero`, `partial` or `fail`.
        partial_credit: The share in [0, 1] of a positive weight that `cannot_assess="partial"` gives.
        on_failure: How a judge's failure is handled: `raise` a `JudgeError`, count it as an abstention (`abstain`), as
            the `worst_case`, or as fallback verdicts by the weight's sign, `{"positive": "UNMET", "negative": "MET"}`.
        default_fallback_verdicts: Fallback verdicts under the name that they have in the `rubric` package.
        max_retries: Retries after an unreadable reply, at least 0. A judgment that is still lost is requested once more
            in each of two further rounds: 2 means up to five calls, and 0 one. Calls without a reply, as in an outage
            or after a rate limit, are repeated for `CallLimits.max_outage` seconds.
        limits: The limits on concurrent calls and on the time of each.

    Raises:
        ValueError: A setting is missing, unknown, out of range, or about single criteria; raised before any request.
        TypeError: `judge` is nothing that can score a whole submission.

    Example:
        >>> async def generate(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"explanation": "Good.", "overall_score": 85}'
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "Kind"}, {"weight": 5, "requirement": "Is apt"}])
        >>> report = rubric.grade_sync("Please.", grader=RubricAsJudgeGrader(generate))
        >>> report.score, report.raw_score, report.llm_raw_score
        (0.85, 12.75, 85.0)
    """

    def __init__(
        self,
        judge: JudgeLike | None = None,
        *,
        generate_fn: GenerateFn | None = None,
        judges: Sequence[JudgeLike] | None = None,
        voting: Voting = DEFAULT_VOTING,
        system_prompt: str | None = None,
        normalize: bool = True,
        length_penalty: LengthPenalty | None = None,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: DefaultFallbackVerdicts | None = None,
        max_retries: int = 2,
        limits: CallLimits = DEFAULT_LIMITS,
    ):
        super().__init__(
            judge,
            generate_fn=generate_fn,
            judges=judges,
            voting=voting,
            system_prompt=system_prompt,
            normalize=normalize,
            length_penalty=length_penalty,
            cannot_assess=cannot_assess,
            partial_credit=partial_credit,
            on_failure=on_failure,
            default_fallback_verdicts=default_fallback_verdicts,
            max_retries=max_retries,
            limits=limits,
        )
        if voting.sequential:
            raise ValueError("`voting.sequential` is about single criteria: it has no effect on a score of the whole")
        if voting.ordinal not in _JOIN:
            raise ValueError(
                f"`voting.ordinal` of scores of the whole must be one of {', '.join(_JOIN)}, got {voting.ordinal!r}"
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
        """Return those constructor arguments, as JSON, that questions and scores depend on."""
        return {name: value for name, value in super().settings().items() if name != "options"}

    def check_rubric(self, rubric: Rubric) -> None:
        """Check, before any request, that no criterion of the rubric names a judge.

        Raises:
            ValueError: A criterion names one.
        """
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            if criterion.judge is not None:
                raise ValueError(
                    f"`{key}` has the `judge` {criterion.judge!r}, and a score of the whole has no answers to single "
                    "criteria: use PerCriterionGrader, or remove `judge`. Otherwise every judge would decide about it"
                )

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[OverallAnswer]:
        """Obtain each judge's score."""
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            if missing := missing_evidence(criterion, submission):
                advice = "a score of the whole cannot leave it out, PerCriterionGrader can"
                failure = JudgeFailure("config", f"`{key}` {missing}: {advice}")
                return [OverallAnswer(member.name, None, str(failure), NO_SPEND) for member in self.panel]
        return await asyncio.gather(
            *(self._request(position, rubric, submission) for position in range(len(self.panel)))
        )

    async def _request(self, position: int, rubric: Rubric, submission: Submission) -> OverallAnswer:
        member = self.panel[position]
        spend = NO_SPEND
        if self._earlier is not None:
            self._continued.add(position)
            earlier: OverallAnswer = self._earlier[position]
            if earlier.percent is not None:
                return earlier
            spend = earlier.spend
        shown = shown_to_judges(submission, self.call_limiter.limits)
        request = Request(shown, rubric=rubric, retries=self.call_limiter.retries)
        overall, lost = await self.call_limiter.outcome(partial(answer, member.judge, request))
        if isinstance(overall, JudgeFailure):
            return OverallAnswer(member.name, None, str(overall), spend + overall.spend, overall)
        return OverallAnswer(member.name, overall.percent, overall.reason, spend + overall.spend + lost)

    def _continue(self, answers: Sequence[Any]) -> None:
        self._earlier = list(answers)

    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[OverallAnswer]) -> EvaluationReport:
        """Join the judges' scores into the report."""
        return aggregate_overall(rubric, answers, _JOIN[self.voting.ordinal], self.policies)
