"""From a panel's answers to one criterion to that criterion's report: votes joined, failures resolved by policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.escalations import total_escalation_cost
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure, Judgment, Outcome, Vote
from rubric_integrations.results.usage import total_spend
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.formula import criterion_holds
from rubric_integrations.scoring.policies import ScoringPolicies, fallback_judgment
from rubric_integrations.scoring.voting import count_votes


def report_criterion(
    criterion: Criterion,
    index: int,
    name: str,
    panel: Sequence[JudgeAnswers],
    policies: ScoringPolicies,
    *,
    is_open: bool = False,
) -> CriterionReport:
    """Make the report of one criterion.

    Args:
        criterion: The criterion.
        index: Its index in the rubric.
        name: Its key in the rubric.
        panel: The answers of each judge.
        policies: How failures and votes are resolved.
        is_open: Whether no judge was asked about the criterion, because the decision did not need it.
    """
    is_panel = len(panel) > 1
    if is_panel and criterion.judge is not None:
        panel = [answers for answers in panel if answers.judge == criterion.judge]
    votes = votes_for(index, panel)
    outcomes = [answers.outcomes[index] for answers in panel if index in answers.outcomes]
    judgments = [outcome for outcome in outcomes if isinstance(outcome, Judgment)]
    fields: dict[str, Any] = {
        "name": name,
        "requirement": criterion.full_requirement,
        "weight": criterion.full_weight,
        "required": criterion.is_gate,
        "spend": total_spend(outcome.spend for outcome in outcomes),
        "neutralized": any(judgment.neutralized for judgment in judgments),
        "escalated": any(judgment.escalated for judgment in judgments),
        "escalation_cost": total_escalation_cost(judgments),
        "trained_on": any(judgment.trained_on for judgment in judgments),
        "votes": tuple(votes) if is_panel else (),
        "tags": criterion.tags,
        "metadata": criterion.metadata,
        "options": tuple(criterion.options or ()),
        "scale_type": criterion.scale_type,
        "scale": criterion.scale if criterion.cap is None else None,
        "cap": criterion.cap,
        "computed": criterion.check is not None,
        "not_asked": tuple(answers.judge for answers in panel if index not in answers.outcomes),
    }
    if is_open:
        return CriterionReport(**fields, verdict=None, value=None)
    if all(vote.error for vote in votes):
        fallback = fallback_judgment(criterion, policies.on_failure)
        error = "; ".join(dict.fromkeys(vote.error or "" for vote in votes)) or "no judge was asked"
        verdict, value = (fallback.verdict, fallback.value) if fallback else (None, None)
        return CriterionReport(**fields, verdict=verdict, value=value, error=error)
    result = count_votes(criterion, votes, policies.strategy_for(criterion), policies.may_abstain)
    single = outcomes[0] if len(outcomes) == 1 and isinstance(outcomes[0], Judgment) else None
    return CriterionReport(
        **fields,
        verdict=result.verdict,
        value=result.value,
        reason=_reason(votes, result.verdict),
        evidence=_evidence(judgments, result.verdict),
        passed=criterion_holds(criterion, result.value),
        agreement=result.agreement,
        confidence=single.confidence if single else None,
        expected_value=single.expected_value if single else None,
    )


def summarize_failures(
    criteria: Sequence[CriterionReport],
    conditions: Sequence[CriterionReport],
    panel: Sequence[JudgeAnswers],
    condition_of: Sequence[int | None],
) -> str | None:
    """Describe what has no answer in one line: the first failure and the number of others, or a panel's lost votes.

    Args:
        criteria: The reports of the criteria.
        conditions: The reports of their conditions.
        panel: The answers of each judge, and of the checks.
        condition_of: For each criterion, the index of its condition among the rubric's questions.

    Returns:
        The line; None if nothing failed and no vote was lost.
    """

    def was_cancelled(index: int) -> bool:
        own = [answers.outcomes[index] for answers in panel if index in answers.outcomes]
        outcomes = own or [answers.outcomes.get(condition_of[index] or index) for answers in panel]
        outcomes = [outcome for outcome in outcomes if outcome is not None]
        return bool(outcomes) and all(isinstance(o, JudgeFailure) and o.kind == "cancelled" for o in outcomes)

    # A cancelled criterion did not fail of itself: the reader wants to know which one did.
    failed = [row for index, row in enumerate(criteria) if row.error and not was_cancelled(index)]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"`{failed[0].name}` was not judged: {failed[0].error}{more}"
    lost = [row for row in (*criteria, *conditions) if row.lost_votes]
    if lost:
        error = next(vote.error for vote in lost[0].votes if vote.error)
        count = sum(row.lost_votes for row in lost)
        return f"{count} votes of the panel were lost, the first on `{lost[0].name}`: {error}"
    return None


def votes_for(index: int, panel: Sequence[JudgeAnswers]) -> list[Vote]:
    """Return the votes on one criterion of all judges that were asked about it, failures included."""
    return [_vote(answers, answers.outcomes[index]) for answers in panel if index in answers.outcomes]


def _vote(answers: JudgeAnswers, outcome: Outcome) -> Vote:
    if isinstance(outcome, JudgeFailure):
        return Vote(judge=answers.judge, weight=answers.weight, verdict=None, value=None, error=str(outcome))
    return Vote(
        judge=answers.judge,
        weight=answers.weight,
        verdict=outcome.verdict,
        value=outcome.value,
        reason=outcome.reason,
    )


def _evidence(judgments: Sequence[Judgment], verdict: str) -> tuple[int, ...]:
    """Return the steps that the judges of the verdict cite; where there are none, those of the first judge."""
    agreeing = [judgment for judgment in judgments if judgment.verdict == verdict] or judgments[:1]
    return tuple(sorted({number for judgment in agreeing for number in judgment.evidence}))


def _reason(votes: Sequence[Vote], verdict: str) -> str:
    """Return the reason of the first judge whose verdict is the panel's; where there is none, of the first judge."""
    valid = [vote for vote in votes if vote.error is None]
    return next((vote.reason for vote in valid if vote.verdict == verdict), valid[0].reason)
