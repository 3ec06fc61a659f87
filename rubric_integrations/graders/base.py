"""What every grader shares: its settings, its panel of judges, and the way from a text to a report."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.checks.metrics import run_metric
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.judges import as_judge
from rubric_integrations.judges.protocol import BatchJudge, Judge
from rubric_integrations.judges.stored import JudgmentStore, StoredJudge
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.criterion import Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import MetricResults, ScoringPolicies, lowest_score, map_scores, with_metrics
from rubric_integrations.scoring.formula import (
    CannotAssess,
    DefaultFallbackVerdicts,
    OnFailure,
    reaches_mark,
    validate_abstention_policy,
    validate_failure_policy,
)
from rubric_integrations.scoring.length import LengthPenalty, compute_length_penalty
from rubric_integrations.scoring.voting import DEFAULT_STRATEGIES, validate_strategies
from rubric_integrations.submission.submission import Submission, ToGradeInput, as_submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.models.from_name import GenerateFn
    from rubric_integrations.results.labels import LabelledJudgment


class PanelMember:
    """A judge on a panel: its name in reports, and how much its votes count."""

    def __init__(self, judge: Judge, name: str, weight: float):
        self.judge, self.name, self.weight = judge, name, weight

    def with_judge(self, judge: Judge) -> PanelMember:
        """The same seat for another judge."""
        return PanelMember(judge, self.name, self.weight)


class Grader(ABC):
    """A way to grade: which questions to ask, and in how many calls.

    To change how, override `generate` (how a prompt reaches your function), `judge` (how answers are obtained),
    `aggregate` (how they become a report), or `grade` for full control; the failure policy and the length penalty are
    applied around `judge` and `aggregate`.
    """

    def __init__(
        self,
        judge: JudgeLike | None = None,
        *,
        generate_fn: GenerateFn | None = None,
        judges: Sequence[JudgeLike] | None = None,
        judge_weights: Sequence[float] | None = None,
        aggregation: str = DEFAULT_STRATEGIES["binary"],
        ordinal_aggregation: str = DEFAULT_STRATEGIES["ordinal"],
        nominal_aggregation: str = DEFAULT_STRATEGIES["nominal"],
        sequential: bool = False,
        api_base: str | None = None,
        api_key: str | None = None,
        system_prompt: str | None = None,
        examples: Sequence[LabelledJudgment] = (),
        n_examples: int = 4,
        normalize: bool = True,
        length_penalty: LengthPenalty | None = None,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: DefaultFallbackVerdicts | None = None,
        auto_na_option: bool = True,
        shuffle_options: bool = True,
        seed: int = 0,
        max_retries: int = 2,
        max_concurrency: int = 32,
        timeout: float = 120.0,
    ):
        """Set up a grader; whatever is wrong is refused here, before anything is paid for.

        Args:
            judge: A model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`. There is no default.
            generate_fn: The name that an async function has in the `rubric` package.
            judges: In place of `judge`, a panel.
            judge_weights: How much each member's votes count, above 0; by default all the same.
            aggregation: How votes on binary criteria are joined: `majority`, `weighted`, `unanimous`, `any`,
                `worst_case` or `best_case`.
            ordinal_aggregation: The same for ordered options and scales: `mean`, `median`, `weighted_mean`, `mode`,
                `min`, `max`, `worst_case` or `best_case`.
            nominal_aggregation: The same for unordered options: `mode`, `weighted_mode` or `unanimous`.
            sequential: Ask the members in turn, and those left only about binary criteria that they can still change.
            api_base: The base URL of an OpenAI-compatible server; goes with a model name.
            api_key: Its key.
            system_prompt: Instructions in place of the built-in ones.
            examples: Labelled judgments to show to the judge; one about the text being graded is never shown.
            n_examples: How many of them at most, balanced by verdict.
            normalize: Whether `score` is in [0, 1]; if not, it is the raw weighted sum.
            length_penalty: What long responses lose; in points where `normalize` is False.
            cannot_assess: What an abstention counts: `skip`, `zero`, `partial` or `fail`.
            partial_credit: The share of a positive weight that `partial` gives, in [0, 1].
            on_failure: What a judge's failure does: `raise` a JudgeError, count as an abstention (`abstain`), as
                the `worst_case`, or as fallback verdicts by the weight's sign.
            default_fallback_verdicts: The name that fallback verdicts have in the `rubric` package.
            auto_na_option: Whether a judge may abstain from options where none is marked `na`.
            shuffle_options: Whether options are shown in an order that depends on the submission, against
                position bias.
            seed: Which order; the same seed gives the same.
            max_retries: Further attempts after a lost or unreadable reply, at least 0; 2 means three attempts.
            max_concurrency: Calls under way at once in each event loop, over all grades of this grader.
            timeout: Seconds for one attempt.

        Raises:
            ValueError: A setting is missing, unknown or out of range.
            TypeError: `judge` is nothing that can judge.
        """
        if default_fallback_verdicts is not None:
            if on_failure != "raise":
                raise ValueError("`default_fallback_verdicts` and `on_failure` are two names of one thing: pass one")
            on_failure = default_fallback_verdicts
        validate_abstention_policy(cannot_assess, partial_credit)
        validate_failure_policy(on_failure)
        strategies: Mapping[Kind, str] = {
            "binary": aggregation,
            "ordinal": ordinal_aggregation,
            "scaled": ordinal_aggregation,
            "nominal": nominal_aggregation,
        }
        validate_strategies(strategies)
        self.policies = ScoringPolicies(
            normalize, cannot_assess, partial_credit, on_failure, strategies, auto_na_option
        )
        self.call_limiter = CallLimiter(max_retries, max_concurrency, timeout)
        self.length_penalty, self.sequential, self.warm_prompt_cache = length_penalty, sequential, False
        self.shuffle_options, self.seed = shuffle_options, seed
        self._generate_fn = generate_fn
        named: list[JudgeLike] = list(judges or ()) + [j for j in (judge, generate_fn and self.generate) if j]
        if sum(given is not None for given in (judge, generate_fn, judges)) != 1 or not named:
            raise ValueError(
                "name exactly one of `judge`, such as 'openai/gpt-5-mini' or 'offline', `judges` and `generate_fn`; "
                "with a default, a judge inside DSPy would run on the student's own model"
            )
        made = [as_judge(j, api_base=api_base, api_key=api_key, system_prompt=system_prompt) for j in named]
        if examples:
            made = [_with_examples(member, examples, n_examples) for member in made]
        self.panel = _panel(made, judge_weights)

    async def generate(self, system_prompt: str, user_prompt: str) -> str:
        """Send one prompt to `generate_fn`; override it to change how."""
        if self._generate_fn is None:
            raise TypeError("`generate` serves a grader made with `generate_fn`")
        return await self._generate_fn(system_prompt, user_prompt)

    async def grade(
        self, rubric: Rubric, to_grade: ToGradeInput, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """Grade one submission; `Rubric.grade` is the usual way in.

        Raises:
            JudgeError: A criterion could not be judged and `on_failure` is `"raise"`; its `report` has the rest.
            ValueError: There is nothing to grade.
        """
        submission = as_submission(to_grade, query, reference)
        report = self._blended(rubric, submission, await self.judge(rubric, submission))
        if report.failed_count and self.policies.on_failure == "raise":
            raise JudgeError(report.error or "a judge failed", report)
        report = self._shortened(rubric, submission, report)
        if rubric.scale is not None and report.score is not None and self.policies.normalize:
            return report.model_copy(update={"scaled_score": rubric.scale.number_at(report.score)})
        return report

    def grade_sync(
        self, rubric: Rubric, to_grade: ToGradeInput, *, query: str | None = None, reference: str | None = None
    ) -> EvaluationReport:
        """`grade` for callers without an event loop, and for notebooks and threads that have one."""
        return run_sync(self.grade(rubric, to_grade, query=query, reference=reference))

    def fingerprints(self) -> list[str]:
        """What each judge's answers depend on, as far as it can tell: an optimized judge is another one."""
        told = [getattr(judge, "fingerprint", None) for judge in self.judges]
        return [fingerprint() if fingerprint else "" for fingerprint in told]

    def configuration(self) -> dict[str, Any]:
        """What of this grader its questions depend on, and its policies, as JSON: a ledger keeps it for `rescore`."""
        return {
            "grader": type(self).__name__,
            "judges": self.fingerprints(),
            "names": [member.name for member in self.panel],
            "weights": [member.weight for member in self.panel],
            "settings": self.question_settings(),
            "policies": self.policies._asdict(),
        }

    def question_settings(self) -> dict[str, Any]:
        """The settings that what is asked depends on; a subclass with more adds them."""
        return {"shuffle_options": self.shuffle_options, "seed": self.seed}

    def without_cache(self) -> Self:
        """This grader with judges that ask anew where a cache or a store would repeat an earlier answer."""
        return self.with_judges([getattr(j, "without_cache", lambda j=j: j)() for j in self.judges])

    def with_store(self, store: JudgmentStore, sample: int = 0) -> Self:
        """This grader with judges that ask a store before a model, so that no judgment is bought twice.

        Args:
            store: Where judgments are kept, such as a `Ledger`.
            sample: Which of several independent grades of the same texts this is.

        Raises:
            TypeError: A judge cannot tell what its answers depend on.
        """
        twins, kept = Counter[str](), list[Judge]()
        for judge, state in zip(self.judges, self.fingerprints(), strict=True):
            # Two votes of one model are two answers, not one counted twice.
            kept.append(StoredJudge(judge, store, sample, twin=twins[state]))
            twins[state] += 1
        return self.with_judges(kept)

    def for_run(self, max_concurrency: int) -> Self:
        """This grader for a run of many submissions.

        One call of each submission goes ahead of its others: providers share a prompt's beginning only once they have
        answered it, and other submissions keep the cap full meanwhile.

        Args:
            max_concurrency: The cap on calls under way at once, at least 1.
        """
        grader = copy.copy(self)
        grader.call_limiter, grader.warm_prompt_cache = self.call_limiter.with_cap(max_concurrency), True
        return grader

    @property
    def judges(self) -> list[Judge]:
        """Who is on the panel, in order."""
        return [member.judge for member in self.panel]

    def with_judges(self, judges: Sequence[Judge]) -> Self:
        """This grader, its settings and its cap on concurrency, with other judges in the seats of its panel."""
        grader = copy.copy(self)
        grader.panel = tuple(member.with_judge(j) for member, j in zip(self.panel, judges, strict=True))
        return grader

    @abstractmethod
    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Any]:
        """Obtain what each judge says, in the order of the panel."""

    @abstractmethod
    def aggregate(self, rubric: Rubric, submission: Submission, found: Sequence[Any]) -> EvaluationReport:
        """Turn what `judge` found into the report."""

    def _blended(self, rubric: Rubric, submission: Submission, found: Sequence[Any]) -> EvaluationReport:
        report = self.aggregate(rubric, submission, found)
        if not rubric.hybrid_metrics:
            return report
        return with_metrics(rubric, report, _compute_metrics(rubric, submission, self.policies), self.policies)

    def _shortened(self, rubric: Rubric, submission: Submission, report: EvaluationReport) -> EvaluationReport:
        if self.length_penalty is None:
            return report
        penalty = compute_length_penalty(submission, self.length_penalty)
        normalized = self.policies.normalize

        def shorten(score: float) -> float:
            return max(0.0, score - penalty) if normalized else score - penalty

        report = map_scores(report, shorten).model_copy(update={"length_penalty": penalty})
        passed = report.passed and (not normalized or reaches_mark(lowest_score(report), rubric.pass_mark))
        return report.model_copy(update={"passed": passed})


def _compute_metrics(rubric: Rubric, submission: Submission, policies: ScoringPolicies) -> MetricResults:
    """Compute a rubric's hybrid metrics; one that fails is left out where failures abstain, else it counts as 0."""
    values: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for metric in rubric.hybrid_metrics:
        try:
            values[metric.name] = run_metric(metric, submission)
        except JudgeFailure as failure:
            values[metric.name] = None if policies.on_failure in ("raise", "abstain") else 0.0
            errors[metric.name] = str(failure)
    return MetricResults(values, errors)


def _with_examples(judge: Judge, examples: Sequence[LabelledJudgment], count: int) -> Judge:
    if isinstance(judge, BatchJudge) and hasattr(judge, "with_examples"):
        return cast("Any", judge).with_examples(examples, count)
    raise ValueError(f"`examples` are for judges that are models: {type(judge).__name__} could not be shown any")


def _panel(judges: Sequence[Judge], weights: Sequence[float] | None) -> tuple[PanelMember, ...]:
    counted = [1.0] * len(judges) if weights is None else list(weights)
    if len(counted) != len(judges):
        raise ValueError(f"`judge_weights` has {len(counted)} entries for {len(judges)} judges: give one for each")
    for weight in counted:
        if isinstance(weight, bool) or not 0 < weight < float("inf"):
            raise ValueError(f"`judge_weights` must be finite and above 0, got {weight!r}")
    if len(judges) == 1:
        return (PanelMember(judges[0], "default", counted[0]),)
    members: list[PanelMember] = []
    for judge, weight in zip(judges, counted, strict=True):
        name = str(getattr(getattr(judge, "lm", None), "model", type(judge).__name__))
        same = sum(member.name.split("#")[0] == name for member in members)
        members.append(PanelMember(judge, f"{name}#{same + 1}" if same else name, weight))
    return tuple(members)
