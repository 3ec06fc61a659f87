"""Grading many submissions: the runner, its progress and summary, the ledger, and scoring a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import Ledger, LedgerError
    from rubric_integrations.runs.rescoring import Rescored, rescore
    from rubric_integrations.runs.runner import grade_many
    from rubric_integrations.runs.summary import Graded, RunSummary

_MODULES = {
    "Graded": "summary",
    "Ledger": "ledger",
    "LedgerError": "ledger",
    "Rescored": "rescoring",
    "RunSummary": "summary",
    "grade_many": "runner",
    "rescore": "rescoring",
}

__all__ = ["Graded", "Ledger", "LedgerError", "Rescored", "RunSummary", "grade_many", "rescore"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
