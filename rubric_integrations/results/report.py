"""What was found: a verdict, an abstention or a failure for each criterion, and the report of them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rubric_integrations._util.notebook import frame, html_table
from rubric_integrations._util.records import Record, UnitScore, Weight
from rubric_integrations.results.judgment import Vote
from rubric_integrations.results.usage import Spend, TokenUsage

if TYPE_CHECKING:
    from pandas import DataFrame

ReprArgs = Iterable[tuple[str | None, Any]]


class CriterionReport(Record):
    """What became of one criterion.

    Attributes:
        name: The criterion's key in its rubric: its name, or `c1`, `c2`, ... by place.
        requirement: What was asked.
        weight: What it is worth.
        verdict: The answer that was scored; None where there is none: neither a genuine one nor a fallback.
        value: The answer's value in [0, 1]; None for an abstention or a failure without a fallback.
        reason: Why.
        error: Why there is no genuine answer. A verdict beside it is a fallback that `on_failure` asked for.
        required: Whether `passed` depends on this criterion.
        passed: Whether this criterion holds: the gate's view, without abstentions or failures.
        spend: What it cost.
        neutralized: Whether text that imitates prompt structure was defused before the judge saw it.
        votes: A panel's answers, those of members that failed included; empty for a single judge.
        agreement: The share of the panel's votes that equal the verdict; 1 for a single judge, None without an answer.
        not_asked: Judges whose answer could no longer change the verdict, or the decision that was wanted.
        confidence, expected_value: A single judge's, where it was asked for them; the score does not use them.
    """

    name: str
    requirement: str
    weight: Weight
    verdict: str | None
    value: UnitScore | None
    reason: str = ""
    error: str | None = None
    required: bool = False
    passed: bool = False
    spend: Spend = Spend()
    neutralized: bool = False
    votes: tuple[Vote, ...] = ()
    agreement: float | None = None
    not_asked: tuple[str, ...] = ()
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None

    def __repr_args__(self) -> ReprArgs:
        """What to look at first; the rest is in the attributes."""
        yield "name", self.name
        yield "verdict", self.verdict
        yield ("error", self.error) if self.error else ("reason", self.reason)

    @property
    def was_asked(self) -> bool:
        """Whether there was an attempt to answer; not, where the decision was made without."""
        return self.verdict is not None or self.error is not None

    @property
    def lost_votes(self) -> int:
        """How many members of the panel failed."""
        return sum(vote.error is not None for vote in self.votes)


class EvaluationReport(Record):
    """The grade of one submission.

    Attributes:
        score: In [0, 1] (the weighted sum if `normalize=False`); None where it is undefined, never a made-up 0, and
            where `stop_when_decided` left it open.
        score_range: The least and the greatest score that is still possible, where it was left open; the least is None
            where the score could also have ended undefined.
        raw_score: The weighted sum, before any length penalty; None where every criterion was left out.
        llm_raw_score: What the judge itself said: the weighted sum of its verdicts, or a holistic judge's 0 to 100.
        passed: Whether the normalized score reaches the rubric's `pass_mark` and every required criterion holds.
        complete: Whether every question that was asked got an answer: an abstention is one; a failure or a panel's lost
            vote is not.
        coverage: The share in [0, 1] of the absolute weights that was assessed.
        cannot_assess_count: Abstentions.
        failed_count: Criteria without an answer.
        error: The failures in one line; None where there are none.
        spend: Calls, tokens and dollars, failed attempts included; a call for several criteria counts only here.
        metrics: The hybrid metrics' values in [0, 1]; None for one that could not be computed.
        scaled_score: The score on the rubric's own scale, where it has one.
        length_penalty: What was subtracted from the score for the length of the response.
        judge_scores: What each member of a panel alone would have given; empty for a single judge.
        mean_agreement: The mean of the criteria's agreement; None without an answer.
        report: One entry a criterion, in the rubric's order; None where the judge scored the whole.
        reason: A holistic judge's explanation.
    """

    score: float | None
    score_range: tuple[float | None, float] | None = None
    raw_score: float | None
    llm_raw_score: float | None = None
    passed: bool
    complete: bool
    coverage: float = Field(ge=0.0, le=1.0)
    cannot_assess_count: int = 0
    failed_count: int = 0
    error: str | None = None
    spend: Spend = Spend()
    metrics: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    scaled_score: float | None = None
    length_penalty: float = 0.0
    judge_scores: dict[str, float | None] = Field(default_factory=dict[str, float | None])
    mean_agreement: float | None = None
    report: tuple[CriterionReport, ...] | None
    reason: str = ""

    def __repr_args__(self) -> ReprArgs:
        """What to look at first; the rest is in the attributes."""
        yield ("score_range", self.score_range) if self.score_range else ("score", self.score)
        yield "passed", self.passed
        yield "coverage", round(self.coverage, 3)
        if self.error:
            yield "error", self.error
        yield "report", self.report

    def _repr_html_(self) -> str:
        shown = "..".join(map(str, self.score_range)) if self.score_range else self.score
        title = f"score {shown}, {'passed' if self.passed else 'not passed'}, coverage {self.coverage:.0%}"
        rows = [(row.name, row.weight, row.verdict, row.requirement, row.error or row.reason) for row in self.criteria]
        columns = ["criterion", "weight", "verdict", "requirement", "reason"]
        return html_table(f"{title}. {self.error or ''}", columns, rows)

    def to_dataframe(self) -> DataFrame:
        """One row a criterion, in pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = ["name", "requirement", "weight", "required", "verdict", "value", "passed", "reason", "error"]
        return frame([{name: getattr(row, name) for name in columns} for row in self.criteria], columns)

    @property
    def criteria(self) -> tuple[CriterionReport, ...]:
        """The entries of `report`; none where the judge scored the whole."""
        return self.report or ()

    @property
    def not_asked(self) -> tuple[str, ...]:
        """The names of the criteria that the decision did not need."""
        return tuple(row.name for row in self.criteria if not row.was_asked)

    @property
    def token_usage(self) -> TokenUsage:
        """Tokens of all calls, failed attempts included."""
        return self.spend.usage

    @property
    def cost(self) -> float | None:
        """US dollars; None where a price is not known."""
        return self.spend.cost


class JudgeError(ValueError):
    """A grade that could not be completed, under `on_failure="raise"`.

    Attributes:
        report: What was found and paid for until then; its `complete` is False.
    """

    def __init__(self, message: str, report: EvaluationReport):
        super().__init__(message)
        self.report = report
