"""The report of one graded submission, with one entry for each criterion, and the reasons why it may be incomplete.

The module also converts a report to named scores for evaluation frameworks: one overall score and one for each
criterion. For a cascade, the module counts the answers of the expensive judge and estimates the saved cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, field_serializer

from rubric_integrations._util.records import (
    EncodableText,
    Record,
    SparseRecord,
    UnitScore,
    Weight,
    data_frame,
    html_table,
)
from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.rubric.case import NOT_APPLICABLE
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import Judgment, Spend, TokenUsage, Vote, parse_verdict, total_spend

if TYPE_CHECKING:
    from pandas import DataFrame

ReprArgs = Iterable[tuple[str | None, Any]]


class CriterionReport(SparseRecord):
    """The result of one criterion: a verdict, an abstention or a failure.

    Attributes:
        name: The key of the criterion in its rubric: its name, or `c1`, `c2`, ... by its position.
        requirement: The criterion's requirement, which begins with the meaning of its `operator`, if it has one.
        weight: The weight of the criterion in the score. For `per: occurrence`, it is the weight of one occurrence
            times `cap`.
        verdict: The verdict that was scored, or CANNOT_ASSESS or NOT_APPLICABLE. None for a failure without a fallback
            verdict, and for a criterion that was not asked about.
        value: The value of the verdict in [0, 1]. None for an abstention, a criterion that does not apply, a failure
            without a fallback verdict, and a criterion that was not asked about.
        reason: The judge's reason for the verdict. Empty if the judge gives none. It begins with `given afterwards by`
            if another model gave it (see `Explained`).
        error: Why the judge failed. None if it did not fail. If there is also a verdict, it is the fallback of
            `on_failure`.
        required: Whether the submission fails if this criterion does not pass.
        passed: Whether the value is high enough (`required`, `min_score`). True for a criterion that does not apply.
            False for an abstention or a failure.
        spend: The calls, tokens and cost of this criterion.
        neutralized: Whether text that imitates the structure of the prompt was sanitized before the judge read it.
        votes: The votes of a panel, including failures. Empty for a single judge.
        agreement: The share in [0, 1] of the panel's votes that equal the verdict. 1 for a single judge. None if no
            judge answered.
        not_asked: The judges of a panel that were not asked, because they could no longer change the verdict or the
            decision whether the submission passes.
        confidence: The confidence of a single judge in [0, 1], if it was requested. The score does not use it.
        expected_value: The mean of the values of all possible answers, weighted by the probability that a single judge
            gives to each answer. In [0, 1]. None if probabilities were not requested. The score does not use it.
        probabilities: The probability in [0, 1] that a single decision model gives to each answer. None for other
            judges. See `Judgment.probabilities`.
        model: The model that a single judge's reply names. None if the reply names none, and for a panel, whose votes
            have their models.
        not_applicable: Whether the criterion is left out, because its condition (`applies_when`) is false.
        tags: The criterion's tags.
        metadata: The `metadata` of the criterion. None if it has no metadata.
        evidence: The numbers of the trajectory steps that the judge cites, counted from 1. All of these steps exist.
        escalated: Whether a `Cascade` passed the question on to its expensive judge.
        escalation_cost: The cost of the expensive judge of a `Cascade` in US dollars, included in the report's `spend`.
            0 if the answer of the cheap judge was kept. None if the price is unknown, or if no cascade answered.
        trained_on: Whether a judge was aligned with a human label of the same response and criterion. If so, statistics
            about the judge leave this answer out.
        options: The possible answers of a multi-choice criterion. Empty for other criteria.
        scale_type: Whether the options are ordered (`ordinal`) or not (`nominal`).
        scale: The scale of a criterion that has one. None for other criteria.
        cap: The largest number of occurrences that counts, for `per: occurrence`. None for other criteria.
        computed: Whether the criterion has a check. If so, code answers it instead of a judge.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "probabilities", "model", "not_applicable", "tags", "metadata", "evidence", "escalated", "escalation_cost",
        "trained_on", "options", "scale_type", "scale", "cap", "computed",
    )  # fmt: skip

    name: str
    requirement: str
    weight: Weight
    verdict: EncodableText | None
    value: UnitScore | None
    reason: EncodableText = ""
    error: EncodableText | None = None
    required: bool = False
    passed: bool = False
    spend: Spend = Spend()
    neutralized: bool = False
    votes: tuple[Vote, ...] = ()
    agreement: float | None = None
    not_asked: tuple[str, ...] = ()
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None
    probabilities: dict[str, UnitScore] | None = None
    model: EncodableText | None = None
    not_applicable: bool = False
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    evidence: tuple[int, ...] = ()
    escalated: bool = False
    escalation_cost: float | None = None
    trained_on: bool = False
    options: tuple[Option, ...] = ()
    scale_type: Literal["ordinal", "nominal"] = "ordinal"
    scale: Scale | None = None
    cap: int | None = None
    computed: bool = False

    @field_serializer("options")
    def _write_options_briefly(self, options: tuple[Option, ...]) -> list[dict[str, Any]]:
        return [option.model_dump(mode="json", exclude_unset=True) for option in options]

    def __repr_args__(self) -> ReprArgs:
        """Yield only the most important fields, to keep a printed report readable."""
        yield "name", self.name
        yield "verdict", self.verdict
        yield ("error", self.error) if self.error else ("reason", self.shown_reason)

    @property
    def shown_reason(self) -> str:
        """The judge's reason. If a decision model gave none, the probability that it gives to its verdict.

        Example:
            >>> row = {"name": "c1", "requirement": "r", "weight": 1.0, "verdict": "MET", "value": 1.0}
            >>> CriterionReport(**row, probabilities={"MET": 0.93, "UNMET": 0.07}).shown_reason
            'probability 0.93, no reason given'
        """
        if self.reason or not self.probabilities:
            return self.reason
        probability = self.probabilities.get(self.verdict or "")
        return "no reason given" if probability is None else f"probability {probability:.2f}, no reason given"

    @property
    def explanation(self) -> str:
        """The text that explains the result: the error, or the judge's reason with the steps that it cites.

        Example:
            >>> row = {"name": "c1", "requirement": "r", "weight": 1.0, "verdict": "MET", "value": 1.0}
            >>> CriterionReport(**row, reason="It looked.", evidence=(2, 5)).explanation
            'It looked. (steps 2, 5)'
        """
        if self.error or not self.evidence:
            return self.error or self.shown_reason
        steps = f"({'step' if len(self.evidence) == 1 else 'steps'} {', '.join(map(str, self.evidence))})"
        return f"{self.shown_reason} {steps}".strip()

    def to_criterion(self) -> Criterion:
        """Return the criterion with the fields that the report has: its name, requirement, weight and possible answers.

        Raises:
            ValueError: The report is from an earlier version without options and scales, but its verdict shows that the
                criterion has them.
        """
        is_binary = not self.options and self.scale is None and self.cap is None
        if is_binary and self.verdict not in (None, NOT_APPLICABLE) and parse_verdict(self.verdict) is None:
            raise ValueError(
                f"the report is from an earlier version, and lacks the possible answers to `{self.name}`, of which "
                f"{self.verdict!r} is one: pass the rubric, too"
            )
        return Criterion(
            name=self.name,
            requirement=self.requirement,
            weight=self.weight / (self.cap or 1),
            options=self.options or None,
            scale_type=self.scale_type,
            scale=self.scale if self.cap is None else None,
            per=None if self.cap is None else "occurrence",
            cap=self.cap,
        )

    @property
    def was_judged(self) -> bool:
        """Whether there is a judge's answer, which may be an abstention. False for a failure."""
        return self.verdict is not None and self.error is None and not self.not_applicable

    @property
    def was_asked(self) -> bool:
        """Whether a judgment was requested. False if `stop_when_decided` ended the grade before this criterion."""
        return self.verdict is not None or self.error is not None

    @property
    def abstained(self) -> bool:
        """Whether the judge could not decide. False for a failure and for a criterion that does not apply."""
        return self.value is None and self.was_asked and not self.error and not self.not_applicable

    @property
    def lost_votes(self) -> int:
        """The number of judges of the panel that failed on this criterion."""
        return sum(vote.error is not None for vote in self.votes) if self.votes else 0


class Escalations(Record):
    """Counts and costs of the answers of cascades (`rubric_integrations.judges.Cascade`) in a report or a run.

    Attributes:
        judgments: The number of answers that cascades gave.
        escalated: The number of answers that came from the expensive judge.
        requested: The number of answers that were requested, instead of read from a store.
        cost: The cost of the requested answers in US dollars. None if a price is unknown, or if other judges voted,
            too.
        strong_answers: The number of answers of the expensive judge that were paid for, instead of read from a store.
        strong_cost: The cost of these paid answers of the expensive judge in US dollars. None if a price is unknown.
    """

    judgments: int = 0
    escalated: int = 0
    requested: int = 0
    cost: float | None = 0.0
    strong_answers: int = 0
    strong_cost: float | None = 0.0

    @property
    def share(self) -> float | None:
        """The share in [0, 1] of the answers that came from the expensive judge. None without answers of a cascade."""
        return self.escalated / self.judgments if self.judgments else None

    @property
    def saved(self) -> float | None:
        """An estimate of the US dollars that the cascade has saved. Negative if it cost more than it saved.

        The estimate is `requested * (strong_cost / strong_answers) - cost`: the cost if the expensive judge had
        given all requested answers, minus the cost that was paid for them. None if the expensive judge gave no paid
        answer, or if a cost is unknown.
        """
        if not self.strong_answers or self.strong_cost is None or self.cost is None:
            return None
        return self.strong_cost / self.strong_answers * self.requested - self.cost

    def summary(self) -> str:
        """Return `share` and `saved` as a short text. Empty without answers of a cascade.

        Example:
            >>> counts = Escalations(judgments=8, escalated=2, requested=8, cost=1.5, strong_answers=2, strong_cost=1)
            >>> counts.summary()
            '25% escalated, about $2.5000 saved'
        """
        if self.share is None:
            return ""
        escalated = f"{self.share:.0%} escalated"
        if self.saved is None:
            return escalated
        # A cascade that escalates too many answers costs more than the expensive judge alone.
        saving = f"${abs(self.saved):.4f} saved" if self.saved >= 0 else f"${abs(self.saved):.4f} lost"
        return f"{escalated}, about {saving}"

    def __add__(self, other: Escalations) -> Escalations:
        return Escalations(
            judgments=self.judgments + other.judgments,
            escalated=self.escalated + other.escalated,
            requested=self.requested + other.requested,
            cost=_sum([self.cost, other.cost]),
            strong_answers=self.strong_answers + other.strong_answers,
            strong_cost=_sum([self.strong_cost, other.strong_cost]),
        )


EXPENSIVE = "expensive judge"
"""The name of the expensive judge of a cascade in `ReplyModels`."""

ReplyModels: TypeAlias = Mapping[str, tuple[str, ...]]
"""The models that replies name, by the judge's name: "" for a single judge, also for the cheap judge of a cascade."""

# The most models of one judge that are kept, because a server could name another model in each reply.
_MOST_MODELS = 10


def merge_models(one: ReplyModels, other: ReplyModels) -> ReplyModels:
    """Join the models that the replies of two parts of a run name.

    Example:
        >>> merge_models({"": ("m-1",)}, {"": ("m-2", "m-1")})
        {'': ('m-1', 'm-2')}
    """
    if not other or one == other:
        return one
    merged = {judge: dict.fromkeys((*one.get(judge, ()), *models)) for judge, models in other.items()}
    return {**one, **{judge: tuple(models)[:_MOST_MODELS] for judge, models in merged.items()}}


_PARTIAL = "partial: a part of the rubric is left out"

NO_ESCALATIONS = Escalations()
"""The counts of a report without answers of cascades."""


def count_escalations(criteria: Sequence[CriterionReport], spend: Spend) -> Escalations:
    """Count the answers of cascades in one report, and those of the expensive judge among them, with their costs.

    Args:
        criteria: The entries of the report.
        spend: The spend of the whole report. It is used only if no cascade answer has calls of its own: a request about
            several criteria is not in the spend of a single entry.
    """
    answers = [row for row in criteria if is_of_cascade(row)]
    if not answers:
        return NO_ESCALATIONS
    requested = [row for row in answers if row.spend.calls]
    own_spend = total_spend(row.spend for row in requested)
    if not requested and spend.calls:
        requested, own_spend = answers, spend
    paid = [row.escalation_cost for row in answers if row.escalated and row.escalation_cost != 0]
    return Escalations(
        judgments=len(answers),
        escalated=sum(row.escalated for row in answers),
        requested=len(requested),
        cost=None if any(row.votes for row in answers) else own_spend.cost,
        strong_answers=len(paid),
        strong_cost=_sum(paid),
    )


def is_of_cascade(answer: CriterionReport | Judgment) -> bool:
    """Return whether a cascade gave the answer."""
    return answer.escalated or answer.escalation_cost is not None


def total_escalation_cost(judgments: Iterable[Judgment]) -> float | None:
    """Return the total cost of the expensive judges of cascades. None if no cascade answered or a price is unknown."""
    costs = [judgment.escalation_cost for judgment in judgments if is_of_cascade(judgment)]
    return _sum(costs) if costs else None


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


class Exploration(SparseRecord):
    """How much of a long trajectory the judges saw, because an explorer chose its steps (`TextLimits.explorer`).

    Attributes:
        steps: The number of steps that were shown completely or in part.
        total_steps: The number of steps of the trajectory.
        characters: The number of characters of the shown steps.
        total_characters: The number of characters of all steps.
        requests: The number of requests of the exploration, including those whose replies came from a ledger.
        absent: The texts that the explorer searched for in all steps without a match. Judges see them.
        ran_out: Whether the explorer had not finished when its requests were used up. The selection is then the part
            that it had submitted until then.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("absent", "ran_out")

    steps: int = Field(ge=0)
    total_steps: int = Field(ge=1)
    characters: int = Field(ge=0)
    total_characters: int = Field(ge=0)
    requests: int = Field(ge=0)
    absent: tuple[EncodableText, ...] = ()
    ran_out: bool = False

    def summary(self) -> str:
        """Return the share of the steps that was shown as a short text.

        Example:
            >>> part = Exploration(steps=12, total_steps=1_000, characters=9, total_characters=99, requests=3)
            >>> part.summary()
            '12 of 1,000 steps'
        """
        return f"{self.steps:,} of {self.total_steps:,} steps{', exploration unfinished' if self.ran_out else ''}"


class EvaluationReport(SparseRecord):
    """The grade of one submission.

    Attributes:
        score: The score in [0, 1], or the weighted sum if `normalize=False`. None if no criterion with a positive
            weight was assessed (in a rubric with only penalties: if no criterion was assessed). Also None if
            `stop_when_decided` ended the grade early, or if a criterion failed and `on_failure` is `"raise"`.
        score_range: The lowest and the highest score that is still possible, if `stop_when_decided` ended the grade
            early. The lowest is None if the final score could be undefined.
        raw_score: The weighted sum, before any length penalty. None if every criterion was left out.
        llm_raw_score: The score from the judge, before metrics and the length penalty: the weighted sum of its
            verdicts, or the overall score from 0 to 100.
        passed: Whether the normalized score reaches the rubric's `pass_mark`, every required criterion passes, the
            coverage is high enough (`low_coverage`), and the rubric is not `partial`. For this decision, a failed
            criterion has its worst value, even if `score` counts it differently.
        complete: Whether every judge and every check answered each question that it was asked. An abstention is an
            answer. A failure is not an answer. In a panel, one failure of one judge is enough for False.
        coverage: The sum of the absolute weights of the assessed criteria, divided by the sum for all criteria that
            apply. In [0, 1].
        cannot_assess_count: The number of abstentions.
        failed_count: The number of criteria without an answer.
        error: The failures in one line. None if there are no failures.
        spend: The calls, tokens and cost, including failed attempts. Calls about several criteria are counted only
            here, not in the entries of the criteria.
        metrics: The value in [0, 1] of each hybrid metric by name. None for a metric that could not be computed.
        scaled_score: The score converted to the rubric's `scale`. None if the rubric has no scale.
        length_penalty: The length penalty that was subtracted from the score.
        judge_scores: The score from the answers of each single judge of a panel, by the judge's name. Empty for a
            single judge.
        judge_models: The model that each holistic judge's reply names, by the judge's name, or by "" for a single
            judge. Empty for other judges, whose models are in the entries of the criteria.
        mean_agreement: The mean of the `agreement` of all criteria. None if no criterion has an agreement.
        report: One entry for each criterion, in the rubric's order. None for an overall score of a holistic judge.
        reason: The explanation of an overall score by a holistic judge. Otherwise empty.
        tags: The score of each tag, over the criteria with this tag, before metrics and the length penalty. None if it
            is undefined, if a criterion with this tag was not asked about, or if the report has no score because of a
            failure. Empty for a holistic judge.
        omitted_characters: The number of characters of the trajectory that judges did not see, because
            `TextLimits.step_limit` shortened long results of tools. 0 if judges saw everything.
        exploration: How much of the trajectory judges saw, if an explorer chose its steps. None without exploration.
        low_coverage: Whether the coverage is below the rubric's `min_coverage`. If `stop_when_decided` ended the grade
            early, only criteria that were asked about are counted.
        partial: Whether the rubric lacks a requirement of its author (`Rubric.left_out`). If so, the submission cannot
            pass.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "judge_models", "tags", "omitted_characters", "exploration", "low_coverage", "partial",
    )  # fmt: skip

    score: float | None
    score_range: tuple[float | None, float] | None = None
    raw_score: float | None
    llm_raw_score: float | None = None
    passed: bool
    complete: bool
    coverage: float = Field(ge=0.0, le=1.0)
    cannot_assess_count: int = 0
    failed_count: int = 0
    error: EncodableText | None = None
    spend: Spend = Spend()
    metrics: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    scaled_score: float | None = None
    length_penalty: float = 0.0
    judge_scores: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    judge_models: dict[str, EncodableText] = Field(default_factory=dict[str, str])
    mean_agreement: float | None = None
    report: tuple[CriterionReport, ...] | None
    reason: EncodableText = ""
    tags: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    omitted_characters: int = Field(default=0, ge=0)
    exploration: Exploration | None = None
    low_coverage: bool = False
    partial: bool = False

    def __repr_args__(self) -> ReprArgs:
        """Yield only the most important fields, to keep a printed report readable."""
        yield ("score_range", self.score_range) if self.score_range else ("score", self.score)
        yield "passed", self.passed
        if self.partial:
            yield "partial", True
        yield "coverage", round(self.coverage, 3)
        if self.omitted_characters:
            yield "omitted_characters", self.omitted_characters
        if self.exploration is not None:
            yield "shown", self.exploration.summary()
        if self.error:
            yield "error", self.error
        yield "report", self.report

    def _repr_html_(self) -> str:
        score = "..".join(map(str, self.score_range)) if self.score_range else self.score
        title = f"score {score}, {'passed' if self.passed else 'not passed'}, coverage {self.coverage:.0%}"
        title += ", partial" if self.partial else ""
        title += f", {self.omitted_characters:,} characters omitted" if self.omitted_characters else ""
        title += f", judged by {self.exploration.summary()}" if self.exploration is not None else ""
        rows = [(row.name, row.weight, row.verdict, row.requirement, row.explanation) for row in self.criteria]
        columns = ["criterion", "weight", "verdict", "requirement", "reason"]
        return html_table(f"{title}. {self.error or ''}", columns, rows)

    def to_dataframe(self) -> DataFrame:
        """Return the report as a pandas DataFrame with one row per criterion.

        The columns `tags`, `metadata`, `evidence` and `escalated` exist only if at least one criterion has such data.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = ["name", "requirement", "weight", "required", "verdict", "value", "passed", "reason", "error"]
        optional = ("tags", "metadata", "evidence", "escalated")
        columns += [name for name in optional if any(getattr(row, name) for row in self.criteria)]
        rows = [{name: getattr(row, name) for name in columns} | {"reason": row.shown_reason} for row in self.criteria]
        return data_frame(rows, columns)

    @property
    def criteria(self) -> tuple[CriterionReport, ...]:
        """The entries of `report`. Empty for an overall score of a holistic judge."""
        return self.report or ()

    @property
    def reply_models(self) -> ReplyModels:
        """The models that the replies of each judge name. A judge whose replies name no model is missing."""
        models: dict[str, dict[str, None]] = {judge: {name: None} for judge, name in self.judge_models.items()}
        for row in self.criteria:
            # The votes do not say which member of a cascade answered.
            for vote in () if row.escalated else row.votes:
                if vote.model:
                    models.setdefault(vote.judge, {})[vote.model] = None
            if row.model and not row.votes:
                models.setdefault(EXPENSIVE if row.escalated else "", {})[row.model] = None
        return {judge: tuple(names) for judge, names in models.items()}

    @property
    def escalations(self) -> Escalations:
        """The number of answers from the expensive judge of a `Cascade`, and the estimated saving."""
        return count_escalations(self.criteria, self.spend)

    @property
    def not_applicable_count(self) -> int:
        """The number of criteria that do not apply, because their condition (`applies_when`) is false."""
        return sum(row.not_applicable for row in self.criteria)

    @property
    def not_asked(self) -> tuple[str, ...]:
        """The names of the criteria for which no judgment was requested, because the decision did not need them."""
        return tuple(row.name for row in self.criteria if not row.was_asked)

    @property
    def gate_score(self) -> float | None:
        """The score of this report for a release gate, which compares the mean score of a run with a minimum.

        None if an answer is missing or the coverage is too low.
        """
        return None if self.failed_count or self.low_coverage else self.score

    @property
    def missing_text(self) -> str:
        """A short text that states which answers or criteria are missing for a pass. Empty if none are missing.

        Example:
            >>> nothing = {"score": 1.0, "raw_score": 1.0, "passed": False, "complete": False, "report": None}
            >>> EvaluationReport(**nothing, coverage=0.25, low_coverage=True, failed_count=3).missing_text
            '3 without an answer, coverage 25% too low'
        """
        failed = f"{self.failed_count} without an answer" if self.failed_count and not self.passed else ""
        low = f"coverage {self.coverage:.0%} too low" if self.low_coverage else ""
        partial = _PARTIAL if self.partial else ""
        return ", ".join(filter(None, (failed, low, partial)))

    @property
    def token_usage(self) -> TokenUsage | None:
        """The tokens of all calls, including failed attempts. None (unknown) if a call did not report its tokens."""
        return self.spend.usage

    @property
    def cost(self) -> float | None:
        """The cost of all calls in US dollars. None (unknown) if the price of a call is unknown."""
        return self.spend.cost


def tag_key(tag: str) -> str:
    """Return the name of a tag's score in feedback, objectives and data frames. It differs from names of criteria.

    Example:
        >>> tag_key("safety")
        'tag.safety'
    """
    return f"tag.{tag}"


class JudgeError(ValueError):
    """Raised with `on_failure="raise"` (the default) if a criterion could not be judged.

    Args:
        message: The failures, in one line.
        report: The incomplete report.

    Attributes:
        report: The incomplete report, with all answers and the spend until the failure. Its `complete` is False.
    """

    def __init__(self, message: str, report: EvaluationReport):
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.report)


_KIND = re.compile(r"\b(config|transport|parse|check): ")


def failure_kinds(report: EvaluationReport) -> set[str]:
    """Return the kinds of the failures in a report (see `FailureKind`), parsed from the error messages.

    Example:
        >>> error = "`c1` was not judged: config: no such model"
        >>> nothing = {"score": None, "raw_score": None, "passed": False, "complete": False, "coverage": 0.0}
        >>> failure_kinds(EvaluationReport(**nothing, report=None, error=error))
        {'config'}
    """
    matches = [_KIND.search(message) for message in failure_messages(report)]
    return {match[1] for match in matches if match}


def failure_messages(report: EvaluationReport) -> list[str]:
    """Return the error messages of a report.

    These are the errors of the failed criteria. For a panel, they are the errors of its single votes. If no criterion
    failed, the only message is the `error` of the report, if it has one.
    """
    failed = [row for row in report.criteria if row.error]
    errors = [vote.error for row in failed for vote in row.votes] + [row.error for row in failed if not row.votes]
    return [error for error in errors or [report.error] if error]


OutcomeKind = Literal["verdict", "abstention", "failure", "not applicable"]

CANNOT_ASSESS = "CANNOT_ASSESS"


class NamedScore(Record):
    """One score of a report with its name, or the reason why there is no score.

    Attributes:
        name: The name that the framework shows: `rubric` for the overall score and for example `rubric.margin` for a
            criterion.
        kind: `"verdict"`, `"abstention"`, `"failure"` or `"not applicable"`. The overall score is a `"verdict"` if the
            report has a score, and an `"abstention"` if its score is undefined.
        score: The score of a criterion in [0, 1], or the score of the report. Higher is better, also for penalties: 0
            if the error is present, 1 if it is not. None unless `kind` is `"verdict"`.
        label: The verdict, such as `MET`. For the overall score, `passed` or `not passed`. None for a failure.
        explanation: The judge's reason, or the error.
        error: Why there is no answer. None unless `kind` is `"failure"`.
        weight: The weight of the criterion. None for the overall score.
    """

    name: str
    kind: OutcomeKind
    score: float | None = None
    label: EncodableText | None = None
    explanation: EncodableText = ""
    error: EncodableText | None = None
    weight: float | None = None


def outcomes_of(report: EvaluationReport, name: str = "rubric", failure: Exception | None = None) -> list[NamedScore]:
    """Return the overall score of a report, followed by one score for each criterion that was asked about.

    Args:
        report: The report, or the incomplete report of a `JudgeError`.
        name: The name of the overall score. The names of the criteria begin with it, as in `rubric.right`.
        failure: The error of a failed grade, such as the `JudgeError`. If it is set, there is no overall score, because
            a score over the other criteria would be misleading.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict(
        ...     [
        ...         {"name": "right", "requirement": "Says 42", "check": {"number": 42}},
        ...         {"name": "rude", "requirement": "Is rude", "weight": -1, "check": {"contains": "fool"}},
        ...     ]
        ... )
        >>> from rubric_integrations import PerCriterionGrader
        >>> report = rubric.grade_sync("It is 42.", PerCriterionGrader("offline"))
        >>> [(outcome.name, outcome.score, outcome.label) for outcome in outcomes_of(report)]
        [('rubric', 1.0, 'passed'), ('rubric.right', 1.0, 'MET'), ('rubric.rude', 1.0, 'UNMET')]
    """
    return [_overall_score(report, name, failure), *(_outcome(row, name) for row in report.criteria if row.was_asked)]


def higher_is_better(value: float, *, is_penalty: bool) -> float:
    """Convert the value of a criterion to a score for which higher is better, or such a score back to the value.

    For a penalty, the result is 1 - value. For other criteria, it is the value.

    Frameworks average scores and show a higher average as an improvement. Therefore, the score of a penalty is 0 if the
    error is present.

    Example:
        >>> higher_is_better(1.0, is_penalty=True), higher_is_better(1.0, is_penalty=False)
        (0.0, 1.0)
    """
    return 1 - value if is_penalty else value


def desirability(row: CriterionReport) -> float | None:
    """Return how good an answer is, from 0 to 1 (best), by `higher_is_better`. None without an answer."""
    return None if row.value is None or row.error else higher_is_better(row.value, is_penalty=row.weight < 0)


def _overall_score(report: EvaluationReport, name: str, failure: Exception | None) -> NamedScore:
    if failure is not None:
        return NamedScore(name=name, kind="failure", explanation=f"not graded: {failure}", error=str(failure))
    label = "passed" if report.passed else "not passed"
    kind: OutcomeKind = "abstention" if report.score is None else "verdict"
    label = CANNOT_ASSESS if report.score is None else label
    return NamedScore(name=name, kind=kind, score=report.score, label=label, explanation=summary_of(report))


def _outcome(row: CriterionReport, name: str) -> NamedScore:
    outcome = NamedScore(
        name=f"{name}.{row.name}", kind="failure", explanation=row.explanation, error=row.error, weight=row.weight
    )
    if row.error:
        return outcome
    if row.not_applicable:
        return outcome.model_copy(update={"kind": "not applicable", "label": NOT_APPLICABLE})
    if row.value is None:
        return outcome.model_copy(update={"kind": "abstention", "label": CANNOT_ASSESS})
    score = higher_is_better(row.value, is_penalty=row.weight < 0)
    return outcome.model_copy(update={"kind": "verdict", "score": score, "label": row.verdict})


def summary_of(report: EvaluationReport) -> str:
    """Return a one-line summary of a report: whether it passed, its coverage, and the criteria that are not met."""
    unmet = [row.name for row in report.criteria if row.value is not None and not row.passed]
    parts = [
        "passed" if report.passed else "not passed",
        _PARTIAL if report.partial and not report.low_coverage else "",
        report.missing_text if report.low_coverage else f"coverage {report.coverage:.0%}",
        f"unmet: {', '.join(unmet)}" if unmet else "",
        report.reason,
    ]
    return "; ".join(part for part in parts if part)
