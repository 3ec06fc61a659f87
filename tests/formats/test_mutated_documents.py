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
from rubric_integrations.formats import lint, read_document, write_document
from rubric_integrations.formats.registry import FORMATS
from tests.formats.mutation import SEEDS, mutate

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
