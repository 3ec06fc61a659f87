"""The evidence of a submission: what it lacks of what a criterion needs, and whether judges see its numbered steps."""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations.rubric.criterion import Criterion, Evidence
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

_NAMES: dict[Evidence, str] = {
    "trajectory": "the trajectory",
    "reference": "a reference",
    "query": "the query",
    "image": "an image",
    "context": "documents as context",
}


def missing_evidence(criterion: Criterion, submission: Submission) -> str | None:
    """Say what a submission lacks of what a criterion `needs`; None if it lacks nothing.

    Example:
        >>> criterion = Criterion(requirement="Looks the margin up before it is stated", needs=["trajectory"])
        >>> missing_evidence(criterion, Submission(response="It was 8.4%."))
        'needs the trajectory, which the submission does not have'
    """
    missing = [_NAMES[evidence] for evidence in criterion.needs if not _has(evidence, criterion, submission)]
    return f"needs {' and '.join(missing)}, which the submission does not have" if missing else None


def shown_trajectory(submission: Submission, criteria: Sequence[Criterion]) -> Trajectory | None:
    """Return the trajectory that a judge of these criteria is shown beside the response; None if it is shown none."""
    if submission.show_trajectory == "always":
        return submission.trajectory
    is_needed = any("trajectory" in criterion.needs for criterion in criteria)
    return submission.trajectory if submission.show_trajectory == "if_needed" and is_needed else None


def has_numbered_steps(submission: Submission, criteria: Sequence[Criterion]) -> bool:
    """Whether a judge of these criteria sees numbered steps, beside the response or as the response."""
    is_response = submission.show_trajectory == "as_response" and submission.trajectory is not None
    return is_response or shown_trajectory(submission, criteria) is not None


def _has(evidence: Evidence, criterion: Criterion, submission: Submission) -> bool:
    match evidence:
        case "trajectory":
            return submission.trajectory is not None
        case "image":
            return any(attachment.mime_type.lower().startswith("image/") for attachment in submission.attachments)
        case "context":
            return bool(submission.context or criterion.context)
        case "query" | "reference":
            return bool((getattr(submission, evidence) or "").strip())
