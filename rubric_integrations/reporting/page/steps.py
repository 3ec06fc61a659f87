"""The steps of a trajectory as the report page shows them, and the images that it may show."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from rubric_integrations.submission.stored_attachments import MAX_BYTES_OF_FILE, StoredAttachment
from rubric_integrations.submission.trajectory import Trajectory

# Characters of one text, and of all texts of one trajectory. Each of very many texts has at least its beginning.
MAX_TEXT = 10_000
MAX_TEXTS = 300_000
_MIN_TEXT = 100

# Bytes of the images of one page: mail programs refuse larger files.
MAX_IMAGES = 5_000_000

# What a browser draws as pixels, by the first bytes. SVG is not among them, because it is a document with scripts.
_BEGINNINGS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def shown_steps(trajectory: Trajectory) -> list[list[Any]]:
    """Return each step as its role, its name, its text and its calls, for the page's script.

    A call is its name, its arguments, its result, and whether it failed; None where the trace does not tell. Long texts
    are cut, and say how many characters are left out.
    """
    count = len(trajectory.steps) + 2 * len(trajectory.calls)
    limit = max(_MIN_TEXT, min(MAX_TEXT, MAX_TEXTS // count))
    return [
        [
            step.role,
            step.name,
            _cut(step.text, limit),
            [
                [call.name, _cut(_arguments(call.arguments), limit), _cut(call.result, limit), call.is_error]
                for call in step.calls
            ],
        ]
        for step in trajectory.steps
    ]


class Thumbnails:
    """Decides which attachments a page shows as images, up to 5,000,000 bytes in all."""

    def __init__(self) -> None:
        self._total = 0

    def of(self, attachments: Sequence[StoredAttachment]) -> list[list[Any]]:
        """Return each attachment as its name, its type, its size, its SHA-256, its address, and its image.

        The image is a `data:` URI, and None for other files than small images of pixels.
        """
        return [[a.name, a.mime_type, a.size, a.sha256, a.url, self._image(a)] for a in attachments]

    def _image(self, attachment: StoredAttachment) -> str | None:
        mime_type = attachment.mime_type.lower()
        beginnings = _BEGINNINGS.get(mime_type, ())
        if attachment.data is None or not beginnings:
            return None
        try:
            content = base64.b64decode(attachment.data, validate=True)
        except binascii.Error:
            return None
        if not content.startswith(beginnings) or (mime_type == "image/webp" and content[8:12] != b"WEBP"):
            return None
        if len(content) > MAX_BYTES_OF_FILE or self._total + len(content) > MAX_IMAGES:
            return None
        self._total += len(content)
        return f"data:{mime_type};base64,{base64.b64encode(content).decode()}"


def _arguments(arguments: dict[str, Any] | str | None) -> str | None:
    if arguments is None or isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _cut(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]} [{len(text) - limit:,} more characters are in the run file]"
