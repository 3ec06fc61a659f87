"""Mutated documents and texts: the readers raise nothing but a `RubricError`. `fuzz_documents.py` runs longer."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import lint, read_document, reading_losses, write_document
from rubric_integrations.formats.registry import FORMATS
from tests.formats.mutation import SEEDS, mutate
from tests.formats.test_adk import config, eval_set, of_case
from tests.formats.test_damaged_files import places_in
from tests.formats.test_datasets import ITEMS, PROFESSIONAL
from tests.formats.test_rewardkit import as_data
from tests.formats.test_verifiers import CRITERIA

# A file of assertions that code decides warns of each.
pytestmark = [
    pytest.mark.malformed,
    pytest.mark.filterwarnings("ignore:.*not graded, or not as there:UserWarning"),
]


@settings(max_examples=500, deadline=1000)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32), st.integers(1, 6))
def test_mutated_document_is_read_or_raises_a_rubric_error(seed: Any, chance: int, times: int) -> None:
    document = mutate(seed, random.Random(chance), times)
    try:
        rubric = read_document(document, "fuzz")
    except RubricError:
        return
    for to in FORMATS:
        try:
            write_document(rubric, to)
        except RubricError:
            continue
    lint(rubric)


@settings(max_examples=200, deadline=1000)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
def test_mutated_text_is_read_or_raises_a_rubric_error(seed: Any, chance: int) -> None:
    source = random.Random(chance)
    text = list(yaml.safe_dump(seed) if chance % 2 else json.dumps(seed))
    for _ in range(source.randrange(1, 8)):
        text[source.randrange(len(text))] = source.choice("{}[]:,-&*!|>'\"\n\t\x00é\ud800#%@")
    for read in (Rubric.from_yaml, Rubric.from_json):
        try:
            read("".join(text))
        except RubricError:
            continue


DOCUMENTS: list[Any] = [
    as_data(), {"criteria": CRITERIA}, config(), eval_set([of_case("a")], [of_case("b")]), PROFESSIONAL, ITEMS,
    {"task_id": "t", "prompt": "p", "rubric_json": ITEMS},
]  # fmt: skip


def variants(document: Any) -> list[tuple[str, Any]]:
    """Return copies of a document: with another name of a key, and with a value of another type. And the key of each.

    The content of `annotations` is free.
    """
    changed: list[tuple[str, Any]] = []
    for index, (holder, key) in enumerate(places_in(document)):
        for renames in (True, False):
            copy = json.loads(json.dumps(document))
            place, _ = list(places_in(copy))[index]
            if not isinstance(holder, dict) or "since" in place or (key == "annotations" and not renames):
                continue
            value = place.pop(key) if renames else {"zzq": ["zzq"]}
            place[f"{key}x" if renames else key] = value
            changed.append((str(key), copy))
    return changed


@pytest.mark.parametrize("document", DOCUMENTS)
def test_renamed_key_and_value_of_another_type_are_refused_listed_or_without_effect(document: Any) -> None:
    expected = read_document(document, "x")
    for key, variant in variants(document):
        try:
            rubric = read_document(variant, "x")
        except RubricError:
            continue
        assert rubric == expected or any(key in loss for loss in reading_losses(variant)), (key, variant)
