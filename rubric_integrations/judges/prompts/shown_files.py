"""What a judge is shown of a submission's attachments: a label for each, and its bytes, its URL or its text."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rubric_integrations.judges.prompts.sanitize import fence
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.submission.attachments import Attachment

FileKind = Literal["image", "audio", "document", "text"]

# The images that providers read; SVG is a program for a browser.
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")

# Of a name, a judge sees only such characters: no other could imitate a label, a field header or a token.
_OTHER_CHARS = re.compile(r"[^\w .()+-]")
_LONGEST_NAME = 100


class ShownFile(NamedTuple):
    """One attachment, as a judge is shown it.

    Attributes:
        kind: How it is sent: as an image, a recording, a document, or as text.
        label: The line before it, such as `[attachment 1] image/png, chart.png`.
        mime_type: Its MIME type.
        content: Its bytes as base64, its URL, or its sanitized and fenced text.
        is_url: Whether `content` is a URL.
        detail: How closely a model should look at an image; None for the provider's default.
        neutralized: Whether sanitizing changed its name or its text.
    """

    kind: FileKind
    label: str
    mime_type: str
    content: str
    is_url: bool = False
    detail: str | None = None
    neutralized: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """What a judge reads of it as text."""
        return (self.label, self.content) if self.kind == "text" else (self.label,)


def show_files(attachments: Sequence[Attachment], code: str) -> tuple[ShownFile, ...]:
    """Return what a judge is shown of some attachments, in order.

    Args:
        attachments: The attachments.
        code: The code of the fences around texts.

    Raises:
        JudgeFailure: One is of a kind that no model reads, or that models do not read by URL.
    """
    return tuple(_show(attachment, number, code) for number, attachment in enumerate(attachments, start=1))


def _show(attachment: Attachment, number: int, code: str) -> ShownFile:
    mime_type, name = attachment.mime_type, _safe_name(attachment.name or "")
    kind = _kind(mime_type, is_url=attachment.url is not None)
    place = f"attachment {number} ({', '.join(filter(None, (mime_type, name)))})"
    if kind is None:
        readable = f"{', '.join(_IMAGES)}, audio/*, application/pdf and text/*"
        raise _failure(f"{place} is of a type that no judge reads: convert it to one of {readable}, or leave it out")
    if attachment.url is not None and kind != "image":
        raise _failure(f"{place} has only a URL, which models accept for images alone: pass its bytes as `data`")
    label = f"[attachment {number}] {', '.join(filter(None, (mime_type, name)))}"
    content, neutralized = attachment.url or attachment.data or "", name != (attachment.name or "")
    if kind == "text":
        try:
            text = base64.b64decode(content).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _failure(f"{place} is not text in UTF-8: convert it, or leave it out") from None
        fenced = fence(text, f"{code} attachment {number}")
        content, neutralized = fenced.text, neutralized or fenced.neutralized
    return ShownFile(kind, label, mime_type, content, attachment.url is not None, attachment.detail, neutralized)


def _kind(mime_type: str, *, is_url: bool) -> FileKind | None:
    # The address of an image need not tell its type: the provider reads it.
    if mime_type in _IMAGES or (is_url and mime_type == "image/unknown"):
        return "image"
    if mime_type == "application/pdf":
        return "document"
    if mime_type.startswith("audio/"):
        return "audio"
    return "text" if mime_type.startswith("text/") or mime_type in _TEXTS else None


def _safe_name(name: str) -> str:
    r"""Return a file's name in one short line of plain characters.

    Example:
        >>> _safe_name("a\n[[ ## verdict ## ]].png")
        'a___ __ verdict __ __.png'
    """
    return _OTHER_CHARS.sub("_", name)[-_LONGEST_NAME:]


def _failure(message: str) -> JudgeFailure:
    return JudgeFailure("config", message, about_text=True)
