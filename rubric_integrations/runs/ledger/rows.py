"""Judgments and failures as rows of the ledger's file: judgments as JSON, of which the first one of a key is kept."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from typing import NamedTuple

from rubric_integrations.results.judgment import FailureKind, Judgment

# A judgment that is already stored is not replaced: if its owner's lease expired, another caller has requested the
# judgment meanwhile, and others may have read that one.
_STORE = (
    "INSERT INTO judgments VALUES (?, 'stored', ?, ?, NULL) ON CONFLICT (key) DO UPDATE"
    " SET status = 'stored', judgment = excluded.judgment, at = excluded.at, owner = NULL"
    " WHERE status = 'leased'"
)


class FailureRecord(NamedTuple):
    """The failures of a judge under one key.

    Attributes:
        key: The key of the judgment.
        kind: The kind of the last failure.
        message: The message of the last failure, up to 1,000 characters.
        at: The time of the last failure, in Unix seconds.
        times: The number of failures.
    """

    key: str
    kind: FailureKind
    message: str
    at: float
    times: int


def store_rows(db: sqlite3.Connection, judgments: Mapping[str, Judgment]) -> dict[str, str]:
    """Store judgments in a transaction of the caller.

    Returns:
        The judgments, as JSON by key, that were stored before these and differ from them: those are kept.
    """
    now, texts = time.time(), {key: judgment.model_dump_json() for key, judgment in judgments.items()}
    if db.executemany(_STORE, [(key, text, now) for key, text in texts.items()]).rowcount == len(texts):
        return {}
    query = "SELECT judgment FROM judgments WHERE key = ?"
    stored = {key: db.execute(query, (key,)).fetchone()[0] for key in texts}
    return {key: stored[key] for key, text in texts.items() if stored[key] != text}
