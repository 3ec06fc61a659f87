"""Judgments at half price, through the batch APIs of OpenAI and Anthropic.

`submit_batches` makes a line of each question that the ledger has no answer to. `collect_batches` stores the replies in
the ledger. Both walk the rows with the user's grader (`runs/batches/replay.py`). Therefore questions and keys equal
those of an ordinary run. To add a batch API, write a class like those in `runs/batches/providers.py` and add it to
`PROVIDERS` in `runs/batches/replay.py`.
"""

from rubric_integrations.runs.batches.base import BatchError, BatchLedger
from rubric_integrations.runs.batches.collect import CollectedBatches, collect_batches
from rubric_integrations.runs.batches.submit import SubmittedBatches, submit_batches

__all__ = ["BatchError", "BatchLedger", "CollectedBatches", "SubmittedBatches", "collect_batches", "submit_batches"]
