"""Grades many submissions: `grade_many` and its `Run`, the ledger of judgments, and scoring a run with a new rubric.

A run reads submissions, grades them concurrently and yields one `Graded` for each. With a `Ledger`, a file of
judgments, an interrupted run resumes, and `rescore` computes the scores that another rubric gives. `read_run` reads a
file that `grade --out` wrote. `read_judgments` makes a run from recorded judgments. `write_parquet` writes the grades
of a run as Parquet. `submit_batches` and `collect_batches` request judgments through the batch APIs of providers, at
half the price, and store them in a ledger.

Example:
    >>> from rubric_integrations import Criterion, PerCriterionGrader, Rubric
    >>> rubric = Rubric([Criterion(requirement="States 42", check={"number": 42})])
    >>> run = RunFile.of("tonight", grade_many(["It is 42."], rubric, PerCriterionGrader("offline")))
    >>> run.rows[0].report.score
    1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.runs.batches.base import BatchError, BatchLedger
    from rubric_integrations.runs.batches.collect import CollectedBatches, collect_batches
    from rubric_integrations.runs.batches.submit import SubmittedBatches, submit_batches
    from rubric_integrations.runs.files import GradedRow, RunFile, RunFileError, read_run
    from rubric_integrations.runs.imported import ImportedRun, JudgmentsError, UnreadReply, read_judgments
    from rubric_integrations.runs.ledger import FailureRecord, Ledger, LedgerError, LedgerLike, RunLedger, open_ledger
    from rubric_integrations.runs.rescoring import Rescored, rescore
    from rubric_integrations.runs.run import Run, StopRule, grade_many
    from rubric_integrations.runs.summary import Graded, RunSummary
    from rubric_integrations.runs.tables import grade_batches, write_parquet

_MODULES = {
    "BatchError": "batches.base",
    "BatchLedger": "batches.base",
    "CollectedBatches": "batches.collect",
    "FailureRecord": "ledger",
    "Graded": "summary",
    "GradedRow": "files",
    "ImportedRun": "imported",
    "JudgmentsError": "imported",
    "Ledger": "ledger",
    "LedgerError": "ledger",
    "LedgerLike": "ledger",
    "Rescored": "rescoring",
    "Run": "run",
    "RunFile": "files",
    "RunFileError": "files",
    "RunLedger": "ledger",
    "RunSummary": "summary",
    "StopRule": "run",
    "SubmittedBatches": "batches.submit",
    "UnreadReply": "imported",
    "collect_batches": "batches.collect",
    "grade_batches": "tables",
    "grade_many": "run",
    "open_ledger": "ledger",
    "read_judgments": "imported",
    "read_run": "files",
    "rescore": "rescoring",
    "submit_batches": "batches.submit",
    "write_parquet": "tables",
}

__all__ = [
    "BatchError", "BatchLedger", "CollectedBatches", "FailureRecord", "Graded", "GradedRow", "ImportedRun",
    "JudgmentsError", "Ledger", "LedgerError", "LedgerLike", "Rescored", "Run", "RunFile", "RunFileError",
    "RunLedger", "RunSummary", "StopRule", "SubmittedBatches", "UnreadReply", "collect_batches", "grade_batches",
    "grade_many", "open_ledger", "read_judgments", "read_run", "rescore", "submit_batches", "write_parquet",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
