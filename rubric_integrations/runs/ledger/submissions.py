"""Submissions as rows of the ledger's file: as JSON, with the bytes of attachments in a table of their own.

Many rows may have the same image, and as base64 in each of them it would fill the file.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import Any, cast

from rubric_integrations.submission.submission import Submission

PAGE = (
    "SELECT number, id, submissions.submission, rubrics.rubric FROM submissions"
    " LEFT JOIN row_rubrics ON row_rubrics.submission = submissions.hash"
    " LEFT JOIN rubrics ON rubrics.hash = row_rubrics.rubric"
    " WHERE number > ? ORDER BY number LIMIT 500"
)
"""Selects the rows after a number, with the rubric that each has brought."""


def dump_submission(submission: Submission) -> str:
    """Return the JSON of a submission, with the SHA-256 of each file in place of its bytes."""
    fields = submission.model_dump(mode="json", exclude_none=True, exclude={"attachments"})
    if submission.attachments:
        fields["attachments"] = [file.identity() for file in submission.attachments]
    return json.dumps(fields)


def store_files(db: sqlite3.Connection, submission: Submission) -> None:
    """Store the bytes of a submission's files, those that are not stored yet."""
    for file in submission.attachments:
        if file.content is not None:
            db.execute("INSERT OR IGNORE INTO files VALUES (?, ?)", (file.sha256, file.content))


def load_submission(db: sqlite3.Connection, text: str) -> Submission:
    """Return the submission of a row, with the bytes of its files."""
    fields: dict[str, Any] = json.loads(text)
    for entry in cast("list[dict[str, Any]]", fields.get("attachments", [])):
        if digest := entry.pop("sha256", None):
            (content,) = db.execute("SELECT content FROM files WHERE sha256 = ?", (digest,)).fetchone()
            entry["data"] = base64.b64encode(content).decode()
    return Submission.model_validate_json(json.dumps(fields))
