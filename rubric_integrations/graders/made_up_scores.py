"""Refuses graders whose scores may say something else than what the judge has answered, where scores are rewards."""

from __future__ import annotations

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.by_criterion import CriterionGrader


def refuse_made_up_scores(grader: Grader) -> None:
    """Refuse a grader that scores failures, or that leaves scores open.

    Raises:
        ValueError: It does.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> refuse_made_up_scores(PerCriterionGrader("offline"))
    """
    if isinstance(grader, CriterionGrader) and grader.may_leave_open:
        raise ValueError(
            "`grader` has `stop_when_decided`: leave it out, because a score that is left open is no reward"
        )
    if grader.policies.on_failure != "raise":
        raise ValueError(
            f"`grader` has `on_failure={grader.policies.on_failure!r}`: leave it out; the score of a failure would be "
            "a gradient towards what makes judges fail"
        )
