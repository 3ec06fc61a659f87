"""Judgments as rows of the ledger's file: as JSON, and written such that the first one of a key is kept."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping

from pydantic_core import PydanticSerializationError

from rubric_integrations.results.judgment import Judgment

# A judgment that is already stored is not replaced: if its owner's lease expired, another caller has requested the
# judgment meanwhile, and others may have read that one.
_STORE = (
    "INSERT INTO judgments VALUES (?, 'stored', ?, ?, NULL) ON CONFLICT (key) DO UPDATE"
    " SET status = 'stored', judgment = excluded.judgment, at = excluded.at, owner = NULL"
    " WHERE status = 'leased'"
)


def store_rows(db: sqlite3.Connection, judgments: Mapping[str, Judgment]) -> dict[str, str]:
    """Store judgments in a transaction of the caller.

    Returns:
        The judgments, as JSON by key, that were stored before these and differ from them: those are kept.
    """
    now, texts = time.time(), {key: _to_json(judgment) for key, judgment in judgments.items()}
    if db.executemany(_STORE, [(key, text, now) for key, text in texts.items()]).rowcount == len(texts):
        return {}
    query = "SELECT judgment FROM judgments WHERE key = ?"
    stored = {key: db.execute(query, (key,)).fetchone()[0] for key in texts}
    return {key: stored[key] for key, text in texts.items() if stored[key] != text}


def _to_json(judgment: Judgment) -> str:
    try:
        return judgment.model_dump_json()
    except PydanticSerializationError:
        # A reason with half of a surrogate pair has no UTF-8 form; `json.dumps` writes it as an escape.
        return json.dumps(judgment.model_dump())
