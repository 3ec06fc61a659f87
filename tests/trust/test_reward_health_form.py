"""The line of `reward_report` about the sum of the criteria or one reward for each, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.reward_parts import simulate
from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import RewardReport, reward_report
from rubric_integrations.trust.reward_figures import CriterionTrend, Trend
from rubric_integrations.trust.reward_health import reward_form
from tests.fakes import FakeJudge

NAMES = ("first", "second", "third")
RUBRIC = Rubric([Criterion(name=name, requirement=name) for name in NAMES])


def by_number(*periods: int) -> Callable[[Question], str]:
    """Judge a criterion as not met by one response of a period, by the number in the response."""

    def judge(question: Question) -> str:
        period = periods[NAMES.index(question.criterion.requirement)]
        return "UNMET" if int(question.submission.response) % period == 0 else "MET"

    return judge


def report_of(*periods: int, second: Any = None, count: int = 240) -> RewardReport:
    rows = [
        {"response": str(number), "metadata": {"step": number // 24, "group": str(number // 8)}}
        for number in range(count)
    ]
    graded = list(grade_many(rows, RUBRIC, PerCriterionGrader(FakeJudge(by_number(*periods)))))
    return reward_report(graded, second=second, sample=count)


def test_criteria_that_vary_may_be_parts_and_the_noise_is_not_known_without_second_judgments() -> None:
    form = report_of(2, 3, 4).form
    assert (form.choice, form.criteria, form.saturated, form.disagreement) == ("parts", 3, (), None)
    assert form.text == (
        "parts may help, because 0 of 3 criteria have a mean score below 0.1 or above 0.9 in the last third; mean "
        "difference between the judges: not known, without second judgments"
    )


def test_saturated_criterion_makes_the_sum_the_choice_with_its_name() -> None:
    report = report_of(2, 20, 1)
    assert (report.form.choice, report.form.saturated) == ("sum", ("second", "third"))
    assert "sum or parts: sum, because 2 of 3 criteria have a mean score below 0.1 or above 0.9 in the last third " in (
        report.summary()
    )
    assert report.summary().count("sum or parts") == 1


def test_second_judge_gives_the_noise_and_the_criteria_whose_rare_verdicts_are_doubtful() -> None:
    def second(question: Question) -> str:
        answer = by_number(2, 3, 4)(question)
        is_wrong = question.criterion.requirement == "third" and int(question.submission.response) % 8 < 3
        return {"MET": "UNMET", "UNMET": "MET"}[answer] if is_wrong else answer

    report = report_of(2, 3, 4, second=FakeJudge(second))
    form = report.form
    assert (form.choice, form.saturated, form.noisy) == ("sum", (), ("third",))
    assert form.disagreement == pytest.approx(3 / 8 / 3)
    assert form.text.endswith(
        "the rarer verdicts on 1 may mostly be errors, because the judges differ ('third'); mean difference between "
        "the judges: 12% (n = 720)"
    )
    # The errors of all groups have the same sum.
    assert report.second is not None
    assert report.second.criteria["third"].shortfall.low is None
    agreed = report_of(2, 3, 4, second=FakeJudge(by_number(2, 3, 4))).form
    assert (agreed.choice, agreed.disagreement) == ("parts", 0.0)


def test_noise_of_a_second_judge_that_was_stopped_is_printed_with_its_few_judgments() -> None:
    trends = {name: trend_of(0.5) for name in NAMES}
    form = reward_form(trends, {"first": [1.0, 0.0]})
    assert form.judgments == 2
    assert form.text.endswith("mean difference between the judges: 50% (n = 2)")


def test_criterion_of_weight_zero_does_not_change_the_choice() -> None:
    trends = {name: trend_of(0.5) for name in NAMES} | {"seen": trend_of(0.99)._replace(weight=0.0)}
    form = reward_form(trends, {"seen": [1.0, 1.0]})
    assert (form.choice, form.criteria, form.saturated, form.disagreement) == ("parts", 3, (), None)


def test_one_step_or_one_criterion_has_no_choice() -> None:
    assert report_of(2, 3, 4, count=24).form.choice is None
    rows = [{"response": "1", "metadata": {"step": step, "group": str(step)}} for step in range(30)]
    alone = Rubric([Criterion(name="first", requirement="first")])
    report = reward_report(list(grade_many(rows, alone, PerCriterionGrader(FakeJudge("MET")))))
    assert report.form.text == "not known, because fewer than two criteria have scores in the last third"
    assert RewardReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize(("rate", "choice"), [(0.5, "parts"), (0.8, "parts"), (0.95, "sum"), (0.99, "sum")])
def test_choice_is_the_one_whose_advantages_follow_the_true_score_in_the_simulation(rate: float, choice: str) -> None:
    rates = [0.5] * 2 + [rate] * 10
    figures = simulate(rates, 0.1, 4_000)
    assert figures["parts"] < figures["sum, batch"]
    assert (figures["parts"] > figures["sum"]) == (choice == "parts")
    # The judge's mean scores, with 10 % wrong verdicts.
    seen = [0.9 * share + 0.1 * (1 - share) for share in rates]
    trends = {f"k{number}": trend_of(mean) for number, mean in enumerate(seen)}
    gaps = {name: [1.0] + [0.0] * 9 for name in trends}
    assert reward_form(trends, gaps).choice == choice


def trend_of(mean: float) -> CriterionTrend:
    trend = Trend(mean, mean, Estimate(0.0, None, None, 100), None)
    return CriterionTrend("requirement", 1.0, trend, None, None, trend, None)
