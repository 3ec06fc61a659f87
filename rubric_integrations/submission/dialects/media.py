"""Reads images, recordings and files out of the blocks of every dialect."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.dialects.parts import Text, UnknownBlockError, get_field

MEDIA = (
    "image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "input_video",
    "file", "input_file", "document", "media", "computer_screenshot", "blob", "uri", "inlineData", "fileData",
)  # fmt: skip
"""The types of blocks that hold a file."""

# A block holds its file itself, or in a field with one of these names, or with the name of its type.
_HOLDERS = ("source", "file", "image_url", "input_audio", "audio_url", "video_url")
_DATA = ("data", "base64", "file_data", "content")
_ADDRESSES = ("url", "uri", "file_url", "fileUri", "file_uri", "image_url", "image", "audio", "video", "document",
              "source", "path")  # fmt: skip
_MIME_TYPES = ("mime_type", "media_type", "mimeType", "mediaType")
_NAMES = ("filename", "file_name", "displayName", "display_name", "name", "title")
_AUDIO_FORMATS = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_DETAILS = ("auto", "low", "high")
# Base64 for URLs, as Google's client writes it, in ordinary base64.
_FROM_URL_ALPHABET = str.maketrans("-_", "+/", " \t\r\n")


class AttachmentList:
    """Collects the files of a conversation and numbers them; a file that is repeated keeps its number.

    Args:
        earlier: The attachments that the submission already has.

    Example:
        >>> attachments = AttachmentList()
        >>> attachments.add({"type": "image", "base64": "R0lGODlh", "mime_type": "image/gif"}, "image", "content[0]")
        Text(text='[attachment 1]', kind='attachment')
    """

    def __init__(self, earlier: tuple[Attachment, ...] = ()):
        self.items = list(earlier)
        self._numbers = {attachment: number for number, attachment in enumerate(self.items, start=1)}

    def add(self, block: Any, kind: str, place: str) -> Text:
        """Add the file of a block, and return the placeholder that stands for it in a text.

        Raises:
            UnknownBlockError: As `read_media`.
        """
        attachment = read_media(block, kind, place)
        number = self._numbers.setdefault(attachment, len(self.items) + 1)
        if number > len(self.items):
            self.items.append(attachment)
        return Text(f"[attachment {number}]", "attachment")


class FilesAsPlaceholders(AttachmentList):
    """Reads no files: each is the type of its block in brackets, for texts that have no attachments.

    Example:
        >>> FilesAsPlaceholders().add({"type": "image_url"}, "image_url", "content[0]").text
        '[image_url]'
    """

    def add(self, block: Any, kind: str, place: str) -> Text:
        """Return the placeholder of a file."""
        return Text(f"[{kind}]", "attachment")


def read_media(block: Any, kind: str, place: str) -> Attachment:
    """Return the file of a block: its bytes, or its http or https address.

    No file is opened and nothing is requested.

    Args:
        block: The block.
        kind: Its type, such as `image_url`.
        place: Where it is, for errors.

    Raises:
        ValueError: The block has neither, but for example only a provider's id of the file; or its bytes are not
            base64 or too many.
    """
    holders = [block, *(get_field(block, name) for name in (*_HOLDERS, kind))]
    layers = [layer for layer in holders if layer is not None and not isinstance(layer, str | bytes)]
    data, url = _first(layers, *_DATA), _first(layers, *_ADDRESSES)
    if isinstance(data, str) and data.startswith(("data:", "http://", "https://")):
        data, url = None, data
    mime_type = _first(layers, *_MIME_TYPES)
    if mime_type is None:
        mime_type = _AUDIO_FORMATS.get(_first(layers, "format") or "")
    if isinstance(url, str) and url.startswith("data:"):
        header, _, data = url.removeprefix("data:").partition(",")
        mime_type, url = header.partition(";")[0] or mime_type, None
        if not header.endswith(";base64"):
            raise UnknownBlockError(place, "has a `data:` address whose content is not base64")
    if data is not None:
        url = None
    if data is None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise UnknownBlockError(
            place,
            f"({kind!r}) has neither the bytes of the file nor an http(s) address, and its provider's ids and local "
            "paths are never opened",
        )
    name, detail = _first(layers, *_NAMES), _first(layers, "detail")
    fields = {
        "data": data.translate(_FROM_URL_ALPHABET) if isinstance(data, str) else data,
        "url": url,
        "mime_type": mime_type,
        "name": name,
        "detail": detail if detail in _DETAILS else None,
    }
    try:
        return _attachment(fields, kind, get_field(block, "modality"))
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"])) or "file"
        raise UnknownBlockError(
            place, f"({kind!r}) is no attachment, since its {field} {problem['msg'].removeprefix('Value error, ')}"
        ) from None


def _attachment(fields: dict[str, Any], kind: str, modality: Any) -> Attachment:
    try:
        return Attachment.model_validate(fields)
    except ValidationError:
        # An address without a suffix does not tell the type, but that of the block does.
        family = kind.removeprefix("input_").removesuffix("_url")
        family = modality if isinstance(modality, str) else "image" if family == "computer_screenshot" else family
        if fields["url"] is None or fields["mime_type"] is not None or family not in ("image", "audio", "video"):
            raise
        return Attachment.model_validate({**fields, "mime_type": f"{family}/unknown"})


def _first(layers: list[Any], *keys: str) -> Any:
    """Return the first text or bytes under one of several names, in the block or in what it holds."""
    for key in keys:
        for layer in layers:
            value = get_field(layer, key)
            if isinstance(value, str | bytes) and value:
                return value
    return None
