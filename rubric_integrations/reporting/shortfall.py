"""What a graded row lacks, in words: the criteria that cost it points, and those that were not assessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations.reporting.page.figures import desirability

if TYPE_CHECKING:
    from rubric_integrations.results.criterion_report import CriterionReport
    from rubric_integrations.runs.summary import Graded

MAX_NAMES = 8


def unmet_criteria(graded: Graded) -> list[CriterionReport]:
    """Return the criteria whose answer is not, or not fully, what the rubric's author wants.

    A penalty that applies is one of them.
    """
    criteria = graded.report.criteria if graded.report else ()
    return [row for row in criteria if (value := desirability(row)) is not None and value < 1]


def unassessed_criteria(graded: Graded) -> list[CriterionReport]:
    """Return the criteria that a judge abstained from or failed on."""
    criteria = graded.report.criteria if graded.report else ()
    return [row for row in criteria if row.abstained or row.error is not None]


def names_text(criteria: list[CriterionReport]) -> str:
    """List the names of criteria, at most eight of them."""
    names = [row.name for row in criteria]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def shortfall_text(graded: Graded) -> str:
    """Describe a row in one line: why it has no grade, or its score and the criteria that it does not meet.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric([{"name": "answer", "requirement": "States 42", "check": {"number": 42}}])
        >>> [shortfall_text(graded) for graded in grade_many(["41"], rubric, PerCriterionGrader("offline"))]
        ['score 0.000; not met: answer']
    """
    if graded.report is None or graded.judge_error:
        return graded.judge_error or graded.row.error or "has no grade"
    score, bounds = graded.report.score, graded.report.score_range
    if bounds:
        low, high = bounds
        text = f"score {'undefined' if low is None else f'{low:.3f}'}..{high:.3f}"
    else:
        text = "score undefined" if score is None else f"score {score:.3f}"
    unmet = unmet_criteria(graded)
    return f"{text}; not met: {names_text(unmet)}" if unmet else text
