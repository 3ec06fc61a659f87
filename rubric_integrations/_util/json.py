"""Reads and writes JSON and JSON Lines, and resolves dotted paths such as `items.0.name`.

A repeated key is an error, because one of its values would be lost silently. Files without an end, such as devices, are
refused before they are opened.
"""

from __future__ import annotations

import json
import re
import reprlib
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast


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


# `str.splitlines` also splits at these characters, but JSON does not escape them. Lone surrogates cannot be encoded.
_NOT_ESCAPED_BY_JSON = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


class RepeatedKeyError(ValueError):
    """An object in JSON has the same key twice."""


def parse_json(text: str) -> Any:
    """Parse JSON, in which no object may have a key twice.

    Raises:
        RepeatedKeyError: An object has a key twice, of which Python would silently use the last.
        ValueError: The text is not JSON, or is nested too deeply. The message continues a sentence about the text.

    Example:
        >>> parse_json('{"a": 1, "a": 2}')
        Traceback (most recent call last):
            ...
        rubric_integrations._util.json.RepeatedKeyError: has the key 'a' twice in one object: remove one of \
them, since one value would be lost
    """
    try:
        return _DECODER.decode(text)
    except RepeatedKeyError:
        raise
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is not JSON: nested too deeply") from None
    except ValueError:  # Python's limit, since the time would grow with the square of the length
        raise ValueError(f"has a number of more than {sys.get_int_max_str_digits():,} digits: write a text") from None


def read_json_lines(path: Path, on_invalid: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the number, from 1, and the value of each line that is not blank.

    Only a newline ends a line: a text may contain other separators, such as U+2028, which JSON does not escape. A last
    line that a crash has cut off is skipped with a warning.

    Args:
        path: The file.
        on_invalid: Called with the number of a line that is not JSON, and with the reason; the line is then skipped.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is not JSON, and there is no `on_invalid`; or the file is not text. The message begins with
            the file and the number of the line.
    """
    with path.open("rb") as lines:
        has_values = False
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{path}:{number}:"
            try:
                # Editors on Windows put a byte order mark before the first line.
                value = parse_json(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except RepeatedKeyError as error:
                if on_invalid is None:
                    raise ValueError(f"{place} {error}") from None
                on_invalid(number, str(error))
                continue
            except ValueError as error:
                # Each line is written with its newline. A file with nothing but such a line is another kind of file.
                if not line.endswith(b"\n") and has_values:
                    warnings.warn(f"{place} is cut off, as by a crash, and is skipped", stacklevel=2)
                    return
                is_text = not isinstance(error, UnicodeDecodeError)
                if on_invalid is not None and is_text:
                    on_invalid(number, str(error))
                    continue
                raise ValueError(f"{place} {error if is_text else 'is not text: save the file as UTF-8'}") from None
            has_values = True
            yield number, value


def json_lines(values: Iterable[Mapping[str, Any]]) -> str:
    """Write objects as JSON, one per line; no character in them counts as a line break for any reader.

    Raises:
        ValueError: An object cannot be written as JSON.

    Example:
        >>> print(json_lines([{"question": "6 x 7?", "answer": 42}]))
        {"question": "6 x 7?", "answer": 42}
    """
    try:
        lines = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a message cannot be written as JSON: {str(error) or 'nested too deeply'}") from None
    return "\n".join(_NOT_ESCAPED_BY_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in lines)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = set[str]()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise RepeatedKeyError(
            f"has the key {key!r} twice in one object: remove one of them, since one value would be lost"
        )
    return fields


# Made once: a decoder costs more than to parse a short line.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def has_more_values(data: Any, limit: int) -> bool:
    """Return whether data consist of more than `limit` values: scalars, lists and objects, at every depth.

    Example:
        >>> has_more_values({"a": [1, 2]}, 4), has_more_values({"a": [1, 2]}, 3)
        (False, True)
    """
    values = [data]
    for value in values:  # which grows
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if len(values) > limit:
            return True
    return False


_POSITION = re.compile(r"\[(\d{1,9})\]")


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into keys and positions in lists, from 0; `years.0` and `years[0]` are the same.

    A key that contains a dot cannot be named.

    Example:
        >>> split_path("items[0].name")
        ('items', '0', 'name')
    """
    return tuple(_POSITION.sub(r".\1", path).split("."))


def value_at(data: object, keys: tuple[str, ...]) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: There is none; the message says which part of the path is missing.

    Example:
        >>> value_at({"filters": {"years": [2023, 2024]}}, split_path("filters.years.1"))
        2024
    """
    for key in keys:
        if isinstance(data, dict):
            if key not in data:
                raise LookupError(f"no key {key!r}")
            data = cast("dict[str, Any]", data)[key]
        elif isinstance(data, list | tuple):
            items = cast("list[Any]", data)
            # A position of many digits is beyond every list, and Python would refuse to read it.
            if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(items)):
                raise LookupError(f"no item {key!r} in a list of {len(items)}")
            data = items[int(key)]
        else:
            raise LookupError(f"no {key!r} in {reprlib.repr(data)}")
    return data
