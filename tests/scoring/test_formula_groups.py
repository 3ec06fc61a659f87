"""Groups of criteria: recursive scores, abstentions at each level, and the same score by every function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.rubric import Node
from rubric_integrations.scoring import (
    CannotAssess,
    Judgment,
    WeightedValue,
    score_many,
    score_parts,
    score_range,
    score_values,
)
from rubric_integrations.scoring.judgment import JudgeAnswers
from tests.scoring.rubrics import report_of

# A (weight 3) has the children a1 and a2; B has weight 1.
EXAMPLE = Rubric.from_dict(
    [
        {"requirement": "A", "weight": 3, "criteria": [{"requirement": "a1"}, {"requirement": "a2"}]},
        {"requirement": "B", "weight": 1},
    ]
)
VALUES = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
POLICIES: st.SearchStrategy[Any] = st.sampled_from(["skip", "zero", "partial", "fail"]) | st.floats(0, 1)


@pytest.mark.parametrize(
    ("verdicts", "policy", "score", "raw"),
    [
        ("MCU", "skip", 0.75, 3.0),
        ("MCU", "zero", 0.375, 1.5),
        ("MCU", "partial", 0.5625, 2.25),
        ("MCU", "fail", 0.375, 1.5),
        ("MUU", "skip", 0.375, 1.5),
        ("CCM", "skip", 1.0, 1.0),
        ("CCU", "skip", 0.0, 0.0),
        ("MUC", "skip", 0.5, 1.5),
        ("CCC", "skip", None, None),
    ],
)
def test_abstention_in_a_group_leaves_its_weight_to_its_siblings(
    verdicts: str, policy: CannotAssess, score: float | None, raw: float | None
) -> None:
    words = [{"M": "MET", "U": "UNMET", "C": "CANNOT_ASSESS"}[letter] for letter in verdicts]
    assert EXAMPLE.compute_score(words, cannot_assess=policy) == score
    assert EXAMPLE.compute_score(words, normalize=False, cannot_assess=policy) == raw
    report = report_of(EXAMPLE, *words, cannot_assess=policy)
    assert (report.score, report.raw_score, report.llm_raw_score) == (score, raw, raw)
    assert report_of(EXAMPLE, *words, cannot_assess=policy, normalize=False).score == raw
    [vectorized] = score_many(EXAMPLE, [words], cannot_assess=policy)
    assert math.isnan(vectorized) if score is None else vectorized == score
    assert score_range(EXAMPLE, dict(enumerate(VALUES[word] for word in words)), policy) == (score, score or 0.0)


def test_coverage_of_a_tree_counts_the_effective_weights_of_its_leaves() -> None:
    assert report_of(EXAMPLE, "MET", "CANNOT_ASSESS", "UNMET").coverage == 2.5 / 4


def test_group_of_penalties_shares_its_weight_too() -> None:
    penalty = {"requirement": "P", "weight": -2, "criteria": [{"requirement": "p1"}, {"requirement": "p2"}]}
    rubric = Rubric.from_dict([{"requirement": "a", "weight": 4}, penalty])
    assert rubric.compute_score(["MET", "MET", "CANNOT_ASSESS"]) == 0.5
    assert rubric.compute_score(["MET", "MET", "CANNOT_ASSESS"], cannot_assess="fail") == 0.5
    assert rubric.compute_score(["MET", "MET", "CANNOT_ASSESS"], cannot_assess="zero") == 0.75
    assert rubric.compute_score(["MET", "CANNOT_ASSESS", "CANNOT_ASSESS"]) == 1.0
    assert Rubric.from_dict([penalty]).compute_score(["MET", "CANNOT_ASSESS"]) == 0.0


def test_scores_of_the_judges_of_a_panel_are_recursive() -> None:
    def answers(judge: str, *verdicts: str) -> JudgeAnswers:
        outcomes = {i: Judgment(verdict=v, value=VALUES[v], reason="r") for i, v in enumerate(verdicts)}
        return JudgeAnswers(outcomes, judge)

    grader = PerCriterionGrader(judges=["offline", "offline"])
    panel = [answers("x", "MET", "CANNOT_ASSESS", "UNMET"), answers("y", "CANNOT_ASSESS", "CANNOT_ASSESS", "MET")]
    report = grader.aggregate(EXAMPLE, Submission(response="text"), panel)
    assert report.judge_scores == {"x": 0.75, "y": 1.0}


def test_tree_whose_weights_are_not_those_of_its_criteria_is_refused() -> None:
    leaf = Node(requirement="a", weight=1, leaf=0)
    with pytest.raises(ValueError, match=r"effective weights .* `criteria\[0\]` has 2, its place in the tree gives 5"):
        Rubric([Criterion(requirement="a", weight=2)], tree=[Node(requirement="g", weight=5, children=(leaf,))])


# Properties of every tree.

WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0])


def entries(weight: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw one criterion or one group of up to three levels."""
    child_weights = st.one_of(WEIGHTS, st.just(0.0))

    def group(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        parts = st.lists(children, min_size=1, max_size=3).filter(lambda items: any(item["weight"] for item in items))
        return st.fixed_dictionaries({"requirement": st.just("g"), "weight": child_weights, "criteria": parts})

    leaf: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {"requirement": st.just("r"), "weight": child_weights}
    )
    nested = st.recursive(leaf, group, max_leaves=5)
    return st.tuples(nested, weight).map(lambda pair: {**pair[0], "weight": pair[1]})


def forests(max_size: int = 3) -> st.SearchStrategy[list[dict[str, Any]]]:
    top = entries(st.one_of(WEIGHTS, WEIGHTS.map(lambda weight: -weight)))
    return st.lists(top, min_size=1, max_size=max_size)


class Case(NamedTuple):
    rubric: Rubric
    values: list[float | None]


@st.composite
def cases(draw: st.DrawFn, values: Sequence[float | None] = (1.0, 0.0, None)) -> Case:
    rubric = Rubric.from_dict(draw(forests()))
    return Case(rubric, [draw(st.sampled_from(values)) for _ in rubric.criteria])


def words_of(values: Sequence[float | None]) -> list[str]:
    names = {value: word for word, value in VALUES.items()}
    return [names[value] for value in values]


def flat_score(rubric: Rubric, values: Sequence[float | None], policy: CannotAssess) -> Any:
    parts = [WeightedValue(c.weight, value, c.worst_value) for c, value in zip(rubric.criteria, values, strict=True)]
    return score_parts(parts, policy)


def is_close(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else math.isclose(one, other, abs_tol=1e-9)


@given(cases(), POLICIES)
def test_score_of_a_tree_equals_the_flat_sum_where_no_leaf_is_left_out(case: Case, policy: Any) -> None:
    assume(policy != "skip" or None not in case.values)
    score, flat = score_values(case.rubric, case.values, policy), flat_score(*case, policy)
    assert is_close(score.normalized, flat.normalized)
    assert is_close(score.raw, flat.raw)


@given(forests(), POLICIES, st.data())
def test_score_does_not_change_if_a_leaf_becomes_a_group_of_one(
    forest: list[dict[str, Any]], policy: Any, data: st.DataObject
) -> None:
    rubric = Rubric.from_dict(forest)
    values = [data.draw(st.sampled_from([1.0, 0.0, None])) for _ in rubric.criteria]
    place = data.draw(st.integers(0, len(rubric) - 1))
    count = itertools.count()

    def split(entry: dict[str, Any]) -> dict[str, Any]:
        if "criteria" in entry:
            return {**entry, "criteria": [split(child) for child in entry["criteria"]]}
        return {**entry, "criteria": [{"requirement": "r", "weight": 4}]} if next(count) == place else entry

    score = score_values(rubric, values, policy)
    again = score_values(Rubric.from_dict([split(entry) for entry in forest]), values, policy)
    assert is_close(score.normalized, again.normalized)
    assert is_close(score.raw, again.raw)


@given(forests())
def test_group_whose_leaves_all_abstain_is_left_out(forest: list[dict[str, Any]]) -> None:
    extra = {"requirement": "g", "weight": 2, "criteria": [{"requirement": "x"}, {"requirement": "y"}]}
    rubric = Rubric.from_dict(forest)
    assume(rubric.positive_weight)
    values = [1.0] * len(rubric)
    with_group = Rubric.from_dict([*forest, extra])
    score, again = score_values(rubric, values), score_values(with_group, [*values, None, None])
    assert is_close(score.normalized, again.normalized)
    assert is_close(score.raw, again.raw)


@given(st.lists(cases(), min_size=1, max_size=1), POLICIES, st.booleans())
def test_score_many_of_a_tree_equals_compute_score(one: list[Case], policy: Any, normalize: bool) -> None:
    [(rubric, values)] = one
    words = words_of(values)
    expected = rubric.compute_score(words, normalize, policy)
    rows = [words, ["MET"] * len(rubric)]
    [score, _] = score_many(rubric, rows, normalize=normalize, cannot_assess=policy)
    assert is_close(None if math.isnan(score) else float(score), expected)
    report = report_of(rubric, *words, cannot_assess=policy, normalize=normalize)
    assert is_close(report.score, expected)


def completions(rubric: Rubric, known: dict[int, float | None]) -> Iterator[list[float | None]]:
    places = [[known[index]] if index in known else [1.0, 0.0, None] for index in range(len(rubric))]
    return (list(values) for values in itertools.product(*places))


@given(forests(), st.data(), POLICIES)
def test_score_range_of_a_tree_equals_the_extremes_of_all_possible_answers(
    forest: list[dict[str, Any]], data: st.DataObject, policy: Any
) -> None:
    rubric = Rubric.from_dict(forest)
    known = {
        index: data.draw(st.sampled_from([1.0, 0.0, 0.25, None]))
        for index in range(len(rubric))
        if data.draw(st.booleans()) or len(rubric) > 7 + index
    }
    assume(len(rubric) - len(known) <= 6)
    possible = [score_values(rubric, values, policy).normalized for values in completions(rubric, known)]
    scores = [score for score in possible if score is not None]
    low, high = score_range(rubric, known, policy)
    assert is_close(low, min(scores) if len(scores) == len(possible) else None)
    assert is_close(high, max(scores, default=0.0))
