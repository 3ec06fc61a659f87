"""Our own JSON Lines files: only a newline ends a line, and a line that a crash cut off is skipped."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from rubric_integrations._util.json import parse_json, read_json_lines

# Characters at which `str.splitlines` splits, and JSON does not.
SEPARATORS = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"


def test_text_with_unusual_line_separators_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    # JSON escapes control characters; the others stay as they are.
    values = [{"text": f"a{SEPARATORS}b\r\n"}, {"text": "c"}]
    path.write_bytes("\n\r\n".join(json.dumps(value, ensure_ascii=False) for value in values).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(read_json_lines(path)) == [(1, values[0]), (3, values[1])]


# The last one ends within a character.
@pytest.mark.parametrize("torn", [b"{", b'{"text": "b', b'{"text": "\xe2\x80'])
def test_torn_last_line_is_skipped_with_a_warning_that_names_it(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + torn)
    with pytest.warns(UserWarning, match=f"{path}:3: is cut off, as by a crash, and is skipped"):
        assert list(read_json_lines(path)) == [(1, {"text": "a"})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\nnope\n', ":2: is not JSON: Expecting value"),
        (b'{"a": 1}\n{"a"\n{"a": 2}', ":2: is not JSON: "),
        (b"nope", ":1: is not JSON: "),
        (b'{"a": 1}\n\xff\n', ":2: is not text: save the file as UTF-8"),
        (b'{"a": 1}\n{"b": {"a": 1, "a": 2}}', ":2: has the key 'a' twice in one object"),
        (b'{"a": 1}\n' + b"[" * 100_000 + b"\n", ":2: is not JSON: nested too deeply"),
    ],
)
def test_line_that_is_not_torn_and_not_json_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_json_lines(path))


def test_parse_json_of_many_equal_keys_names_the_first_that_is_repeated() -> None:
    with pytest.raises(ValueError, match="has the key 'b' twice"):
        parse_json('{"a": 1, "b": 1, "c": 2, "b": 3, "a": 4}')
