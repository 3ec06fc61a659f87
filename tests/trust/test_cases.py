"""`run_cases`: expected and obtained verdicts, failures, repetitions and flips, the ledger and the limits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader, Voting
from rubric_integrations.judges.protocol import Question
from rubric_integrations.runs import open_ledger
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import CaseReport, run_cases
from rubric_integrations.trust.cases import estimate_flips

CRITERIA: list[dict[str, Any]] = [
    {"name": "margin", "requirement": "States the margin", "weight": 10},
    {
        "name": "tone", "requirement": "How", "weight": 5,
        "options": [{"label": "cold", "value": 0}, {"label": "warm", "value": 1}, {"label": "none", "na": True}],
    },
    {"name": "facts", "requirement": "Facts", "weight": 5, "scale": {"min": 1, "max": 5}},
    {"name": "refund", "requirement": "Refunds", "weight": 5, "applies_when": "Asks for a refund"},
    {"name": "slips", "requirement": "Slips", "weight": -2, "per": "occurrence", "cap": 3},
    {"name": "number", "requirement": "Says 42", "weight": 1, "check": {"number": 42}},
]  # fmt: skip
ANSWERS: dict[str, Any] = {"margin": ("MET", "It does."), "tone": "warm", "facts": 3.5, "refund": "MET",
                           "Asks for a refund": "UNMET", "slips": 5}  # fmt: skip


def rubric_with(*cases: Any, criteria: Any = CRITERIA) -> Rubric:
    return Rubric.from_dict({"criteria": criteria, "cases": list(cases)})


def case(name: str = "one", response: str = "It is 42.", **expect: Any) -> dict[str, Any]:
    return {"name": name, "response": response, "expect": expect}


def run(*cases: Any, answers: Any = ANSWERS, **settings: Any) -> CaseReport:
    return run_cases(rubric_with(*cases), PerCriterionGrader(ScriptedJudge(answers), on_failure="abstain"), **settings)


@pytest.mark.parametrize(
    ("criterion", "expected", "is_right"),
    [
        ("margin", "MET", True),
        ("margin", "UNMET", False),
        ("margin", "CANNOT_ASSESS", False),
        ("tone", "Warm", True),
        ("tone", "cold", False),
        ("tone", "CANNOT_ASSESS", False),
        ("facts", 3.5, True),
        ("facts", [3, 4], True),
        ("facts", [3.5, 3.5], True),
        ("facts", 3, False),
        ("facts", [4, 5], False),
        ("facts", "CANNOT_ASSESS", False),
        ("refund", "NOT_APPLICABLE", True),
        ("refund", "MET", False),
        ("refund", "CANNOT_ASSESS", False),
        ("slips", 5, True),
        ("slips", [1, 9], True),
        ("slips", [0, 1], False),
        ("number", "MET", True),
        ("number", "UNMET", False),
    ],
)
def test_verdict_is_compared_by_the_kind_of_its_criterion(criterion: str, expected: Any, is_right: bool) -> None:
    report = run(case(verdicts={criterion: expected}))
    [result] = report.results
    assert result.outcome == ("as expected" if is_right else "different")
    assert report.is_as_expected is is_right
    assert (report.criteria[criterion].as_expected, report.criteria[criterion].different) == (is_right, not is_right)


@pytest.mark.parametrize(
    ("criterion", "answer", "verdict"),
    [("margin", "CANNOT_ASSESS", "MET"), ("tone", "none", "warm"), ("facts", "CANNOT_ASSESS", 3)],
)
def test_abstention_of_any_form_is_the_expected_cannot_assess(criterion: str, answer: str, verdict: Any) -> None:
    answers = {**ANSWERS, criterion: answer}
    assert run(case(verdicts={criterion: "CANNOT_ASSESS"}), answers=answers).is_as_expected
    assert not run(case(verdicts={criterion: verdict}), answers=answers).is_as_expected


def test_missing_evidence_is_the_expected_abstention_without_a_call() -> None:
    criteria = [{"name": "look", "requirement": "Looks it up", "needs": ["trajectory"]}]
    judge = ScriptedJudge("MET")
    rubric = rubric_with(case(verdicts={"look": "CANNOT_ASSESS"}), criteria=criteria)
    assert run_cases(rubric, PerCriterionGrader(judge)).is_as_expected
    assert judge.questions == []


@pytest.mark.parametrize(
    ("expect", "obtained", "is_right"),
    [
        ({"min_score": 0.9}, "0.905", True),
        ({"min_score": 0.95}, "0.905", False),
        ({"max_score": 0.9}, "0.905", False),
        ({"min_score": 0.5, "max_score": 0.95}, "0.905", True),
        ({"passed": True}, "passed", True),
        ({"passed": False}, "passed", False),
    ],
)
def test_score_and_passed_are_compared_with_the_report(expect: dict[str, Any], obtained: str, is_right: bool) -> None:
    [result] = run(case(**expect), answers={**ANSWERS, "slips": 0, "facts": 3.4}).results
    assert (result.obtained, result.outcome == "as expected") == (obtained, is_right)
    assert "margin MET" in result.reason


def test_score_just_below_a_limit_is_not_rounded_to_it() -> None:
    criteria = [
        {"name": "one", "weight": 10, "requirement": "Short", "check": {"max_words": 3}},
        {"name": "two", "weight": 2.504, "requirement": "Shorter", "check": {"max_words": 1}},
    ]
    rubric = rubric_with(case(response="two words", min_score=0.8), criteria=criteria)
    [result] = run_cases(rubric, PerCriterionGrader("offline")).results
    assert (result.expected, result.obtained, result.outcome) == ("at least 0.8", "0.799744", "different")


def test_undefined_score_is_a_difference_and_not_a_failure() -> None:
    rubric = rubric_with(case(min_score=0.5), criteria=CRITERIA[:1])
    [result] = run_cases(rubric, PerCriterionGrader(ScriptedJudge("CANNOT_ASSESS"))).results
    assert (result.obtained, result.outcome) == ("undefined", "different")


@pytest.mark.parametrize("on_failure", ["raise", "abstain", "worst_case", {"positive": "MET", "negative": "UNMET"}])
@pytest.mark.parametrize("grader", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_failure_of_a_judge_is_never_a_difference_under_any_policy(grader: Any, on_failure: Any) -> None:
    judge = ScriptedJudge({"margin": JudgeFailure("parse", "no JSON")}, default="MET")
    criteria = [CRITERIA[0], {"name": "kind", "requirement": "Is kind"}]
    rubric = rubric_with(
        case(verdicts={"margin": "MET", "kind": "UNMET"}, min_score=0.5, passed=True), criteria=criteria
    )
    report = run_cases(rubric, grader(judge, on_failure=on_failure, max_retries=0))
    outcomes = {result.expectation: result.outcome for result in report.results}
    assert [outcomes["margin"], outcomes["score"], outcomes["passed"]] == ["failed"] * 3
    # Under `raise`, the other question may have been cancelled.
    assert outcomes["kind"] == "different" or on_failure == "raise"
    assert "no JSON" in report.results[0].reason
    assert report.criteria["margin"].failed == 1
    assert not report.is_as_expected


def test_panel_votes_are_compared_with_the_expected_verdict() -> None:
    rubric = rubric_with(case(verdicts={"margin": "MET"}), criteria=CRITERIA[:1])
    judges = [ScriptedJudge("MET"), ScriptedJudge("MET"), ScriptedJudge("UNMET")]
    assert run_cases(rubric, PerCriterionGrader(judges=judges, voting=Voting(binary="majority"))).is_as_expected


def test_overall_grader_refuses_expected_verdicts_and_compares_scores() -> None:
    grader = RubricAsJudgeGrader(ScriptedJudge({"overall": 85}))
    assert run_cases(rubric_with(case(min_score=0.8), criteria=CRITERIA[:1]), grader).is_as_expected
    with pytest.raises(ValueError, match="'one' expects verdicts, and `RubricAsJudgeGrader`"):
        run_cases(rubric_with(case(verdicts={"margin": "MET"}), criteria=CRITERIA[:1]), grader)
    failing = RubricAsJudgeGrader(ScriptedJudge({"overall": JudgeFailure("parse", "no JSON")}), max_retries=0)
    [result] = run_cases(rubric_with(case(min_score=0.8), criteria=CRITERIA[:1]), failing).results
    assert (result.outcome, "no JSON" in result.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stop_when_decided": True}, "`stop_when_decided`"),
        ({"normalize": False}, "`normalize=False`"),
    ],
)
def test_grader_that_cannot_give_the_expected_results_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_cases(rubric_with(case(min_score=0.5)), PerCriterionGrader(ScriptedJudge(), **settings))


def test_rubric_without_cases_and_wrong_arguments_are_refused(tmp_path: Path) -> None:
    grader = PerCriterionGrader("offline")
    (tmp_path / "rubric.yaml").write_text(Rubric(CRITERIA).to_yaml())
    with pytest.raises(ValueError, match=r"^the rubric has no test cases"):
        run_cases(Rubric(CRITERIA), grader)
    with pytest.raises(ValueError, match=r"rubric\.yaml: the rubric has no test cases"):
        run_cases(tmp_path / "rubric.yaml", grader)
    with pytest.raises(ValueError, match="`repeat` must be at least 1, got 0"):
        run_cases(rubric_with(case(passed=True)), grader, repeat=0)
    with pytest.raises(TypeError, match="`grader` must be a grader, got 'offline'"):
        run_cases(rubric_with(case(passed=True)), "offline")  # type: ignore[arg-type]


def test_cases_next_to_a_rubric_file_are_run(tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text(Rubric(CRITERIA[-1:]).to_yaml())
    (tmp_path / "rubric.cases.yaml").write_text("- {name: a, response: '41', expect: {verdicts: {number: UNMET}}}\n")
    assert run_cases(tmp_path / "rubric.yaml", PerCriterionGrader("offline")).is_as_expected


def test_criteria_that_no_case_tests_are_named_in_a_warning() -> None:
    assert run(case(verdicts={"margin": "MET"})).warnings == (
        "no case expects a verdict on tone, facts, refund, slips, number",
    )


def flaky(*answers: str) -> Callable[[Question], str]:
    """Return a function that gives the next of some answers to each question."""
    numbers = count()

    def answer(_question: Question) -> str:
        return answers[next(numbers) % len(answers)]

    return answer


def test_repetitions_ask_again_and_count_answers_unlike_the_first() -> None:
    judge = ScriptedJudge(flaky("MET", "UNMET", "MET", "UNMET"))
    rubric = rubric_with(case(verdicts={"margin": "MET"}), criteria=[CRITERIA[0], CRITERIA[-1]])
    report = run_cases(rubric, PerCriterionGrader(judge), repeat=4)
    [result] = report.results
    assert (result.outcome, result.repeated) == ("as expected", ("MET", "UNMET", "MET", "UNMET"))
    flips = report.criteria["margin"].flips
    assert flips is not None
    assert (flips.value, flips.n) == (pytest.approx(2 / 3), 1)
    assert report.criteria["number"].flips is None
    assert len(judge.questions) == 4


def test_failed_answers_are_no_flips() -> None:
    numbers = count()

    def answer(_question: Question) -> Any:
        return JudgeFailure("parse", "no JSON") if next(numbers) == 1 else "MET"

    rubric = rubric_with(case(verdicts={"margin": "MET"}), criteria=CRITERIA[:1])
    grader = PerCriterionGrader(ScriptedJudge(answer), on_failure="worst_case", max_retries=0)
    report = run_cases(rubric, grader, repeat=3)
    assert report.results[0].repeated == ("MET", None, "MET") or report.results[0].repeated == ("MET", "MET", "MET")
    flips = report.criteria["margin"].flips
    assert flips is not None
    assert flips.value == 0.0


def test_single_run_has_no_flips() -> None:
    assert all(row.flips is None for row in run(case(verdicts={"margin": "MET"})).criteria.values())


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=30))
def test_interval_of_flips_contains_the_share_and_is_never_a_point(shares: list[float]) -> None:
    estimate = estimate_flips(shares)
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.value + 1e-12
    assert estimate.value - 1e-12 <= estimate.high <= 1
    assert estimate.high > estimate.low


def test_interval_of_flips_is_exact_if_no_answer_flips() -> None:
    # Clopper and Pearson: 1 - (alpha / 2) ** (1 / n)
    assert estimate_flips([0.0] * 10).high == pytest.approx(1 - 0.025**0.1)


def test_interval_of_flips_counts_cases_and_not_answers() -> None:
    assert estimate_flips([0.0] * 5) == estimate_flips([0.0, 0.0, 0.0, 0.0, 0.0])
    assert estimate_flips([]).value is None


def test_ledger_keeps_each_repetition_apart_and_requests_nothing_again(tmp_path: Path) -> None:
    judge = ScriptedJudge(flaky("MET", "UNMET"))
    rubric = rubric_with(case(verdicts={"margin": "MET"}), criteria=CRITERIA[:1])
    first = run_cases(rubric, PerCriterionGrader(judge), repeat=4, ledger=tmp_path / "cases.sqlite")
    again = run_cases(rubric, PerCriterionGrader(judge), repeat=4, ledger=tmp_path / "cases.sqlite")
    assert len(judge.questions) == 4
    assert again.results == first.results
    assert again.spend == Spend()
    more = run_cases(rubric, PerCriterionGrader(judge), repeat=5, ledger=tmp_path / "cases.sqlite")
    assert (len(judge.questions), more.results[0].repeated) == (5, ("MET", "UNMET", "MET", "UNMET", "MET"))


def test_ledger_of_a_run_is_reused_and_gets_no_rows(tmp_path: Path) -> None:
    judge = ScriptedJudge("MET")
    rubric = rubric_with(case(verdicts={"margin": "MET"}), case("two", "No.", passed=True), criteria=CRITERIA[:1])
    list(grade_many(["It is 42."], rubric, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite"))
    run_cases(rubric, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite")
    assert [question.submission.response for question in judge.questions] == ["It is 42.", "No."]
    with open_ledger(tmp_path / "run.sqlite") as ledger:
        assert [submission.response for _, submission in ledger.submissions()] == ["It is 42."]


def test_limit_of_calls_stops_the_run_and_its_missing_cases_are_failed() -> None:
    cases = [case(str(number), f"It is {number}.", verdicts={"margin": "MET"}) for number in range(3)]
    rubric = rubric_with(*cases, criteria=CRITERIA[:1])
    report = run_cases(rubric, PerCriterionGrader(ScriptedJudge("MET")), max_calls=2, max_concurrency=1)
    assert [result.outcome for result in report.results] == ["as expected", "as expected", "failed"]
    assert report.stopped
    assert report.stopped in report.results[2].reason
    assert "Stopped: " in report.summary()


def test_limit_of_cost_is_shared_by_the_repetitions() -> None:
    judgment = Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=1.0))
    judge = ScriptedJudge(judgment)
    rubric = rubric_with(case(verdicts={"margin": "MET"}), criteria=CRITERIA[:1])
    report = run_cases(rubric, PerCriterionGrader(judge), repeat=5, max_cost=2.0)
    assert report.stopped
    assert len(judge.questions) <= 3


def test_summary_names_each_difference_and_failure_with_its_reason() -> None:
    report = run(
        case(verdicts={"margin": "UNMET", "tone": "warm"}),
        case("two", verdicts={"margin": "MET"}),
        answers={**ANSWERS, "margin": ("MET", "It\n::error::does."), "refund": JudgeFailure("parse", "no JSON")},
    )
    assert report.headline == "2 cases: 2 of 3 expectations as expected, 1 different."
    assert report.summary().splitlines()[:2] == [
        report.headline,
        "one: margin: expected UNMET, obtained MET: It ::error::does.",
    ]
    assert "<td" in report._repr_html_()  # pyright: ignore[reportPrivateUsage] -- notebooks call it


def test_line_of_a_result_has_no_control_characters() -> None:
    [result] = run(case("a\n::error::\x1b[2J", verdicts={"margin": "UNMET"})).results
    assert str(result) == "a\\n::error::\\x1b[2J: margin: expected UNMET, obtained MET: It does."


def test_report_is_the_same_for_rubric_groups_and_penalties() -> None:
    group = {"name": "form", "requirement": "Form", "criteria": [{"name": "short", "requirement": "Is short"}]}
    penalty = {"name": "insults", "requirement": "Insults", "weight": -5}
    rubric = rubric_with(
        case(verdicts={"short": "MET", "insults": "MET"}, max_score=0.9, passed=False), criteria=[group, penalty]
    )
    assert run_cases(rubric, PerCriterionGrader(ScriptedJudge("MET"))).is_as_expected
