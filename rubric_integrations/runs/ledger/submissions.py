"""Submissions as rows of a ledger: as JSON, with the bytes of attachments in a table of their own.

Many rows may have the same image, and as base64 in each of them it would fill the file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, cast

from rubric_integrations.submission.submission import Submission


def dump_submission(submission: Submission) -> str:
    """Return the JSON of a submission, with the SHA-256 of each file in place of its bytes."""
    fields = submission.model_dump(mode="json", exclude_none=True, exclude={"attachments"})
    if submission.attachments:
        fields["attachments"] = [file.identity() for file in submission.attachments]
    return json.dumps(fields)


def stored_files(submission: Submission) -> dict[str, bytes]:
    """Return the bytes of those files of a submission that have any, by their SHA-256."""
    return {str(file.sha256): file.content for file in submission.attachments if file.content is not None}


def load_submission(text: str, read_file: Callable[[str], bytes]) -> Submission:
    """Return the submission of a row, with the bytes of its files.

    Args:
        text: The JSON that `dump_submission` returned.
        read_file: Returns the bytes of a file by their SHA-256.
    """
    fields: dict[str, Any] = json.loads(text)
    for entry in cast("list[dict[str, Any]]", fields.get("attachments", [])):
        if digest := entry.pop("sha256", None):
            entry["data"] = base64.b64encode(read_file(digest)).decode()
    return Submission.model_validate_json(json.dumps(fields))
