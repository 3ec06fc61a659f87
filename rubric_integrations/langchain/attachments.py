"""Attachments as LangSmith and callers of openevals evaluators pass them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.attachment_inputs import attachment_fields
from rubric_integrations.submission.attachments import MAX_BYTES


def attachments_of(value: object) -> list[Any]:
    """Return the attachments of a submission, for its field `attachments`.

    Args:
        value: Those of a LangSmith example, by name, each with a `reader`, a `presigned_url` and a `mime_type`; or as
            openevals evaluators take them: `{"mime_type": ..., "data": ...}`, a URL, or a list of these.

    Example:
        >>> attachments_of({"mime_type": "image/gif", "data": "R0lGODlh"})
        [{'mime_type': 'image/gif', 'data': 'R0lGODlh'}]
    """
    if isinstance(value, Mapping):
        by_name = cast("Mapping[str, Any]", value)
        if all(isinstance(info, Mapping) for info in by_name.values()):
            return [_langsmith_fields(name, info) for name, info in by_name.items()]
    return attachment_fields(value)


def _langsmith_fields(name: str, info: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": name, "mime_type": info.get("mime_type")}
    reader: Any = info.get("reader")
    if reader is None:
        return {**fields, "url": info.get("presigned_url")}
    # Other evaluators have read it, or will.
    reader.seek(0)
    content = reader.read(MAX_BYTES + 1)
    reader.seek(0)
    return {**fields, "data": content}
