"""What judges are shown of long texts, as `CallLimits` sets it, and what the report tells of the cuts."""

from __future__ import annotations

from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.evidence import has_numbered_steps
from rubric_integrations.submission.submission import Submission


def shown_to_judges(submission: Submission, limits: CallLimits) -> Submission:
    """Return what judges read of a submission: all of it, or the one with shorter tool results."""
    return submission if limits.step_limit is None else submission.shortened(limits.step_limit)


def refuse_chunks(grader: str, limits: CallLimits) -> None:
    """Refuse `chunk_size` for a grader that does not judge the parts of a response.

    Raises:
        ValueError: `chunk_size` is set.
    """
    if limits.chunk_size is not None:
        raise ValueError(
            f"`CallLimits.chunk_size` has no effect on {grader}, which would judge long responses whole: use "
            "PerCriterionGrader"
        )


def report_omissions(
    report: EvaluationReport, rubric: Rubric, submission: Submission, limits: CallLimits
) -> EvaluationReport:
    """Add to a report how many characters of the trajectory its judges were not shown."""
    judged = [criterion for criterion in rubric.criteria if criterion.check is None]
    if not judged or not has_numbered_steps(submission, judged) or (trajectory := submission.trajectory) is None:
        return report
    shown = trajectory if limits.step_limit is None else trajectory.shortened(limits.step_limit)
    return report.model_copy(update={"omitted_characters": shown.omitted}) if shown.omitted else report
