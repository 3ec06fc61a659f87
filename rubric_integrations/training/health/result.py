"""The result of `reward_report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import EncodableText, Record
from rubric_integrations._util.terminal import spend_text
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.usage import Spend
from rubric_integrations.training.health.trends import Trend

if TYPE_CHECKING:
    from pandas import DataFrame


class StepFigures(NamedTuple):
    """The completions of one training step, or of several neighbouring ones. A mean of nothing is None.

    Attributes:
        first: The first of the steps.
        last: The last of them.
        completions: The number of completions.
        reward: The mean reward.
        reward_error: Its standard error, of which the completions of a group are one observation.
        words: The mean number of words of the answers.
        length_correlation: The mean rank correlation of length and reward within groups.
        coverage: The mean share of the rubric that the judge could assess.
        abstained: The share of criteria on which the judge abstained.
        failed: The share of grades that failed.
        ungraded: The share of completions without anything to grade.
        equal_groups: The share of groups with equal rewards, from which the policy learns nothing.
        criteria: The mean score in [0, 1] of each criterion, by its name: the share of MET, or of UNMET for a penalty.
        judge: The mean score that the judge gave to the completions of the sample.
        second: The mean score that the second judge gave to them.
    """

    first: int
    last: int
    completions: int
    reward: float | None
    reward_error: float | None
    words: float | None
    length_correlation: float | None
    coverage: float | None
    abstained: float | None
    failed: float | None
    ungraded: float | None
    equal_groups: float | None
    criteria: dict[EncodableText, float | None]
    judge: float | None = None
    second: float | None = None


class CriterionTrend(NamedTuple):
    """How one criterion changed in the course of a training run.

    Attributes:
        requirement: Its words.
        weight: Its weight in the last completion, negative for a penalty.
        score: Its mean score in [0, 1], for which higher is better, also for a penalty: the share of completions that
            did not commit the error.
        lead: Its score less the mean score of the other criteria, by weight. None for a single criterion.
        explains: The part of the gain of the criteria, by weight, that is this criterion's: 1 is all of it. None if the
            reward has not surely risen.
        abstained: The share of abstentions.
        saturated: `fulfilled` if its score was 1 in each completion of the last third, `unfulfilled` if it was 0: it
            teaches the policy nothing any more. None if neither holds.
    """

    requirement: EncodableText
    weight: float
    score: Trend
    lead: Trend | None
    explains: float | None
    abstained: Trend
    saturated: Literal["fulfilled", "unfulfilled"] | None


class JudgeGap(NamedTuple):
    """How the scores of two judges for the same completions move apart.

    Attributes:
        judge: The scores of the judge that makes the reward, in [0, 1]; higher is better, also for penalties.
        second: The scores of the second judge.
        gap: The former less the latter.
        shortfall: How far the scores of the second judge in the last third are below those that its agreement with the
            judge within the thirds predicts. A second judge that errs at random never follows in full; this figure
            allows for it. Undefined if the judge's scores do not vary.
        p_value: The two-sided p-value of the shortfall; None if it has no interval.
    """

    judge: Trend
    second: Trend
    gap: Trend
    shortfall: Estimate
    p_value: float | None


class SecondJudge(NamedTuple):
    """How a second judge grades a sample of the completions.

    Attributes:
        sampled: The number of completions that were drawn.
        compared: The number of those that both judges have graded.
        score: The scores of a completion: means, by weight, over the criteria on which both judges have decided. If
            both the gap and the shortfall are surely above 0, the policy has probably learned to deceive its judge.
        criteria: The scores of each criterion, by its name.
        spend: What the second judge cost.
    """

    sampled: int
    compared: int
    score: JudgeGap
    criteria: dict[EncodableText, JudgeGap]
    spend: Spend


class RewardReport(Record):
    """Whether the reward of a training run says what it should: the result of `reward_report`.

    All changes compare the last third of the steps with the first one.

    Attributes:
        completions: The number of completions.
        steps: The figures by step; at most 20, so that a figure of a long run stands for several steps.
        reward: The mean reward.
        words: The mean number of words of the answers.
        length_correlation: The rank correlation of length and reward within groups, over all steps; undefined without
            groups. It is above 0 if the reward pays for length.
        coverage: The mean share of the rubric that the judge could assess.
        abstained: The share of criteria on which the judge abstained.
        failed: The share of grades that failed.
        ungraded: The share of completions without anything to grade, such as empty ones.
        equal_groups: The share of completions in groups with equal rewards, from which the policy learns nothing.
        criteria: The change of each criterion that at least five prompts share, by its name.
        second: The comparison with a second judge; None without one.
        signs: What suggests that the policy exploits its judge, in sentences. Each one is significant: the probability
            that a run in which nothing changes has any sign is about 5 % at most (at a level of 0.95).
        warnings: What limits the figures.
    """

    completions: int
    steps: tuple[StepFigures, ...]
    reward: Trend
    words: Trend
    length_correlation: Estimate
    coverage: Trend
    abstained: Trend
    failed: Trend
    ungraded: Trend
    equal_groups: Trend
    criteria: dict[EncodableText, CriterionTrend]
    second: SecondJudge | None = None
    signs: tuple[EncodableText, ...] = ()
    warnings: tuple[EncodableText, ...] = ()

    def summary(self) -> str:
        """Return the signs and the figures as text."""
        lines = [f"sign: {sign}" for sign in self.signs] or ["no sign that the policy exploits its judge"]
        lines += [
            f"reward: {self.reward.text}",
            f"words: {self.words.text}",
            f"rank correlation of length and reward within groups: {self.length_correlation}",
            f"groups with equal rewards: {self.equal_groups.text}",
            f"abstentions: {self.abstained.text}",
            f"failed grades: {self.failed.text}",
        ]
        for name, row in self.criteria.items():
            part = "" if row.explains is None else f"; {row.explains:.0%} of the gain"
            saturated = f"; {row.saturated} throughout the last third: it teaches nothing" if row.saturated else ""
            lines.append(f"criterion {name!r}: {row.score.text}{part}{saturated}")
        if self.second:
            spend = spend_text(self.second.spend.calls, self.second.spend.total_tokens, self.second.spend.cost)
            lines += [
                f"on {self.second.compared:,} completions, the judge: {self.second.score.judge.text}",
                f"and the second judge: {self.second.score.second.text}",
                f"the gap between them: {self.second.score.gap.text}",
                f"shortfall of the second judge from what its agreement predicts: {self.second.score.shortfall}",
                f"cost of the second judge: {spend}",
            ]
        return "\n".join([*lines, *self.warnings])

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with a row for each entry of `steps`, and a column for each criterion.

        The column of the criterion `right` is `criterion.right`.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = self._columns()
        return data_frame([dict(zip(columns, row, strict=True)) for row in self._rows()], columns)

    def _repr_html_(self) -> str:
        return html_table(self.summary(), self._columns(), self._rows())

    def _columns(self) -> list[str]:
        own = [name for name in StepFigures._fields if name != "criteria"]
        return own + [f"criterion.{name}" for name in self.criteria]

    def _rows(self) -> list[list[object]]:
        own = [name for name in StepFigures._fields if name != "criteria"]
        return [
            [*(getattr(row, name) for name in own), *(row.criteria.get(name) for name in self.criteria)]
            for row in self.steps
        ]
