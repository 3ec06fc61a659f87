"""The files of a batch: lines that are written up to the provider's limits, and results that are read one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from rubric_integrations.judges.models.error_responses import MAX_REPLY_BYTES
from rubric_integrations.runs.batches.provider import Framing
from rubric_integrations.runs.batches.records import BatchError

_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def checked_id(value: object) -> str:
    """Return an id of the provider, which becomes a part of URLs.

    Raises:
        BatchError: It is no id.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value) or set(value) == {"."}:
        raise BatchError(f"the provider's reply has no valid id: {str(value)[:80]!r}")
    return value


class LineFile:
    """A file of lines, which is a batch once it is finished.

    Args:
        path: The file.
        framing: How the lines become a file, and the limits.

    Attributes:
        keys: The key of each line.
    """

    def __init__(self, path: Path, framing: Framing):
        self.path, self._framing, self.keys = path, framing, list[str]()
        self._file = path.open("wb")
        self._file.write(framing.before)

    def has_room_for(self, line: bytes) -> bool:
        """Whether a line still fits; the first one always does, and the provider says whether it is too long."""
        if not self.keys:
            return True
        size = self._file.tell() + len(self._framing.between) + len(line) + len(self._framing.after)
        return len(self.keys) < self._framing.max_lines and size <= self._framing.max_bytes

    def add(self, key: str, line: bytes) -> None:
        """Write a line."""
        self._file.write((self._framing.between if self.keys else b"") + line)
        self.keys.append(key)

    def finish(self) -> None:
        """Write what follows the last line, and close the file."""
        self._file.write(self._framing.after)
        self._file.close()


class Results(Mapping[str, Mapping[str, Any]]):
    """The lines of results by key, in a file: only their places are in memory.

    Attributes:
        unreadable: The number of lines that are no results.
        ambiguous: The keys that have several lines, which differ.
    """

    def __init__(self, file: BinaryIO):
        self._file, self._places = file, dict[str, int]()
        self.unreadable, self.ambiguous = 0, set[str]()
        place = 0
        while line := file.readline(MAX_REPLY_BYTES):
            self._add(place, line)
            place = file.tell()

    def _add(self, place: int, line: bytes) -> None:
        if not line.strip():
            return
        parsed = _parse(line)
        if parsed is None:
            self.unreadable += 1
            return
        key = parsed["custom_id"]
        if key not in self._places:
            self._places[key] = place
        elif parsed != self._read(self._places[key]):
            self.ambiguous.add(key)

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._read(self._places[key])

    def __iter__(self) -> Any:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, place: int) -> Mapping[str, Any]:
        end = self._file.tell()
        self._file.seek(place)
        parsed = _parse(self._file.readline(MAX_REPLY_BYTES))
        self._file.seek(end)
        return parsed or {}


@contextmanager
def read_results(path: Path) -> Generator[Results]:
    """Read a file of results, which may be cut off; one that is absent has none."""
    path.touch()
    with path.open("rb") as file:
        yield Results(file)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    entry = cast("dict[str, Any]", value)
    return entry if isinstance(entry.get("custom_id"), str) else None
