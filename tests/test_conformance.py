"""The answers of real peers, recorded: ours must agree wherever `design/scoring.md` keeps their behaviour."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from tests.conftest import SHARED

CASES = SHARED / "conformance" / "cases.json"
CATEGORIES = ("mixed_", "all_negative", "edge_weights", "ca_")
INEXPRESSIBLE = {
    "autorubric-1.6.1/ca_edges/009": "a rubric whose weights are all zero is refused when it is loaded",
}


def cases(stance: str) -> list[Any]:
    if not CASES.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="../shared/conformance is not here"))]
    recorded = json.loads(CASES.read_text(encoding="utf-8"))
    chosen = [c for c in recorded if c["stance"] == stance and c["category"].startswith(CATEGORIES)]
    return [pytest.param(case, id=case["id"]) for case in chosen]


@pytest.mark.parametrize("case", cases("match"))
def test_binary_scoring_agrees(case: dict[str, Any], record_property: Any) -> None:
    record_property("conformance", case["id"])
    options = case["options"]
    if case["id"] in INEXPRESSIBLE:
        with pytest.raises(RubricError, match="zero weights"):
            Rubric.from_dict(case["criteria"])
        return
    rubric = Rubric.from_dict(case["criteria"])
    policy, credit = options.get("cannot_assess", "skip"), options.get("partial_credit", 0.5)
    score = rubric.compute_score(case["verdicts"], options["normalize"], policy, credit)
    raw = rubric.compute_score(case["verdicts"], False, policy, credit)
    for name, value in (("score", score), ("raw_score", raw)):
        expected = case["expected"][name]
        assert value == (None if expected is None else pytest.approx(expected, abs=1e-9)), name


@pytest.mark.parametrize("case", cases("diverge") + cases("discuss"))
def test_where_a_peer_is_wrong_the_design_decides(case: dict[str, Any]) -> None:
    if not any(criterion["weight"] for criterion in case["criteria"]):
        with pytest.raises(RubricError, match="zero weights"):
            Rubric.from_dict(case["criteria"])
        return
    rubric = Rubric.from_dict(case["criteria"])
    options = case["options"]
    if not 0 <= options["partial_credit"] <= 1:
        with pytest.raises(ValueError, match="partial_credit"):
            rubric.compute_score(case["verdicts"], True, "partial", options["partial_credit"])
        return
    # What is left: every positive criterion abstained under `skip`, where the peer moves to the other formula.
    assert rubric.compute_score(case["verdicts"], True, options["cannot_assess"]) is None
