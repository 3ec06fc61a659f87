"""The base classes of all graders: from a submission and a rubric to a report.

A grader computes checks and metrics itself, and abstains from criteria whose evidence is missing. It sends the other
questions to its panel of judges. Questions without an answer are sent again in further rounds.

A grader that replaces failures by fallback verdicts is not allowed to give rewards for training
(`refuse_made_up_scores`). A process may have one observer, such as the tracing with OpenTelemetry, which observes every
grade.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar, cast

from rubric_integrations._util.event_loop import run_on_texts, run_sync
from rubric_integrations.checks import run_check
from rubric_integrations.checks.metrics import run_metric
from rubric_integrations.graders.endpoint import WarmUp
from rubric_integrations.graders.panel import PanelMember, describe_judge, make_panel, require_judges, stored_judges
from rubric_integrations.graders.scheduler import CallLimiter, RefusalMemory, gather_calls, limit_judge, with_spend
from rubric_integrations.graders.settings import (
    CallLimits,
    OptionDisplay,
    TextLimits,
    Voting,
    report_omissions,
    shown_to_judges,
    with_retries,
)
from rubric_integrations.judges import as_judge
from rubric_integrations.judges.protocol import (
    GenerateFn,
    Judge,
    JudgeLike,
    Question,
    Request,
    fingerprint_of,
    innermost,
    without_cache,
)
from rubric_integrations.judges.spend import SpendLimit, spend_of_grade
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.criterion import Criterion, all_criteria, has_checks
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import (
    MetricResults,
    aggregate_answers,
    applicable_criteria,
    blend_metrics,
    subtract_penalty,
    votes_for,
    voting_criterion,
)
from rubric_integrations.scoring.judgment import (
    NO_SPEND,
    FailureKind,
    JudgeAnswers,
    JudgeFailure,
    Outcome,
    Spend,
    SpendTotal,
    to_judgment,
    total_spend,
)
from rubric_integrations.scoring.length import (
    LengthPenalty,
    compute_length_penalty,
    describe_length_penalty,
    least_score,
)
from rubric_integrations.scoring.policies import (
    CannotAssess,
    DefaultFallbackVerdicts,
    OnFailure,
    ScoringPolicies,
    validate_abstention_policy,
    validate_failure_policy,
)
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, failure_kinds
from rubric_integrations.scoring.voting import vote_is_decided
from rubric_integrations.submission.inputs import ToGradeInput, as_submission
from rubric_integrations.submission.submission import Submission, missing_evidence


def is_computed(question: Criterion, submission: Submission) -> bool:
    """Return whether a question needs no judge, because a check decides it or because its evidence is missing."""
    if question.check is not None:
        return True
    return bool(question.needs) and missing_evidence(question, submission) is not None


def computed_answers(rubric: Rubric, submission: Submission) -> JudgeAnswers:
    """Compute the answers to the questions of a rubric that need no judge.

    If the submission lacks the evidence that a criterion `needs`, the answer is an abstention. If this criterion has a
    check, the check is not run.
    """
    answers = {index: _answer(question, submission) for index, question in enumerate(all_criteria(rubric.criteria))}
    outcomes = {index: answer for index, answer in answers.items() if answer is not None}
    return JudgeAnswers(outcomes, judge="check")


def _answer(question: Criterion, submission: Submission) -> Outcome | None:
    if question.needs and (missing := missing_evidence(question, submission)):
        return to_judgment(question, "CANNOT_ASSESS").model_copy(update={"reason": missing})
    if question.check is None:
        return None
    try:
        return run_check(question.check, submission)
    except JudgeFailure as failure:
        return failure


def computed_metrics(rubric: Rubric, submission: Submission, policies: ScoringPolicies) -> MetricResults:
    """Compute the values of the hybrid metrics of a rubric for a submission.

    A metric that cannot be computed has the value None if `on_failure` is `raise` or `abstain`, and 0 otherwise.
    """
    values: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for metric in rubric.hybrid_metrics:
        try:
            values[metric.name] = run_metric(metric, submission)
        except JudgeFailure as failure:
            values[metric.name] = None if policies.on_failure in ("raise", "abstain") else 0.0
            errors[metric.name] = str(failure)
    return MetricResults(values, errors)


Grade: TypeAlias = Coroutine[Any, Any, EvaluationReport]
GradeObserver: TypeAlias = "Callable[[Grader, Rubric, object, Grade], Grade]"
"""Observes grades. It receives the grader, the rubric, the input, and the grade as a coroutine.

It returns a coroutine, which must await the grade once, return its report, and raise its exceptions. A grade in
several rounds is observed once.
"""

_observer: GradeObserver | None = None


def set_observer(observer: GradeObserver | None) -> None:
    """Set the observer of every grade that begins from now on, or remove it with None."""
    global _observer  # noqa: PLW0603 -- one observer per process, for graders that were made before and after
    _observer = observer


def observed(grader: Grader, rubric: Rubric, to_grade: object, grade: Grade) -> Grade:
    """Return an awaitable grade wrapped by the observer, or the grade itself if there is no observer."""
    return grade if _observer is None else _observer(grader, rubric, to_grade, grade)


DEFAULT_VOTING, DEFAULT_OPTIONS = Voting(), OptionDisplay()
DEFAULT_LIMITS, DEFAULT_TEXT_LIMITS = CallLimits(), TextLimits()


class Grader(ABC):
    """The base class of grading strategies: a strategy chooses the questions for a judge and the number of calls.

    To change how a grader works, override `generate` (sends a prompt to your function), `judge` (obtains the answers),
    `aggregate` (turns answers into a report), or `grade` (all of these steps). The failure policy, hybrid metrics and
    the length penalty are applied around `judge` and `aggregate`.

    Args:
        judge: A model name, a `dspy.LM`, a LangChain chat model, an async function, a `Judge`, or `"offline"`. There is
            no default, because inside DSPy a default judge would use the model of the program that is graded.
        generate_fn: An async function `(system_prompt, user_prompt) -> reply`, instead of `judge`. It has this name in
            the `rubric` package.
        judges: A panel of judges, instead of `judge`.
        voting: How a panel votes.
        system_prompt: Instructions that replace the built-in ones. Only for a model, not for a `Judge`.
        normalize: Whether `score` is in [0, 1]. If False, `score` is the raw weighted sum.
        length_penalty: The penalty for long responses, in the unit of `score`. By default, there is none.
        cannot_assess: How an abstention is scored: `skip`, `zero`, `partial`, `fail`, or a number in [0, 1] as the
            share of a positive weight that it earns. See `CannotAssess`.
        on_failure: How a judge's failure is handled: `raise` a `JudgeError`, count it as an abstention (`abstain`),
            count the answer with the lowest score (`worst_case`), or count fallback verdicts by the sign of the weight,
            such as `{"positive": "UNMET", "negative": "MET"}`.
        default_fallback_verdicts: Another name for fallback verdicts as `on_failure`, from the `rubric` package.
        options: How judges see the options of multi-choice criteria.
        max_retries: Another name for `CallLimits.max_retries`, from the `rubric` package.
        limits: The limits on calls: concurrency, timeout, retries and outages.
        text_limits: The limits on the texts that judges read.

    Raises:
        ValueError: A setting is missing, unknown, or out of range. Raised before any request.
        TypeError: `judge` has a type that cannot be used as a judge.
    """

    # Whether the strategy can judge a response in parts (`TextLimits.chunk_size`).
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
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: DefaultFallbackVerdicts | None = None,
        options: OptionDisplay = DEFAULT_OPTIONS,
        max_retries: int | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
        text_limits: TextLimits = DEFAULT_TEXT_LIMITS,
    ):
        if default_fallback_verdicts is not None:
            if on_failure != "raise":
                raise ValueError("`default_fallback_verdicts` and `on_failure` are two names of one thing: pass one")
            on_failure = default_fallback_verdicts
        validate_abstention_policy(cannot_assess)
        validate_failure_policy(on_failure)
        self.policies = ScoringPolicies(normalize, cannot_assess, on_failure, voting.strategies, options.may_abstain)
        self.voting, self.options, self.length_penalty = voting, options, length_penalty
        self.text_limits = text_limits
        limits = with_retries(limits, max_retries)
        self.call_limiter = CallLimiter(limits)
        self.warm_up: WarmUp | None = None
        self.rounds_left = _MAX_ROUNDS - 1 if limits.max_retries else 0
        # The answers of the earlier rounds, and the judges whose answers in this round include them.
        self._earlier: list[Any] | None = None
        self._continued: set[int] = set()
        # The spend of the requests that were lost in earlier rounds, by judge and criterion.
        self._lost: dict[tuple[int, int], Spend] = {}
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
        self.check_settings()

    def check_settings(self) -> None:
        """Check that this strategy can use its judges and settings. The constructor of `Grader` calls it last.

        Raises:
            ValueError: A setting has no effect, or a wrong effect, with this strategy.
            TypeError: A judge cannot answer the requests of this strategy.
        """
        if self.text_limits.chunk_size is not None and not self.judges_chunks:
            raise ValueError(
                f"`TextLimits.chunk_size` has no effect on {type(self).__name__}, which would judge long responses "
                "whole: use PerCriterionGrader"
            )

    async def generate(self, system_prompt: str, user_prompt: str) -> str:
        """Send one prompt to `generate_fn` and return the reply. Override it to change how prompts are sent."""
        if self._generate_fn is None:
            raise TypeError("`generate` is for a grader that was made with `generate_fn`")
        return await self._generate_fn(system_prompt, user_prompt)

    def _generating_model(self) -> JudgeLike:
        from rubric_integrations.judges.models.names import identify_function, lm_from_fn

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
            reference: A reference answer, shown to the judge for comparison.

        Raises:
            JudgeError: A criterion could not be judged and `on_failure` is `"raise"`. The error's `report` has the
                other answers.
            ValueError: There is nothing to grade, or a criterion names a judge that the grader does not have.
        """
        return await observed(self, rubric, to_grade, self._grade_in_rounds(rubric, to_grade, query, reference))

    def grade_sync(
        self, rubric: Rubric, to_grade: ToGradeInput, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """Grade one submission like `grade`, without `await`. It also works where an event loop is running."""
        return run_sync(self.grade(rubric, to_grade, query=query, reference=reference))

    def check_rubric(self, rubric: Rubric) -> None:
        """Check, before any request, that this grader has the judges that the rubric names.

        Raises:
            ValueError: A criterion names a judge that the grader does not have.
        """
        require_judges(rubric, self.panel)

    def least_score(self, rubric: Rubric) -> float:
        """Return the lowest score that this grader can give with a rubric, such as for an empty response."""
        return least_score(rubric, normalize=self.policies.normalize, length_penalty=self.length_penalty)

    @abstractmethod
    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Any]:
        """Obtain the answers of each judge, in the order of the panel, for `aggregate`."""

    @abstractmethod
    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> EvaluationReport:
        """Turn the answers that `judge` returned into a report."""

    @property
    def judges(self) -> list[Judge]:
        """The judges of the panel, in order. A wrapper limits the calls of each judge and validates its answers."""
        return [member.judge for member in self.panel]

    def with_judges(self, judges: Sequence[Judge]) -> Self:
        """Copy this grader with other judges in its panel.

        The copy keeps the settings and shares the concurrency limit.

        Args:
            judges: One judge for each judge of the panel, usually wrappers of `self.judges`.
        """
        grader, pairs = copy.copy(self), zip(self.panel, judges, strict=True)
        grader.panel = tuple(member.with_judge(judge, self.call_limiter) for member, judge in pairs)
        return grader

    def without_cache(self) -> Self:
        """Copy this grader with judges that use neither a response cache nor a judgment store."""
        return self.with_judges([without_cache(judge) for judge in self.judges])

    def with_store(self, store: LedgerLike, sample: int = 0) -> Self:
        """Copy this grader with judges that look up every judgment in a store before they request it.

        Args:
            store: The store of judgments: a `Ledger`, another store, the path of a file, or the URL of a database. For
                a path or URL, a ledger is opened and stays open.
            sample: The number of this sample, if you want several independent grades of the same texts. Judgments of
                different samples are stored separately.

        Raises:
            LedgerError: The ledger cannot be used.
            TypeError: A judge has no `fingerprint`. The store could not distinguish its answers from the answers of
                another judge.
        """
        from rubric_integrations.runs.ledger.addresses import as_store

        return self.with_judges(stored_judges(self.judges, as_store(store), sample))

    def for_run(
        self,
        max_concurrency: int | None = None,
        spend_limit: SpendLimit | None = None,
        *,
        max_outage: float | None = None,
        warm_up: WarmUp | None = None,
        may_end: bool = True,
    ) -> Self:
        """Copy this grader for a run of many submissions. The run ends if the judge is down or cannot be used.

        `grade` then raises `JudgeUnusable`. The docstring of `Endpoint` describes when a run ends.

        Args:
            max_concurrency: The most calls at the same time, at least 1. If this grader's own limit is smaller, that
                limit applies. All runs of one grader with the same limit share its slots.
            spend_limit: Counts and limits the calls of the run.
            max_outage: The seconds, at least 0, after which an outage of the judge ends the run. Default: as in
                `CallLimits`.
            warm_up: Delays the other calls about a submission until the first one is answered. None to delay no calls.
            may_end: Whether a judge that cannot be used ends the run. If False, only the grades that need the judge
                fail. A server uses False, because it must continue.
        """
        grader = copy.copy(self)
        grader.call_limiter = self.call_limiter.for_run(max_concurrency, spend_limit, max_outage, may_end=may_end)
        grader.warm_up = warm_up
        return grader.with_judges([limit_judge(judge, grader.call_limiter) for judge in self.judges])

    def remembering_refusals(self) -> Self:
        """Copy this grader for a host that grades the same texts many times, such as the metric of an optimizer.

        The copy does not ask again what the judge has refused to answer, until its `call_limiter` is reset. It shares
        the concurrency limit.
        """
        limiter = self.call_limiter
        grader = self.for_run(spend_limit=limiter.spend_limit, warm_up=self.warm_up, may_end=limiter.streak is not None)
        grader.call_limiter.refusals = RefusalMemory()
        return grader

    def fingerprints(self) -> list[str]:
        """Return the fingerprint of each judge. An empty text for a judge that has no fingerprint."""
        return [fingerprint_of(judge) or "" for judge in self.judges]

    def configuration(self) -> dict[str, Any]:
        """Describe this grader as JSON. `rescore` recreates the grader from this description in a ledger."""
        judges, names = list(map(describe_judge, self.judges)), [member.name for member in self.panel]
        return {"grader": type(self).__name__, "judges": judges, "names": names, "settings": self.settings()}

    def settings(self) -> dict[str, Any]:
        """Return, as JSON, the constructor arguments that affect questions and scores. A subclass adds its own."""
        text_limits, penalty = self.text_limits.model_dump(exclude_none=True), self.length_penalty
        return {
            **({"text_limits": text_limits} if text_limits else {}),
            "voting": self.voting.model_dump(mode="json"),
            "options": self.options.model_dump(mode="json"),
            "normalize": self.policies.normalize,
            "cannot_assess": self.policies.cannot_assess,
            "length_penalty": penalty and describe_length_penalty(penalty),
        }

    def scoring_record(self) -> dict[str, Any]:
        """Describe as JSON the settings that affect scores, without the rubric. Run files store it for comparing runs.

        The record does not contain the limits on calls, the retries and the failure policy. They affect only rows in
        which a judge failed, and a comparison of runs leaves these rows out.
        """
        settings = self.settings()
        if len(self.panel) == 1:
            settings.pop("voting", None)
        judges, names = list(map(describe_judge, self.judges)), [member.model for member in self.panel]
        return {"strategy": type(self).__name__, "judges": judges, "names": names, **settings}

    async def _grade_in_rounds(
        self, rubric: Rubric, to_grade: ToGradeInput, query: str | None, reference: str | None
    ) -> EvaluationReport:
        """Grade one submission. Lost judgments are requested again in two further rounds, with one attempt in each.

        The report is the most complete one, with the spend of all rounds.
        """
        self.check_rubric(rubric)
        submission = as_submission(to_grade, query, reference)
        if self.call_limiter.streak is not None:
            self.call_limiter.streak.check()
        total, whole = SpendTotal(), spend_of_grade.get()
        outside = spend_of_grade.set(total)
        try:
            answers = await self.judge(rubric, submission)
            report = await self._report(rubric, submission, answers)
            grader = self
            while report.failed_count and grader.rounds_left and _may_succeed_later(report, answers):
                grader = grader._for_later_round(answers, report)
                answers = await grader.judge(rubric, submission)
                report = _best_of(report, await grader._report(rubric, submission, answers), bool(grader._continued))
        except BaseException:
            # For example at a limit. Without this, other submissions could wait forever for the end of this grade.
            self.call_limiter.record_submission([], is_graded=False)
            raise
        finally:
            spend_of_grade.reset(outside)
            if whole is not None:
                whole.add(total.spend)
        if total.spend.calls > report.spend.calls:
            # A cancelled request has no outcome with its spend.
            report = report.model_copy(update={"spend": total.spend})
        failures = [] if report.complete else judge_failures(answers)
        self.call_limiter.record_submission(failures, is_graded=not failures and _asks_judges(answers))
        report = report_omissions(report, rubric, submission, self.text_limits)
        if report.failed_count and self.policies.on_failure == "raise":
            raise JudgeError(report.error or "a judge failed", report)
        if self.length_penalty is not None:
            report = await self._with_penalty(rubric, submission, report)
        if rubric.scale is None or report.score is None or not self.policies.normalize:
            return report
        return report.model_copy(update={"scaled_score": rubric.scale.number_at(report.score)})

    def may_repeat(self, failure: JudgeFailure) -> bool:
        """Return whether a judgment with this failure is requested again in a later round of this grade."""
        return self.rounds_left > 0 and failure.kind in _LOST and failure.repeats is None

    def _for_later_round(self, answers: Sequence[Any], report: EvaluationReport) -> Self:
        """Copy this grader for a round that makes one attempt at each judgment that is missing in `answers`."""
        grader = copy.copy(self)
        # After an outage of `max_outage` seconds, a later round does not wait once more.
        outage = 0.0 if "transport" in failure_kinds(report) else self.call_limiter.limits.outage_seconds
        grader.call_limiter = self.call_limiter.for_later_round(outage)
        grader.rounds_left = self.rounds_left - 1
        grader._continued = set()
        grader._continue(answers)
        return grader

    def _continue(self, answers: Sequence[Any]) -> None:
        """Keep the answers that a later round needs. By default none, and a later round requests everything again."""
        self._earlier = None

    async def _report(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> EvaluationReport:
        """Make the report. Checks and metrics run in a thread, because each of them may take a second.

        On the event loop, they would delay all other submissions, and replies would be lost to timeouts.
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


T = TypeVar("T")


class CriterionGrader(Grader):
    """A grader that obtains an answer to each criterion. A subclass implements `ask`, the calls to one judge.

    Attributes:
        may_leave_open: How a criterion that no judge was asked about is reported. If True, it has no answer and is in
            `not_asked`. If False, it is a failure.
        asks_conditions_first: Whether the condition of a criterion (`applies_when`) is requested first, and the
            criterion only if the condition is true. If False, both are requested concurrently, and the answer to a
            criterion that does not apply is ignored.
    """

    may_leave_open = False
    asks_conditions_first = True

    @abstractmethod
    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, indices: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge the questions with these indices.

        An index below `len(rubric)` is a criterion of the rubric. The following indices are its distinct conditions.
        Create each question with the method `question`.
        """

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers, in the order of the panel, to all criteria that need a judge."""
        all_questions = all_criteria(rubric.criteria)
        indices = [index for index, question in enumerate(all_questions) if not is_computed(question, submission)]
        if self.call_limiter.refusals is not None and (refused := self._refused_before(rubric, submission, indices)):
            return [refused]
        conditional = [criterion for criterion in rubric.criteria if criterion.applies_when is not None]
        if not conditional:
            return await self.ask_panel(rubric, submission, indices)
        indices.sort(key=lambda index: index < len(rubric))  # conditions first
        computed = await self.run_checks(rubric, submission)

        def ready(panel: Sequence[JudgeAnswers], *, while_open: bool = False) -> list[int]:
            applicable = applicable_criteria(rubric, panel, computed, self.policies, while_open=while_open)
            return [index for index in indices if index >= len(rubric) or index in applicable]

        first = ready([], while_open=not self.asks_conditions_first)
        panel = await self.ask_panel(rubric, submission, first)
        later = [index for index in ready(panel) if index not in first]
        if not later:
            return panel
        if self.stops_at_first_failure and any(
            isinstance(outcome, JudgeFailure) and not self.may_repeat(outcome) for outcome in panel[0].outcomes.values()
        ):
            cancelled = JudgeFailure("cancelled", "another criterion had failed")
            return [panel[0].merged(JudgeAnswers(dict.fromkeys(later, cancelled)))]
        more = await self.ask_panel(rubric, submission, later)
        return [answers.merged(others) for answers, others in zip(panel, more, strict=True)]

    def _refused_before(self, rubric: Rubric, submission: Submission, indices: Sequence[int]) -> JudgeAnswers | None:
        """Return the answers if the judge has refused a question before, whose failure ends this grade. None if not.

        Otherwise, the other questions would be asked although the grade fails.
        """
        if not self.stops_at_first_failure or self.call_limiter.refusals is None:
            return None
        member = self.panel[0]
        for index in indices:
            question = self.question(rubric, submission, index, member)
            request = Request(question.submission, question)
            if (failure := self.call_limiter.refusals.find(innermost(member.judge), request)) is not None:
                cancelled = JudgeFailure("cancelled", "another criterion had failed")
                return JudgeAnswers({**dict.fromkeys(indices, cancelled), index: failure}, member.name, member.weight)
        return None

    async def ask_panel(self, rubric: Rubric, submission: Submission, indices: Sequence[int]) -> list[JudgeAnswers]:
        """Ask each judge of the panel the questions with these indices, except criteria that name another judge.

        The judges are asked concurrently, or one after another with `voting.sequential`.
        """
        if len(self.panel) == 1 and self._earlier is None:
            # Not in a separate function or task, because each call would pass through it.
            member = self.panel[0]
            own = [index for index in indices if member.may_answer(rubric, index)]
            return [await self.ask(member, rubric, submission, own) if own else _no_answers(member)]
        if not self.voting.sequential:
            asking = (self._ask_own(position, rubric, submission, indices) for position in range(len(self.panel)))
            return await gather_calls(asking)
        panel: list[JudgeAnswers] = []
        for position in range(len(self.panel)):
            waiting = [later.weight for later in self.panel[position:]]
            known = self._earlier[position].outcomes if self._earlier else ()
            undecided = [i for i in indices if i in known or not self._is_decided(rubric, i, panel, waiting)]
            panel.append(await self._ask_own(position, rubric, submission, undecided))
        return panel

    async def _ask_own(
        self, position: int, rubric: Rubric, submission: Submission, indices: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about the criteria that it may answer and has not answered in an earlier round."""
        member = self.panel[position]
        own = [index for index in indices if member.may_answer(rubric, index)]
        earlier = self._take_earlier(position)
        missing = [index for index in own if index not in earlier.outcomes]
        if not missing:
            return earlier
        lost = {index: spend for index in missing if (spend := self._lost.pop((position, index), None))}
        answers = earlier.merged(await self.ask(member, rubric, submission, missing))
        outcomes = {
            index: with_spend(outcome, lost[index]) if index in lost else outcome
            for index, outcome in answers.outcomes.items()
        }
        return answers._replace(outcomes=outcomes)

    def _take_earlier(self, position: int) -> JudgeAnswers:
        """Return a judge's answers of the earlier rounds. Their common spend is included only the first time."""
        if self._earlier is None:
            return _no_answers(self.panel[position])
        answers: JudgeAnswers = self._earlier[position]
        if position in self._continued:
            return answers._replace(spend=NO_SPEND)
        self._continued.add(position)
        return answers

    def earlier_answers(self) -> list[JudgeAnswers]:
        """Return the answers of the earlier rounds of this grade, in the order of the panel. Empty in round one."""
        panel = [self._take_earlier(position) for position in range(len(self.panel))]
        # Add the spend of lost requests here, because some of them may not be repeated.
        spend = total_spend(self._lost.values())
        self._lost.clear()
        return [panel[0]._replace(spend=panel[0].spend + spend), *panel[1:]] if spend.calls else panel

    def _continue(self, answers: Sequence[Any]) -> None:
        self._earlier, self._lost = [], {}
        for position, judge_answers in enumerate(cast("Sequence[JudgeAnswers]", answers)):
            lost = {index: o.spend for index, o in judge_answers.outcomes.items() if _is_lost(o)}
            kept = {index: o for index, o in judge_answers.outcomes.items() if index not in lost}
            self._earlier.append(judge_answers._replace(outcomes=kept))
            self._lost |= {(position, index): spend for index, spend in lost.items()}

    def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[JudgeAnswers]) -> EvaluationReport:
        """Turn the answers of judges and checks into a report."""
        computed = computed_answers(rubric, submission)
        return aggregate_answers(rubric, answers, computed, self.policies, may_leave_open=self.may_leave_open)

    async def run_checks(self, rubric: Rubric, submission: Submission) -> JudgeAnswers:
        """Compute the answers that need no judge. Checks run in a thread, because some take a second."""
        if not has_checks(rubric.criteria):
            return computed_answers(rubric, submission)
        return await asyncio.to_thread(computed_answers, rubric, submission)

    def question(
        self,
        rubric: Rubric,
        submission: Submission,
        index: int,
        member: PanelMember,
        batch: Sequence[int] = (),
    ) -> Question:
        """Create the question about one criterion, with its options in the order in which the judge sees them.

        Args:
            rubric: The rubric.
            submission: The submission.
            index: The index of the criterion in the rubric. Indices from `len(rubric)` on are the distinct conditions.
            member: The judge that is asked.
            batch: The indices of all criteria of the same request, if it contains several.
        """
        count = len(rubric.criteria)
        has_condition = index >= count or (batch and max(batch) >= count)
        all_questions = all_criteria(rubric.criteria) if has_condition else rubric.criteria
        criterion = all_questions[index]
        options = criterion.options or ()
        if options and self.options.shuffle:
            options = shuffle_options(options, self.options.seed, submission.response, index, member.name)
        is_part = (len(batch) if batch else 1) < count
        shown = shown_to_judges(submission, self.text_limits)
        return Question(
            shown,
            criterion,
            rubric.instructions,
            options,
            self.options.may_abstain,
            batch_criteria=tuple(all_questions[other] for other in batch),
            warm_prompt_cache=(self.warm_up is not None or self.may_leave_open) and is_part,
            whole_response=submission.response if shown is not submission else None,
        )

    @property
    def stops_at_first_failure(self) -> bool:
        """Whether the first failure ends the grade: with a single judge and `on_failure="raise"`."""
        return self.policies.on_failure == "raise" and len(self.panel) == 1

    def _is_decided(self, rubric: Rubric, index: int, panel: Sequence[JudgeAnswers], waiting: Sequence[float]) -> bool:
        criterion = voting_criterion(rubric, index)
        votes = [vote for vote in votes_for(index, panel) if vote.error is None]
        return vote_is_decided(criterion, votes, waiting, self.policies.strategy_for(criterion))


def shuffle_options(options: Sequence[T], seed: int, text: str, index: int, judge: str) -> tuple[T, ...]:
    """Shuffle options. The order depends on the seed, the text, the criterion's index and the judge's name.

    The order is the same as in `autorubric` 1.6. Therefore, recorded runs of that package can be repeated.
    """
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    key = int(hashlib.sha256(f"{seed}:{digest}:{index}:{judge}".encode()).hexdigest()[:16], 16) % 2**31
    shuffled = list(options)
    random.Random(key).shuffle(shuffled)  # noqa: S311 -- an order, not a secret
    return tuple(shuffled)


def refuse_made_up_scores(grader: Grader) -> None:
    """Refuse a grader that gives scores for failures of its judge, or that may end a grade without a score.

    Its scores are not valid rewards for training. The trained model could learn to cause failures of the judge.

    Raises:
        ValueError: The grader has `stop_when_decided`, or an `on_failure` other than `"raise"`.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> refuse_made_up_scores(PerCriterionGrader("offline"))
    """
    if isinstance(grader, CriterionGrader) and grader.may_leave_open:
        raise ValueError(
            "`grader` has `stop_when_decided`: leave it out, because a score that is left open is no reward"
        )
    if grader.policies.on_failure != "raise":
        raise ValueError(
            f"`grader` has `on_failure={grader.policies.on_failure!r}`: leave it out; the score of a failure would be "
            "a gradient towards what makes judges fail"
        )


_MAX_ROUNDS = 3
"""The number of rounds of a grade. With two retries, this makes five attempts at each judgment: three in the first
round and one in each further round. If 13 % of the replies are unreadable, 1 of 27,000 judgments is lost after five
attempts.
"""

_LOST: tuple[FailureKind, ...] = ("transport", "parse")
"""The kinds of failures after which a later round requests the judgment again."""


def judge_failures(answers: Sequence[Any]) -> list[JudgeFailure]:
    """Return the failures among the answers of a panel, except cancelled requests."""
    outcomes: list[object] = []
    for judge_answer in answers:
        if isinstance(judge_answer, JudgeAnswers):
            outcomes += judge_answer.outcomes.values()
        else:
            outcomes.append(getattr(judge_answer, "failure", None))
    return [outcome for outcome in outcomes if isinstance(outcome, JudgeFailure) and outcome.kind != "cancelled"]


def _asks_judges(answers: Sequence[Any]) -> bool:
    """Return whether a judge was asked. Answers from checks alone give no information about the judge."""
    return any(not isinstance(judge_answer, JudgeAnswers) or judge_answer.outcomes for judge_answer in answers)


def _may_succeed_later(report: EvaluationReport, answers: Sequence[Any]) -> bool:
    failures = judge_failures(answers)
    if failures and all(failure.repeats is not None for failure in failures):
        return False  # a content filter or a refusal is about the text, which does not change
    kinds = failure_kinds(report)
    return bool(kinds) and kinds <= set(_LOST)


def _best_of(earlier: EvaluationReport, later: EvaluationReport, later_includes_earlier: bool) -> EvaluationReport:
    """Return the report with fewer failures, with the spend of both rounds."""
    if later_includes_earlier:
        return later
    best = min(later, earlier, key=lambda report: report.failed_count)
    return best.model_copy(update={"spend": earlier.spend + later.spend})


def _no_answers(member: PanelMember) -> JudgeAnswers:
    return JudgeAnswers({}, member.name, member.weight)


def _is_lost(outcome: Outcome) -> bool:
    """Return whether a later round requests this judgment again."""
    if not isinstance(outcome, JudgeFailure) or outcome.repeats is not None:
        return False
    return outcome.kind in (*_LOST, "cancelled")
