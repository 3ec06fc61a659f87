"""Grading many submissions: `grade_many` and its `Run`, the ledger of judgments, and scoring a run with a new rubric.

A run reads submissions, grades them concurrently, and yields one `Graded` for each. With a `Ledger`, a file of
judgments, a run that was interrupted resumes, and `rescore` computes the scores that another rubric gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import Ledger, LedgerError
    from rubric_integrations.runs.rescoring import Rescored, rescore
    from rubric_integrations.runs.runner import Run, grade_many
    from rubric_integrations.runs.summary import Graded, RunSummary

_MODULES = {
    "Graded": "summary",
    "Ledger": "ledger",
    "LedgerError": "ledger",
    "Rescored": "rescoring",
    "Run": "runner",
    "RunSummary": "summary",
    "grade_many": "runner",
    "rescore": "rescoring",
}

__all__ = ["Graded", "Ledger", "LedgerError", "Rescored", "Run", "RunSummary", "grade_many", "rescore"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
