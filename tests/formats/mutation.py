"""Random mutations of valid rubric documents."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import yaml

from tests.formats.samples import SAMPLES
from tests.formats.test_checklist import BANDED
from tests.formats.test_datasets import GRADED
from tests.rubric.test_rubric_tree import TREE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for folder in ("agentv", "openrubricrl") for path in (ROOT / "examples" / folder).iterdir())
SEEDS = [json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")))) for path in EXAMPLES] + [
    {"rubrics": GRADED}, {"checklist": ["Greets", BANDED]}, *(document for _, document in SAMPLES),
    yaml.safe_load(TREE), yaml.safe_load((ROOT / "examples/quarterly_margin/rubric.yaml").read_text(encoding="utf-8")),
]  # fmt: skip
ODD_VALUES: list[Any] = [
    None, True, 0, -1, 1e308, math.nan, math.inf, "", " ", "NaN", "\x00", "\ud800", [], {}, [[]], {"": None}, "x" * 300,
    ["a", 1], {"criteria": []}, {"requirement": "r"}, 10**400, b"bytes", ("t",), {1: 2}, {"weight": True},
]  # fmt: skip
KEYS = [
    "criteria", "requirement", "weight", "options", "scale", "check", "levels", "score_ranges", "examples", "name",
    "tree", "rubrics", "evalcases", "execution", "hybrid_metrics", "min", "max", "value", "min_score", "regex", "self",
    "tests", "assert", "points", "criterion", "description", "title", "tags", "checklist", "operator", "type", "vars",
    "score_rubric", "score1_description", "requirements", "sub_tasks", "threshold", "negate", "scenarios",
    "config", "$ref", "Scoring", "defaultTest", "conversation_input", "testing_criteria", "graders", "range", "labels",
    "calculate_output", "operation", "reference", "input", "evals", "prompt", "assertions", "markdown",
    "config", "$ref", "Scoring", "defaultTest", "conversation_input", "judge", "scoring", "aggregation", "points",
    "annotations", "text", "choices", "rubricContent", "eval_cases", "rubric_items", "rubric_json", "score", "tags",
]  # fmt: skip


def mutate(document: Any, chance: random.Random, times: int) -> Any:
    """Return a copy of a document in which some values are replaced, moved, repeated or removed."""
    document = json.loads(json.dumps(document))
    for _ in range(times):
        places: list[tuple[Any, Any]] = []

        def walk(data: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key, value in (
                data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
            ):
                places.append((data, key))
                walk(value)

        walk(document)
        if not places:
            break
        holder, key = chance.choice(places)
        other, other_key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                holder[key] = copy.deepcopy(chance.choice(ODD_VALUES))
            case 1:
                del holder[key]
                continue
            case 2 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = copy.deepcopy(chance.choice(ODD_VALUES))
            case 3 if isinstance(holder, list):
                holder.insert(0, copy.deepcopy(chance.choice(ODD_VALUES)))
            case _:
                if other_key in (other if isinstance(other, dict) else range(len(other))):
                    holder[key] = json.loads(json.dumps(other[other_key], default=str))
    return document
