"""The base classes of all graders: from a submission and a rubric to a report.

A grader computes checks and metrics itself, and abstains from criteria whose evidence is missing. It sends the other
questions to its panel of judges. Questions without an answer are sent again in further rounds.

A grader that replaces failures by fallback verdicts is not allowed to give rewards for training
(`refuse_made_up_scores`). A process may have one observer, such as the tracing with OpenTelemetry, which observes every
grade.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast

from rubric_integrations._util.event_loop import run_on_texts, run_sync
from rubric_integrations.checks import run_check
from rubric_integrations.checks.metrics import run_metric
from rubric_integrations.graders.endpoint import WarmUp
from rubric_integrations.graders.exploring import GradeExploration
from rubric_integrations.graders.panel import PanelMember, describe_judge, make_panel, require_judges, stored_judges
from rubric_integrations.graders.rounds import MAX_ROUNDS, Criteria, Round, current_round, judge_failures, without_lost
from rubric_integrations.graders.scheduler import CallLimiter, RefusalMemory, limit_judge, with_spend
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
from rubric_integrations.judges.spend import SpendLimit, gather_calls, spend_of_grade
from rubric_integrations.judges.store import LedgerLike, StoredExplorer
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
    JudgeAnswers,
    JudgeFailure,
    Outcome,
    Spend,
    SpendTotal,
    Vote,
    to_judgment,
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
from rubric_integrations.scoring.report import EvaluationReport, JudgeError
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
    criteria = [(i, c) for i, c in enumerate(all_criteria(rubric.criteria)) if c.check is not None or c.needs]
    answers = {index: _answer(criterion, submission) for index, criterion in criteria}
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


class Runtime(NamedTuple):
    """The judges of a grader and the state of their calls. All grades of a grader share it.

    Attributes:
        panel: The judges.
        call_limiter: Limits and retries their calls.
        warm_up: Delays the other calls about a submission until the first one is answered. None to delay no calls.
        explorer: Chooses the steps of long trajectories, with limited calls. None to show all steps.
    """

    panel: tuple[PanelMember, ...]
    call_limiter: CallLimiter
    warm_up: WarmUp | None = None
    explorer: Judge | None = None

    @property
    def callers(self) -> list[Judge]:
        """All that make calls: the judges and the explorer."""
        return [member.judge for member in self.panel] + ([] if self.explorer is None else [self.explorer])


class Grader(ABC):
    """The base class of grading strategies: a strategy chooses the questions for a judge and the number of calls.

    To change how a grader works, override `generate` (sends a prompt to your function), `judge` (obtains the answers),
    `aggregate` (turns answers into a report), or `grade` (all of these steps). The failure policy, hybrid metrics and
    the length penalty are applied around `judge` and `aggregate`.

    The attributes of a grader are set by its constructor and never change.

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

    # Whether the strategy can judge a response in parts (`TextLimits.chunk_size`), and whether it calls `explore`.
    judges_chunks = False
    explores_trajectories = False

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
        limiter = CallLimiter(with_retries(limits, max_retries))
        # A wrapper passes requests on to an explorer as to a judge.
        explorer = None if text_limits.explorer is None else limit_judge(cast("Judge", text_limits.explorer), limiter)
        self.runtime = Runtime(make_panel(all_judges, voting.weights, limiter), limiter, explorer=explorer)
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
        if self.text_limits.explorer is not None and not self.explores_trajectories:
            raise ValueError(
                f"`TextLimits.explorer` has no effect on {type(self).__name__}, which does not call `explore`: use "
                "PerCriterionGrader, or set `explores_trajectories` where your `judge` calls it"
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
    def panel(self) -> tuple[PanelMember, ...]:
        """The judges with their names in reports and the weights of their votes."""
        return self.runtime.panel

    @property
    def call_limiter(self) -> CallLimiter:
        """Limits and retries the calls of the judges."""
        return self.runtime.call_limiter

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
        pairs = zip(self.panel, judges, strict=True)
        return self.with_panel(member.with_judge(judge, self.call_limiter) for member, judge in pairs)

    def with_panel(self, panel: Iterable[PanelMember]) -> Self:
        """Copy this grader with another panel. The copy keeps the settings and shares the concurrency limit."""
        return self._with_runtime(self.runtime._replace(panel=tuple(panel)))

    def _with_runtime(self, runtime: Runtime) -> Self:
        # Not by the constructor, because a subclass may have a constructor with other parameters.
        grader = object.__new__(type(self))
        vars(grader).update(vars(self), runtime=runtime)
        return grader

    def without_cache(self) -> Self:
        """Copy this grader with judges that use neither a response cache nor a judgment store."""
        grader, explorer = self.with_judges([without_cache(judge) for judge in self.judges]), self.runtime.explorer
        return grader if explorer is None else grader._with_explorer(without_cache(explorer))

    def _with_explorer(self, explorer: Judge) -> Self:
        return self._with_runtime(self.runtime._replace(explorer=explorer))

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

        opened, explorer = as_store(store), self.runtime.explorer
        grader = self.with_judges(stored_judges(self.judges, opened, sample))
        # The samples are about the same selection of steps.
        return grader if explorer is None else grader._with_explorer(StoredExplorer(explorer, opened))

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
        limiter = self.call_limiter.for_run(max_concurrency, spend_limit, max_outage, may_end=may_end)
        panel = tuple(member._replace(judge=limit_judge(member.judge, limiter)) for member in self.panel)
        explorer = None if self.runtime.explorer is None else limit_judge(self.runtime.explorer, limiter)
        return self._with_runtime(Runtime(panel, limiter, warm_up, explorer))

    def remembering_refusals(self) -> Self:
        """Copy this grader for a host that grades the same texts many times, such as the metric of an optimizer.

        The copy does not ask again what the judge has refused to answer, until its `call_limiter` is reset. It shares
        the concurrency limit.
        """
        limiter, warm_up = self.call_limiter, self.runtime.warm_up
        grader = self.for_run(spend_limit=limiter.spend_limit, warm_up=warm_up, may_end=limiter.streak is not None)
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

    def round_in_progress(self) -> Round:
        """Return the round of this grader's grade in progress. Outside of a grade, return the first round."""
        state = current_round.get()
        return self._first_round() if state is None or state.limiter is not self.call_limiter else state

    def _first_round(self) -> Round:
        limiter = self.runtime.call_limiter
        return Round(limiter, limiter.retries, MAX_ROUNDS - 1 if limiter.limits.max_retries else 0)

    async def _grade_in_rounds(
        self, rubric: Rubric, to_grade: ToGradeInput, query: str | None, reference: str | None
    ) -> EvaluationReport:
        """Grade one submission. Lost judgments are requested again in two further rounds, with one attempt in each.

        The report is the most complete one, with the spend of all rounds.
        """
        self.check_rubric(rubric)
        submission, limiter = as_submission(to_grade, query, reference), self.call_limiter
        if limiter.streak is not None:
            limiter.streak.check()
        total, whole, state = SpendTotal(), spend_of_grade.get(), self._first_round()
        outside, round_outside = spend_of_grade.set(total), current_round.set(state)
        try:
            answers = await self.judge(rubric, submission)
            report = await self._report(rubric, submission, answers)
            while later := state.next(answers, report, limiter.limits.outage_seconds):
                state = later
                current_round.set(state)
                answers = await self.judge(rubric, submission)
                report = state.best_of(report, await self._report(rubric, submission, answers))
        except BaseException:
            # For example at a limit. Without this, other submissions could wait forever for the end of this grade.
            limiter.record_submission([], is_graded=False)
            raise
        finally:
            current_round.reset(round_outside)
            spend_of_grade.reset(outside)
            if whole is not None:
                whole.add(total.spend)
        failures = [] if report.complete else judge_failures(answers)
        limiter.record_submission(failures, is_graded=not failures and _asks_judges(answers))
        exploration = state.exploration
        if exploration is not None:
            report = exploration.add_to(report)
        shown = submission if exploration is None else exploration.shown
        report = report_omissions(report, rubric, shown, self.text_limits)
        return await self._finished(rubric, submission, report, total.spend)

    async def explore(self, rubric: Rubric, submission: Submission, state: Round) -> JudgeFailure | None:
        """Let the explorer choose the steps of a long trajectory that judges see, once for all rounds of a grade.

        Call it before the first `question`. It does nothing without an explorer.

        Returns:
            The failure of the exploration, which is a failure of all criteria that need a judge. None if there is none.
        """
        explorer = self.runtime.explorer
        if explorer is None:
            return None
        if state.exploration is None or state.exploration.submission is not submission:
            state.exploration = GradeExploration(submission)
        # Outside of a grade, too, `shown` finds the exploration here.
        current_round.set(state)
        criteria = [c for c in all_criteria(rubric.criteria) if not is_computed(c, submission)]
        task = (rubric.instructions, criteria)
        return await state.exploration.run(explorer, self.text_limits, self.call_limiter, task, state.retries)

    def shown(self, submission: Submission) -> Submission:
        """Return a submission as judges see it: after an exploration, and with shortened results of tools."""
        if self.runtime.explorer is not None:
            exploration = self.round_in_progress().exploration
            if exploration is not None and exploration.submission is submission:
                submission = exploration.shown
        return shown_to_judges(submission, self.text_limits)

    async def _finished(
        self, rubric: Rubric, submission: Submission, report: EvaluationReport, spend: Spend
    ) -> EvaluationReport:
        """Add the spend, the length penalty and the score on the rubric's scale to a report.

        Raises:
            JudgeError: A criterion could not be judged and `on_failure` is `"raise"`.
        """
        if spend.calls > report.spend.calls:
            # A cancelled request has no outcome with its spend.
            report = report.model_copy(update={"spend": spend})
        if report.failed_count and self.policies.on_failure == "raise":
            raise JudgeError(report.error or "a judge failed", report)
        report = await self._with_penalty(rubric, submission, report)
        if rubric.scale is None or report.score is None or not self.policies.normalize:
            return report
        return report.model_copy(update={"scaled_score": rubric.scale.number_at(report.score)})

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
    explores_trajectories = True

    @abstractmethod
    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, criteria: Criteria, state: Round
    ) -> JudgeAnswers:
        """Ask one judge about some criteria. Create each question with the method `question`.

        Args:
            member: The judge.
            rubric: The rubric.
            submission: The submission.
            criteria: The criteria and conditions to ask about, at least one, by their index in the answers.
            state: The round of the grade.
        """

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers, in the order of the panel, to all criteria that need a judge."""
        criteria = {i: c for i, c in enumerate(all_criteria(rubric.criteria)) if not is_computed(c, submission)}
        if self.call_limiter.refusals is not None and (refused := self._refused_before(rubric, submission, criteria)):
            return [refused]
        state = self.round_in_progress()
        panel = self.earlier_answers(state)
        if not [criterion for criterion in rubric.criteria if criterion.applies_when is not None]:
            return await self.ask_panel(rubric, submission, criteria, panel, state)
        criteria = dict(sorted(criteria.items(), key=lambda entry: not entry[1].is_condition))
        computed = await self.run_checks(rubric, submission)

        def ready(panel: Sequence[JudgeAnswers], *, while_open: bool = False) -> dict[int, Criterion]:
            applicable = applicable_criteria(rubric, panel, computed, self.policies, while_open=while_open)
            return {index: c for index, c in criteria.items() if c.is_condition or index in applicable}

        first = ready([], while_open=not self.asks_conditions_first)
        panel = await self.ask_panel(rubric, submission, first, panel, state)
        later = {index: criterion for index, criterion in ready(panel).items() if index not in first}
        failures = judge_failures(panel) if self.stops_at_first_failure else []
        if later and not all(map(state.may_repeat, failures)):
            return [panel[0].merged(JudgeAnswers(dict.fromkeys(later, cancelled())))]
        return await self.ask_panel(rubric, submission, later, panel, state) if later else panel

    def _refused_before(self, rubric: Rubric, submission: Submission, criteria: Criteria) -> JudgeAnswers | None:
        """Return the answers if the judge has refused a question before, whose failure ends this grade. None if not.

        Otherwise, the other questions would be asked although the grade fails.
        """
        if not self.stops_at_first_failure or self.call_limiter.refusals is None:
            return None
        member = self.panel[0]
        for index in criteria:
            question = self.question(rubric, submission, index, member, criteria=criteria)
            request = Request(question.submission, question)
            if (failure := self.call_limiter.refusals.find(innermost(member.judge), request)) is not None:
                outcomes = {**dict.fromkeys(criteria, cancelled()), index: failure}
                return JudgeAnswers(outcomes, member.name, member.weight)
        return None

    async def ask_panel(
        self,
        rubric: Rubric,
        submission: Submission,
        criteria: Criteria,
        panel: Sequence[JudgeAnswers],
        state: Round,
    ) -> list[JudgeAnswers]:
        """Ask each judge of the panel about some criteria, except criteria that name another judge.

        The judges are asked concurrently, or one after another with `voting.sequential`.

        Args:
            rubric: The rubric.
            submission: The submission.
            criteria: The criteria and conditions to ask about, by their index in the answers.
            panel: The answers of each judge so far. A judge is not asked again about a criterion that it has answered.
            state: The round of the grade.

        Returns:
            All answers of each judge.
        """
        if self.runtime.explorer is not None and (failure := await self.explore(rubric, submission, state)):
            missing = (self._missing(position, criteria, answers) for position, answers in enumerate(panel))
            return [
                answers.merged(JudgeAnswers(dict.fromkeys(indices, failure)))
                for answers, indices in zip(panel, missing, strict=True)
            ]
        if len(panel) == 1:
            # Not in a separate function or task, because each call would pass through it.
            missing = self._missing(0, criteria, panel[0])
            if not missing:
                return list(panel)
            return [_joined(panel, 0, await self.ask(self.panel[0], rubric, submission, missing, state), state)]

        async def ask_member(position: int, criteria: Criteria) -> JudgeAnswers:
            missing = self._missing(position, criteria, panel[position])
            if not missing:
                return panel[position]
            more = await self.ask(self.panel[position], rubric, submission, missing, state)
            return _joined(panel, position, more, state)

        if not self.voting.sequential:
            return await gather_calls(ask_member(position, criteria) for position in range(len(panel)))
        later: list[JudgeAnswers] = []
        for position in range(len(panel)):
            waiting = [member.weight for member in self.panel[position:]]
            undecided = {i: c for i, c in criteria.items() if not self._is_decided(c, votes_for(i, later), waiting)}
            later.append(await ask_member(position, undecided))
        return later

    def _missing(self, position: int, criteria: Criteria, answers: JudgeAnswers) -> dict[int, Criterion]:
        """Return the criteria that a judge may answer and has not answered."""
        names, outcomes = (None, self.panel[position].name), answers.outcomes
        return {index: c for index, c in criteria.items() if index not in outcomes and c.judge in names}

    def earlier_answers(self, state: Round) -> list[JudgeAnswers]:
        """Return the answers of the earlier rounds, in the order of the panel, without those that are requested again.

        In the first round, the judges have no answers.
        """
        if not state.earlier:
            return [JudgeAnswers({}, member.name, member.weight) for member in self.panel]
        state.is_continued = True
        return [without_lost(answers) for answers in state.earlier if isinstance(answers, JudgeAnswers)]

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
        criteria: Criteria | None = None,
    ) -> Question:
        """Create the question about one criterion, with its options in the order in which the judge sees them.

        Args:
            rubric: The rubric.
            submission: The submission.
            index: The index of the criterion. The conditions of the rubric follow its criteria.
            member: The judge that is asked.
            batch: The indices of all criteria of the same request, if it contains several.
            criteria: The criteria and conditions by index, if they are known already.
        """
        if criteria is None:
            criteria = dict(enumerate(all_criteria(rubric.criteria)))
        criterion = criteria[index]
        options = criterion.options or ()
        if options and self.options.shuffle:
            options = shuffle_options(options, self.options.seed, submission.response, index, member.name)
        is_part = (len(batch) if batch else 1) < len(rubric.criteria)
        # Without a limit, each question is spared a call.
        has_limit = self.text_limits.step_limit is not None or self.runtime.explorer is not None
        shown = self.shown(submission) if has_limit else submission
        return Question(
            shown,
            criterion,
            rubric.instructions,
            options,
            self.options.may_abstain,
            batch_criteria=tuple([criteria[other] for other in batch]) if batch else (),
            warm_prompt_cache=(self.runtime.warm_up is not None or self.may_leave_open) and is_part,
            whole_response=submission.response if shown is not submission else None,
            whole_trajectory=submission.trajectory if shown is not submission else None,
        )

    @property
    def stops_at_first_failure(self) -> bool:
        """Whether the first failure ends the grade: with a single judge and `on_failure="raise"`."""
        return self.policies.on_failure == "raise" and len(self.panel) == 1

    def _is_decided(self, criterion: Criterion, votes: Sequence[Vote], waiting: Sequence[float]) -> bool:
        valid, criterion = [vote for vote in votes if vote.error is None], voting_criterion(criterion)
        return vote_is_decided(criterion, valid, waiting, self.policies.strategy_for(criterion))


def cancelled() -> JudgeFailure:
    """Return the failure of a criterion that is not asked about, because the failure of another one ends the grade."""
    return JudgeFailure("cancelled", "another criterion had failed")


def _joined(panel: Sequence[JudgeAnswers], position: int, more: JudgeAnswers, state: Round) -> JudgeAnswers:
    """Join the answers of a judge with further answers. Add the spend of the same judgments in earlier rounds."""
    earlier = state.earlier[position] if state.earlier else None
    if isinstance(earlier, JudgeAnswers):
        lost = earlier.outcomes
        outcomes = {i: with_spend(o, lost[i].spend) if i in lost else o for i, o in more.outcomes.items()}
        more = more._replace(outcomes=outcomes)
    return panel[position].merged(more)


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


def _asks_judges(answers: Sequence[Any]) -> bool:
    """Return whether a judge was asked. Answers from checks alone give no information about the judge."""
    return any(not isinstance(judge_answer, JudgeAnswers) or judge_answer.outcomes for judge_answer in answers)
