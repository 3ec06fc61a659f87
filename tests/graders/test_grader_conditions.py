"""Criteria with a condition (`applies_when`), in every grader, on panels and with a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader, Voting
from rubric_integrations.judges import BatchResult
from rubric_integrations.rubric import Check
from rubric_integrations.rubric.criterion import all_criteria
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import EvaluationReport, JudgeFailure, to_judgment
from rubric_integrations.scoring.judgment import NO_SPEND
from tests.fakes import FakeBatchJudge, FakeJudge

WORDS = "The user asks for a refund"


def refund_rubric(**fields: object) -> Rubric:
    return Rubric.from_dict(
        [
            {"name": "kind", "requirement": "Is kind", "weight": 1},
            {"name": "sum", "requirement": "Names the sum", "weight": 2, "applies_when": WORDS, **fields},
            {"name": "date", "requirement": "Names the date", "weight": 1, "applies_when": WORDS},
        ]
    )


CONDITION = all_criteria(refund_rubric().criteria)[-1].requirement


def answers(condition: object, **more: object) -> dict[str, object]:
    return {"Is kind": "MET", "Names the sum": "UNMET", "Names the date": "MET", CONDITION: condition, **more}


def grade(condition: object, **settings: object) -> tuple[EvaluationReport, FakeJudge]:
    judge = FakeJudge(answers(condition))
    grader = PerCriterionGrader(judge, max_retries=0, **settings)  # pyright: ignore[reportArgumentType]
    return refund_rubric().grade_sync("text", grader), judge


@pytest.mark.parametrize("policy", ["skip", "zero", "partial", "fail"])
def test_condition_that_does_not_hold_leaves_its_criteria_out_under_every_policy(policy: str) -> None:
    report, judge = grade("UNMET", cannot_assess=policy)
    assert sorted(judge.requirements) == sorted(["Is kind", CONDITION])
    assert (report.score, report.coverage, report.complete) == (1.0, 1.0, True)
    assert (report.cannot_assess_count, report.not_applicable_count) == (0, 2)
    assert [row.verdict for row in report.criteria] == ["MET", "NOT_APPLICABLE", "NOT_APPLICABLE"]
    assert report.spend.calls == 2


def test_condition_that_holds_is_asked_once_and_first() -> None:
    report, judge = grade("MET")
    assert report.score == 0.5
    assert judge.requirements.count(CONDITION) == 1
    assert judge.requirements.index(CONDITION) < judge.requirements.index("Names the sum")
    assert report.spend.calls == 4


def test_condition_that_cannot_be_assessed_makes_its_criteria_abstentions() -> None:
    report, judge = grade("CANNOT_ASSESS", cannot_assess="zero")
    assert len(judge.requirements) == 2
    assert (report.score, report.coverage) == (0.25, 0.25)
    assert (report.cannot_assess_count, report.not_applicable_count) == (2, 0)
    assert report.criteria[1].reason.startswith("whether it applies cannot be assessed")


def test_condition_without_answer_makes_its_criteria_failures() -> None:
    lost = JudgeFailure("parse", "no verdict")
    with pytest.raises(JudgeError, match="`sum` was not judged: whether it applies was not judged: parse: no verdict"):
        grade(lost)
    report, _ = grade(lost, on_failure="worst_case")
    assert (report.score, report.failed_count, report.complete) == (0.25, 2, False)
    report, _ = grade(lost, on_failure="abstain")
    assert (report.score, report.failed_count, report.coverage) == (1.0, 2, 0.25)


def test_first_failure_ends_the_grade_before_conditional_criteria_are_asked() -> None:
    judge = FakeJudge(answers("MET", **{"Is kind": JudgeFailure("parse", "no verdict")}))
    with pytest.raises(JudgeError, match="`kind` was not judged: parse: no verdict"):
        refund_rubric().grade_sync("text", PerCriterionGrader(judge, max_retries=0))
    assert "Names the sum" not in judge.requirements


def test_required_criterion_that_does_not_apply_does_not_fail_the_gate() -> None:
    rubric = refund_rubric(required=True)
    assert rubric.grade_sync("text", PerCriterionGrader(FakeJudge(answers("UNMET")))).passed
    assert not rubric.grade_sync("text", PerCriterionGrader(FakeJudge(answers("MET")))).passed
    assert not rubric.grade_sync("text", PerCriterionGrader(FakeJudge(answers("CANNOT_ASSESS")))).passed


def test_rubric_of_which_nothing_applies_has_no_score() -> None:
    rubric = Rubric([Criterion(requirement="Names the sum", applies_when=WORDS)])
    report = rubric.grade_sync("text", PerCriterionGrader(FakeJudge(answers("UNMET"))))
    assert (report.score, report.raw_score, report.passed, report.coverage) == (None, None, False, 1.0)


def test_condition_as_a_check_costs_no_call() -> None:
    check = Check(contains="refund", ignore_case=True)
    rubric = Rubric([Criterion(requirement="Is kind"), Criterion(requirement="Names the sum", applies_when=check)])
    judge = FakeJudge(answers("MET"))
    report = rubric.grade_sync("No money back.", PerCriterionGrader(judge))
    assert (judge.requirements, report.score, report.not_applicable_count) == (["Is kind"], 1.0, 1)
    assert rubric.grade_sync("A Refund.", PerCriterionGrader(judge)).score == 0.5


def test_criterion_with_a_check_applies_by_a_condition_in_words() -> None:
    rubric = Rubric(
        [Criterion(requirement="a", applies_when=WORDS, check=Check(contains="x")), Criterion(requirement="Is kind")]
    )
    assert rubric.grade_sync("words", PerCriterionGrader(FakeJudge(answers("MET")))).score == 0.5
    assert rubric.grade_sync("words", PerCriterionGrader(FakeJudge(answers("UNMET")))).score == 1.0


@pytest.mark.parametrize(
    ("votes", "applies"),
    [(("MET", "UNMET"), True), (("UNMET", "UNMET", "MET"), False), (("CANNOT_ASSESS", "UNMET"), False)],
)
@pytest.mark.parametrize("sequential", [False, True])
def test_panel_decides_a_condition_by_majority_and_a_tie_holds(
    votes: tuple[str, ...], applies: bool, sequential: bool
) -> None:
    judges = [FakeJudge(answers(vote)) for vote in votes]
    grader = PerCriterionGrader(judges=judges, voting=Voting(binary="unanimous", sequential=sequential))
    report = refund_rubric().grade_sync("text", grader)
    assert report.not_applicable_count == (0 if applies else 2)
    assert any("Names the sum" in judge.requirements for judge in judges) is applies
    if not sequential:
        assert set(report.judge_scores.values()) == ({0.5} if applies else {1.0})


def test_stop_when_decided_does_not_ask_about_what_does_not_apply() -> None:
    rubric = refund_rubric(required=True)
    judge = FakeJudge(answers("UNMET"))
    report = rubric.grade_sync("text", PerCriterionGrader(judge, stop_when_decided=True))
    assert judge.requirements == [CONDITION, "Is kind"]
    assert (report.score, report.passed, report.not_asked) == (1.0, True, ())
    judge = FakeJudge(answers("MET"))
    report = rubric.grade_sync("text", PerCriterionGrader(judge, stop_when_decided=True))
    assert judge.requirements == [CONDITION, "Names the sum"]
    assert not report.passed
    assert report.not_asked == ("kind", "date")


def test_one_shot_asks_about_conditions_in_the_same_call() -> None:
    rubric = refund_rubric()
    all_questions = all_criteria(rubric.criteria)
    verdicts = {1: "MET", 2: "UNMET", 4: "UNMET"}  # and no answer to the third, which does not apply
    result = BatchResult(
        {number: to_judgment(all_questions[number - 1], verdict) for number, verdict in verdicts.items()},
        {3: "no answer"},
        NO_SPEND,
    )
    judge = FakeBatchJudge(result)
    report = rubric.grade_sync("text", PerCriterionOneShotGrader(judge, max_retries=0))
    assert judge.requests[0] == [4, 1, 2, 3]
    assert (report.score, report.not_applicable_count, report.failed_count) == (1.0, 2, 0)


def test_holistic_prompt_contains_the_condition() -> None:
    prompts: list[str] = []

    async def model(system: str, user: str) -> str:
        prompts.append(user)
        return '{"explanation": "so", "overall_score": 80}'

    assert refund_rubric().grade_sync("text", RubricAsJudgeGrader(model)).score == 0.8
    assert f"(+2) Names the sum [Leave this one out of the score unless this holds: {WORDS}]" in prompts[0]


def test_ledger_stores_a_condition_once_and_rescore_reads_it(tmp_path: Path) -> None:
    judge = FakeJudge(answers("UNMET"), fingerprint="fake")
    with Ledger(tmp_path / "run.sqlite") as ledger:
        [graded] = grade_many(["text"], refund_rubric(), PerCriterionGrader(judge), ledger=ledger)
        assert len(ledger) == 2
        [result] = rescore(ledger, refund_rubric(weight=50))
    assert graded.report is not None
    assert (result.missing, result.score, result.report.not_applicable_count) == (0, graded.report.score, 2)


def test_report_without_conditions_is_written_as_before() -> None:
    judge = FakeJudge({"Is kind": "MET"})
    report = Rubric([Criterion(requirement="Is kind")]).grade_sync("text", PerCriterionGrader(judge))
    assert "not_applicable" not in report.model_dump_json()
    report, _ = grade("UNMET")
    assert [row.get("not_applicable") for row in report.model_dump()["report"]] == [None, True, True]
    assert EvaluationReport.model_validate_json(report.model_dump_json()) == report


KINDS = st.fixed_dictionaries(
    {
        "weight": st.sampled_from([3.0, 1.0, -2.0]),
        "applies_when": st.sampled_from([None, "a", "b"]),
        "required": st.booleans(),
        "check": st.sampled_from([None, Check(contains="text"), Check(contains="other")]),
    }
)
VERDICTS = st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS"])


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=4), st.data(), st.sampled_from(["skip", "zero", "fail"]))
def test_stop_when_decided_decides_as_the_whole_grade_does(
    kinds: list[dict[str, Any]], data: st.DataObject, policy: Any
) -> None:
    rubric = Rubric([Criterion(requirement=f"r{number}", **fields) for number, fields in enumerate(kinds)])
    verdicts = {question.requirement: data.draw(VERDICTS) for question in all_criteria(rubric.criteria)}
    whole = rubric.grade_sync("text", PerCriterionGrader(FakeJudge(verdicts), cannot_assess=policy))
    judge = FakeJudge(verdicts)
    early = rubric.grade_sync("text", PerCriterionGrader(judge, cannot_assess=policy, stop_when_decided=True))
    assert early.passed == whole.passed
    assert early.spend.calls <= whole.spend.calls
    if early.score_range is None:
        assert early.score == whole.score
    elif whole.score is not None:
        low, high = early.score_range
        assert (low or 0.0) - 1e-9 <= whole.score <= high + 1e-9
