"""Collects the images, recordings and files among the values of DSPy examples and predictions."""

from __future__ import annotations

from mimetypes import guess_type
from urllib.parse import urlsplit

import dspy

from rubric_integrations.submission.attachments import Attachment


class AttachedValues:
    """The values that a judge is sent as attachments, in the order in which they occur in the texts.

    Example:
        >>> files = AttachedValues()
        >>> files.add(dspy.Image("data:image/png;base64,AAAA")), len(files.attachments)
        ('[attachment 1]', 1)
    """

    def __init__(self) -> None:
        # By identity: a value is read more than once. The values are kept, so that no other gets the same identity.
        self._values: dict[int, tuple[dspy.Type, Attachment]] = {}

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments so far."""
        return tuple(attachment for _, attachment in self._values.values())

    def add(self, value: dspy.Type) -> str | None:
        """Add a value, and return the text in its place; None if it holds neither bytes nor an http or https address.

        Raises:
            pydantic.ValidationError: (a ValueError) It cannot be an attachment, for example because it is too large.
        """
        if id(value) not in self._values:
            attachment = _attachment(value)
            if attachment is None:
                return None
            self._values[id(value)] = (value, attachment)
        return f"[attachment {list(self._values).index(id(value)) + 1}]"


def _attachment(value: dspy.Type) -> Attachment | None:
    if isinstance(value, dspy.Audio):
        return Attachment(data=value.data, mime_type=f"audio/{value.audio_format}")
    if isinstance(value, dspy.File) and value.file_data and value.file_data.startswith("data:"):
        return Attachment(data=value.file_data, name=value.filename)
    if isinstance(value, dspy.Image):
        if value.url.startswith("data:"):
            return Attachment(data=value.url)
        if value.url.startswith(("http://", "https://")):
            # No request has the type of an image at a URL; the suffix is not always one.
            return Attachment(url=value.url, mime_type=guess_type(urlsplit(value.url).path)[0] or "image/png")
    return None
