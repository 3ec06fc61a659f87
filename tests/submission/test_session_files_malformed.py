"""Damaged sessions: rows or errors of their row, never a traceback, in a number of operations that grows linearly.

Lines are dropped, repeated, moved or cut off, and values are replaced by values of other types, deep nesting and huge
numbers. `make test` reads a few hundred of them, and the family `malformed` 20,000.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import read_responses
from rubric_integrations.submission.dialects.detect import SESSIONS, dialect_of, read_conversation
from tests.submission.sessions import (
    CLAUDE,
    EXEC,
    META,
    RESULT,
    ROLLOUT,
    STREAM,
    calls,
    event,
    model,
    result,
    returns,
    says,
    text,
    use,
    user,
)
from tests.submission.test_files_linear_time import count_calls
from tests.submission.test_files_malformed import check_errors, read_file

REWOUND = [
    user("u1", "Go."), model("a1", "m1", text("Gone."), parent="u1"), user("u2", "Why?", "a1"),
    model("a2", "m2", use("c1"), parent="u2"), user("u3", result("c1"), "a2"), user("u4", "Back.", "a1"),
    model("a3", "m3", text("Here."), parent="u4"), user("u5", "<command-name>/clear</command-name>"),
    user("u6", "Go."), model("a6", "m6", text("Gone."), parent="u6"),
]  # fmt: skip
ROLLED_BACK = [
    META, says("user", "Go."), calls("c1"), returns("c1", "x"), event("exec_command_end", call_id="c1", exit_code=1),
    event("thread_rolled_back", num_turns=1), says("user", "Back."), event("turn_aborted"), says("user", "Again."),
    says("assistant", "Done.", phase="final_answer"),
]  # fmt: skip
SAMPLES: list[tuple[list[Any], str]] = [
    (CLAUDE, ".jsonl"), (STREAM, ".jsonl"), (STREAM, ".json"), (ROLLOUT, ".jsonl"), (EXEC, ".jsonl"),
    (REWOUND, ".jsonl"), (ROLLED_BACK, ".jsonl"), (ROLLOUT, ".json"), ([RESULT], ".jsonl"), (CLAUDE, ".json"),
]  # fmt: skip
# JSON does not contain the last four, which are written into the text.
VALUES: list[Any] = [
    5, None, [], {}, "another text", True, False, [1, "x"], {"x": 1}, "a\0b", "\ud800", 1.5, -1, 10**400, [[]], [None],
    {"type": "text"}, {"type": []}, "u1", "DEEP", "NESTED", "LARGE", "NAN",
]  # fmt: skip
WRITTEN = {"DEEP": "[" * 5_000 + "]" * 5_000, "NESTED": "[" * 400 + "]" * 400, "LARGE": "9" * 5_000, "NAN": "NaN"}


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places(item, (*place, key))


def change_value(draw: random.Random, lines: list[Any]) -> None:
    """Replace, remove or rename one value."""
    place = draw.choice([*places(lines)])
    holder: Any = lines
    for key in place[:-1]:
        holder = holder[key]
    kind = draw.choice(["replace", "replace", "remove", "rename"])
    if kind == "replace" or not isinstance(place[-1], str):
        holder[place[-1]] = json.loads(json.dumps(draw.choice(VALUES)))
    else:
        value = holder.pop(place[-1])
        if kind == "rename":
            holder["x" + place[-1]] = value


def change_lines(draw: random.Random, lines: list[Any]) -> None:
    """Drop, repeat or move one line, or mix all."""
    kind, index = draw.choice(["drop", "repeat", "move", "mix"]), draw.randrange(len(lines))
    if kind == "mix":
        draw.shuffle(lines)
        return
    line = lines[index] if kind == "repeat" else lines.pop(index)
    if kind != "drop":
        lines.insert(draw.randrange(len(lines) + 1), json.loads(json.dumps(line)))


def damaged_file(seed: int) -> tuple[str, bytes]:
    """Return the suffix and the content of a damaged session."""
    draw = random.Random(seed)
    sample, suffix = SAMPLES[seed % len(SAMPLES)]
    lines: list[Any] = json.loads(json.dumps(sample))
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if lines:
            draw.choice([change_value, change_value, change_lines])(draw, lines)
    content = json.dumps(lines) if suffix == ".json" else "".join(f"{json.dumps(line)}\n" for line in lines)
    for name, value in WRITTEN.items():
        content = content.replace(f'"{name}"', value)
    if draw.random() < 0.1:
        content = content[: draw.randrange(len(content) + 1)]
    return suffix, content.encode()


def check(seed: int, folder: Path) -> int:
    """Fail if a damaged session is not rows or errors. Return the number of functions that were called."""
    suffix, content = damaged_file(seed)
    path = folder / f"f{suffix}"
    result: Any = None

    def read(_: Path) -> None:
        nonlocal result
        result = read_file(path, content)

    count = counted_calls(lambda: read(path))
    for row in check_errors(result):
        assert (row.submission is None) != (row.error is None), seed
    return count


def counted_calls(function: Callable[[], None]) -> int:
    count = 0

    def observe(_frame: Any, kind: str, _argument: Any) -> None:
        nonlocal count
        count += kind == "call"

    sys.setprofile(observe)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


# A session of 20 lines takes about 3,000 calls.
MAX_CALLS = 20_000


@pytest.mark.parametrize("part", range(2))
def test_damaged_session_is_rows_or_errors(tmp_path: Path, part: int) -> None:
    check(part, tmp_path)  # imports modules
    assert max(check(seed, tmp_path) for seed in range(part, 200, 2)) < MAX_CALLS


@pytest.mark.parametrize("part", range(5))
def test_each_damaged_file_of_a_folder_is_a_row_of_its_own(tmp_path: Path, part: int) -> None:
    files = [damaged_file(10**6 + 10 * part + number) for number in range(10)]
    for number, (suffix, content) in enumerate(files):
        (tmp_path / f"f{number}{suffix}").write_bytes(content)
    (tmp_path / "whole.jsonl").write_text(json.dumps(RESULT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = list(read_responses(tmp_path))
    assert len({row.id for row in check_errors(rows)}) == len(rows)
    # An empty file has no row.
    assert len(rows) >= 1 + sum(bool(content.strip()) for _, content in files)


@pytest.mark.malformed
@pytest.mark.parametrize("part", range(20))
def test_20_000_damaged_sessions_are_rows_or_errors(tmp_path: Path, part: int) -> None:
    check(part, tmp_path)
    assert max(check(seed, tmp_path) for seed in range(1_000 * part, 1_000 * (part + 1))) < MAX_CALLS


def _repeat(lines: list[Any]) -> Callable[[int], list[Any]]:
    return lambda size: lines * size


def _turns(size: int) -> list[Any]:
    """Return a session whose lines are one chain of parents."""
    lines = [user("u0", "Go.")]
    for number in range(size):
        call = f"c{number}"
        lines += [
            model(f"a{number}", f"m{number}", use(call), parent=lines[-1]["uuid"]),
            user(f"u{number + 1}", result(call), f"a{number}"),
        ]
    return [*lines, model("end", "end", text("Done."), parent=lines[-1]["uuid"])]


def _rewinds(size: int, parent: Callable[[int], str]) -> list[Any]:
    lines = [user("u", "Go."), model("a0", "m0", text("Gone."), parent="u")]
    for number in range(1, size):
        lines.append(user(f"u{number}", "Again.", parent(number)))
        lines.append(model(f"a{number}", f"m{number}", text("Gone."), parent=f"u{number}"))
    return lines


LARGE: dict[str, Callable[[int], list[Any]]] = {
    "turns": _turns,
    "turns from the end": lambda n: _turns(n)[::-1],
    "rewinds of one prompt": lambda n: _rewinds(n, lambda _: "a0"),
    "rewinds of each prompt": lambda n: _rewinds(n, lambda number: f"a{max(0, number - 2)}"),
    "a circle of parents": lambda n: [*_turns(n), *_rewinds(n, lambda _: "end")[::-1]],
    "blocks of one message": lambda n: [
        user("u", "Go."), *(model(f"a{i}", "m", use(f"c{i}")) for i in range(n)), model("x", "x", text("Done."))],
    "sessions": lambda n: [
        line for i in range(n) for line in (user(f"c{i}", "<command-name>/clear</command-name>"),
                                            user(f"u{i}", "Go."), model(f"a{i}", f"m{i}", text("Gone.")))],
    "clears": lambda n: [*CLAUDE, *(user(f"c{i}", "<command-name>/clear</command-name>") for i in range(n))],
    "results of one session": _repeat([RESULT]),
    "runs": lambda n: [{**line, "session_id": f"{i}"} for i in range(n) for line in STREAM],
    "lines without a session": lambda n: [*STREAM, *[{**STREAM[0], "session_id": 5}] * n, *STREAM[-1:]],
    "repeated lines": lambda n: [CLAUDE[3]] * n + CLAUDE,
    "marks": lambda n: [user("u", "<system-reminder>x</system-reminder>" * n + "Go."), model("a", "m", text("Gone."))],
    "replaced messages": lambda n: [*_turns(n), {**model("z", "z", text("Done.")), "supersedes": ["a1"] * n}],
    "rollout": lambda n: [META, *ROLLOUT[4:-2] * n, *ROLLOUT[-2:]],
    "rolled back turns": lambda n: [
        META, *[says("user", "Go."), event("thread_rolled_back", num_turns=10**9)] * n, *ROLLOUT[-2:]],
    "threads": _repeat(EXEC),
    "items": lambda n: [*EXEC[:2], *EXEC[2:8] * n, EXEC[-1]],
    "damaged lines": lambda n: [5] * n + CLAUDE + [5] * n,
}  # fmt: skip
"""Sessions that grow in one way, by a number."""


@pytest.mark.parametrize("name", LARGE)
def test_twice_the_session_takes_at_most_twice_the_calls(tmp_path: Path, name: str) -> None:
    counts = list[int]()
    for size in (40, 40, 80):  # the first time, modules are imported
        path = tmp_path / f"f{size}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in LARGE[name](size)))
        counts.append(count_calls(path))
    assert counts[2] <= 2.2 * counts[1], counts


def _made(lines: list[Any]) -> tuple[list[str], bool]:
    """Return the tools that are called in a session, and whether a warning says that lines are left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps = read_conversation(lines).steps
    return [call.name for step in steps for call in step.calls], any("left out" in str(one.message) for one in caught)


@pytest.mark.malformed
@pytest.mark.parametrize("lines", [CLAUDE, STREAM, ROLLOUT, EXEC], ids=["session", "stream", "rollout", "exec"])
def test_value_of_another_type_loses_no_call_silently(lines: list[Any]) -> None:
    made, _ = _made(lines)
    for place in places(lines):
        for value in VALUES[:-4]:
            changed: Any = json.loads(json.dumps(lines))
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = json.loads(json.dumps(value))
            # A line of an unknown type without a message, or a message with another text or without content, is another
            # session.
            is_text = isinstance(value, str) and "content" in place[-2:]
            is_other = len(place) == 1 or is_text or (place[-1] == "content" and value == [])
            if is_other or dialect_of(changed) not in SESSIONS:
                continue
            try:
                now, is_named = _made(changed)
            except ValueError:
                continue
            assert is_named or len(now) == len(made), (place, value)
