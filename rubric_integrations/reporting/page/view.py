"""Builds the data for the page's script as compact JSON: each criterion's text once, and answers as lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from rubric_integrations.reporting.page.figures import desirability
from rubric_integrations.reporting.page.loading import GradedRow, RunFile
from rubric_integrations.results.report import CriterionReport


def page_data(runs: Sequence[RunFile]) -> dict[str, Any]:
    """Convert runs to JSON data: `runs` (names), `criteria`, `rows` (with one grade per run) and `key`.

    Rows of two runs are matched by id, and those with an equal id in their order. Submissions that only the second run
    has come last.
    """
    criteria: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for row in run.rows:
            for c in row.report.criteria if row.report else ():
                fields = {"name": c.name, "requirement": c.requirement, "weight": c.weight, "required": c.required}
                criteria.setdefault((c.name, c.requirement), fields)
    positions = {key: position for position, key in enumerate(criteria)}
    by_key = [run.rows_by_key() for run in runs]
    keys = list(dict.fromkeys(key for rows in by_key for key in rows))
    rows = [_row([rows.get(key) for rows in by_key], key[1], positions) for key in keys]
    view = {"runs": [run.name for run in runs], "criteria": list(criteria.values()), "rows": rows}
    # The browser stores labels under this key, so that another page does not show them.
    digest = hashlib.sha256(json.dumps(view, sort_keys=True).encode()).hexdigest()[:16]
    return {**view, "key": digest}


def _row(rows: Sequence[GradedRow | None], number: int, positions: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Convert one submission with its row in each run; None where a run does not have it.

    `copy` is its number among those with an equal id, from 2; the first one has none.
    """
    first = next(row for row in rows if row is not None)
    submission = first.submission
    texts = submission.model_dump(mode="json", exclude_none=True, exclude={"logprobs"}) if submission else {}
    copy = {"copy": number} if number > 1 else {}
    return {"id": first.id, **copy, **texts, "grades": [row and _grade(row, positions) for row in rows]}


def _grade(row: GradedRow, positions: dict[tuple[str, str], int]) -> dict[str, Any]:
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
        "answers": [[positions[c.name, c.requirement], *_answer(c)] for c in report.criteria],
    }
    return {name: value for name, value in grade.items() if value is not None}


def _answer(row: CriterionReport) -> list[Any]:
    """Return state, verdict, desirability and reason, and a dict of votes, sanitized text and confidence if any."""
    desirable = desirability(row)
    if row.not_applicable:
        state = "inapplicable"
    else:
        state = "failed" if row.error else "open" if not row.was_asked else "abstained" if row.abstained else "answered"
    more: dict[str, Any] = {}
    if row.votes:
        more["votes"] = [[vote.judge, vote.verdict, vote.reason or vote.error] for vote in row.votes]
        more["agreement"] = row.agreement
    if row.neutralized:
        more["neutralized"] = True
    if row.confidence is not None:
        more["confidence"] = row.confidence
    answer = [state, row.verdict, None if desirable is None else round(desirable, 4), row.error or row.reason]
    return [*answer, more] if more else answer
