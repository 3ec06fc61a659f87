"""What the page's script needs of the runs, as small as it can be: texts once, rows as lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from rubric_integrations.reporting.page.figures import goodness
from rubric_integrations.reporting.page.loading import GradedRow, RunFile
from rubric_integrations.results.report import CriterionReport


def page_data(runs: Sequence[RunFile]) -> dict[str, Any]:
    """The runs as JSON: `criteria`, and `rows` with an entry for each run.

    A submission is found in a second run by its id; those that only the second has come last.
    """
    criteria: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for row in run.rows:
            for c in row.report.criteria if row.report else ():
                told = {"name": c.name, "requirement": c.requirement, "weight": c.weight, "required": c.required}
                criteria.setdefault((c.name, c.requirement), told)
    places = {key: place for place, key in enumerate(criteria)}
    by_id = [{row.id: row for row in run.rows} for run in runs]
    ids = list(dict.fromkeys(row.id for run in runs for row in run.rows))
    rows = [_row([rows.get(row_id) for rows in by_id], places) for row_id in ids]
    view = {"runs": [run.name for run in runs], "criteria": list(criteria.values()), "rows": rows}
    # Labels are kept for just these runs.
    digest = hashlib.sha256(json.dumps(view, sort_keys=True).encode()).hexdigest()[:16]
    return {**view, "key": digest}


def _row(found: Sequence[GradedRow | None], places: dict[tuple[str, str], int]) -> dict[str, Any]:
    first = next(row for row in found if row is not None)
    told = first.submission.model_dump(mode="json", exclude_none=True, exclude={"logprobs"}) if first.submission else {}
    return {"id": first.id, **told, "grades": [row and _grade(row, places) for row in found]}


def _grade(row: GradedRow, places: dict[tuple[str, str], int]) -> dict[str, Any]:
    report = row.report
    if report is None:
        return {"error": row.error or "not graded"}
    grade: dict[str, Any] = {
        "score": report.score,
        "range": report.score_range,
        "passed": report.passed,
        ("note" if row.is_graded else "error"): row.error,
        "coverage": round(report.coverage, 4),
        "penalty": report.length_penalty or None,
        "metrics": report.metrics or None,
        "reason": report.reason or None,
        "answers": [[places[c.name, c.requirement], *_answer(c)] for c in report.criteria],
    }
    return {name: value for name, value in grade.items() if value is not None}


def _answer(row: CriterionReport) -> list[Any]:
    """Its state, verdict, goodness, reason, and where there is more: votes, what was defused, confidence."""
    good = goodness(row)
    state = "failed" if row.error else "open" if not row.was_asked else "abstained" if good is None else "answered"
    more: dict[str, Any] = {}
    if row.votes:
        more["votes"] = [[vote.judge, vote.verdict, vote.reason or vote.error] for vote in row.votes]
        more["agreement"] = row.agreement
    if row.neutralized:
        more["neutralized"] = True
    if row.confidence is not None:
        more["confidence"] = row.confidence
    answer = [state, row.verdict, None if good is None else round(good, 4), row.error or row.reason]
    return [*answer, more] if more else answer
