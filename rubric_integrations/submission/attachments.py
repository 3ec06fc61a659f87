"""Attachments: images, PDFs, recordings and other files of a submission, in rows of files and in run files.

A run file stores small attachments with their bytes. Of large attachments it stores only a description.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, cast
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from rubric_integrations._util.json import parse_json
from rubric_integrations._util.records import EncodableText, SparseRecord

# The largest file that a submission may contain. Providers refuse larger ones.
MAX_BYTES = 20_000_000
# The largest total size of a submission's files. As base64, no provider accepts much more in one request.
MAX_TOTAL_BYTES = 30_000_000
MAX_ATTACHMENTS = 100

_TOO_LARGE = f"has more than {MAX_BYTES:,} bytes: providers refuse such files, make it smaller"
# Names of types that some programs write, with the usual names that providers accept.
_USUAL_TYPES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "application/x-pdf": "application/pdf",
}


class Attachment(SparseRecord):
    """A file that belongs to a submission: its bytes, or the URL from which the judge's provider downloads the file.

    In Python, `data` may be bytes. Instead of `data`, `path` may name a file to read. `data` and `url` also accept a
    `data:` URI. This library never requests a URL.

    Attributes:
        mime_type: The type of the file, such as `image/png`. By default, it is taken from the `data:` URI or from the
            suffix of the name.
        data: The bytes of the file as base64, at most 20,000,000 bytes. None for a URL.
        url: The http or https address of the file, instead of its bytes.
        name: The file's name.
        detail: The resolution at which the model should see an image, for providers that have this setting. None
            for the default of the provider.

    Raises:
        pydantic.ValidationError: (a ValueError) Not exactly one of `data`, `url` and `path` is set, the data are empty
            or not base64, the file is larger than 20,000,000 bytes or cannot be read, or its type is not known.

    Example:
        >>> Attachment(data=b"GIF89a", name="chart.gif").mime_type
        'image/gif'
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("data", "url", "name", "detail")

    mime_type: str = Field(pattern=r"^[a-z0-9.+-]+/[a-z0-9.+-]+$", max_length=100)
    data: str | None = Field(default=None, repr=False)
    url: str | None = Field(default=None, max_length=10_000)
    name: EncodableText | None = Field(default=None, max_length=1_000)
    detail: Literal["auto", "low", "high"] | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            mime_type: str | None = None,
            data: str | bytes | None = None,
            url: str | None = None,
            path: str | Path | None = None,
            name: str | None = None,
            detail: Literal["auto", "low", "high"] | None = None,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read_source(cls, data: Any) -> Any:
        """Read the file at `path`, split a `data:` URI, and guess the media type if it is not set."""
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast("Mapping[str, Any]", data))
        sources = [name for name in ("data", "url", "path") if fields.get(name) is not None]
        if len(sources) != 1:
            raise ValueError(f"must have exactly one of `data`, `url` and `path`, and has {sources!r}")
        path = fields.pop("path", None)
        if path is not None:
            fields["data"] = _read_file(path)
            fields.setdefault("name", Path(path).name)
        for name in ("data", "url"):
            if isinstance(text := fields.get(name), str) and text[:5].lower() == "data:":
                parts = _split_data_uri(text)
                fields |= {"url": None, "data": parts.content, "mime_type": fields.get("mime_type") or parts.mime_type}
        if fields.get("mime_type") is None:
            name_or_path = fields.get("name") or urlsplit(str(fields.get("url") or "")).path
            fields["mime_type"] = guess_type(str(name_or_path))[0]
        return fields

    @field_validator("mime_type", mode="before")
    @classmethod
    def _usual_type(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("is not known: set it, such as `image/png`")
        if not isinstance(value, str):
            return value
        # Providers do not read parameters of the type, such as a character set.
        name = value.partition(";")[0].strip(" ").lower()
        return _USUAL_TYPES.get(name, name)

    @field_validator("data", mode="before")
    @classmethod
    def _encode(cls, value: Any) -> Any:
        """Return the content in base64. Content that is empty, too large or not base64 is refused."""
        content = value
        if isinstance(value, str):
            if len(value) * 3 // 4 > MAX_BYTES + 3:
                raise ValueError(_TOO_LARGE)
            try:
                content = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("is not base64: pass bytes in Python, and base64 in a file") from None
        if not isinstance(content, bytes):
            return value
        if not content:
            raise ValueError("is empty: a judge would see a file without content")
        if len(content) > MAX_BYTES:
            raise ValueError(_TOO_LARGE)
        return base64.b64encode(content).decode()

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        # Without these characters no address can imitate the structure of a prompt.
        if value is not None and (
            not value.isprintable()
            or any(char in value for char in " <>\"'\\`")
            or urlsplit(value).scheme not in ("http", "https")
            or not urlsplit(value).hostname
        ):
            raise ValueError(
                "is no http or https address: only such addresses are passed to a provider, so pass the file's bytes "
                "as `data`"
            )
        return value

    @property
    def content(self) -> bytes | None:
        """The bytes of the file, or None for a URL."""
        return None if self.data is None else base64.b64decode(self.data)

    @property
    def size(self) -> int:
        """The number of bytes of the file. 0 for a URL, because the size is not known."""
        return 0 if self.data is None else len(self.data) * 3 // 4 - self.data.count("=", -2)

    @cached_property
    def sha256(self) -> str | None:
        """The SHA-256 of the bytes, in hexadecimal. None for a URL, because the bytes are not known."""
        return None if self.data is None else sha256(base64.b64decode(self.data)).hexdigest()

    def identity(self) -> dict[str, Any]:
        """Return the fields that affect a judgment of this file, without its bytes but with their SHA-256 as `sha256`.

        Example:
            >>> Attachment(url="https://example.com/chart.png").identity()
            {'mime_type': 'image/png', 'url': 'https://example.com/chart.png'}
        """
        fields = self.model_dump(mode="json", exclude={"data"}, exclude_none=True)
        return fields if self.sha256 is None else {**fields, "sha256": self.sha256}


class _DataUri(NamedTuple):
    mime_type: str | None
    content: str | bytes


def _split_data_uri(uri: str) -> _DataUri:
    """Split a `data:` URI into its type and its content. The content is a base64 text, or bytes.

    Raises:
        ValueError: The URI has no comma.
    """
    head, comma, content = uri[5:].partition(",")
    if not comma:
        raise ValueError("has a `data:` URI without a comma: write `data:image/png;base64,` before the base64")
    mime_type, *parameters = head.split(";")
    is_base64 = "base64" in (parameter.strip().lower() for parameter in parameters)
    return _DataUri(mime_type.strip() or None, content if is_base64 else unquote_to_bytes(content))


def _read_file(path: Any) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"has the `path` {str(path)!r}, which cannot be read: {error.strerror}") from None


def check_attachments(attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
    """Check that a submission's attachments are within the limits, and return them.

    Raises:
        ValueError: There are more than 100 attachments, or they have more than 30,000,000 bytes in total.
    """
    if len(attachments) > MAX_ATTACHMENTS:
        raise ValueError(
            f"has {len(attachments)} files, more than {MAX_ATTACHMENTS}: leave some out, or a provider refuses them all"
        )
    if (total := sum(attachment.size for attachment in attachments)) > MAX_TOTAL_BYTES:
        raise ValueError(
            f"has {total:,} bytes in all, more than {MAX_TOTAL_BYTES:,}: leave files out or make them smaller, or "
            "providers refuse the request"
        )
    return attachments


def refuse_paths(value: Any) -> Any:
    """Return the value of the field `attachments`, unless an attachment in it is a mapping with a `path`.

    Raises:
        ValueError: An attachment has a `path`. Untrusted data could otherwise name any file of this machine, which
            would then be sent to the judge's provider.
    """
    entries: list[Any] = list(cast("Any", value)) if isinstance(value, list | tuple) else []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, Mapping) and cast("Mapping[str, Any]", entry).get("path") is not None:
            raise ValueError(
                f"has a `path` in entry {number}, which is only read in a file of responses: in Python, pass "
                "`Attachment(path=...)`, so that no data from outside can name a file of this machine"
            )
    return cast("object", value)


def attachment_fields(value: object) -> list[Any]:
    """Return the fields of each attachment, for the field `attachments` of a `Submission`.

    Args:
        value: One attachment, or a list of attachments. An attachment is an `Attachment`, a mapping of its fields, a
            URL, or a `data:` URI. The value can also be the JSON text of a list of mappings. None and an empty text
            mean no attachments.

    Raises:
        ValueError: The value is a text that begins like JSON and is not valid JSON.

    Example:
        >>> attachment_fields("https://example.com/chart.png")
        [{'url': 'https://example.com/chart.png'}]
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        value = parse_json(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    entries = cast("list[object] | tuple[object, ...]", value) if isinstance(value, list | tuple) else [value]
    return [{"url": entry.strip()} if isinstance(entry, str) else entry for entry in entries]


def read_paths(entries: list[Any], folder: Path) -> list[Any]:
    """Return the entries of attachments, with the bytes of a file instead of its `path` in a folder.

    Rows may come from untrusted sources. Therefore a row must not name a file outside of the folder, which would then
    be sent to the judge's provider.

    Args:
        entries: The entries that `attachment_fields` returned.
        folder: The folder of the file with the rows.

    Raises:
        ValueError: A path is absolute, leads out of the folder (also by a link), is hidden, does not exist, or cannot
            be read. Or an entry has `data` or a `url` in addition to its `path`.
    """
    return [_with_content(entry, folder) if _has_path(entry) else entry for entry in entries]


def _has_path(entry: object) -> bool:
    return isinstance(entry, Mapping) and cast("Mapping[str, Any]", entry).get("path") is not None


def _with_content(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    fields = dict(entry)
    path = fields.pop("path")
    if any(fields.get(name) is not None for name in ("data", "url")):
        raise ValueError(f"has the `path` {path!r} beside `data` or `url`: keep one of them")
    try:
        with file_in_folder(str(path), folder).open("rb") as content:
            fields["data"] = content.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"has the `path` {path!r}, which cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"has the `path` {path!r}, which {error}") from None
    fields["name"] = fields.get("name") or Path(str(path)).name
    return fields


def file_in_folder(path: str, folder: Path) -> Path:
    """Return the file that untrusted data names by a path in a folder, if this is allowed.

    Raises:
        ValueError: The path is absolute, leads out of the folder (also by a link), or is not a file. Or the file is
            hidden, such as `.env` or `.git/config`, which may contain secrets. The message does not contain the path:
            the caller adds the path at the beginning.
        OSError: The path cannot be checked, for example because it is a link to a folder without permission to read.
    """
    name, root = Path(path), folder.resolve()
    try:
        file = (root / name).resolve()
    except RuntimeError:  # Python's error before 3.13
        raise ValueError("is a link that leads back to itself: put the file there") from None
    if name.is_absolute() or ".." in name.parts or not file.is_relative_to(root):
        raise ValueError("leads out of the folder of the rows: put the file there")
    if any(part.startswith(".") for part in (*name.parts, *file.relative_to(root).parts)):
        raise ValueError("is a hidden file: rename it, if a judge may read it")
    if not file.is_file():
        raise ValueError(f"is no file: {str(folder / name)!r} does not exist, or is a folder")
    return file


# The largest sizes of one file, and of all files of a row, that a run file stores, because a run can have thousands of
# rows. The first limit also applies to report pages.
MAX_BYTES_OF_FILE = 200_000
MAX_BYTES_OF_ROW = 5_000_000


class StoredAttachment(SparseRecord):
    """An attachment of a graded row, as a run file stores it.

    Attributes:
        mime_type: The type of the file.
        name: The file's name.
        url: The address of the file, if the submission did not contain its bytes.
        data: The bytes as base64. None if the file is too large for a run file, or if only the address is known.
        size: The number of bytes. None if only the address is known.
        sha256: The SHA-256 of the bytes, in hexadecimal. None if only the address is known.
    """

    # A line of an older or a newer run file may have other fields.
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
        """Compute the size and the SHA-256 from the bytes, if there are any, because a line may have wrong values."""
        if not isinstance(data, Mapping):
            return data
        fields = cast("Mapping[str, Any]", data)
        if fields.get("data") is None:
            return fields
        known = {name: fields.get(name) for name in ("mime_type", "name", "data")}
        return cls._fields_of(Attachment.model_validate(known))

    @classmethod
    def of(cls, attachment: Attachment) -> Self:
        """Make the description of an attachment, including its bytes."""
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

    The bytes of a file are stored if it has at most 200,000 bytes, and if the stored files of the row have at most
    5,000,000 bytes in total. Of other files, only the description with the size and the SHA-256 is stored.

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
