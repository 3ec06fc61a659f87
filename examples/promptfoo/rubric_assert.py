"""An assertion of promptfoo that grades the output against a rubric: `file://rubric_assert.py`.

`config` of the assertion has the `rubric`, a path relative to this folder; the name of the `judge`; and, if no judgment
is to be requested twice, the `ledger`, a path relative to the working directory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.graders import Grader
from rubric_integrations.runs import Ledger
from rubric_integrations.scoring import outcomes_of


@cache
def grader_of(judge: str, ledger: str | None) -> Grader:
    """One grader for all assertions of this process, with one concurrency limit."""
    grader = PerCriterionGrader(judge)
    return grader.with_store(Ledger(ledger)) if ledger else grader


def get_assert(output: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the assertion; raise if the judge failed, since promptfoo has no third outcome."""
    config, variables = context["config"], context["vars"]
    rubric = Rubric.from_file(Path(__file__).parent / config["rubric"])
    grader = grader_of(config["judge"], config.get("ledger"))
    report = rubric.grade_sync(output, grader, query=variables.get("query"), reference=variables.get("reference"))
    total, *criteria = outcomes_of(report)
    if total.score is None:
        raise ValueError(f"no score: {total.explanation}")
    passed = {f"rubric.{row.name}": row.passed for row in report.criteria}
    scored = [outcome for outcome in criteria if outcome.score is not None]
    return {
        "pass": report.passed,
        "score": total.score,
        "reason": total.explanation,
        "namedScores": {outcome.name: outcome.score for outcome in scored},
        "componentResults": [
            {"pass": passed[outcome.name], "score": outcome.score, "reason": f"{outcome.name}: {outcome.explanation}"}
            for outcome in scored
        ],
    }
