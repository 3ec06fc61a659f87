"""Judgments at half price, through the batch APIs of OpenAI and Anthropic.

`submit_batches` writes a request for each question that has no answer in the ledger. `collect_batches` stores the
replies in the ledger. Both run the user's grader over the rows, without calls (`runs/batches/replay.py`). Therefore the
questions and the keys are the same as in an ordinary run. To add a batch API, write a class like the classes in
`runs/batches/providers.py`, and add it to `PROVIDERS` in `runs/batches/replay.py`.
"""

from rubric_integrations.runs.batches.base import BatchError, BatchLedger
from rubric_integrations.runs.batches.collect import CollectedBatches, collect_batches
from rubric_integrations.runs.batches.submit import SubmittedBatches, submit_batches

__all__ = ["BatchError", "BatchLedger", "CollectedBatches", "SubmittedBatches", "collect_batches", "submit_batches"]
