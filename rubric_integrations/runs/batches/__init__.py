"""Judgments at half price, by the batch APIs of OpenAI and Anthropic.

`submitting` makes a line of each question that the ledger has no answer to, and `collecting` reads the replies into the
ledger. Both walk the rows with the user's grader (`replay`), so that questions and keys are those of an ordinary run.
`records` has what a ledger stores about a batch, `openai` and `anthropic` speak the protocols of `provider`, `http`
sends, and `lines` writes and reads the files.
"""

from rubric_integrations.runs.batches.collecting import CollectedBatches, collect_batches
from rubric_integrations.runs.batches.records import Batch, BatchError, BatchLedger
from rubric_integrations.runs.batches.submitting import SubmittedBatches, submit_batches

__all__ = [
    "Batch", "BatchError", "BatchLedger", "CollectedBatches", "SubmittedBatches", "collect_batches", "submit_batches",
]  # fmt: skip
