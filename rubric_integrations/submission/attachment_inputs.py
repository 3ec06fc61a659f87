"""Attachments as rows of files and callers of evaluators write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.submission.attachments import MAX_BYTES


def attachment_fields(value: object) -> list[Any]:
    """Return the fields of each attachment, for the field `attachments` of a `Submission`.

    Args:
        value: One attachment or a list of them, each as an `Attachment`, a mapping of its fields, or a URL or `data:`
            URI alone; or a list of mappings as JSON. None and an empty text are none.

    Raises:
        ValueError: It is none of these.

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
    """Read the files that attachments name by a `path` in a folder.

    A file may come from others. It must not be able to name a file of this machine outside of its folder, which a
    judge's provider would then get.

    Args:
        entries: What `attachment_fields` returned.
        folder: The folder of the file that has the attachments.

    Raises:
        ValueError: A path is absolute or leads out of the folder, also by a link; or it is hidden, or does not exist.
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
        name = Path(str(path))
        file = (folder / name).resolve()
        is_inside = not name.is_absolute() and ".." not in name.parts and file.is_relative_to(folder.resolve())
        if not is_inside:
            raise ValueError(f"has the `path` {path!r}, which leads out of the folder of the rows: put the file there")
        # Such as `.env` and `.git/config`, which have secrets.
        if any(part.startswith(".") for part in name.parts):
            raise ValueError(f"has the `path` {path!r}, which is a hidden file: rename it, if it should be judged")
        if not file.is_file():
            raise ValueError(f"has the `path` {path!r}, but {str(folder / name)!r} is no file")
        with file.open("rb") as content:
            fields["data"] = content.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"has the `path` {path!r}, which cannot be read: {error.strerror}") from None
    fields["name"] = fields.get("name") or name.name
    return fields
