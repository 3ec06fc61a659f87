"""What is read from a ledger in a database, without leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubric_integrations.runs.ledger.postgres.schema import Connection
from rubric_integrations.runs.ledger.postgres.worker import Read

COUNT = "SELECT count(*) FROM rubric_judgments WHERE judgment IS NOT NULL"
LOOKUP = "SELECT key, judgment FROM rubric_judgments WHERE key = ANY(%s::text[]) AND judgment IS NOT NULL"
FAILURES = (
    "SELECT key, kind, message, extract(epoch FROM at)::float8, times FROM rubric_failures ORDER BY at DESC LIMIT %s"
)
GRADER = "SELECT grader FROM rubric_graders ORDER BY at DESC LIMIT 1"
PAGE = """
SELECT number, id, submission, r.rubric FROM rubric_submissions AS s LEFT JOIN rubric_rubrics AS r ON r.hash = s.rubric
WHERE number > %s ORDER BY number LIMIT 200"""
SAVE_BATCH = """
INSERT INTO rubric_batches (id, record) VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET record = excluded.record RETURNING id"""
BATCHES = "SELECT id, record FROM rubric_batches ORDER BY number"
FILE = "SELECT content FROM rubric_files WHERE sha256 = %s"


def send_queries(db: Connection, queries: Sequence[tuple[str, tuple[object, ...]]]) -> Read[list[Any]]:
    """Send queries with their values; the results are their rows."""
    cursors = [db.execute(query.encode(), values) for query, values in queries]
    return lambda: [cursor.fetchall() for cursor in cursors]
