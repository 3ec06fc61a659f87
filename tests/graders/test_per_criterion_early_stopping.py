"""Early stopping: the same `passed` with fewer calls, and a score range in place of a score that is not known."""

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
from rubric_integrations.rubric import HybridMetric
from rubric_integrations.scoring import EvaluationReport, JudgeFailure, LengthPenalty, Spend
from tests.fakes import FakeJudge

FAILURE = JudgeFailure("parse", "no answer", spend=Spend(calls=1))


def judge_with(answers: Mapping[str, str]) -> FakeJudge:
    """Make a judge with an answer to each requirement, where `FAILS` is a failure."""
    return FakeJudge({name: FAILURE if answer == "FAILS" else answer for name, answer in answers.items()})


def grade(
    rubric: Rubric, answers: Mapping[str, str], text: str = "some words here", **more: object
) -> EvaluationReport:
    grader = PerCriterionGrader(judge_with(answers), max_retries=0, **more)  # type: ignore[arg-type]
    return rubric.grade_sync(text, grader=grader, reference="some words here")


WORDS = ["MET", "UNMET", "CANNOT_ASSESS", "FAILS"]


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    weights = draw(st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.0, 5.0]), min_size=1, max_size=7).filter(any))
    criteria = [
        Criterion(
            requirement=f"r{position}",
            weight=weight,
            required=bool(weight) and draw(st.integers(0, 4)) == 0,
            check=Check(contains="words") if draw(st.integers(0, 5)) == 0 else None,
        )
        for position, weight in enumerate(weights)
    ]
    metrics = [HybridMetric(name="same", type="accuracy", weight=0.25)] if draw(st.integers(0, 3)) == 0 else []
    return Rubric(
        criteria,
        pass_mark=draw(st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])),
        min_coverage=draw(st.sampled_from([None, 0.0, 0.7, 1.0])),
        hybrid_metrics=metrics,
    )


@given(
    rubrics(),
    st.lists(st.sampled_from(WORDS), min_size=7, max_size=7),
    st.sampled_from(["skip", "zero", "partial", "fail"]),
    st.sampled_from(["abstain", "worst_case", {"positive": "MET", "negative": "UNMET"}]),
    st.sampled_from([True, 0.2, 0.5, 0.9]),
    st.sampled_from([None, LengthPenalty(free_budget=1, max_cap=6, penalty_at_cap=0.5)]),
)
@settings(max_examples=150, deadline=None)
@pytest.mark.statistics
def test_stopping_early_changes_neither_passed_nor_the_side_of_the_threshold(
    rubric: Rubric, words: list[str], policy: str, on_failure: object, stop: float, penalty: LengthPenalty | None
) -> None:
    answers = {f"r{position}": word for position, word in enumerate(words)}
    policies: Any = {"cannot_assess": policy, "on_failure": on_failure, "length_penalty": penalty}
    complete = grade(rubric, answers, **policies)
    short = grade(rubric, answers, stop_when_decided=stop, **policies)
    assert short.passed == complete.passed
    assert short.spend.calls <= complete.spend.calls
    if short.score_range is None:
        assert short == complete
        return
    low, high = short.score_range
    assert short.score is None
    assert short.not_asked
    assert (low is None) if complete.score is None else ((low or 0.0) - 1e-9 <= complete.score <= high + 1e-9)
    if stop is not True:
        reached = complete.score is not None and complete.score >= stop - 1e-9
        assert (low is not None and low >= stop - 1e-9) == (high >= stop - 1e-9) == reached


async def test_stopping_early_saves_more_than_a_third_of_the_calls(
    record_property: Callable[[str, object], None],
) -> None:
    dice = random.Random(12)
    weights = [3, 2, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    rubric = Rubric(
        [
            Criterion(requirement=f"r{position}", weight=weight, required=position in (2, 5))
            for position, weight in enumerate(weights)
        ]
    )
    calls = made = 0
    for _ in range(100):
        answers = {f"r{position}": "MET" if dice.random() < 0.6 else "UNMET" for position in range(12)}
        # On one event loop, which takes half as long as `grade_sync`.
        short = await rubric.grade("text", PerCriterionGrader(judge_with(answers), stop_when_decided=True))
        complete = await rubric.grade("text", PerCriterionGrader(judge_with(answers)))
        assert short.passed == complete.passed
        calls += 12
        made += short.spend.calls
    saved = 1 - made / calls
    record_property("shown", f"stop_when_decided: {saved:.0%} of the calls saved, 12 criteria, 2 required, 60% met")
    assert saved > 0.3


def test_required_criteria_come_first_and_then_the_heaviest() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="light", weight=1),
            Criterion(requirement="heavy", weight=6),
            Criterion(requirement="gate", weight=2, required=True),
            Criterion(requirement="free", weight=1, check=Check(contains="words")),
        ],
        pass_mark=0.8,
    )
    judge = judge_with({"light": "MET", "heavy": "MET", "gate": "MET"})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert judge.requirements == ["gate", "heavy"]
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

    judge = judge_with({"gate": "UNMET"})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert (report.passed, judge.requirements, report.not_asked) == (False, ["gate"], ("c1", "c2"))


def test_decision_by_a_check_alone_makes_no_call() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="free", weight=1, required=True, check=Check(contains="absent")),
            Criterion(requirement="judged", weight=1),
        ]
    )
    judge = judge_with({})
    report = rubric.grade_sync("some words", grader=PerCriterionGrader(judge, stop_when_decided=True))
    assert (report.passed, judge.requirements, report.spend.calls) == (False, [], 0)


def test_failure_under_raise_ends_the_grade() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=5), Criterion(requirement="b", weight=1)])
    with pytest.raises(JudgeError, match="no answer") as caught:
        grade(rubric, {"a": "FAILS", "b": "MET"}, stop_when_decided=True)
    assert caught.value.report.not_asked == ("c2",)


@pytest.mark.parametrize("sequential", [False, True])
def test_panel_votes_on_each_criterion_before_the_next(sequential: bool) -> None:
    rubric = Rubric([Criterion(requirement="a", weight=5), Criterion(requirement="b", weight=1)], pass_mark=0.5)
    panel = [judge_with({"a": "MET", "b": "UNMET"}) for _ in range(3)]
    grader = PerCriterionGrader(judges=panel, voting=Voting(sequential=sequential), stop_when_decided=True)
    report = run_sync(rubric.grade("some words", grader=grader))
    assert report.passed
    assert [judge.requirements for judge in panel] == [["a"], ["a"], [] if sequential else ["a"]]
    assert report.not_asked == ("c2",)
    assert report.judge_scores == {}


def test_setting_that_does_not_go_with_stopping_early_is_refused() -> None:
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="`stop_when_decided` must be"):
            PerCriterionGrader("offline", stop_when_decided=wrong)
    with pytest.raises(ValueError, match="`normalize=False`"):
        PerCriterionGrader("offline", stop_when_decided=True, normalize=False)
    rubric = Rubric([Criterion(requirement="a")])
    with pytest.raises(ValueError, match="a score left open would be 0"):
        RubricMetric(rubric, grader=PerCriterionGrader("offline", stop_when_decided=True))
