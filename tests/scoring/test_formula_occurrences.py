"""`per: occurrence`: each occurrence counts the weight, up to the cap, like a scale with the weight times the cap."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, RubricError, Scale, Submission
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import Question
from rubric_integrations.judges.prompts.render import criterion_inputs, describe_rubric
from rubric_integrations.scoring import score_many
from tests.fakes import FakeJudge

COUNTS = st.lists(
    st.tuples(st.integers(-20, 20).filter(bool), st.integers(1, 8), st.integers(0, 12)), min_size=1, max_size=6
)


@given(COUNTS, st.sampled_from(["skip", "zero", "partial", "fail"]), st.booleans(), st.data())
def test_occurrences_any_rubric_scores_as_scales_with_the_weight_times_the_cap(
    counts: list[tuple[int, int, int]], policy: Any, normalize: bool, data: st.DataObject
) -> None:
    counted = Rubric([Criterion(requirement="r", weight=w, per="occurrence", cap=cap) for w, cap, _ in counts])
    scaled = Rubric([Criterion(requirement="r", weight=w * cap, scale=Scale(max=cap)) for w, cap, _ in counts])
    abstains = [data.draw(st.booleans()) for _ in counts]
    answers = [("CANNOT_ASSESS" if a else str(n), "CANNOT_ASSESS" if a else str(min(n, cap)))
               for a, (_, cap, n) in zip(abstains, counts, strict=True)]  # fmt: skip
    score = counted.compute_score([answer for answer, _ in answers], normalize, policy)
    assert score == scaled.compute_score([answer for _, answer in answers], normalize, policy)
    many = score_many(counted, np.array([[answer for answer, _ in answers]]), normalize=normalize, cannot_assess=policy)
    assert many[0] == pytest.approx(float("nan") if score is None else score, nan_ok=True)
    if not any(abstains):
        raw = counted.compute_score([answer for answer, _ in answers], normalize=False)
        assert raw == pytest.approx(sum(w * min(n, cap) for w, cap, n in counts))
    assert Rubric.from_yaml(counted.to_yaml()) == Rubric.from_dict(counted.to_dict()) == counted


ERRORS = Criterion(name="errors", requirement="Has a spelling error", weight=-2, per="occurrence", cap=5)
RUBRIC = Rubric([Criterion(requirement="Right", weight=20), ERRORS])


@pytest.mark.parametrize(("count", "score", "verdict"), [(0, 1.0, "0"), (3, 0.7, "3"), (5, 0.5, "5"), (9, 0.5, "9")])
def test_occurrences_of_a_penalty_cost_the_weight_each_up_to_the_cap(count: int, score: float, verdict: str) -> None:
    judge = FakeJudge({"Right": "MET", "Has a spelling error": str(count)})
    report = RUBRIC.grade_sync("text", PerCriterionGrader(judge))
    assert (report.score, report.criteria[1].verdict, report.criteria[1].weight) == (score, verdict, -10.0)


@pytest.mark.parametrize("answer", ["-1", "1.5", "7.5", "MET", "many"])
def test_occurrences_other_answers_than_whole_numbers_are_refused(answer: str) -> None:
    with pytest.raises(ValueError, match="errors"):
        RUBRIC.compute_score(["MET", answer])


@pytest.mark.parametrize("grader_class", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_occurrences_the_prompt_asks_for_their_number(grader_class: Any) -> None:
    prompts: list[str] = []

    async def model(_system: str, user: str) -> str:
        prompts.append(user)
        if "judgments" in user:
            return json.dumps({"judgments": [{"id": 1, "explanation": "so", "answer": "2"}]})
        return json.dumps({"explanation": "so", "score": 2})

    report = Rubric([ERRORS]).grade_sync("Teh cat satt.", grader_class(model))
    assert report.score == pytest.approx(0.6)
    assert "the number of occurrences" in prompts[0]
    assert "from 0 to 5, and 5 if there are more" in prompts[0]
    assert describe_rubric(Rubric([ERRORS])).startswith("(-2 for each occurrence, of which at most 5 count) ")
    assert "occurrences" not in str(criterion_inputs(Question(Submission(response="-"), RUBRIC.criteria[0])))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"per": "occurrence"}, "has no `cap`"),
        ({"cap": 3}, "has no `per`"),
        ({"per": "occurrence", "cap": 0}, "cap"),
        ({"per": "occurrence", "cap": 3, "scale": {"max": 4}}, "has `per` and `scale`"),
        ({"per": "occurrence", "cap": 3, "check": {"contains": "a"}}, "has `check` and `per`"),
        ({"per": "occurrence", "cap": 100, "weight": 1e14}, "exceeds 1e"),
    ],
)
def test_occurrences_with_faulty_fields_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RubricError, match=words):
        Rubric.from_dict([{"requirement": "r", **fields}])


def test_occurrences_beside_a_group_are_read_and_in_a_group_refused() -> None:
    entry = {"requirement": "e", "weight": -2.0, "per": "occurrence", "cap": 5}
    group = {"requirement": "g", "weight": 20.0, "criteria": [{"requirement": "a"}, {"requirement": "b"}]}
    rubric = Rubric.from_dict([group, entry])
    assert rubric.compute_score(["MET", "MET", 3]) == pytest.approx(0.7)
    assert Rubric.from_dict(rubric.to_dict()) == rubric
    with pytest.raises(RubricError, match="move them out of the group"):
        Rubric.from_dict([{**group, "criteria": [entry, {"requirement": "a"}]}])
