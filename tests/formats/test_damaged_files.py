"""Damaged files of every rubric format: each gives faults of one line, or the reading of what the file says."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import load_eval_cases
from tests.formats.samples import SAMPLES

pytestmark = pytest.mark.malformed

MARKER = {"zzq": ["zzq"]}
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
TAGS = [
    "!!python/object/apply:os.system ['exit 1']",
    "!!python/name:os.system",
    "!!binary aGk=",
    "!x y",
    "!!set {a, b}",
]


def rubrics_of(path: Path) -> list[Rubric]:
    """Return the rubric or the rubrics of a file; none if it is refused, whose message is checked."""
    rubrics: list[Rubric] = []
    refused: list[RubricError] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for read in (lambda: [Rubric.from_file(path)], lambda: [case.rubric for case in load_eval_cases(path)]):
            try:
                rubrics += read()
            except RubricError as error:
                refused.append(error)
    for error in refused:
        assert len(str(error).splitlines()) == len(error.faults)
        assert all(len(str(fault)) < 1500 for fault in error.faults)
        str(error).encode()
    for warning in caught:
        str(warning.message).encode()
    return rubrics


def places_in(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list and object in data with each of its keys."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield data, key
        yield from places_in(value)


def drawn(chance: random.Random, places: range, times: int) -> list[int]:
    """Draw places; under the profile for `make test`, a third of them."""
    times = times if settings().max_examples >= 100 else -(-times // 3)
    return sorted(chance.sample(places, min(times, len(places))))


def damaged(document: Any, value: Any, chance: random.Random, times: int) -> Iterator[Any]:
    """Yield copies of a document in each of which the value replaces another."""
    for index in drawn(chance, range(len(list(places_in(document)))), times):
        copy = json.loads(json.dumps(document))
        holder, key = list(places_in(copy))[index]
        holder[key] = value
        yield copy


@pytest.mark.parametrize(("name", "document"), SAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(SAMPLES)])
def test_damaged_file_is_refused_or_read_as_it_stands(name: str, document: Any, tmp_path: Path) -> None:
    document, chance = json.loads(json.dumps(document)), random.Random(name)
    as_json, as_yaml = tmp_path / "rubric.json", tmp_path / "rubric.yaml"
    text = json.dumps(document)
    # Cut: a prefix of JSON is not JSON. A prefix of YAML may be YAML, which another parser must read alike.
    for end in drawn(chance, range(1, len(text)), 20):
        as_json.write_text(text[:end])
        assert rubrics_of(as_json) == []
    plain = yaml.safe_dump(document)
    for end in drawn(chance, range(1, len(plain)), 10):
        as_yaml.write_text(plain[:end])
        if rubrics := rubrics_of(as_yaml):
            as_json.write_text(json.dumps(yaml.load(plain[:end], Loader=yaml.SafeLoader)))
            assert rubrics == rubrics_of(as_json)
    # A doubled key, nesting, and a text that is longer than a file may be.
    first = next(iter(document[0] if isinstance(document, list) else document))
    as_json.write_text(text.replace(f'"{first}":', f'"{first}": 1, "{first}":', 1))
    assert rubrics_of(as_json) == []
    for value in ("[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, '"' + "x" * 10_000_000 + '"'):
        [copy] = damaged(document, "@@", chance, 1)
        as_json.write_text(json.dumps(copy).replace('"@@"', value))
        assert rubrics_of(as_json) == []
    # A repetition that explodes, and tags that name code or have no text.
    for tag in (*TAGS, "*b"):
        [copy] = damaged(document, "@@", chance, 1)
        body = yaml.safe_dump(copy, default_flow_style=True).replace("'@@'", tag)
        as_yaml.write_text(body if tag != "*b" else f"b: {{\n{BOMB}}}\nrest: {body}")
        rubrics = rubrics_of(as_yaml)
        assert rubrics == [] or tag in ("!!binary aGk=", "!!set {a, b}"), tag
        assert all("aGk" not in rubric.to_json() and "b'hi'" not in rubric.to_json() for rubric in rubrics)
    # Another type must not become a text of a criterion.
    for copy in damaged(document, MARKER, chance, 25):
        as_json.write_text(json.dumps(copy))
        for rubric in rubrics_of(as_json):
            assert all("zzq" not in criterion.full_requirement for criterion in rubric.criteria), copy
    for value in (7, None, [], "x", {}):
        for copy in damaged(document, value, chance, 10):
            as_json.write_text(json.dumps(copy))
            rubrics_of(as_json)
    # A NUL and half an emoji are kept, or refused.
    for odd in ("a\x00b", "a\ud83db"):
        for copy in damaged(document, odd, chance, 10):
            as_json.write_text(json.dumps(copy))
            rubrics_of(as_json)
    as_json.write_bytes(text.encode().replace(b" ", b"\x00", 1))
    assert rubrics_of(as_json) == []
    as_json.write_bytes(b"\xff" + text.encode())
    assert rubrics_of(as_json) == []
