"""From answers to the report: votes joined, failures resolved by policy, criteria scored, gates read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rubric_integrations.results.judgment import CANCELLED, JudgeAnswers, JudgeFailure, Judgment, Outcome, Vote
from rubric_integrations.results.report import CriterionReport, EvaluationReport
from rubric_integrations.results.usage import total_spend
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.bounds import score_range
from rubric_integrations.scoring.formula import (
    CannotAssess,
    OnFailure,
    WeightedValue,
    blend_scores,
    coverage,
    criterion_holds,
    fallback_judgment,
    reaches_mark,
    score_parts,
)
from rubric_integrations.scoring.voting import count_votes


class ScoringPolicies(NamedTuple):
    """How answers become a score: the settings of a grader that the report needs.

    Attributes:
        normalize: Whether `score` is in [0, 1].
        cannot_assess: What an abstention counts.
        partial_credit: The share of a positive weight that `partial` gives.
        on_failure: What stands in for a failure.
        strategies: How votes are joined, by the criterion's kind.
        may_abstain: Whether options may be abstained from where none is marked `na`.
    """

    normalize: bool
    cannot_assess: CannotAssess
    partial_credit: float
    on_failure: OnFailure
    strategies: Mapping[Kind, str]
    may_abstain: bool

    def strategy(self, criterion: Criterion) -> str:
        """How votes on a criterion are joined: its own way, or the grader's."""
        return criterion.aggregation or self.strategies[criterion.kind]


class MetricResults(NamedTuple):
    """The values of a rubric's hybrid metrics.

    Attributes:
        values: By the metric's name, its value in [0, 1]; None for one that could not be computed and is left out.
        errors: By name, why a metric could not be computed.
    """

    values: Mapping[str, float | None]
    errors: Mapping[str, str]


def aggregate_answers(
    rubric: Rubric,
    panel_answers: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    may_be_open: bool = False,
) -> EvaluationReport:
    """Join, resolve and score.

    Args:
        rubric: What was asked.
        panel_answers: Each judge's answers, in the order of the panel.
        computed: The answers of the checks, which no judge gives.
        policies: How answers become a score.
        may_be_open: Whether a criterion that nobody was asked about is left open; else it is a failure.
    """
    open_places = _unasked(rubric, [computed, *panel_answers]) if may_be_open else frozenset[int]()
    rows = [
        _row(rubric.criteria[index], index, key, given, policies, index in open_places)
        for index, key in enumerate(rubric.keys)
        for given in [[computed] if index in computed.answers else panel_answers]
    ]
    if open_places:
        return _open_report(rubric, panel_answers, rows, open_places, policies)
    score = score_parts(_parts(rubric, [row.value for row in rows]), policies.cannot_assess, policies.partial_credit)
    return _summed(rubric, panel_answers, rows).model_copy(
        update={
            "score": score.normalized if policies.normalize else score.raw,
            "raw_score": score.raw,
            "llm_raw_score": score.raw,
            "passed": reaches_mark(score.normalized, rubric.pass_mark) and _gates_hold(rows),
            "judge_scores": _judge_scores(rubric, panel_answers, computed, policies) if len(panel_answers) > 1 else {},
        }
    )


def _unasked(rubric: Rubric, panel_answers: Sequence[JudgeAnswers]) -> frozenset[int]:
    return frozenset(range(len(rubric))).difference(*(answers_of_judge.answers for answers_of_judge in panel_answers))


def _open_report(
    rubric: Rubric,
    panel_answers: Sequence[JudgeAnswers],
    rows: Sequence[CriterionReport],
    open_places: frozenset[int],
    policies: ScoringPolicies,
) -> EvaluationReport:
    """What is known while some criteria are open: no score, but where it can lie, and whether it passes in any case."""
    values = {place: row.value for place, row in enumerate(rows) if place not in open_places}
    found = score_range(rubric, values, policies.cannot_assess, policies.partial_credit)
    passed = reaches_mark(found.low, rubric.pass_mark) and _gates_hold(rows)
    return _summed(rubric, panel_answers, rows).model_copy(update={"score_range": tuple(found), "passed": passed})


def _gates_hold(rows: Sequence[CriterionReport]) -> bool:
    return all(row.passed for row in rows if row.required)


def _summed(rubric: Rubric, panel_answers: Sequence[JudgeAnswers], rows: Sequence[CriterionReport]) -> EvaluationReport:
    """The report without the score."""
    failed = [row for row in rows if row.error]
    agreements = [row.agreement for row in rows if row.agreement is not None]
    return EvaluationReport(
        score=None,
        raw_score=None,
        passed=False,
        complete=not failed and not any(row.lost_votes for row in rows),
        coverage=coverage(rubric, [row.value is not None and not row.error for row in rows]),
        cannot_assess_count=sum(row.value is None and not row.error and row.was_asked for row in rows),
        failed_count=len(failed),
        error=_error_line(rows),
        spend=total_spend(asked.spend for asked in (*rows, *panel_answers)),
        mean_agreement=math.fsum(agreements) / len(agreements) if agreements else None,
        report=tuple(rows),
    )


def with_metrics(
    rubric: Rubric, report: EvaluationReport, metrics: MetricResults, policies: ScoringPolicies
) -> EvaluationReport:
    """Blend the rubric's hybrid metrics into a report's score; raw scores stay the judges'.

    A metric without a value is left out of the blend.
    """
    pairs = [(m.weight, v) for m in rubric.hybrid_metrics if (v := metrics.values[m.name]) is not None]

    def blend(score: float) -> float:
        return blend_scores(score, pairs, rubric.blend)

    report = map_scores(report, blend) if policies.normalize else report
    first = next((f"`{name}` was not computed: {error}" for name, error in metrics.errors.items()), None)
    seen = {row.name for row in report.criteria if row.passed}
    gates = all(key in seen for key, c in zip(rubric.keys, rubric.criteria, strict=True) if c.is_gate)
    return report.model_copy(
        update={
            "passed": gates and reaches_mark(lowest_score(report), rubric.pass_mark)
            if policies.normalize
            else report.passed,
            "metrics": metrics.values,
            "failed_count": report.failed_count + len(metrics.errors),
            "complete": report.complete and not metrics.errors,
            "error": report.error or first,
        }
    )


def lowest_score(report: EvaluationReport) -> float | None:
    """The score, or the least that is possible where it was left open; None where it is undefined."""
    return report.score_range[0] if report.score_range else report.score


def map_scores(report: EvaluationReport, change: Callable[[float], float]) -> EvaluationReport:
    """The report with another score, or with both ends of its range changed; `change` must never decrease."""
    if report.score_range:
        low, high = report.score_range
        return report.model_copy(update={"score_range": (None if low is None else change(low), change(high))})
    return report if report.score is None else report.model_copy(update={"score": change(report.score)})


def votes_for(index: int, panel_answers: Sequence[JudgeAnswers]) -> list[Vote]:
    """What each judge that was asked about a criterion said, failures included."""
    return [
        _vote(answers_of_judge, answers_of_judge.answers[index])
        for answers_of_judge in panel_answers
        if index in answers_of_judge.answers
    ]


def _vote(answers_of_judge: JudgeAnswers, answer: Outcome) -> Vote:
    if isinstance(answer, JudgeFailure):
        return Vote(
            judge=answers_of_judge.judge, weight=answers_of_judge.weight, verdict=None, value=None, error=str(answer)
        )
    return Vote(
        judge=answers_of_judge.judge,
        weight=answers_of_judge.weight,
        verdict=answer.verdict,
        value=answer.value,
        reason=answer.reason,
    )


def _row(
    criterion: Criterion,
    index: int,
    key: str,
    panel_answers: Sequence[JudgeAnswers],
    policies: ScoringPolicies,
    is_open: bool,
) -> CriterionReport:
    votes = votes_for(index, panel_answers)
    answers = [
        answers_of_judge.answers[index] for answers_of_judge in panel_answers if index in answers_of_judge.answers
    ]
    about: dict[str, Any] = {
        "name": key,
        "requirement": criterion.requirement,
        "weight": criterion.weight,
        "required": criterion.is_gate,
        "spend": total_spend(answer.spend for answer in answers),
        "neutralized": any(isinstance(answer, Judgment) and answer.neutralized for answer in answers),
        "votes": tuple(votes) if len(panel_answers) > 1 else (),
        "not_asked": tuple(
            answers_of_judge.judge for answers_of_judge in panel_answers if index not in answers_of_judge.answers
        ),
    }
    if is_open:
        return CriterionReport(**about, verdict=None, value=None)
    if all(vote.error for vote in votes):
        instead = fallback_judgment(criterion, policies.on_failure)
        error = "; ".join(dict.fromkeys(vote.error or "" for vote in votes)) or "nobody was asked"
        verdict, value = (instead.verdict, instead.value) if instead else (None, None)
        return CriterionReport(**about, verdict=verdict, value=value, error=error)
    found = count_votes(criterion, votes, policies.strategy(criterion), policies.may_abstain)
    single = answers[0] if len(answers) == 1 and isinstance(answers[0], Judgment) else None
    return CriterionReport(
        **about,
        verdict=found.verdict,
        value=found.value,
        reason=_reason(votes, found.verdict),
        passed=criterion_holds(criterion, found.value),
        agreement=found.agreement,
        confidence=single.confidence if single else None,
        expected_value=single.expected_value if single else None,
    )


def _reason(votes: Sequence[Vote], verdict: str) -> str:
    """The words of the first judge who said what the panel says; of the first that answered, where none did."""
    reasons = [vote.reason for vote in votes if vote.error is None]
    return next((vote.reason for vote in votes if vote.verdict == verdict and vote.error is None), reasons[0])


def _parts(rubric: Rubric, values: Sequence[float | None]) -> list[WeightedValue]:
    return [WeightedValue(c.weight, value, c.worst_value) for c, value in zip(rubric.criteria, values, strict=True)]


def _judge_scores(
    rubric: Rubric, panel_answers: Sequence[JudgeAnswers], computed: JudgeAnswers, policies: ScoringPolicies
) -> dict[str, float | None]:
    """What each judge alone would have given; what it was not asked, or failed at, is left to the abstention policy."""
    scores: dict[str, float | None] = {}
    for answers_of_judge in panel_answers:
        answers = {**answers_of_judge.answers, **computed.answers}
        values = [getattr(answers.get(index), "value", None) for index in range(len(rubric))]
        if any(isinstance(answer, Judgment) for answer in answers_of_judge.answers.values()):
            score = score_parts(_parts(rubric, values), policies.cannot_assess, policies.partial_credit)
            scores[answers_of_judge.judge] = score.normalized if policies.normalize else score.raw
        else:
            scores[answers_of_judge.judge] = None
    return scores


def _error_line(rows: Sequence[CriterionReport]) -> str | None:
    """The first failure in full and the number of others, or how many votes a panel lost."""
    failed = [row for row in rows if row.error and not row.error.endswith(CANCELLED)]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"`{failed[0].name}` was not judged: {failed[0].error}{more}"
    lost = [row for row in rows if row.lost_votes]
    if lost:
        error = next(vote.error for vote in lost[0].votes if vote.error)
        count = sum(row.lost_votes for row in lost)
        return f"{count} votes of the panel were lost, the first on `{lost[0].name}`: {error}"
    return None
