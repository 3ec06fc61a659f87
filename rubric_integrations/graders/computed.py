"""What no judge is asked for: checks, metrics, and abstentions on criteria whose evidence the submission lacks."""

from __future__ import annotations

from rubric_integrations.checks import run_check
from rubric_integrations.checks.metrics import run_metric
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure, Outcome
from rubric_integrations.rubric.conditions import questions
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import MetricResults
from rubric_integrations.scoring.policies import ScoringPolicies
from rubric_integrations.submission.evidence import missing_evidence
from rubric_integrations.submission.submission import Submission


def is_computed(question: Criterion, submission: Submission) -> bool:
    """Whether no judge is asked about a criterion, or about a condition as a criterion."""
    return question.check is not None or missing_evidence(question, submission) is not None


def computed_answers(rubric: Rubric, submission: Submission) -> JudgeAnswers:
    """Compute the answers to those questions of a rubric that no judge is asked about.

    Without the evidence that a criterion `needs`, its check is not computed either: the criterion is an abstention.
    """
    answers = {index: _answer(question, submission) for index, question in enumerate(questions(rubric.criteria))}
    outcomes = {index: answer for index, answer in answers.items() if answer is not None}
    return JudgeAnswers(outcomes, judge="check")


def _answer(question: Criterion, submission: Submission) -> Outcome | None:
    if missing := missing_evidence(question, submission):
        return to_judgment(question, "CANNOT_ASSESS").model_copy(update={"reason": missing})
    if question.check is None:
        return None
    try:
        return run_check(question.check, submission)
    except JudgeFailure as failure:
        return failure


def computed_metrics(rubric: Rubric, submission: Submission, policies: ScoringPolicies) -> MetricResults:
    """Compute the hybrid metrics; one that fails is left out where failures abstain, and is 0 in other policies."""
    values: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for metric in rubric.hybrid_metrics:
        try:
            values[metric.name] = run_metric(metric, submission)
        except JudgeFailure as failure:
            values[metric.name] = None if policies.on_failure in ("raise", "abstain") else 0.0
            errors[metric.name] = str(failure)
    return MetricResults(values, errors)
