"""The report of one graded submission, with one entry per criterion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import EncodableText, SparseRecord
from rubric_integrations.results.criterion_report import CriterionReport, ReprArgs
from rubric_integrations.results.escalations import Escalations, count_escalations
from rubric_integrations.results.usage import Spend, TokenUsage

if TYPE_CHECKING:
    from pandas import DataFrame


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

        It has the columns `tags`, `metadata`, `evidence` and `escalated` only if they are used.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = ["name", "requirement", "weight", "required", "verdict", "value", "passed", "reason", "error"]
        optional = ("tags", "metadata", "evidence", "escalated")
        columns += [name for name in optional if any(getattr(row, name) for row in self.criteria)]
        return data_frame([{name: getattr(row, name) for name in columns} for row in self.criteria], columns)

    @property
    def criteria(self) -> tuple[CriterionReport, ...]:
        """The entries of `report`; empty if a holistic judge scored the whole."""
        return self.report or ()

    @property
    def escalations(self) -> Escalations:
        """How many answers came from the expensive judge of a `Cascade`, and what the cheap one has saved."""
        return count_escalations(self.criteria, self.spend)

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
