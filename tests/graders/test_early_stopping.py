"""Asking no more than a decision needs: the same `passed`, fewer calls, and no score that nobody knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Check, Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import Voting
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.scoring.length import LengthPenalty


class Known:
    """Knows an answer to each criterion, or fails at it; remembers in which order it was asked."""

    def __init__(self, answers: Mapping[str, str]):
        self.answers = answers
        self.asked: list[str] = []

    async def judge(self, question: Question) -> Judgment:
        name = question.criterion.requirement
        self.asked.append(name)
        answer = self.answers[name]
        if answer == "FAILS":
            raise JudgeFailure("parse", "no answer", spend=Spend(calls=1))
        return to_judgment(question.criterion, answer).model_copy(update={"spend": Spend(calls=1)})


def grade(
    rubric: Rubric, answers: Mapping[str, str], text: str = "some words here", **more: object
) -> EvaluationReport:
    grader = PerCriterionGrader(Known(answers), max_retries=0, **more)  # type: ignore[arg-type]
    return rubric.grade_sync(text, grader=grader, reference="some words here")


WORDS = ["MET", "UNMET", "CANNOT_ASSESS", "FAILS"]


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    weights = draw(st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.0, 5.0]), min_size=1, max_size=7).filter(any))
    criteria = [
        Criterion(
            requirement=f"r{place}",
            weight=weight,
            required=bool(weight) and draw(st.integers(0, 4)) == 0,
            check=Check(contains="words") if draw(st.integers(0, 5)) == 0 else None,
        )
        for place, weight in enumerate(weights)
    ]
    metrics = [HybridMetric(name="same", type="accuracy", weight=0.25)] if draw(st.integers(0, 3)) == 0 else []
    return Rubric(criteria, pass_mark=draw(st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])), hybrid_metrics=metrics)


@given(
    rubrics(),
    st.lists(st.sampled_from(WORDS), min_size=7, max_size=7),
    st.sampled_from(["skip", "zero", "partial", "fail"]),
    st.sampled_from(["abstain", "worst_case", {"positive": "MET", "negative": "UNMET"}]),
    st.sampled_from([True, 0.2, 0.5, 0.9]),
    st.sampled_from([None, LengthPenalty(free_budget=1, max_cap=6, penalty_at_cap=0.5)]),
)
@settings(max_examples=400, deadline=None)
def test_what_is_not_asked_changes_neither_passed_nor_the_side_of_the_threshold(
    rubric: Rubric, words: list[str], policy: str, on_failure: object, stop: float, penalty: LengthPenalty | None
) -> None:
    answers = {f"r{place}": word for place, word in enumerate(words)}
    policies: Any = {"cannot_assess": policy, "on_failure": on_failure, "length_penalty": penalty}
    whole = grade(rubric, answers, **policies)
    short = grade(rubric, answers, stop_when_decided=stop, **policies)
    assert short.passed == whole.passed
    assert short.spend.calls <= whole.spend.calls
    if short.score_range is None:
        assert short == whole
        return
    low, high = short.score_range
    assert short.score is None
    assert short.not_asked
    assert (low is None) if whole.score is None else ((low or 0.0) - 1e-9 <= whole.score <= high + 1e-9)
    if stop is not True:
        reached = whole.score is not None and whole.score >= stop - 1e-9
        assert (low is not None and low >= stop - 1e-9) == (high >= stop - 1e-9) == reached


def test_a_third_of_the_calls_and_more_are_saved(record_property: Callable[[str, object], None]) -> None:
    dice = random.Random(12)
    weights = [3, 2, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    rubric = Rubric(
        [
            Criterion(requirement=f"r{place}", weight=weight, required=place in (2, 5))
            for place, weight in enumerate(weights)
        ]
    )
    asked = made = 0
    for _ in range(1000):
        answers = {f"r{place}": "MET" if dice.random() < 0.6 else "UNMET" for place in range(12)}
        short = grade(rubric, answers, stop_when_decided=True)
        assert short.passed == grade(rubric, answers).passed
        asked += 12
        made += short.spend.calls
    saved = 1 - made / asked
    record_property("shown", f"stop_when_decided: {saved:.0%} of the calls saved, 12 criteria, 2 required, 60% met")
    assert saved > 0.3


def test_gates_are_asked_first_and_then_the_heaviest() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="light", weight=1),
            Criterion(requirement="heavy", weight=6),
            Criterion(requirement="gate", weight=2, required=True),
            Criterion(requirement="free", weight=1, check=Check(contains="words")),
        ],
        pass_mark=0.8,
    )
    judge = Known({"light": "MET", "heavy": "MET", "gate": "MET"})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert judge.asked == ["gate", "heavy"]
    assert (report.passed, report.score, report.not_asked) == (True, None, ("c1",))
    assert report.score_range == pytest.approx((0.9, 1.0))
    assert (report.complete, report.failed_count, report.cannot_assess_count, report.coverage) == (True, 0, 0, 0.9)
    open_row = report.criteria[0]
    assert (open_row.was_asked, open_row.verdict, open_row.error, open_row.not_asked) == (
        False,
        None,
        None,
        ("default",),
    )

    judge = Known({"gate": "UNMET"})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert (report.passed, judge.asked, report.not_asked) == (False, ["gate"], ("c1", "c2"))


def test_a_check_alone_may_decide() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="free", weight=1, required=True, check=Check(contains="absent")),
            Criterion(requirement="asked", weight=1),
        ]
    )
    judge = Known({})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert (report.passed, judge.asked, report.spend.calls) == (False, [], 0)


def test_a_failure_ends_it_as_it_would_without() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=5), Criterion(requirement="b", weight=1)])
    with pytest.raises(JudgeError, match="no answer") as caught:
        grade(rubric, {"a": "FAILS", "b": "MET"}, stop_when_decided=True)
    assert caught.value.report.not_asked == ("c2",)


@pytest.mark.parametrize("sequential", [False, True])
def test_a_panel_votes_on_each_criterion_before_the_next(sequential: bool) -> None:
    rubric = Rubric([Criterion(requirement="a", weight=5), Criterion(requirement="b", weight=1)], pass_mark=0.5)
    panel = [Known({"a": "MET", "b": "UNMET"}) for _ in range(3)]
    grader = PerCriterionGrader(judges=panel, voting=Voting(sequential=sequential), stop_when_decided=True)
    report = run_sync(rubric.grade("some words", grader=grader))
    assert report.passed
    assert [judge.asked for judge in panel] == [["a"], ["a"], [] if sequential else ["a"]]
    assert report.not_asked == ("c2",)
    assert report.judge_scores == {}


def test_what_it_does_not_go_with_is_refused() -> None:
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="`stop_when_decided` must be"):
            PerCriterionGrader("offline", stop_when_decided=wrong)
    with pytest.raises(ValueError, match="`normalize=False`"):
        PerCriterionGrader("offline", stop_when_decided=True, normalize=False)
    rubric = Rubric([Criterion(requirement="a")])
    with pytest.raises(ValueError, match="a score left open would be 0"):
        RubricMetric(rubric, grader=PerCriterionGrader("offline", stop_when_decided=True))
