"""The answers about the parts of a response, joined into one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, Submission
from rubric_integrations.graders.per_criterion import join_outcomes, split_question
from rubric_integrations.judges import Question
from rubric_integrations.scoring import JudgeFailure, Judgment, to_judgment
from rubric_integrations.scoring.judgment import Outcome
from tests.fakes import ONE_CALL

CRITERION = Criterion(requirement="r")
# From what decides least to what decides most.
ORDER = ["UNMET", "CANNOT_ASSESS", "fails", "MET"]


def outcome_of(word: str, number: int = 1) -> Outcome:
    if word == "fails":
        return JudgeFailure("parse", f"why {number}", about_text=True, spend=ONE_CALL)
    fields = {
        "spend": ONE_CALL,
        "reason": f"why {number}",
        "evidence": (number, number + 1),
        "neutralized": number == 2,
    }
    return to_judgment(CRITERION, word).model_copy(update=fields)


def joined(words: list[str]) -> Outcome:
    try:
        return join_outcomes([outcome_of(word, number) for number, word in enumerate(words, start=1)])
    except JudgeFailure as failure:
        return failure


def word_of(outcome: Outcome) -> str:
    return outcome.verdict if isinstance(outcome, Judgment) else "fails"


@settings(max_examples=50)
@given(st.lists(st.sampled_from(ORDER), min_size=1, max_size=6))
def test_whole_is_what_decides_most_of_its_parts_and_costs_all_of_them(words: list[str]) -> None:
    whole = joined(words)
    assert word_of(whole) == max(words, key=ORDER.index)
    assert whole.spend.calls == len(words)
    if isinstance(whole, Judgment):
        numbers = [number for number, word in enumerate(words, start=1) if word == whole.verdict]
        assert whole.value == {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}[whole.verdict]
        assert whole.reason == "; ".join(f"part {number} of {len(words)}: why {number}" for number in numbers)
        assert whole.evidence == tuple(sorted({step for number in numbers for step in (number, number + 1)}))
        assert whole.neutralized == any(number == 2 and word != "fails" for number, word in enumerate(words, start=1))
    else:
        assert whole.message == f"part {words.index('fails') + 1} of {len(words)}: why {words.index('fails') + 1}"
        assert (whole.kind, whole.about_text, whole.retryable) == ("parse", True, False)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(ORDER), min_size=1, max_size=6), st.sampled_from(ORDER))
def test_another_part_never_takes_away_what_was_decided(words: list[str], more: str) -> None:
    assert ORDER.index(word_of(joined([*words, more]))) >= ORDER.index(word_of(joined(words)))
    assert word_of(joined([*words, more])) == word_of(joined([more, *words]))


def test_question_about_a_long_response_becomes_one_for_each_part_with_its_number() -> None:
    question = Question(Submission(response="a" * 1_500, query="q"), CRITERION, "Be strict.")
    parts = split_question(question, 1_000)
    assert [part.submission.response for part in parts] == ["a" * 1_000, "a" * 500]
    assert [part.submission.query for part in parts] == ["q", "q"]
    assert all(part.guidelines.startswith("Be strict.\n\nThe submission is part ") for part in parts)
    assert ["part 2 of 2" in part.guidelines for part in parts] == [False, True]
    assert [part.whole_response for part in parts] == ["a" * 1_500] * 2


@pytest.mark.parametrize(
    ("criterion", "length"),
    [(CRITERION, 1_000), (Criterion.model_validate({"requirement": "r", "scale": {"min": 0, "max": 5}}), 5_000)],
)
def test_question_stays_as_it_is_if_the_response_is_short_or_the_answer_is_a_number(
    criterion: Criterion, length: int
) -> None:
    question = Question(Submission(response="a" * length), criterion)
    (only,) = split_question(question, 1_000)
    assert only is question
