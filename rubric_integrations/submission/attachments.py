"""Images, PDFs, recordings and other files that belong to a submission."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord

# The largest file that a submission may contain. Providers refuse larger ones.
MAX_BYTES = 20_000_000
# The largest sum of a submission's files: as base64, no provider takes much more in one request.
MAX_TOTAL_BYTES = 30_000_000
MAX_ATTACHMENTS = 100

_TOO_LARGE = f"has more than {MAX_BYTES:,} bytes: providers refuse such files, make it smaller"
# Names that programs give to types that providers know by another name.
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
    """A file that belongs to a submission: its bytes, or the URL at which the judge's provider finds it.

    In Python, `data` may be bytes, and `path` may name a file to read in place of `data`. `data` and `url` also accept
    a `data:` URI. No URL is ever requested by this library.

    Attributes:
        mime_type: The type of the file, such as `image/png`; by default that of its `data:` URI, or that of the suffix
            of its name.
        data: The bytes of the file as base64, at most 20,000,000 bytes; None for a URL.
        url: The file's http or https address, in place of its bytes.
        name: The file's name.
        detail: How closely a model should look at an image, for providers that have this setting.

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
        # Its parameters, such as a character set, say nothing that a judge's provider reads.
        name = value.partition(";")[0].strip(" ").lower()
        return _USUAL_TYPES.get(name, name)

    @field_validator("data", mode="before")
    @classmethod
    def _encode(cls, value: Any) -> Any:
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
        """The bytes of the file; None for a URL."""
        return None if self.data is None else base64.b64decode(self.data)

    @property
    def size(self) -> int:
        """The number of bytes, which is 0 for a URL, whose bytes are not known."""
        return 0 if self.data is None else len(self.data) * 3 // 4 - self.data.count("=", -2)

    @cached_property
    def sha256(self) -> str | None:
        """The SHA-256 of the bytes, in hexadecimal; None for a URL, whose bytes are not known."""
        return None if self.data is None else sha256(base64.b64decode(self.data)).hexdigest()

    def identity(self) -> dict[str, Any]:
        """Return what a judgment of this file depends on, with the SHA-256 of its bytes in place of the bytes.

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
    """Split a `data:` URI into its type, and its content as base64 or bytes.

    Raises:
        ValueError: It has no comma.
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
    """Return a submission's attachments if they are within the limits.

    Raises:
        ValueError: There are more than 100, or they have more than 30,000,000 bytes in all.
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
    """Return the value of a field of attachments, unless one of them is a mapping that names a file to read.

    Raises:
        ValueError: It does: data from outside could name any file of this machine, which a provider would then get.
    """
    entries: list[Any] = list(cast("Any", value)) if isinstance(value, list | tuple) else []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, Mapping) and cast("Mapping[str, Any]", entry).get("path") is not None:
            raise ValueError(
                f"has a `path` in entry {number}, which is only read in a file of responses: in Python, pass "
                "`Attachment(path=...)`, so that no data from outside can name a file of this machine"
            )
    return cast("object", value)
