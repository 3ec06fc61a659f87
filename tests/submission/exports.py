"""Exports of tools, their mutations, and the errors of their files."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from rubric_integrations.submission import ResponsesError, read_responses

Fields = dict[str, Any]
ASK: Fields = {"role": "user", "content": "6 x 7?"}
REPLY: Fields = {
    "object": "chat.completion", "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It is 42."}}],
}  # fmt: skip


def written(folder: Path, suffix: str, data: Any, name: str = "export") -> Path:
    path = folder / f"{name}{suffix}"
    is_lines = suffix == ".jsonl" and isinstance(data, list)
    path.write_text("\n".join(map(json.dumps, data)) if is_lines else json.dumps(data), encoding="utf-8")
    return path


def problem_of(path: Path, **columns: str) -> str:
    """Return the error of a file, of the file or of all its rows. Fails if a row can be graded."""
    try:
        rows = list(read_responses(path, **columns))  # type: ignore[arg-type]
    except ResponsesError as error:
        return str(error)
    assert all(row.submission is None for row in rows), rows
    return " ".join(str(row.error) for row in rows)


def texts_of(value: Any) -> set[str]:
    texts, waiting = set[str](), [value]
    while waiting:
        item = waiting.pop()
        texts |= {item} if isinstance(item, str) else set() if isinstance(item, dict | list) else {json.dumps(item)}
        waiting += list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
    return texts


def mutated(value: Any, rng: random.Random) -> Any:
    """Return an export with one value removed, replaced or swapped, at any depth."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            keys = list(item) if isinstance(item, dict) else list(range(len(item)))
            places += [(item, key) for key in keys]
            waiting += [item[key] for key in keys]
    holder, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder[key] = rng.choice([None, 42, True, "", [], {}, "x", [{}], {"role": "user"}])
        case 2:
            other, place = rng.choice(places)
            holder[key] = copy.deepcopy(other[place]) if place in other or isinstance(other, list) else None
        case _:
            holder[key] = json.dumps(holder[key])
    return value


def check_mutations(folder: Path, suffix: str, data: Any, seed: str, count: int = 40) -> None:
    """Check that rows of mutated exports have an error, or one of the values of the export as their response."""
    rng = random.Random(seed)
    for _ in range(count):
        export = mutated(data, rng)
        path = written(folder, suffix if isinstance(export, dict | list) else ".json", export)
        try:
            rows = list(read_responses(path))
        except ResponsesError:
            continue
        for row in rows:
            assert row.error is not None or (row.submission is not None and row.submission.response in texts_of(export))
