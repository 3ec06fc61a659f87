"""The law of conditions: a criterion that does not apply scores as if it were not assessed under `skip`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Rubric
from rubric_integrations.scoring import score_many, score_range, score_values
from rubric_integrations.scoring.formula import coverage
from tests.scoring.test_formula_groups import forests, is_close, words_of

POLICIES: st.SearchStrategy[Any] = st.sampled_from(["skip", "zero", "partial", "fail"]) | st.floats(0, 1)
VALUES = st.sampled_from([1.0, 0.0, None])


def with_conditions(rubric: Rubric) -> Rubric:
    criteria = [criterion.model_copy(update={"applies_when": "w"}) for criterion in rubric.criteria]
    return Rubric(criteria, tree=rubric.tree)


@given(forests(), POLICIES, st.booleans(), st.data())
def test_criterion_that_does_not_apply_is_left_out_whatever_the_policy(
    forest: list[dict[str, Any]], policy: Any, normalize: bool, data: st.DataObject
) -> None:
    rubric = with_conditions(Rubric.from_dict(forest))
    left_out = data.draw(st.sets(st.integers(0, len(rubric) - 1)))
    values = [data.draw(VALUES) for _ in range(len(rubric))]
    score = score_values(rubric, values, policy, left_out)
    # Its value, and the policy for abstentions, make no difference.
    others = [data.draw(VALUES) if i in left_out else value for i, value in enumerate(values)]
    assert score_values(rubric, others, policy, left_out) == score
    skipped = [None if i in left_out else value for i, value in enumerate(values)]
    if all(i in left_out for i, value in enumerate(skipped) if value is None):
        assert score_values(rubric, skipped) == score
    # Every way to the score gives the same.
    words = ["NOT_APPLICABLE" if i in left_out else word for i, word in enumerate(words_of(values))]
    expected = score.reported(normalize=normalize)
    assert is_close(rubric.compute_score(words, normalize, policy), expected)
    settings_of_scores: Any = {"normalize": normalize, "cannot_assess": policy}
    numbers = [math.nan if value is None else value for value in values]
    mask = [[i in left_out for i in range(len(rubric))]]
    for array in (
        score_many(rubric, [words], **settings_of_scores),
        score_many(rubric, [numbers], not_applicable=mask, **settings_of_scores),
    ):
        assert is_close(None if math.isnan(array[0]) else float(array[0]), expected)


@given(forests(), st.data())
def test_coverage_counts_only_criteria_that_apply(forest: list[dict[str, Any]], data: st.DataObject) -> None:
    rubric = Rubric.from_dict(forest)
    left_out = data.draw(st.sets(st.integers(0, len(rubric) - 1)))
    assessed = [data.draw(st.booleans()) and i not in left_out for i in range(len(rubric))]
    weights = {i: abs(c.weight) for i, c in enumerate(rubric.criteria) if i not in left_out}
    total = math.fsum(weights.values())
    expected = math.fsum(weight for i, weight in weights.items() if assessed[i]) / total if total else 1.0
    assert math.isclose(coverage(rubric, assessed, left_out), expected, abs_tol=1e-9)


@given(forests(2), st.data(), POLICIES)
def test_score_range_includes_that_open_criteria_do_not_apply(
    forest: list[dict[str, Any]], data: st.DataObject, policy: Any
) -> None:
    rubric = with_conditions(Rubric.from_dict(forest))
    count = len(rubric)
    assume(count <= 5)
    applies = {i: data.draw(st.booleans()) for i in range(count) if data.draw(st.booleans())}
    known = {
        i: data.draw(VALUES) if holds else None for i, holds in applies.items() if not holds or data.draw(st.booleans())
    }
    outcomes: list[list[float | str | None]] = []
    for i in range(count):
        if i in known:
            outcomes.append([known[i] if applies[i] else "n/a"])
        else:
            outcomes.append([1.0, 0.0, None, *(() if i in applies else ("n/a",))])
    possible: list[float | None] = []
    for combination in itertools.product(*outcomes):
        left_out = {i for i, outcome in enumerate(combination) if outcome == "n/a"}
        values: list[Any] = [None if i in left_out else outcome for i, outcome in enumerate(combination)]
        possible.append(score_values(rubric, values, policy, left_out).normalized)
    scores = [score for score in possible if score is not None]
    low, high = score_range(rubric, known, policy, applies)
    assert is_close(low, min(scores) if len(scores) == len(possible) else None)
    assert is_close(high, max(scores, default=0.0))


def test_not_applicable_without_a_condition_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="'NOT_APPLICABLE' is no verdict"):
        Rubric([Criterion(requirement="a")]).compute_score(["NOT_APPLICABLE"])
    with pytest.raises(ValueError, match="'NOT_APPLICABLE' is no verdict"):
        score_many(Rubric([Criterion(requirement="a")]), [["NOT_APPLICABLE"]])
    with pytest.raises(ValueError, match=r"`not_applicable` has the shape \(1, 2\), and `verdicts` \(1, 1\)"):
        score_many(Rubric([Criterion(requirement="a")]), [["MET"]], not_applicable=[[True, False]])
