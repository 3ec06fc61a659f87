"""Finds out why a grade is incomplete: the failures in a report, and their kinds."""

from __future__ import annotations

import re

from rubric_integrations.results.report import EvaluationReport

_KIND = re.compile(r"\b(config|transport|parse|check): ")


def failure_kinds(report: EvaluationReport) -> set[str]:
    """Return the kinds of the failures in a report (see `FailureKind`); empty if a grader writes its errors otherwise.

    Example:
        >>> error = "`c1` was not judged: config: no such model"
        >>> nothing = {"score": None, "raw_score": None, "passed": False, "complete": False, "coverage": 0.0}
        >>> failure_kinds(EvaluationReport(**nothing, report=None, error=error))
        {'config'}
    """
    matches = [_KIND.search(message) for message in failure_messages(report)]
    return {match[1] for match in matches if match}


def failure_messages(report: EvaluationReport) -> list[str]:
    """Return the messages of the failures in a report: of each failed vote and criterion, or of the report itself."""
    failed = [row for row in report.criteria if row.error]
    errors = [vote.error for row in failed for vote in row.votes] + [row.error for row in failed if not row.votes]
    return [error for error in errors or [report.error] if error]
