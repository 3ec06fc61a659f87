"""Published rubrics: a corpus of 1,541 rubrics, and the graded trees of PaperBench."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import read_document
from rubric_integrations.rubric import node_values
from tests.conftest import SHARED

needs_data = pytest.mark.skipif(not (SHARED / "data").exists(), reason="../shared/data does not exist")


def as_native(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row of the corpus, which has a shape of its own, to the native format."""
    criteria: list[dict[str, Any]] = []
    for published in row["criteria"]:
        criterion = {key: published[key] for key in ("requirement", "weight")}
        if published["type"] == "numeric":
            criterion["scale"] = {"min": published["min"], "max": published["max"]}
        if "options" in published:
            values = [option["value"] for option in published["options"] if option["value"] is not None]
            low, high = (min(values), max(values)) if max(values) > 1 else (0, 1)
            criterion["scale_type"] = published["type"]
            criterion["options"] = [
                {"label": o["label"], "value": (o["value"] - low) / (high - low), "description": o.get("text")}
                if o["value"] is not None
                else {"label": o["label"], "na": True}
                for o in published["options"]
            ]
        criteria.append(criterion)
    return {"name": row["id"], "criteria": criteria}


def as_native_node(node: dict[str, Any]) -> dict[str, Any]:
    """Convert a node of a PaperBench tree to the native format."""
    own = {"requirement": node["requirement"], "weight": node["weight"]}
    return {**own, "criteria": [as_native_node(child) for child in node["sub_tasks"]]} if node.get("sub_tasks") else own


@needs_data
def test_every_rubric_of_the_corpus_is_read_or_refused_with_a_reason(record_property: Any) -> None:
    refused: Counter[str] = Counter()
    loaded = 0
    for line in (SHARED / "data/rubric_corpus/rubrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        try:
            rubric = read_document(as_native(row), row["id"])
        except RubricError as error:
            refused[f"{row['id']}: {error.faults[0].message}"] += 1
            continue
        loaded += 1
        assert len(rubric) == len(row["criteria"])
        assert Rubric.from_json(rubric.to_json()) == rubric
    for line in (SHARED / "data/rubric_corpus/paperbench_trees.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rubric = read_document([as_native_node(row["tree"])], row["id"])
        assert rubric.tree is not None
        assert math.isclose(rubric.positive_weight, row["tree"]["weight"])
        loaded += 1
    assert loaded + refused.total() == 1541 + 23
    assert [reason for reason in refused if "no criteria" not in reason] == []
    record_property("shown", f"rubric corpus: {loaded} load, {refused.total()} refused: {'; '.join(refused)}")


@needs_data
def test_labels_of_the_leaves_give_the_published_score_of_every_paperbench_node(record_property: Any) -> None:
    trees = json.loads((SHARED / "data/paperbench/graded_trees.json").read_text(encoding="utf-8"))
    expected = json.loads((SHARED / "data/paperbench/expected.json").read_text(encoding="utf-8"))
    inner = roots = 0

    def labels(node: dict[str, Any]) -> list[float]:
        children = node.get("sub_tasks")
        return [label for child in children for label in labels(child)] if children else [node["score"]]

    def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [node, *(descendant for child in node.get("sub_tasks") or [] for descendant in nodes(child))]

    for name, tree in trees.items():
        rubric = read_document([as_native_node(tree)], name)
        values = labels(tree)
        for published, node in zip(nodes(tree), node_values(rubric.tree or (), values), strict=True):
            assert node.value == pytest.approx(published["score"], abs=1e-6)
            inner += bool(published.get("sub_tasks"))
        score = rubric.compute_score(["MET" if value else "UNMET" for value in values])
        assert score == pytest.approx(expected[name]["root"], abs=1e-6)
        roots += 1
    assert (inner, roots) == (838, 5)
    record_property("shown", f"PaperBench: {inner} inner nodes and {roots} roots reproduced from the leaf labels")
