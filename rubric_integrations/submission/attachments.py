"""Images, PDFs, recordings and other files that belong to a submission."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord

# The largest file that a submission may contain. Providers refuse larger ones.
MAX_BYTES = 20_000_000


class Attachment(SparseRecord):
    """A file that belongs to a submission: its bytes, or the URL at which the judge's provider finds it.

    In Python, `data` may be bytes, and `path` may name a file to read in place of `data`. No URL is ever requested by
    this library.

    Attributes:
        mime_type: The type of the file, such as `image/png`; by default that of the suffix of its name.
        data: The bytes of the file as base64; None for a URL.
        url: The file's http or https address, in place of its bytes.
        name: The file's name.
        detail: How closely a model should look at an image, for providers that have this setting.

    Raises:
        pydantic.ValidationError: (a ValueError) Not exactly one of `data`, `url` and `path` is set, the data are not
            base64, the file is larger than 20,000,000 bytes or cannot be read, or its type is not known.

    Example:
        >>> Attachment(data=b"GIF89a", name="chart.gif").mime_type
        'image/gif'
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("data", "url", "name", "detail")

    mime_type: str = Field(pattern=r"^[\w.+-]+/[\w.+-]+$")
    data: str | None = Field(default=None, repr=False)
    url: str | None = Field(default=None, pattern=r"^https?://")
    name: EncodableText | None = None
    detail: Literal["auto", "low", "high"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast("Mapping[str, Any]", data))
        path = fields.pop("path", None)
        if path is not None:
            if fields.get("data") is not None or fields.get("url") is not None:
                raise ValueError("has a `path` beside `data` or `url`: keep one of them")
            try:
                with Path(path).open("rb") as file:
                    fields["data"] = file.read(MAX_BYTES + 1)
            except OSError as error:
                raise ValueError(f"has the `path` {str(path)!r}, which cannot be read: {error.strerror}") from None
            fields.setdefault("name", Path(path).name)
        if fields.get("mime_type") is None:
            fields["mime_type"] = guess_type(fields.get("name") or fields.get("url") or "")[0]
        return fields

    @field_validator("mime_type", mode="before")
    @classmethod
    def _is_known(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("is not known: set it, such as `image/png`")
        return value

    @field_validator("data", mode="before")
    @classmethod
    def _encode(cls, value: Any) -> Any:
        if isinstance(value, bytes):
            if len(value) > MAX_BYTES:
                raise ValueError(f"has more than {MAX_BYTES:,} bytes: providers refuse such files, make it smaller")
            return base64.b64encode(value).decode()
        if isinstance(value, str):
            if len(value) * 3 // 4 > MAX_BYTES + 3:
                raise ValueError(f"has more than {MAX_BYTES:,} bytes: providers refuse such files, make it smaller")
            try:
                return base64.b64encode(base64.b64decode(value, validate=True)).decode()
            except (binascii.Error, ValueError):
                raise ValueError("is not base64: pass bytes in Python, and base64 in a file") from None
        return value

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.data is None) == (self.url is None):
            raise ValueError("must have either `data` or `url`")
        return self

    @property
    def content(self) -> bytes | None:
        """The bytes of the file; None for a URL."""
        return None if self.data is None else base64.b64decode(self.data)

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the bytes, in hexadecimal; None for a URL, whose bytes are not known."""
        return None if self.data is None else sha256(base64.b64decode(self.data)).hexdigest()
