"""What every grader shares: settings, the retry budget, the failure policy, and the one aggregator."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from rubric_integrations.background import run_sync
from rubric_integrations.judges import as_judge
from rubric_integrations.rubric import Criterion, Rubric
from rubric_integrations.scoring import (
    CannotAssess,
    FallbackVerdicts,
    OnFailure,
    Part,
    check_on_failure,
    check_policy,
    coverage,
    failure_verdict,
    holds,
    reaches,
    score_parts,
)
from rubric_integrations.submission import Submission, ToGrade, as_submission
from rubric_integrations.verdict import (
    VERDICT_VALUES,
    CriterionReport,
    EvaluationReport,
    JudgeError,
    JudgeFailure,
    Judgment,
    Spend,
)

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.engines import GenerateFn

Answer = Judgment | JudgeFailure
"""What became of one question: an answer (abstentions included) or a failure, never mixed."""

# No wait between attempts is longer, whatever a server asks for: a run should fail while someone is looking.
MAX_WAIT = 60.0


class Grader(ABC):
    """A way to grade: which questions to ask, and in how many calls.

    A subclass says how in `judge`; settings, retries, policies and the score are the same for all.
    """

    def __init__(
        self,
        judge: JudgeLike | None = None,
        *,
        generate_fn: GenerateFn | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        system_prompt: str | None = None,
        normalize: bool = True,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: FallbackVerdicts | None = None,
        max_retries: int = 2,
        max_concurrency: int = 32,
        timeout: float = 120.0,
    ):
        """Set up a grader; whatever is wrong is refused here, before anything is paid for.

        Args:
            judge: A model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`. There is no default.
            generate_fn: The name that an async function has in the `rubric` package.
            api_base: The base URL of an OpenAI-compatible server; goes with a model name.
            api_key: Its key.
            system_prompt: Instructions in place of the built-in ones.
            normalize: Whether `score` is in [0, 1]; if not, it is the raw weighted sum.
            cannot_assess: What an abstention counts: `skip`, `zero`, `partial` or `fail`.
            partial_credit: The share of a positive weight that `partial` gives, in [0, 1].
            on_failure: What a judge's failure does: `raise` a JudgeError, count as an abstention (`abstain`), as
                the `worst_case`, or as fallback verdicts by the weight's sign.
            default_fallback_verdicts: The name that fallback verdicts have in the `rubric` package.
            max_retries: Further attempts after a lost or unreadable reply, at least 0; 2 means three attempts.
            max_concurrency: Calls under way at once in each event loop, over all grades of this grader.
            timeout: Seconds for one attempt.

        Raises:
            ValueError: A setting is missing, unknown or out of range.
            TypeError: `judge` is nothing that can judge.
        """
        if judge is not None and generate_fn is not None:
            raise ValueError("`judge` and `generate_fn` are two names of one thing: pass one")
        chosen = judge if judge is not None else generate_fn
        if chosen is None:
            raise ValueError(
                "`judge` is missing: name a model such as 'openai/gpt-5-mini', or 'offline'; with a default, "
                "a judge inside DSPy would run on the student's own model"
            )
        if default_fallback_verdicts is not None:
            if on_failure != "raise":
                raise ValueError("`default_fallback_verdicts` and `on_failure` are two names of one thing: pass one")
            on_failure = default_fallback_verdicts
        check_policy(cannot_assess, partial_credit)
        check_on_failure(on_failure)
        for name, value, least in (("max_retries", max_retries, 0), ("max_concurrency", max_concurrency, 1)):
            if isinstance(value, bool) or value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value!r}")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0 seconds, got {timeout!r}")
        self.judged_by = as_judge(chosen, api_base=api_base, api_key=api_key, system_prompt=system_prompt)
        self.normalize, self.partial_credit = normalize, partial_credit
        self.cannot_assess: CannotAssess = cannot_assess
        self.on_failure: OnFailure = on_failure
        self.max_retries, self.max_concurrency, self.timeout = max_retries, max_concurrency, timeout
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def grade(
        self, rubric: Rubric, to_grade: ToGrade, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """Grade one submission; `Rubric.grade` is the usual way in.

        Raises:
            JudgeError: A criterion could not be judged and `on_failure` is `"raise"`; its `report` has the rest.
            ValueError: There is nothing to grade.
        """
        submission = as_submission(to_grade, query, reference)
        answers = await self.judge(rubric, submission)
        report = self.aggregate(rubric, answers)
        if report.error and self.on_failure == "raise":
            raise JudgeError(report.error, report)
        return report

    def grade_sync(
        self, rubric: Rubric, to_grade: ToGrade, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """`grade` for callers without an event loop, and for notebooks and threads that have one."""
        return run_sync(self.grade(rubric, to_grade, query=query, reference=reference))

    @abstractmethod
    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Answer]:
        """Obtain one answer a criterion, in the rubric's order."""

    def aggregate(self, rubric: Rubric, answers: Sequence[Answer]) -> EvaluationReport:
        """Turn one answer a criterion into the report, by `rubric_integrations.scoring`."""
        rows = [
            self._row(key, criterion, answer)
            for key, criterion, answer in zip(rubric.keys, rubric.criteria, answers, strict=True)
        ]
        parts = [Part(c.weight, row.value, c.worst_value) for c, row in zip(rubric.criteria, rows, strict=True)]
        score = score_parts(parts, self.cannot_assess, self.partial_credit)
        failed = [row for row in rows if row.error]
        return EvaluationReport(
            score=score.normalized if self.normalize else score.raw,
            raw_score=score.raw,
            llm_raw_score=score.raw,
            passed=reaches(score.normalized, rubric.pass_mark) and all(row.passed for row in rows if row.required),
            complete=not failed,
            coverage=coverage(rubric, [row.value is not None and not row.error for row in rows]),
            cannot_assess_count=sum(row.value is None and not row.error for row in rows),
            failed_count=len(failed),
            error=_error_line(failed),
            spend=sum((row.spend for row in rows), Spend()),
            report=tuple(rows),
        )

    def _row(self, key: str, criterion: Criterion, answer: Answer) -> CriterionReport:
        failed = isinstance(answer, JudgeFailure)
        if failed:
            verdict = failure_verdict(criterion, self.on_failure)
            value = VERDICT_VALUES[verdict] if verdict else None
        else:
            verdict, value = answer.verdict, answer.value
        return CriterionReport(
            name=key,
            requirement=criterion.requirement,
            weight=criterion.weight,
            verdict=verdict,
            value=value,
            reason="" if failed else answer.reason,
            error=str(answer) if failed else None,
            required=criterion.is_gate,
            passed=not failed and holds(criterion, value),
            spend=answer.spend,
            neutralized=not failed and answer.neutralized,
        )

    async def ask(self, attempt: Callable[[], Awaitable[Judgment]]) -> Answer:
        """Make one call to a judge under the concurrency cap, the timeout and the retry budget.

        One budget serves lost and unreadable replies; the wait doubles from half a second, or is what the server
        asks for. What failed attempts cost is in the answer's spend.
        """
        spent = Spend()

        async def once() -> Judgment:
            nonlocal spent
            try:
                async with self._slot(), asyncio.timeout(self.timeout):
                    return await attempt()
            except JudgeFailure as failure:
                spent += failure.spend
                raise
            except TimeoutError:
                spent += Spend(calls=1)
                raise JudgeFailure("transport", f"no reply within {self.timeout:g} s", retryable=True) from None
            except Exception as error:  # whatever a judge of the user's own raises, it is one criterion's failure
                raise JudgeFailure("config", f"{type(error).__name__}: {error}") from error

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.max_retries + 1),
            wait=_wait,
            retry=retry_if_exception(_may_retry),
            reraise=True,
        )
        try:
            judgment = await retrying(once)
        except JudgeFailure as failure:
            failure.spend = spent
            return failure
        return judgment.model_copy(update={"spend": spent + judgment.spend})

    def _slot(self) -> asyncio.Semaphore:
        # A semaphore belongs to one event loop; a grader may serve several.
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.max_concurrency))


_backoff = wait_exponential(multiplier=0.5, max=MAX_WAIT) + wait_random(0, 0.25)


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after if isinstance(failure, JudgeFailure) else None
    return min(MAX_WAIT, max(0.0, asked)) if asked is not None else _backoff(state)


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, JudgeFailure) and error.retryable


def _error_line(failed: Sequence[CriterionReport]) -> str | None:
    if not failed:
        return None
    first, others = failed[0], len(failed) - 1
    more = f" (and {others} more)" if others else ""
    return f"`{first.name}` was not judged: {first.error}{more}"
