"""How many answers of a cascade came from its expensive judge, and what the cheap one has saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rubric_integrations._util.records import Record
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.usage import Spend, total_spend


class Escalations(Record):
    """The answers of cascades (`rubric_integrations.judges.Cascade`) in a report or a run.

    Attributes:
        judgments: The number of answers of cascades.
        escalated: The number of those that the expensive judge gave.
        requested: The number of those that were requested, and did not come from a store.
        cost: What the requested answers cost, in US dollars; None if a price is unknown, or if other judges voted, too.
        strong_answers: The number of answers of the expensive judge that were paid for.
        strong_cost: What they cost, in US dollars; None if a price is unknown.
    """

    judgments: int = 0
    escalated: int = 0
    requested: int = 0
    cost: float | None = 0.0
    strong_answers: int = 0
    strong_cost: float | None = 0.0

    @property
    def share(self) -> float | None:
        """The share of the answers that the expensive judge gave; None without an answer of a cascade."""
        return self.escalated / self.judgments if self.judgments else None

    @property
    def saved(self) -> float | None:
        """An estimate of the US dollars that the cascade has saved, less than 0 if it cost more.

        It is what the expensive judge alone would have cost for the requested answers, at its mean cost for the
        escalated ones, less what was paid. None if that mean is not known: nothing was escalated, or a price is
        unknown.
        """
        if not self.strong_answers or self.strong_cost is None or self.cost is None:
            return None
        return self.strong_cost / self.strong_answers * self.requested - self.cost

    def summary(self) -> str:
        """Return the share and the saving in a few words; empty without an answer of a cascade.

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
        # A cascade of which too much is escalated costs more than the expensive judge alone.
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


NO_ESCALATIONS = Escalations()
"""Those of a report that no cascade has a part in."""


def count_escalations(criteria: Sequence[CriterionReport], spend: Spend) -> Escalations:
    """Count the answers of cascades in one report.

    Args:
        criteria: The entries of the report.
        spend: The spend of the report. One request about several criteria is in it, and in no entry.
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
    """Whether a cascade gave an answer."""
    return answer.escalated or answer.escalation_cost is not None


def total_escalation_cost(judgments: Iterable[Judgment]) -> float | None:
    """Add up what the expensive judges of cascades cost; None if no cascade answered, or a price is unknown."""
    costs = [judgment.escalation_cost for judgment in judgments if is_of_cascade(judgment)]
    return _sum(costs) if costs else None


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
