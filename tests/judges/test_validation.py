"""The one boundary at which answers of any judge are validated: single, batch and overall."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import (
    GRADERS,
    CriterionGrader,
    Grader,
    OptionDisplay,
    PerCriterionOneShotGrader,
    RubricAsJudgeGrader,
)
from rubric_integrations.graders.scheduler import LimitedJudge
from rubric_integrations.judges import BatchResult, Judge, JudgeWrapper
from rubric_integrations.judges.spend import SpendLimit
from rubric_integrations.judges.validation import validate_batch, validate_judgment, validate_overall
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from tests.fakes import ONE_CALL, FakeBatchJudge, FakeJudge, FakeOverallJudge, FakeStore, batch_of
from tests.judges.questions import BINARY, CLEAR, SCALE, question_about

TWO = Rubric([Criterion(requirement="a"), Criterion(requirement="b")])
ONE = Rubric([BINARY])


def answering(judgment: object) -> FakeJudge:
    """Make a judge that returns an object of the user's own, whatever it is."""
    return FakeJudge(lambda _question: judgment)


# -- one criterion

INVALID: list[tuple[Criterion, Judgment, str]] = [
    (BINARY, Judgment(verdict="UNMET", value=1.0), "came with the value 1.0, and is worth 0.0"),
    (BINARY, Judgment(verdict="UNMET", value=None), "worth 0.0"),
    (BINARY, Judgment(verdict="MET", value=0.5), "worth 1.0"),
    (BINARY, Judgment(verdict="CANNOT_ASSESS", value=0.0), "is worth None"),
    (BINARY, Judgment(verdict="YES", value=1.0), "'YES' is no verdict"),
    (BINARY, Judgment(verdict="MAYBE", value=1.0), "no verdict"),
    (CLEAR, Judgment(verdict="MET", value=1.0), "no option"),
    (CLEAR, Judgment(verdict="clear", value=0.4), "worth 1.0"),
    (SCALE, Judgment(verdict="9", value=1.0), "9"),
    (SCALE, Judgment(verdict="3/5", value=0.5), "not a number"),
]


@pytest.mark.parametrize(("criterion", "judgment", "words"), INVALID)
def test_judgment_that_does_not_answer_its_criterion_is_a_parse_failure(
    criterion: Criterion, judgment: Judgment, words: str
) -> None:
    spent = judgment.model_copy(update={"spend": ONE_CALL})
    with pytest.raises(JudgeFailure, match=words) as failure:
        validate_judgment(criterion, spent)
    assert (failure.value.kind, failure.value.retryable, failure.value.spend) == ("parse", True, ONE_CALL)


@pytest.mark.parametrize(
    ("criterion", "verdict", "value", "canonical"),
    [
        (BINARY, "met", 1.0, "MET"),
        (BINARY, "Met.", 1.0, "MET"),
        (BINARY, "**UNMET**", 0.0, "UNMET"),
        (BINARY, "cannot assess", None, "CANNOT_ASSESS"),
        (CLEAR, "CLEAR", 1.0, "clear"),
        (CLEAR, " passable ", 0.4 + 1e-9, "passable"),
        (SCALE, "3.0", 0.5, "3"),
    ],
)
def test_judgment_in_another_form_becomes_canonical(
    criterion: Criterion, verdict: str, value: float | None, canonical: str
) -> None:
    judgment = Judgment(verdict=verdict, value=value, reason="why", spend=ONE_CALL, confidence=0.5)
    valid = validate_judgment(criterion, judgment)
    assert valid.verdict == canonical
    assert valid.value == (None if value is None else pytest.approx(value))
    assert (valid.reason, valid.spend, valid.confidence) == ("why", ONE_CALL, 0.5)
    assert validate_judgment(criterion, valid) is valid


@pytest.mark.parametrize(("verdict", "value"), [("YES", 1.0), ("UNMET", 1.0)])
@pytest.mark.parametrize("form", ["per criterion", "one shot", "panel"])
def test_invalid_verdict_of_a_users_judge_is_never_scored(form: str, verdict: str, value: float) -> None:
    judgment = Judgment(verdict=verdict, value=value, spend=ONE_CALL)
    batch = FakeBatchJudge(BatchResult({1: judgment}, {}, ONE_CALL))
    graders: dict[str, Grader] = {
        "per criterion": PerCriterionGrader(answering(judgment), on_failure="abstain", max_retries=1),
        "one shot": PerCriterionOneShotGrader(batch, on_failure="abstain"),
        "panel": PerCriterionGrader(
            judges=[answering(judgment), FakeJudge("UNMET"), answering(judgment)], max_retries=0
        ),
    }
    row = ONE.grade_sync("text", grader=graders[form]).criteria[0]
    if form == "panel":
        assert (row.verdict, row.value, row.lost_votes) == ("UNMET", 0.0, 2)
        assert (row.votes[0].error or "").startswith("parse: ")
    else:
        assert (row.verdict, row.value) == (None, None)
        assert (row.error or "").startswith("parse: ")
        assert row.spend.calls == (4 if form == "per criterion" else 0)


def test_panel_counts_votes_of_the_same_verdict_in_other_forms_together() -> None:
    forms = [Judgment(verdict=verdict, value=1.0) for verdict in ("met", "Met.", "MET")]
    grader = PerCriterionGrader(judges=[*map(answering, forms), FakeJudge("UNMET")])
    row = ONE.grade_sync("text", grader=grader).criteria[0]
    assert [vote.verdict for vote in row.votes] == ["MET", "MET", "MET", "UNMET"]
    assert (row.verdict, row.agreement) == ("MET", 0.75)


def test_panel_counts_votes_for_the_same_option_in_other_forms_together() -> None:
    forms = [Judgment(verdict=verdict, value=1.0) for verdict in ("CLEAR", "clear", " Clear ")]
    row = Rubric([CLEAR]).grade_sync("text", grader=PerCriterionGrader(judges=[*map(answering, forms)])).criteria[0]
    assert [vote.verdict for vote in row.votes] == ["clear"] * 3
    assert (row.verdict, row.agreement) == ("clear", 1.0)


# -- objects that are no results


@pytest.mark.parametrize("result", ["MET", 1.0, True, None, {"verdict": "MET", "value": 1.0}, ("MET", 1.0)])
def test_object_that_is_no_result_is_a_config_failure_that_names_its_type(result: object) -> None:
    kind = type(result).__name__
    for validate, name in (
        (lambda: validate_judgment(BINARY, result), "Judgment"),
        (lambda: validate_batch({1: question_about()}, result), "BatchResult"),
        (lambda: validate_overall(result), "OverallResult"),
    ):
        with pytest.raises(JudgeFailure, match=rf"must return an? {name}, got {kind}") as failure:
            validate()
        assert (failure.value.kind, failure.value.retryable) == ("config", False)


def test_object_that_is_no_result_ends_a_grade_with_a_clear_message() -> None:
    # Not a str, which `FakeJudge` would make a judgment of.
    judges: dict[Any, Any] = {
        PerCriterionGrader: answering({"verdict": "MET"}),
        PerCriterionOneShotGrader: FakeBatchJudge({1: "MET"}),
        RubricAsJudgeGrader: FakeOverallJudge(50, result={"percent": 50}),
    }
    for grader, judge in judges.items():
        with pytest.raises(JudgeError, match=r"config: .*got dict"):
            ONE.grade_sync("text", grader=grader(judge))


# -- batches


def test_number_that_a_batch_omits_is_requested_once_more_and_is_then_a_parse_failure() -> None:
    judge = FakeBatchJudge(batch_of({1: "MET"}), batch_of({}))
    report = TWO.grade_sync("text", grader=PerCriterionOneShotGrader(judge, on_failure="abstain"))
    assert judge.requests == [[1, 2], [2], [2], [2]]
    assert [row.verdict for row in report.criteria] == ["MET", None]
    assert report.criteria[1].error == "parse: no answer"
    assert (report.complete, report.failed_count, report.spend.calls) == (False, 1, 4)


def test_number_that_a_batch_omits_at_first_is_answered_by_the_second_request() -> None:
    judge = FakeBatchJudge(batch_of({1: "MET"}), batch_of({2: "UNMET"}))
    report = TWO.grade_sync("text", grader=PerCriterionOneShotGrader(judge))
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET"]
    assert report.complete


def test_numbers_that_were_not_requested_are_ignored() -> None:
    judge = FakeBatchJudge(batch_of({0: "MET", 1: "MET", 2: "UNMET", 7: "MET"}, {3: "extra", -1: "extra"}))
    report = TWO.grade_sync("text", grader=PerCriterionOneShotGrader(judge))
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET"]
    assert (report.complete, judge.requests) == (True, [[1, 2]])


def test_fault_beside_an_answer_is_a_fault() -> None:
    judge = FakeBatchJudge(batch_of({1: "MET", 2: "MET"}, {2: "two entries"}))
    report = TWO.grade_sync("text", grader=PerCriterionOneShotGrader(judge, on_failure="abstain"))
    assert [row.verdict for row in report.criteria] == ["MET", None]
    assert report.criteria[1].error == "parse: two entries"


def test_batch_keeps_its_spend_and_what_is_valid() -> None:
    questions = {1: question_about(), 2: question_about(), 3: question_about(CLEAR)}
    answers: dict[int, Any] = {
        1: Judgment(verdict="met", value=1.0),
        2: "MET",
        3: Judgment(verdict="murky", value=0.5),
    }
    batch = validate_batch(questions, BatchResult(answers, {}, Spend(calls=3)))
    assert {number: judgment.verdict for number, judgment in batch.answers.items()} == {1: "MET"}
    assert "got str" in str(batch.faults[2])
    assert "no option" in str(batch.faults[3])
    assert batch.spend == Spend(calls=3)


# -- overall scores


@pytest.mark.parametrize("percent", [150, 100.001, -1, math.nan, math.inf, True, "90", None])
def test_overall_score_out_of_range_is_a_parse_failure_and_never_clamped(percent: object) -> None:
    judge = FakeOverallJudge(percent)
    with pytest.raises(JudgeError, match=r"parse: the score .* is not between 0 and 100") as error:
        ONE.grade_sync("text", grader=RubricAsJudgeGrader(judge, max_retries=1))
    assert judge.requests == 4
    report = error.value.report
    assert (report.score, report.raw_score, report.llm_raw_score, report.passed) == (None, None, None, False)
    assert (report.spend.calls, report.failed_count) == (4, 1)


@pytest.mark.parametrize("percent", [0, 100, 62.5])
def test_overall_score_in_range_is_unchanged(percent: float) -> None:
    report = ONE.grade_sync("text", grader=RubricAsJudgeGrader(FakeOverallJudge(percent)))
    assert (report.score, report.llm_raw_score) == (percent / 100, percent)


# -- how often


def wrappers_of(judge: Judge) -> list[type]:
    """Return the classes from the outermost wrapper to the judge."""
    classes: list[type] = [type(judge)]
    while isinstance(judge, JudgeWrapper):
        judge = cast("Judge", judge.inner)
        classes.append(type(judge))
    return classes


@pytest.mark.parametrize("grader_name", GRADERS)
def test_every_judge_of_a_grader_is_validated_and_limited_exactly_once(grader_name: str) -> None:
    judge: Any = {
        "PerCriterionGrader": FakeJudge(fingerprint="f"),
        "PerCriterionOneShotGrader": FakeBatchJudge(batch_of({1: "MET"}), fingerprint="f"),
        "RubricAsJudgeGrader": FakeOverallJudge(50, fingerprint="f"),
    }[grader_name]
    grader = GRADERS[grader_name](judges=[judge, judge])
    derived = [
        grader,
        grader.with_store(FakeStore()),
        grader.for_run(4, SpendLimit()),
        grader.without_cache(),
        grader.with_judges([JudgeWrapper(member) for member in grader.judges]),
        grader.with_judges([judge, judge]),
        grader.with_store(FakeStore()).for_run(2, SpendLimit()).without_cache().with_store(FakeStore(), sample=1),
    ]
    for each in derived:
        for member in each.judges:
            assert wrappers_of(member).count(LimitedJudge) == 1
            assert wrappers_of(member)[-1] is type(judge)
        assert ONE.grade_sync("text", grader=each).complete


@pytest.mark.parametrize("grader_type", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_abstention_from_options_is_an_error_where_judges_must_choose(grader_type: type[CriterionGrader]) -> None:
    abstention = Judgment(verdict="CANNOT_ASSESS", value=None, spend=ONE_CALL)
    batch = FakeBatchJudge(BatchResult({1: abstention}, {}, ONE_CALL))
    judge = batch if grader_type is PerCriterionOneShotGrader else answering(abstention)
    must_choose = grader_type(judge, options=OptionDisplay(may_abstain=False), max_retries=0)
    with pytest.raises(JudgeError, match="no option"):
        Rubric([CLEAR]).grade_sync("text", grader=must_choose)
    report = Rubric([CLEAR]).grade_sync("text", grader=grader_type(judge))
    assert [criterion.verdict for criterion in report.report or []] == ["CANNOT_ASSESS"]
