"""What every grader shares: its settings, its panel of judges, and the way from a text to a report."""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.threads import run_on_texts
from rubric_integrations.graders.computed import computed_metrics
from rubric_integrations.graders.limited_judge import limit_judge
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.graders.long_texts import refuse_chunks, report_omissions
from rubric_integrations.graders.observer import observed
from rubric_integrations.graders.panel import describe_judge, make_panel, require_judges, stored_judges
from rubric_integrations.graders.settings import CallLimits, OptionDisplay, Voting
from rubric_integrations.graders.warm_up import WarmUp
from rubric_integrations.judges import as_judge
from rubric_integrations.judges.protocol import Judge, fingerprint_of, without_cache
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.conditions import has_checks
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import blend_metrics, subtract_penalty
from rubric_integrations.scoring.least_score import least_score
from rubric_integrations.scoring.length import LengthPenalty, compute_length_penalty
from rubric_integrations.scoring.policies import (
    CannotAssess,
    DefaultFallbackVerdicts,
    OnFailure,
    ScoringPolicies,
    validate_abstention_policy,
    validate_failure_policy,
)
from rubric_integrations.submission.inputs import ToGradeInput, as_submission
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.models import GenerateFn

DEFAULT_VOTING, DEFAULT_LIMITS, DEFAULT_OPTIONS = Voting(), CallLimits(), OptionDisplay()


class Grader(ABC):
    """A way to grade: which questions to ask a judge, and in how many calls. Its subclasses are the strategies.

    To change how a grader works, override `generate` (how a prompt reaches your function), `judge` (how answers are
    obtained), `aggregate` (how answers become a report), or `grade` (everything). The failure policy, hybrid metrics
    and the length penalty are applied around `judge` and `aggregate`.

    Args:
        judge: A model name, a `dspy.LM`, a LangChain chat model, an async function, a `Judge`, or `"offline"`. There is
            no default: inside DSPy, a judge that is not named would use the student's own model.
        generate_fn: An async function `(system_prompt, user_prompt) -> reply` in place of `judge`, under the name that
            it has in the `rubric` package.
        judges: A panel of judges in place of `judge`.
        voting: How a panel votes.
        system_prompt: Instructions in place of the built-in ones; goes with a model, not with a `Judge`.
        normalize: Whether `score` is in [0, 1]; if not, it is the raw weighted sum.
        length_penalty: What long responses lose; in points where `normalize` is False. By default nothing.
        cannot_assess: How an abstention is scored: `skip`, `zero`, `partial` or `fail`.
        partial_credit: The share in [0, 1] of a positive weight that `cannot_assess="partial"` gives.
        on_failure: How a judge's failure is handled: `raise` a `JudgeError`, count it as an abstention (`abstain`), as
            the `worst_case`, or as fallback verdicts by the weight's sign, `{"positive": "UNMET", "negative": "MET"}`.
        default_fallback_verdicts: Fallback verdicts under the name that they have in the `rubric` package.
        options: How judges see the options of multi-choice criteria.
        max_retries: Retries after a failed call, at least 0; 2 means up to three attempts. An outage has a limit of its
            own: `CallLimits.max_outage`.
        limits: The limits on concurrent calls and on the time of each.

    Raises:
        ValueError: A setting is missing, unknown, or out of range; raised before any request.
        TypeError: `judge` is nothing that can judge.
    """

    # Whether it judges a response in the parts of `CallLimits.chunk_size`.
    judges_chunks = False

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
        options: OptionDisplay = DEFAULT_OPTIONS,
        max_retries: int = 2,
        limits: CallLimits = DEFAULT_LIMITS,
    ):
        if default_fallback_verdicts is not None:
            if on_failure != "raise":
                raise ValueError("`default_fallback_verdicts` and `on_failure` are two names of one thing: pass one")
            on_failure = default_fallback_verdicts
        if not self.judges_chunks:
            refuse_chunks(type(self).__name__, limits)
        validate_abstention_policy(cannot_assess, partial_credit)
        validate_failure_policy(on_failure)
        self.policies = ScoringPolicies(
            normalize, cannot_assess, partial_credit, on_failure, voting.strategies, options.may_abstain
        )
        self.voting, self.options, self.length_penalty = voting, options, length_penalty
        self.call_limiter = CallLimiter(max_retries, limits)
        self.warm_up: WarmUp | None = None
        self._generate_fn = generate_fn
        sources = [source for source in (judge, generate_fn, judges) if source is not None]
        if len(sources) != 1 or (judges is not None and not judges):
            raise ValueError(
                "name exactly one of `judge`, such as 'openai/gpt-5-mini' or 'offline', `judges` and `generate_fn`; "
                "with a default, a judge inside DSPy would run on the student's own model"
            )
        members: list[JudgeLike] = (
            list(judges) if judges is not None else [self._generating_model() if judge is None else judge]
        )
        all_judges = [as_judge(member, system_prompt) for member in members]
        self.panel = make_panel(all_judges, voting.weights, self.call_limiter)

    async def generate(self, system_prompt: str, user_prompt: str) -> str:
        """Send one prompt to `generate_fn`; override it to change how."""
        if self._generate_fn is None:
            raise TypeError("`generate` is for a grader that was made with `generate_fn`")
        return await self._generate_fn(system_prompt, user_prompt)

    def _generating_model(self) -> JudgeLike:
        from rubric_integrations.judges.models.from_function import identify_function, lm_from_fn

        identity = identify_function(self._generate_fn)
        return lm_from_fn(self.generate, identity and f"{type(self).generate.__qualname__} {identity}")

    async def grade(
        self, rubric: Rubric, to_grade: ToGradeInput, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """Grade one submission. `Rubric.grade` is the usual way to call it.

        Args:
            rubric: The rubric.
            to_grade: The text, or `{"thinking": ..., "output": ...}`, chat messages, or a `Submission`.
            query: The task that the text answers.
            reference: An exemplary answer, to calibrate the judge.

        Raises:
            JudgeError: A criterion could not be judged and `on_failure` is `"raise"`; its `report` has the rest.
            ValueError: There is nothing to grade, or a criterion names a judge that the grader does not have.
        """
        return await observed(self, rubric, to_grade, self._grade_unobserved(rubric, to_grade, query, reference))

    def grade_sync(
        self, rubric: Rubric, to_grade: ToGradeInput, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """`grade` for callers without an event loop, and for notebooks and threads that have one."""
        return run_sync(self.grade(rubric, to_grade, query=query, reference=reference))

    def check_rubric(self, rubric: Rubric) -> None:
        """Check, before any request, that this grader has the judges that the rubric names.

        Raises:
            ValueError: A criterion names another one.
        """
        require_judges(rubric, self.panel)

    def least_score(self, rubric: Rubric) -> float:
        """Return the lowest score that this grader can give by a rubric, such as for an empty response."""
        return least_score(rubric, normalize=self.policies.normalize, length_penalty=self.length_penalty)

    @abstractmethod
    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Any]:
        """Obtain the answers of each judge, in the order of the panel."""

    @abstractmethod
    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> EvaluationReport:
        """Turn what `judge` returned into the report."""

    @property
    def judges(self) -> list[Judge]:
        """The judges of the panel, in order; each is validated and limited, and may be wrapped otherwise."""
        return [member.judge for member in self.panel]

    def with_judges(self, judges: Sequence[Judge]) -> Self:
        """Copy this grader, with its settings and its concurrency limit, and replace the judges of its panel.

        Args:
            judges: As many as the panel has, usually wrappers of `self.judges`.
        """
        grader, pairs = copy.copy(self), zip(self.panel, judges, strict=True)
        grader.panel = tuple(member.with_judge(judge, self.call_limiter) for member, judge in pairs)
        return grader

    def without_cache(self) -> Self:
        """Copy this grader with judges that use neither a cache of responses nor a store."""
        return self.with_judges([without_cache(judge) for judge in self.judges])

    def with_store(self, store: JudgmentStore, sample: int = 0) -> Self:
        """Copy this grader with judges that look up every judgment in a store before they request it.

        Args:
            store: Where judgments are stored, such as a `Ledger`.
            sample: The number of this sample, where the same texts are to get several independent grades.

        Raises:
            TypeError: A judge has no `fingerprint`, so that its answers cannot be distinguished from another judge's.
        """
        return self.with_judges(stored_judges(self.judges, store, sample))

    def for_run(
        self,
        max_concurrency: int | None = None,
        spend_limit: SpendLimit | None = None,
        *,
        max_outage: float | None = None,
        warm_up: WarmUp | None = None,
        may_end: bool = True,
    ) -> Self:
        """Copy this grader for a run of many submissions, which a judge that is down or unusable ends.

        See `graders/endpoint.py` for when that is; `grade` then raises `JudgeUnusable`.

        Args:
            max_concurrency: The most calls at the same time, at least 1; by default this grader's own limit. All runs
                of one grader with the same limit share it.
            spend_limit: Counts and limits the calls of the run.
            max_outage: The seconds, at least 0, for which the judge may not reply; by default as in `CallLimits`.
            warm_up: Holds the other calls about a submission until the first one is answered; None to hold none.
            may_end: Whether such a judge ends the run. In a server, whose run has no end, each grade fails alone.
        """
        grader = copy.copy(self)
        grader.call_limiter = self.call_limiter.for_run(max_concurrency, spend_limit, max_outage, may_end=may_end)
        grader.warm_up = warm_up
        return grader.with_judges([limit_judge(judge, grader.call_limiter) for judge in self.judges])

    def fingerprints(self) -> list[str]:
        """Return what each judge's answers depend on; an empty text for a judge that has no fingerprint."""
        return [fingerprint_of(judge) or "" for judge in self.judges]

    def configuration(self) -> dict[str, Any]:
        """Describe this grader as JSON, so that `rescore` can make it again from a ledger."""
        judges, names = list(map(describe_judge, self.judges)), [member.name for member in self.panel]
        return {"grader": type(self).__name__, "judges": judges, "names": names, "settings": self.settings()}

    def settings(self) -> dict[str, Any]:
        """Return those constructor arguments, as JSON, that questions and scores depend on; a subclass adds its own."""
        limits = self.call_limiter.limits.on_texts
        return {
            **({"limits": limits} if limits else {}),
            "voting": self.voting.model_dump(mode="json"),
            "options": self.options.model_dump(mode="json"),
            "normalize": self.policies.normalize,
            "cannot_assess": self.policies.cannot_assess,
            "partial_credit": self.policies.partial_credit,
        }

    async def _grade_unobserved(
        self, rubric: Rubric, to_grade: ToGradeInput, query: str | None, reference: str | None
    ) -> EvaluationReport:
        self.check_rubric(rubric)
        submission = as_submission(to_grade, query, reference)
        report = await self._report(rubric, submission, await self.judge(rubric, submission))
        report = report_omissions(report, rubric, submission, self.call_limiter.limits)
        if report.failed_count and self.policies.on_failure == "raise":
            raise JudgeError(report.error or "a judge failed", report)
        report = await self._with_penalty(rubric, submission, report)
        if rubric.scale is None or report.score is None or not self.policies.normalize:
            return report
        return report.model_copy(update={"scaled_score": rubric.scale.number_at(report.score)})

    async def _report(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> EvaluationReport:
        """Make the report; in a thread if it has checks or metrics, which may take a second for each.

        On the event loop they would hold all other submissions up, and replies would be lost to timeouts.
        """
        if not rubric.hybrid_metrics and not has_checks(rubric.criteria):
            return self._with_metrics(rubric, submission, answers)
        return await asyncio.to_thread(self._with_metrics, rubric, submission, answers)

    def _with_metrics(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> EvaluationReport:
        report = self.aggregate(rubric, submission, answers)
        if not rubric.hybrid_metrics:
            return report
        return blend_metrics(rubric, report, computed_metrics(rubric, submission, self.policies), self.policies)

    async def _with_penalty(self, rubric: Rubric, submission: Submission, report: EvaluationReport) -> EvaluationReport:
        if self.length_penalty is None:
            return report
        count = partial(compute_length_penalty, submission, self.length_penalty)
        penalty = await run_on_texts(count, submission.response, submission.thinking)
        return subtract_penalty(rubric, report, penalty, self.policies)
