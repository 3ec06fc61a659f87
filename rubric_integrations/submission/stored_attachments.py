"""Attachments as run files store them: small ones with their bytes, and of large ones only a description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from pydantic import ConfigDict, Field, model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord
from rubric_integrations.submission.attachments import Attachment

# What a report page shows of one image, and of all files of a row: a run has thousands of rows.
MAX_BYTES_OF_FILE = 200_000
MAX_BYTES_OF_ROW = 5_000_000


class StoredAttachment(SparseRecord):
    """An attachment of a graded row.

    Attributes:
        mime_type: The type of the file.
        name: The file's name.
        url: The file's address, if the submission had no bytes of it.
        data: The bytes as base64; None if there are more than a run file stores.
        size: The number of bytes; None if only the address is known.
        sha256: The SHA-256 of the bytes, in hexadecimal; None if only the address is known.
    """

    # A line of an older run file, or of the future, may have further fields.
    model_config = ConfigDict(extra="ignore")
    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("name", "url", "data", "size", "sha256")

    mime_type: EncodableText
    name: EncodableText | None = None
    url: EncodableText | None = None
    data: str | None = Field(default=None, repr=False)
    size: int | None = Field(default=None, ge=0)
    sha256: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _describe(cls, data: Any) -> Any:
        """Compute the size and the SHA-256 wherever there are bytes: what a line says of them may be wrong."""
        if not isinstance(data, Mapping):
            return data
        fields = cast("Mapping[str, Any]", data)
        if fields.get("data") is None:
            return fields
        known = {name: fields.get(name) for name in ("mime_type", "name", "data")}
        return cls._fields_of(Attachment.model_validate(known))

    @classmethod
    def of(cls, attachment: Attachment) -> Self:
        """Describe an attachment, with its bytes."""
        return cls.model_construct(None, **cls._fields_of(attachment))

    @staticmethod
    def _fields_of(attachment: Attachment) -> dict[str, Any]:
        content = attachment.content
        return {
            "mime_type": attachment.mime_type, "name": attachment.name, "url": attachment.url, "data": attachment.data,
            "size": None if content is None else len(content), "sha256": attachment.sha256,
        }  # fmt: skip


def store_attachments(attachments: Sequence[Attachment]) -> tuple[StoredAttachment, ...]:
    """Describe the attachments of a row for a run file.

    The bytes of a file are stored up to 200,000, and those of all files of the row up to 5,000,000. Of others, the
    file says the size and the SHA-256.

    Example:
        >>> [stored] = store_attachments([Attachment(data=bytes(300_000), name="scan.png")])
        >>> stored.data, stored.size
        (None, 300000)
    """
    stored: list[StoredAttachment] = []
    total = 0
    for attachment in map(StoredAttachment.of, attachments):
        size = attachment.size or 0
        if size > MAX_BYTES_OF_FILE or total + size > MAX_BYTES_OF_ROW:
            stored.append(attachment.model_copy(update={"data": None}))
        else:
            total += size
            stored.append(attachment)
    return tuple(stored)
