"""From answers to the report: joins votes, resolves failures, scores criteria, and decides `passed`.

Only this module decides `passed`: the normalized score reaches the rubric's pass mark, every required criterion is met,
enough of the rubric was assessed, and the rubric covers all requirements of its author. A missing answer never helps a
submission to pass: for `passed`, a failed criterion has its worst value, even if the score counts it differently.
Without this rule, a submission could pass because of its checks alone while the judge is down.

A panel decides a condition (`applies_when`) by the weighted majority of its votes. In a tie, the criterion applies. A
criterion that is wrongly judged is visible in the report, but a criterion that is wrongly left out would be overlooked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rubric_integrations.rubric.criterion import Criterion, all_criteria, condition_indices
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import (
    Score,
    blend_scores,
    coverage,
    criterion_holds,
    reaches_mark,
    score_overall,
    score_range,
    score_values,
    tag_scores,
)
from rubric_integrations.scoring.judgment import JudgeAnswers, JudgeFailure, Judgment, Outcome, Spend, Vote, total_spend
from rubric_integrations.scoring.policies import ScoringPolicies, fallback_judgment
from rubric_integrations.scoring.report import NOT_APPLICABLE, CriterionReport, EvaluationReport, total_escalation_cost
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
        index: The index of the criterion in the rubric.
        name: The key of the criterion in the rubric.
        panel: The answers of each judge.
        policies: How failures and votes are resolved.
        is_open: Whether the grade ended early, before any judge was asked about the criterion.
    """
    is_panel = len(panel) > 1
    if is_panel and criterion.judge is not None:
        panel = [answers for answers in panel if answers.judge == criterion.judge]
    outcomes = [answers.outcomes[index] for answers in panel if index in answers.outcomes]
    fields: dict[str, Any] = {
        "name": name,
        "requirement": criterion.full_requirement,
        "weight": criterion.full_weight,
        "required": criterion.is_gate,
        "tags": criterion.tags,
        "metadata": criterion.metadata,
        "options": tuple(criterion.options or ()),
        "scale_type": criterion.scale_type,
        "scale": criterion.scale if criterion.cap is None else None,
        "cap": criterion.cap,
        "computed": criterion.check is not None,
    }
    if not is_panel and not is_open and outcomes and isinstance(outcomes[0], Judgment):
        return _report_judgment(criterion, fields, outcomes[0])
    votes = votes_for(index, panel)
    judgments = [outcome for outcome in outcomes if isinstance(outcome, Judgment)]
    fields |= {
        "spend": total_spend(outcome.spend for outcome in outcomes),
        "neutralized": any(judgment.neutralized for judgment in judgments),
        "escalated": any(judgment.escalated for judgment in judgments),
        "escalation_cost": total_escalation_cost(judgments),
        "trained_on": any(judgment.trained_on for judgment in judgments),
        "votes": tuple(votes) if is_panel else (),
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
        probabilities=single.probabilities if single else None,
        model=single.model if single else None,
    )


def _report_judgment(criterion: Criterion, fields: Mapping[str, Any], judgment: Judgment) -> CriterionReport:
    """Make the report of a criterion from a single judgment, without a vote."""
    return CriterionReport(
        **fields,
        spend=judgment.spend,
        neutralized=judgment.neutralized,
        escalated=judgment.escalated,
        escalation_cost=judgment.escalation_cost,
        trained_on=judgment.trained_on,
        verdict=judgment.verdict,
        value=judgment.value,
        reason=judgment.reason,
        evidence=tuple(sorted(set(judgment.evidence))) if judgment.evidence else (),
        passed=criterion_holds(criterion, judgment.value),
        agreement=1.0,
        confidence=judgment.confidence,
        expected_value=judgment.expected_value,
        probabilities=judgment.probabilities,
        model=judgment.model,
    )


def summarize_failures(
    criteria: Sequence[CriterionReport],
    conditions: Sequence[CriterionReport],
    panel: Sequence[JudgeAnswers],
    condition_of: Sequence[int | None],
) -> str | None:
    """Describe the failures of a grade in one line.

    If criteria failed, the line has the first failure and the number of the others. If only single judges of a panel
    failed, the line has the number of their lost votes and the first error.

    Args:
        criteria: The reports of the criteria.
        conditions: The reports of their conditions.
        panel: The answers of each judge and of the checks.
        condition_of: The index of each criterion's condition among the rubric's `questions`, or None.

    Returns:
        The line. None if no criterion failed and no vote was lost.
    """

    def was_cancelled(index: int) -> bool:
        own = [answers.outcomes[index] for answers in panel if index in answers.outcomes]
        outcomes = own or [answers.outcomes.get(condition_of[index] or index) for answers in panel]
        outcomes = [outcome for outcome in outcomes if outcome is not None]
        return bool(outcomes) and all(isinstance(o, JudgeFailure) and o.kind == "cancelled" for o in outcomes)

    # A cancelled criterion is not the cause. The reader needs the criterion that failed.
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
    """Return the votes on one criterion by all judges that were asked about it, including failures."""
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
        model=outcome.model,
    )


def _evidence(judgments: Sequence[Judgment], verdict: str) -> tuple[int, ...]:
    """Return the steps cited by the judges that agree with the verdict or, if none agrees, by the first judge."""
    agreeing = [judgment for judgment in judgments if judgment.verdict == verdict] or judgments[:1]
    return tuple(sorted({number for judgment in agreeing for number in judgment.evidence}))


def _reason(votes: Sequence[Vote], verdict: str) -> str:
    """Return the reason of the first judge that agrees with the verdict or, if none agrees, of the first judge."""
    valid = [vote for vote in votes if vote.error is None]
    return next((vote.reason for vote in valid if vote.verdict == verdict), valid[0].reason)


def report_conditions(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    *,
    may_leave_open: bool = False,
) -> dict[int, CriterionReport]:
    """Make the report of each distinct condition of a rubric, by its index among the rubric's `questions`.

    Args:
        rubric: The rubric.
        panel: The answers of each judge, in the order of the panel.
        computed: The answers of the checks.
        policies: How votes are joined.
        may_leave_open: Whether a condition that no judge was asked about stays without an answer. If False, it is a
            failure.
    """
    answered = {index for answers in (computed, *panel) for index in answers.outcomes}
    every = all_criteria(rubric.criteria)
    return {
        index: report_criterion(
            voting_criterion(every[index]),
            index,
            "condition",
            [computed] if index in computed.outcomes else panel,
            policies._replace(on_failure="abstain"),
            is_open=may_leave_open and index not in answered,
        )
        for index in dict.fromkeys(index for index in condition_indices(rubric.criteria) if index is not None)
    }


def applicable_criteria(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    *,
    while_open: bool = False,
) -> set[int]:
    """Return the indices of the criteria that have no condition, or whose condition is true.

    Args:
        rubric: The rubric.
        panel: The answers of each judge so far.
        computed: The answers of the checks.
        policies: How votes are joined.
        while_open: Whether to include criteria whose condition was not asked about yet.
    """
    conditions = report_conditions(rubric, panel, computed, policies, may_leave_open=True)
    applicable: set[int] = set()
    for index, place in enumerate(condition_indices(rubric.criteria)):
        condition = None if place is None else conditions[place]
        if condition is None or condition.value == 1.0 or (while_open and not condition.was_asked):
            applicable.add(index)
    return applicable


def voting_criterion(criterion: Criterion) -> Criterion:
    """Return the criterion that is used to vote on a criterion or condition.

    For a criterion, this is the criterion itself. For a condition, it is a criterion with a negative weight. A tie
    gives the answer with the lower score. For a negative weight, this answer is MET. Therefore, a condition is true in
    a tie, and its criteria apply.
    """
    return criterion.model_copy(update={"weight": -1.0}) if criterion.is_condition else criterion


def report_by_condition(
    criterion: Criterion, name: str, condition: CriterionReport | None, policies: ScoringPolicies
) -> CriterionReport | None:
    """Make the report of a criterion that is decided by its condition, or None if it must be judged.

    If the condition is false, the criterion is not applicable. If the condition cannot be assessed, the criterion is an
    abstention. If the condition has no answer, the criterion is a failure.

    Args:
        criterion: The criterion.
        name: Its key in the rubric.
        condition: The report of its condition. None for a criterion without a condition.
        policies: How failures are resolved.
    """
    if condition is None or not condition.was_asked or condition.value == 1.0:
        return None
    report = partial(
        CriterionReport,
        name=name,
        requirement=criterion.full_requirement,
        weight=criterion.full_weight,
        required=criterion.is_gate,
        neutralized=condition.neutralized,
        tags=criterion.tags,
        metadata=criterion.metadata,
        options=tuple(criterion.options or ()),
        scale_type=criterion.scale_type,
        scale=criterion.scale if criterion.cap is None else None,
        cap=criterion.cap,
        computed=criterion.check is not None,
        evidence=condition.evidence,
    )
    if condition.error:
        fallback = fallback_judgment(criterion, policies.on_failure)
        verdict, value = (fallback.verdict, fallback.value) if fallback else (None, None)
        return report(verdict=verdict, value=value, error=f"whether it applies was not judged: {condition.error}")
    if condition.value is None:
        reason = f"whether it applies cannot be assessed: {condition.reason}".removesuffix(": ")
        return report(verdict="CANNOT_ASSESS", value=None, reason=reason)
    reason = f"does not apply: {condition.reason}".removesuffix(": ")
    return report(verdict=NOT_APPLICABLE, value=None, reason=reason, passed=True, not_applicable=True)


class MetricResults(NamedTuple):
    """The values of a rubric's hybrid metrics.

    Attributes:
        values: The value of each metric in [0, 1], by name. None for a metric that could not be computed and is left
            out.
        errors: The error of each metric that could not be computed, by name.
    """

    values: Mapping[str, float | None]
    errors: Mapping[str, str]


class OverallAnswer(NamedTuple):
    """One judge's overall score of a submission.

    Attributes:
        judge: The judge's name in reports.
        percent: The score from 0 to 100. None if the judge failed.
        reason: The judge's reason or, for a failure, the error.
        spend: The calls, tokens and cost of the answer.
        failure: The judge's failure. None if the judge gave a score or was not asked.
        model: The model that the reply names. None if it names none.
    """

    judge: str
    percent: float | None
    reason: str
    spend: Spend
    failure: JudgeFailure | None = None
    model: str | None = None


def aggregate_answers(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    *,
    may_leave_open: bool = False,
) -> EvaluationReport:
    """Make a report from the answers of judges and checks: join votes, handle failures, and compute the score.

    If a criterion failed and `on_failure` is `raise`, the report has no score, because it is not a valid grade.

    Args:
        rubric: The rubric.
        panel: The answers of each judge, in the order of the panel.
        computed: The answers that need no judge, such as the answers of checks.
        policies: How answers become a score.
        may_leave_open: Whether a criterion that no judge was asked about stays without an answer. If False, it is a
            failure.
    """
    answered = {index for answers in (computed, *panel) for index in answers.outcomes}
    conditions = report_conditions(rubric, panel, computed, policies, may_leave_open=may_leave_open)
    condition_of = [None if i is None else conditions[i] for i in condition_indices(rubric.criteria)]
    criteria = [
        report_by_condition(criterion, name, condition_of[index], policies)
        or report_criterion(
            criterion,
            index,
            name,
            [computed] if index in computed.outcomes else panel,
            policies,
            is_open=(may_leave_open and index not in answered) or _is_open(condition_of[index]),
        )
        for index, (name, criterion) in enumerate(zip(rubric.keys, rubric.criteria, strict=True))
    ]
    report = _without_score(rubric, panel, computed, tuple(criteria), list(conditions.values()))
    if report.failed_count and policies.on_failure == "raise":
        return report
    left_out = _left_out(criteria)
    if open_criteria := [row for row in criteria if not row.was_asked]:
        values = {index: row.value for index, row in enumerate(criteria) if row.was_asked}
        applies = {
            index: not criteria[index].not_applicable
            for index, condition in enumerate(condition_of)
            if condition is not None and condition.was_asked
        }
        low, high = score_range(rubric, values, policies.cannot_assess, applies)
        open_tags = dict.fromkeys(tag for row in open_criteria for tag in row.tags)
        tags = _tags(rubric, criteria, policies, left_out) | open_tags
        return _decide(rubric, report.model_copy(update={"score_range": (low, high), "tags": tags}), policies)
    score = _score(rubric, [row.value for row in criteria], policies, left_out)
    report = report.model_copy(
        update={
            "score": score.reported(normalize=policies.normalize),
            "raw_score": score.raw,
            "llm_raw_score": score.raw,
            "judge_scores": _judge_scores(rubric, panel, computed, policies, left_out) if len(panel) > 1 else {},
            "tags": _tags(rubric, criteria, policies, left_out),
        }
    )
    return _decide(rubric, report, policies)


def aggregate_overall(
    rubric: Rubric,
    answers: Sequence[OverallAnswer],
    join: Callable[[Sequence[float]], float],
    policies: ScoringPolicies,
) -> EvaluationReport:
    """Make a report from the overall scores of holistic judges.

    Args:
        rubric: The rubric.
        answers: The overall score of each judge, in the order of the panel.
        join: Joins the scores of a panel into one, such as their mean.
        policies: How failures become a score.
    """
    scored = [answer for answer in answers if answer.percent is not None]
    failed = [answer for answer in answers if answer.percent is None]
    percent = join([answer.percent for answer in answers if answer.percent is not None]) if scored else None
    score = _fallback_score(rubric, policies) if percent is None else score_overall(rubric, percent)

    def own_score(answer: OverallAnswer) -> float | None:
        if answer.percent is None:
            return None
        return score_overall(rubric, answer.percent).reported(normalize=policies.normalize)

    report = EvaluationReport(
        score=score.reported(normalize=policies.normalize),
        raw_score=score.raw,
        llm_raw_score=percent,
        passed=False,
        complete=not failed,
        coverage=1.0 if scored else 0.0,
        failed_count=0 if scored else len(rubric),
        error=f"{len(failed)} of {len(answers)} judges gave no score: {failed[0].reason}" if failed else None,
        spend=total_spend(answer.spend for answer in answers),
        judge_scores={answer.judge: own_score(answer) for answer in answers} if len(answers) > 1 else {},
        judge_models={answer.judge if len(answers) > 1 else "": answer.model for answer in scored if answer.model},
        report=None,
        reason="; ".join(answer.reason for answer in scored),
    )
    return _decide(rubric, report, policies)


def blend_metrics(
    rubric: Rubric, report: EvaluationReport, metrics: MetricResults, policies: ScoringPolicies
) -> EvaluationReport:
    """Blend the rubric's hybrid metrics with a report's score. A raw score stays unchanged.

    If a metric failed and `on_failure` is `raise`, the report has no score.
    """
    pairs = [(m.weight, value) for m in rubric.hybrid_metrics if (value := metrics.values[m.name]) is not None]
    if policies.normalize:
        report = _change_score(report, lambda score: blend_scores(score, pairs, rubric.blend))
    errors = [f"`{name}` was not computed: {error}" for name, error in metrics.errors.items()]
    if errors and policies.on_failure == "raise":
        report = report.model_copy(update={"score": None, "score_range": None})
    report = report.model_copy(
        update={
            "metrics": dict(metrics.values),
            "failed_count": report.failed_count + len(errors),
            "complete": report.complete and not errors,
            "error": report.error or next(iter(errors), None),
        }
    )
    return _decide(rubric, report, policies)


def subtract_penalty(
    rubric: Rubric, report: EvaluationReport, penalty: float, policies: ScoringPolicies
) -> EvaluationReport:
    """Subtract the length penalty from a report's score. A normalized score stays at least 0, a raw score may not."""
    if not policies.normalize:
        # `passed` depends on the normalized score, which a penalty in raw points does not change.
        report = _change_score(report, lambda score: score - penalty)
        return report.model_copy(update={"length_penalty": penalty})
    report = _change_score(report, lambda score: max(0.0, score - penalty))
    return _decide(rubric, report.model_copy(update={"length_penalty": penalty}), policies)


def _decide(rubric: Rubric, report: EvaluationReport, policies: ScoringPolicies) -> EvaluationReport:
    """Return a report with `passed`, `low_coverage` and `partial`.

    The report of a holistic grade has no entries of criteria. Therefore, it never passes if the rubric has required
    criteria.
    """
    gates = sum([criterion.is_gate for criterion in rubric.criteria])
    low_coverage = not reaches_mark(_asked_coverage(rubric, report), rubric.min_coverage)
    passed = (
        not low_coverage
        and not rubric.left_out
        and reaches_mark(_lowest_score(rubric, report, policies), rubric.pass_mark)
        and sum([row.required and row.passed for row in report.criteria]) == gates
    )
    update = {"passed": passed, "low_coverage": low_coverage, "partial": bool(rubric.left_out)}
    return report.model_copy(update=update)


def _asked_coverage(rubric: Rubric, report: EvaluationReport) -> float:
    """Return the coverage without the criteria that were not asked about, because the decision did not need them."""
    if report.score_range is None:
        return report.coverage
    left_out = [index for index, row in enumerate(report.criteria) if row.not_applicable or not row.was_asked]
    return coverage(rubric, [row.value is not None and not row.error for row in report.criteria], left_out)


def _lowest_score(rubric: Rubric, report: EvaluationReport, policies: ScoringPolicies) -> float | None:
    """Return the lowest possible normalized score: failed and open criteria have their worst values.

    None if the score is undefined, or may become undefined.
    """
    score = report.score_range[0] if report.score_range else report.score
    if score is None or (policies.normalize and not report.failed_count):
        return score
    if report.report is None:
        # None for a fallback, because it is not a grade.
        lowest = None if report.llm_raw_score is None else report.llm_raw_score / 100
    else:
        pairs = list(zip(rubric.criteria, report.criteria, strict=True))
        values = {i: c.worst_value if row.error else row.value for i, (c, row) in enumerate(pairs) if row.was_asked}
        applies = {
            i: not row.not_applicable for i, (c, row) in enumerate(pairs) if c.applies_when is not None and i in values
        }
        lowest = score_range(rubric, values, policies.cannot_assess, applies).low
    if lowest is None or not policies.normalize:
        return lowest
    metrics = [(m.weight, report.metrics[m.name] or 0.0) for m in rubric.hybrid_metrics if m.name in report.metrics]
    return max(0.0, blend_scores(lowest, metrics, rubric.blend) - report.length_penalty)


def _change_score(report: EvaluationReport, change: Callable[[float], float]) -> EvaluationReport:
    """Apply a monotonically increasing function to a report's score, or to both ends of its range."""
    if report.score_range:
        low, high = report.score_range
        return report.model_copy(update={"score_range": (None if low is None else change(low), change(high))})
    return report if report.score is None else report.model_copy(update={"score": change(report.score)})


def _without_score(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    criteria: tuple[CriterionReport, ...],
    conditions: Sequence[CriterionReport],
) -> EvaluationReport:
    """Make the report of a submission that has no score."""
    failed = [row for row in criteria if row.error]
    error = summarize_failures(criteria, conditions, [computed, *panel], condition_indices(rubric.criteria))
    agreements = [row.agreement for row in criteria if row.agreement is not None]
    return EvaluationReport(
        score=None,
        raw_score=None,
        passed=False,
        complete=not failed and error is None,
        coverage=coverage(rubric, [row.value is not None and not row.error for row in criteria], _left_out(criteria)),
        cannot_assess_count=sum([row.abstained for row in criteria]),
        failed_count=len(failed),
        error=error,
        spend=total_spend([part.spend for part in (*criteria, *conditions, *panel)]),
        mean_agreement=math.fsum(agreements) / len(agreements) if agreements else None,
        report=criteria,
        tags=dict.fromkeys(rubric.tags),
    )


def _is_open(condition: CriterionReport | None) -> bool:
    """Return whether a condition is not decided yet. If so, the criterion is open, even if a check has a result."""
    return condition is not None and not condition.was_asked


def _left_out(criteria: Sequence[CriterionReport]) -> frozenset[int]:
    """Return the indices of the criteria that do not apply."""
    return frozenset(index for index, row in enumerate(criteria) if row.not_applicable)


def _score(
    rubric: Rubric, values: Sequence[float | None], policies: ScoringPolicies, left_out: Collection[int] = ()
) -> Score:
    return score_values(rubric, values, policies.cannot_assess, left_out)


def _tags(
    rubric: Rubric, criteria: Sequence[CriterionReport], policies: ScoringPolicies, left_out: Collection[int]
) -> dict[str, float | None]:
    values = [row.value for row in criteria]
    scores = tag_scores(rubric, values, policies.cannot_assess, left_out)
    return {tag: score.reported(normalize=policies.normalize) for tag, score in scores.items()}


def _judge_scores(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    left_out: Collection[int],
) -> dict[str, float | None]:
    """Return the score from each single judge's answers. Failures and missing answers count as abstentions."""
    scores: dict[str, float | None] = {}
    for answers in panel:
        outcomes = {**answers.outcomes, **computed.outcomes}
        values = [getattr(outcomes.get(index), "value", None) for index in range(len(rubric))]
        score = _score(rubric, values, policies, left_out)
        has_answers = any(isinstance(outcome, Judgment) for outcome in answers.outcomes.values())
        scores[answers.judge] = score.reported(normalize=policies.normalize) if has_answers else None
    return scores


def _fallback_score(rubric: Rubric, policies: ScoringPolicies) -> Score:
    """Return the score if every criterion has its fallback. Undefined if failures count as abstentions."""
    fallbacks = [fallback_judgment(criterion, policies.on_failure) for criterion in rubric.criteria]
    values = [fallback.value for fallback in fallbacks if fallback is not None]
    if len(values) < len(fallbacks):
        return Score(None, None)
    return _score(rubric, values, policies)


def ungraded_report(rubric: Rubric, error: str, report: EvaluationReport | None = None) -> EvaluationReport:
    """Make the report of a failed grade, without a score and not passed.

    An application that must continue after a failed grade can use this report instead of the exception.

    Args:
        rubric: The rubric.
        error: Why the grade failed.
        report: The incomplete report with the criteria that were judged. None if there is no such report.
    """
    if report is not None:
        return report.model_copy(update={"score": None, "passed": False})
    return EvaluationReport(
        score=None, raw_score=None, passed=False, complete=False, coverage=0.0, failed_count=len(rubric), error=error,
        report=None,
    )  # fmt: skip
