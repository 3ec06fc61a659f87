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
from typing import Any

JsonObject = Mapping[str, Any]
"""A JSON object."""


def refuse_endless(path: Path) -> None:
    """Refuse a device or a named pipe. Reading it could fill the memory, or wait forever for a writer.

    Pipes of a shell (`/dev/stdin`, `<(command)`) are accepted, because they have a writer and end.

    Raises:
        OSError: The path is a device or a named pipe, or it does not exist.
    """
    mode, is_of_shell = path.stat().st_mode, path.absolute().parts[1:2] in (("dev",), ("proc",))
    if stat.S_ISFIFO(mode) and not is_of_shell:
        raise OSError(0, "is a named pipe, and reading it could wait for ever: name a file")
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and path.name not in ("stdin", "tty", "null", "0")):
        raise OSError(0, "is a device, which may have no end: name a file")


# `str.splitlines` also splits at these characters, but JSON does not escape them. Lone surrogates cannot be encoded.
_NOT_ESCAPED_BY_JSON = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


class RepeatedKeyError(ValueError):
    """Raised for a JSON object that has the same key twice."""


def parse_json(text: str) -> Any:
    """Parse JSON and refuse objects that have a key twice.

    Raises:
        RepeatedKeyError: An object has a key twice. Python would silently use the last value.
        ValueError: The text is not JSON, or is nested too deeply. The message is a predicate of the text,
            such as `is not JSON: ...`.

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
    except ValueError:  # Python limits the digits, because the time grows with the square of their number
        raise ValueError(f"has a number of more than {sys.get_int_max_str_digits():,} digits: write a text") from None


def read_json_file(path: Path, max_bytes: int) -> Any:
    """Read a JSON file of this library, which may come from an untrusted source.

    Raises:
        ValueError: The file cannot be read, is too large, or is not JSON without lone surrogates and with finite
            numbers. The message names the file.
    """
    try:
        refuse_endless(path)
        with path.open("rb") as opened:
            data = opened.read(max_bytes + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > max_bytes:
        raise ValueError(f"{path}: has more than {max_bytes // 1_000_000} MB, which no such file has")
    try:
        content = parse_json(data.decode("utf-8-sig"))
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text: save the file as UTF-8") from None
    except UnicodeEncodeError:
        raise ValueError(f"{path}: has half of a character, such as of an emoji: remove it") from None
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply") from None
    except ValueError as error:
        is_number = str(error).startswith("Out of range float")
        raise ValueError(f"{path}: {'has a number that is not finite' if is_number else error}") from None
    return content


def read_json_lines(path: Path, on_invalid: Callable[[int, str], None] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the line number, from 1, and the value of each line that is not blank.

    Only a newline ends a line, because a text may contain other separators, such as U+2028, that JSON does not escape.
    A last line that was cut off by a crash is skipped with a warning.

    Args:
        path: The file.
        on_invalid: Called with the number of a line that is not JSON and with the reason. The line is then skipped.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is not JSON and `on_invalid` is None, or the file is not text. The message begins with the
            file and the line number.
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
                # Complete lines end with a newline. If the file has no other lines, it is not JSON Lines.
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


def json_lines(values: Iterable[JsonObject]) -> str:
    """Write objects as JSON Lines, one per line. Characters that some readers treat as line breaks are escaped.

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


# Made once, because making a decoder takes longer than parsing a short line.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def has_more_values(data: Any, limit: int) -> bool:
    """Return whether data have more than `limit` values: scalars, lists and objects, at every depth.

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
    """Split a path into keys and list indices from 0. `years.0` and `years[0]` are the same.

    A key that contains a dot cannot be used.

    Example:
        >>> split_path("items[0].name")
        ('items', '0', 'name')
    """
    return tuple(_POSITION.sub(r".\1", path).split("."))


def value_at(data: object, keys: tuple[str, ...]) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: The path does not exist. The message names the missing part.

    Example:
        >>> value_at({"filters": {"years": [2023, 2024]}}, split_path("filters.years.1"))
        2024
    """
    for key in keys:
        if isinstance(data, dict):
            if key not in data:
                raise LookupError(f"no key {key!r}")
            data = data[key]
        elif isinstance(data, list | tuple):
            # An index of many digits is beyond the end of every list, and Python would refuse to parse it.
            if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(data)):
                raise LookupError(f"no item {key!r} in a list of {len(data)}")
            data = data[int(key)]
        else:
            raise LookupError(f"no {key!r} in {reprlib.repr(data)}")
    return data


def write_whole_file(path: Path, text: str) -> None:
    """Write a text file. If that fails, an earlier file is unchanged.

    Raises:
        OSError: The file cannot be written.
    """
    target = path.resolve()
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
