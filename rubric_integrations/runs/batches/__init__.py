"""Judgments at half price, through the batch APIs of OpenAI and Anthropic.

`submit_batches` writes a request for each question that has no answer in the ledger. `collect_batches` stores the
replies in the ledger. Both run the user's grader over the rows, without calls (`runs/batches/replay.py`). Therefore the
questions and the keys are the same as in an ordinary run. To add a batch API, write a class like the classes in
`runs/batches/providers.py`, and add it to `PROVIDERS` in `runs/batches/replay.py`.
"""
