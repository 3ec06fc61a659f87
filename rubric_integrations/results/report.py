"""The report of one graded submission, with one entry per criterion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_serializer

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import EncodableText, SparseRecord, UnitScore, Weight
from rubric_integrations.results.judgment import Vote, parse_verdict
from rubric_integrations.results.usage import Spend, TokenUsage
from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.rubric.criterion import Criterion

if TYPE_CHECKING:
    from pandas import DataFrame

NOT_APPLICABLE = "NOT_APPLICABLE"
"""The verdict in the report of a criterion whose condition (`applies_when`) does not hold."""

ReprArgs = Iterable[tuple[str | None, Any]]


class CriterionReport(SparseRecord):
    """The result of one criterion: a verdict, an abstention or a failure.

    Attributes:
        name: The criterion's key in its rubric: its name, or `c1`, `c2`, ... by its position.
        requirement: The criterion's requirement, with what its `operator` means in words.
        weight: The weight of the value 1 in the score: the criterion's weight, for `per: occurrence` times its `cap`.
        verdict: The verdict that was scored, CANNOT_ASSESS or NOT_APPLICABLE; None for a failure without a fallback
            verdict.
        value: The value of the verdict in [0, 1]; None for an abstention, a criterion that does not apply, or a failure
            without a fallback verdict.
        reason: The judge's reason for the verdict.
        error: Why the judge failed; None if it did not. If there is also a verdict, it is the fallback of `on_failure`.
        required: Whether `passed` of the whole report depends on this criterion.
        passed: Whether this criterion passes its gate, which one that does not apply does; False for an abstention or
            a failure.
        spend: Calls, tokens and cost of this criterion.
        neutralized: Whether text that imitates the structure of the prompt was sanitized before the judge read it.
        votes: The votes of a panel, including those of judges that failed; empty for a single judge.
        agreement: The share in [0, 1] of the panel's votes that equal the verdict; 1 for a single judge, None if no
            judge answered.
        not_asked: The judges of a panel that got no request, because they could no longer change the verdict, or
            because the decision whether the submission passes did not need them.
        confidence: The confidence of a single judge in [0, 1], if it was requested; the score does not use it.
        expected_value: The expected value in [0, 1] of a single judge's probabilities, if they were requested; the
            score does not use it.
        not_applicable: Whether the criterion's condition (`applies_when`) does not hold, so that it is left out.
        tags: The criterion's tags.
        metadata: The criterion's further data; None if it has none.
        evidence: The numbers, from 1, of the steps of the trajectory that the judge cites; all of them exist.
        options: The answers of a multi-choice criterion; empty for others.
        scale_type: Whether they are ordered (`ordinal`) or not (`nominal`).
        scale: The numbers of a criterion with a scale; None for others.
        cap: The largest number of occurrences that counts, for `per: occurrence`; None for others.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "not_applicable", "tags", "metadata", "evidence", "options", "scale_type", "scale", "cap",
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
    not_applicable: bool = False
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    evidence: tuple[int, ...] = ()
    options: tuple[Option, ...] = ()
    scale_type: Literal["ordinal", "nominal"] = "ordinal"
    scale: Scale | None = None
    cap: int | None = None

    @field_serializer("options")
    def _write_options_briefly(self, options: tuple[Option, ...]) -> list[dict[str, Any]]:
        return [option.model_dump(mode="json", exclude_unset=True) for option in options]

    def __repr_args__(self) -> ReprArgs:
        """Yield the most important fields, so that a printed report stays readable."""
        yield "name", self.name
        yield "verdict", self.verdict
        yield ("error", self.error) if self.error else ("reason", self.reason)

    @property
    def explanation(self) -> str:
        """The error, or the judge's reason with the steps that it cites, as readers of a report get it.

        Example:
            >>> row = {"name": "c1", "requirement": "r", "weight": 1.0, "verdict": "MET", "value": 1.0}
            >>> CriterionReport(**row, reason="It looked.", evidence=(2, 5)).explanation
            'It looked. (steps 2, 5)'
        """
        if self.error or not self.evidence:
            return self.error or self.reason
        steps = f"({'step' if len(self.evidence) == 1 else 'steps'} {', '.join(map(str, self.evidence))})"
        return f"{self.reason} {steps}".strip()

    def to_criterion(self) -> Criterion:
        """Return the criterion, as far as the report has it: its name, words, weight and possible answers.

        Raises:
            ValueError: The report is of an earlier version, which did not keep options and scales, and its verdict
                shows that the criterion has them.
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
        """Whether there is a judge's answer, which may be an abstention; False for a failure."""
        return self.verdict is not None and self.error is None and not self.not_applicable

    @property
    def was_asked(self) -> bool:
        """Whether a judgment was requested; False if `stop_when_decided` decided without this criterion."""
        return self.verdict is not None or self.error is not None

    @property
    def abstained(self) -> bool:
        """Whether the judge worked and could not tell; False for a failure and for a criterion that does not apply."""
        return self.value is None and self.was_asked and not self.error and not self.not_applicable

    @property
    def lost_votes(self) -> int:
        """The number of judges of the panel that failed."""
        return sum(vote.error is not None for vote in self.votes)


class EvaluationReport(SparseRecord):
    """The grade of one submission.

    Attributes:
        score: The score in [0, 1], or the weighted sum if `normalize=False`. None if it is undefined, because nothing
            that the score divides by was assessed, and if `stop_when_decided` ended the grade early.
        score_range: The lowest and the highest score that is still possible, if `stop_when_decided` ended the grade
            early. The lowest is None if the score could also have ended undefined.
        raw_score: The weighted sum, before any length penalty; None if every criterion was left out.
        llm_raw_score: The judge's own score: the weighted sum of its verdicts, or a holistic judge's 0 to 100.
        passed: Whether the normalized score reaches the rubric's `pass_mark` and every required criterion passes.
        complete: Whether every question was answered. An abstention is an answer; a failure and the lost vote of a
            panel's judge are not.
        coverage: The share in [0, 1] of the absolute weights that belongs to assessed criteria, of those that apply.
        cannot_assess_count: The number of abstentions.
        failed_count: The number of criteria without an answer.
        error: The failures in one line; None if there are none.
        spend: Calls, tokens and cost, including failed attempts. Calls that serve several criteria are counted here
            only, not in the entries of the criteria.
        metrics: The value in [0, 1] of each hybrid metric; None for one that could not be computed.
        scaled_score: The score on the rubric's own scale, if it has one.
        length_penalty: The length penalty that was subtracted from the score.
        judge_scores: The score by the answers of each judge of a panel alone; empty for a single judge.
        mean_agreement: The mean agreement of the criteria; None if no criterion has one.
        report: One entry per criterion, in the rubric's order; None if a holistic judge scored the whole.
        reason: A holistic judge's explanation.
        tags: The score by tag, over the criteria that carry it, before metrics and the length penalty. None if it is
            undefined, or if one of these criteria is open or the score could not be computed. Empty for a holistic
            judge, which does not answer the criteria one by one.
        omitted_characters: The number of characters of the trajectory that no judge was shown, because
            `CallLimits.step_limit` cut long results of tools; 0 if the judges were shown all.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("tags", "omitted_characters")

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
    mean_agreement: float | None = None
    report: tuple[CriterionReport, ...] | None
    reason: EncodableText = ""
    tags: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    omitted_characters: int = Field(default=0, ge=0)

    def __repr_args__(self) -> ReprArgs:
        """Yield the most important fields, so that a printed report stays readable."""
        yield ("score_range", self.score_range) if self.score_range else ("score", self.score)
        yield "passed", self.passed
        yield "coverage", round(self.coverage, 3)
        if self.omitted_characters:
            yield "omitted_characters", self.omitted_characters
        if self.error:
            yield "error", self.error
        yield "report", self.report

    def _repr_html_(self) -> str:
        score = "..".join(map(str, self.score_range)) if self.score_range else self.score
        title = f"score {score}, {'passed' if self.passed else 'not passed'}, coverage {self.coverage:.0%}"
        title += f", {self.omitted_characters:,} characters omitted" if self.omitted_characters else ""
        rows = [(row.name, row.weight, row.verdict, row.requirement, row.explanation) for row in self.criteria]
        columns = ["criterion", "weight", "verdict", "requirement", "reason"]
        return html_table(f"{title}. {self.error or ''}", columns, rows)

    def to_dataframe(self) -> DataFrame:
        """Return the report as a pandas DataFrame with one row per criterion.

        It has the columns `tags`, `metadata` and `evidence` only if they are used.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = ["name", "requirement", "weight", "required", "verdict", "value", "passed", "reason", "error"]
        optional = ("tags", "metadata", "evidence")
        columns += [name for name in optional if any(getattr(row, name) for row in self.criteria)]
        return data_frame([{name: getattr(row, name) for name in columns} for row in self.criteria], columns)

    @property
    def criteria(self) -> tuple[CriterionReport, ...]:
        """The entries of `report`; empty if a holistic judge scored the whole."""
        return self.report or ()

    @property
    def not_applicable_count(self) -> int:
        """The number of criteria that do not apply, because their condition (`applies_when`) does not hold."""
        return sum(row.not_applicable for row in self.criteria)

    @property
    def not_asked(self) -> tuple[str, ...]:
        """The names of the criteria for which no judgment was requested, because the decision did not need them."""
        return tuple(row.name for row in self.criteria if not row.was_asked)

    @property
    def token_usage(self) -> TokenUsage | None:
        """The tokens of all calls, including failed attempts; None (unknown) if a call did not report its tokens."""
        return self.spend.usage

    @property
    def cost(self) -> float | None:
        """The cost of all calls in US dollars; None (unknown) if the price of a call is not known."""
        return self.spend.cost


def tag_key(tag: str) -> str:
    """Return the name of a tag's score beside the names of criteria, in feedback, objectives and data frames.

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
        report: The incomplete report, with all answers and the spend up to the failure; its `complete` is False.
    """

    def __init__(self, message: str, report: EvaluationReport):
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.report)
