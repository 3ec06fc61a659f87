"""The sum of a score: its terms are those of the formula, whatever the rubric, the answers and the policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import LengthPenalty, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.reporting.score_sum import sum_score, why_not_passed
from rubric_integrations.runs import RunFile
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring import Judgment
from tests.fakes import FakeJudge
from tests.reporting.page.runs import EchoJudge

CRITERIA = st.lists(
    st.fixed_dictionaries(
        {"weight": st.integers(-9, 9).filter(bool)},
        optional={"options": st.just([{"label": "a", "value": 0.25}, {"label": "b", "value": 0.75}])},
    ),
    min_size=1,
    max_size=6,
)


def graded(rubric: Any, response: str, judge: Any = None, **settings: Any) -> GradedRow:
    grader = PerCriterionGrader(judge or EchoJudge(), **settings)
    return RunFile.of("run", grade_many([response], rubric, grader)).rows[0]


@given(CRITERIA, st.data(), st.sampled_from(["skip", "zero", "partial", "fail", 0.3]))
def test_terms_add_up_to_the_score(criteria: list[dict[str, Any]], data: st.DataObject, policy: Any) -> None:
    rubric = Rubric.from_dict([{"requirement": f"r{place}", **fields} for place, fields in enumerate(criteria)])
    answers = {
        criterion.requirement: data.draw(st.sampled_from(["a", "b"] if criterion.options else ["MET", "UNMET", ""]))
        for criterion in rubric.criteria
    }

    async def answer(question: Question) -> Any:
        word = answers[question.criterion.requirement]
        values = {"MET": 1.0, "UNMET": 0.0, "a": 0.25, "b": 0.75}
        return Judgment(verdict=word or "CANNOT_ASSESS", value=values.get(word), reason="")

    row = graded(rubric, "text", FakeJudge(answer), cannot_assess=policy)
    result = sum_score(row)
    assert row.report is not None
    assert result.problem is None or row.report.score is None
    assert result.score == pytest.approx(row.report.score)
    if result.score is not None:
        raw = sum(term.points for term in result.terms if term.points is not None)
        by_hand = raw / result.divisor if result.has_positive_weight else 1 + raw / result.divisor
        assert min(1.0, max(0.0, by_hand)) == pytest.approx(row.report.score)


RUBRIC = {
    "pass_mark": 0.75,
    "criteria": [
        {"name": "margin", "weight": 10, "requirement": "margin", "required": True},
        {"name": "method", "weight": 6, "requirement": "method"},
        {"name": "gross", "weight": -12, "requirement": "gross"},
        {"name": "advice", "weight": 3, "requirement": "advice"},
    ],
}


def test_words_tell_a_deduction_from_an_answer_that_is_missing() -> None:
    result = sum_score(graded(RUBRIC, "margin=MET method=UNMET gross=MET"))
    assert [(term.criterion.name, term.words, term.points) for term in result.terms] == [
        ("margin", "met", 10.0),
        ("method", "not met", 0.0),
        ("gross", "deducted", -12.0),
        ("advice", "could not be judged: left out", None),
    ]
    assert (result.raw, result.divisor, result.score, result.in_words) == (-2.0, 16.0, 0.0, "-2 of 16 = 0.000")
    counted = sum_score(graded(RUBRIC, "margin=MET method=MET gross=UNMET", cannot_assess="zero")).terms
    assert [term.words for term in counted][2:] == ["not deducted", "could not be judged: counts 0"]


def test_rubric_of_penalties_alone_is_one_less_what_is_deducted() -> None:
    rubric = [{"name": "a", "weight": -3, "requirement": "a"}, {"name": "b", "weight": -1, "requirement": "b"}]
    assert sum_score(graded(rubric, "a=UNMET b=MET")).in_words == "1 less 1 of 4 = 0.750"


def test_score_with_more_than_the_sum_says_what_comes_after_it() -> None:
    penalty = LengthPenalty(free_budget=1, max_cap=3, penalty_at_cap=0.5)
    result = sum_score(graded(RUBRIC, "margin=MET method=MET gross=UNMET advice=MET", length_penalty=penalty))
    assert (result.problem, result.score, result.after) == (None, 1.0, ("less 0.500 for the length",))
    assert result.fixed == "a penalty for the length is subtracted"


def test_groups_add_up_until_an_abstention_moves_their_weight() -> None:
    groups = [
        {"requirement": "A", "weight": 3, "criteria": [{"name": name, "requirement": name} for name in "ab"]},
        {"name": "c", "requirement": "c", "weight": 1},
    ]
    whole = sum_score(graded(groups, "a=MET b=UNMET c=MET"))
    assert (whole.problem, whole.score) == (None, pytest.approx(0.625))
    assert whole.fixed is not None
    assert "a group of the rubric" in (sum_score(graded(groups, "a=MET c=UNMET")).problem or "")


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        ("margin=MET method=MET gross=UNMET advice=MET", ""),
        ("margin=MET method=MET gross=MET advice=MET",
         "Not passed: 0.368 is below the pass mark 0.75. The deduction for gross costs most (12 of 19)."),
        ("margin=UNMET method=MET gross=UNMET advice=MET",
         "Not passed: margin is required; 0.474 is below the pass mark 0.75. margin costs most (10 of 19)."),
        ("gross=UNMET advice=MET",
         "Not passed: margin is required; only 48 % of the weight was judged."),
    ],
)  # fmt: skip
def test_reason_for_not_passing_is_a_sentence(response: str, sentence: str) -> None:
    assert why_not_passed(graded(RUBRIC, response)) == sentence


def test_row_whose_judge_failed_is_not_graded() -> None:
    row = graded(RUBRIC, "margin=fails method=MET gross=MET advice=MET")
    assert why_not_passed(row).startswith("Not graded: `margin` was not judged: ")
    assert (sum_score(row).problem or "").startswith("`margin` was not judged: ")
    assert sum_score(row).terms[0].words == "the judge failed: left out"
