"""Files that users name: those that cannot be read to an end are refused before they are opened."""

from __future__ import annotations

import stat
from pathlib import Path


def refuse_endless(path: Path) -> None:
    """Refuse a device and a named pipe: reading would fill the memory, or wait for a writer that never comes.

    Pipes of a shell (`/dev/stdin`, `<(command)`) are accepted: they have a writer, and end.

    Raises:
        OSError: It is one of them, or does not exist.
    """
    mode, is_of_shell = path.stat().st_mode, path.absolute().parts[1:2] in (("dev",), ("proc",))
    if stat.S_ISFIFO(mode) and not is_of_shell:
        raise OSError(0, "is a named pipe, and reading it could wait for ever: name a file")
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and path.name not in ("stdin", "tty", "null", "0")):
        raise OSError(0, "is a device, which may have no end: name a file")
