"""One request for all criteria, where the answers do not depend on each other: keys, faults, groups, conditions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rubric_integrations import Criterion, JudgeError, Option, PerCriterionGrader, Rubric, Scale, Submission, grade_many
from rubric_integrations.graders import CallLimits, PerCriterionOneShotGrader, TextLimits
from rubric_integrations.judges import Cascade, Question
from rubric_integrations.scoring import JudgeFailure, Spend
from rubric_integrations.submission import Trajectory
from tests.fakes import FakeIndependentJudge, FakeJudge, FakeStore

REFUSED = JudgeFailure("parse", "the model refused this question", about_text=True, repeats=0)
TEN = Rubric([Criterion(name=f"k{n}", weight=n, requirement=f"k{n}") for n in range(1, 11)])


def rubric_of(*requirements: str) -> Rubric:
    return Rubric([Criterion(requirement=requirement) for requirement in requirements])


ROWS = [{"id": str(n), "response": f"text {n}"} for n in range(200)]


def test_ten_criteria_are_one_request_a_row_and_none_on_resume(tmp_path: Path) -> None:
    judge = FakeIndependentJudge(fingerprint="f")
    for _ in range(2):
        graded = list(grade_many(ROWS, TEN, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite"))
        assert [row.report and row.report.score for row in graded] == [1.0] * 200
    assert len(judge.requests) == 200
    assert all(len(request) == 10 for request in judge.requests)


def test_lost_answers_are_asked_for_in_one_more_request(tmp_path: Path) -> None:
    lost: set[str] = set()

    def answer(question: Question) -> str:
        response, requirement = question.submission.response, question.criterion.requirement
        if requirement in ("k3", "k7") and response.endswith("5") and (key := response + requirement) not in lost:
            lost.add(key)
            return "no answer"
        return "MET"

    judge = FakeIndependentJudge(answer, fingerprint="f")
    for _ in range(2):
        graded = list(grade_many(ROWS, TEN, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite"))
        assert all(row.report and row.report.complete for row in graded)
    assert len(judge.requests) == 220
    assert judge.requests.count(["k3", "k7"]) == 20


def test_later_criterion_costs_one_question_and_no_stored_answer(tmp_path: Path) -> None:
    judge, more = FakeIndependentJudge(fingerprint="f"), Criterion(name="new", requirement="new")
    list(grade_many(ROWS[:3], TEN, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite"))
    longer = Rubric([*TEN.criteria[:5], more, *TEN.criteria[5:]])
    list(grade_many(ROWS[:3], longer, PerCriterionGrader(judge), ledger=tmp_path / "run.sqlite"))
    assert judge.requests[3:] == [["new"]] * 3


def test_keys_are_those_of_single_questions() -> None:
    together, single = FakeStore(), FakeStore()
    TEN.grade_sync("a", grader=PerCriterionGrader(FakeIndependentJudge(fingerprint="f")).with_store(together))
    TEN.grade_sync("a", grader=PerCriterionGrader(FakeJudge(fingerprint="f")).with_store(single))
    assert together.rows.keys() == single.rows.keys()
    one_shot = FakeStore()
    TEN.grade_sync("a", grader=PerCriterionOneShotGrader(FakeIndependentJudge(fingerprint="f")).with_store(one_shot))
    assert one_shot.rows.keys().isdisjoint(single.rows)


def test_refused_question_fails_at_once_and_the_others_keep_their_answers() -> None:
    judge = FakeIndependentJudge({"r1": "MET", "r2": REFUSED, "r3": ["no answer", "MET"]})
    report = rubric_of("r1", "r2", "r3").grade_sync("a", grader=PerCriterionGrader(judge, on_failure="abstain"))
    assert [row.verdict for row in report.criteria] == ["MET", None, "MET"]
    assert report.criteria[1].error == "parse: the model refused this question"
    assert judge.requests == [["r1", "r2", "r3"], ["r3"]]


def test_final_fault_ends_a_grade_without_a_further_request() -> None:
    judge = FakeIndependentJudge({"r1": "no answer", "r2": REFUSED})
    with pytest.raises(JudgeError, match="refused this question"):
        rubric_of("r1", "r2").grade_sync("a", grader=PerCriterionGrader(judge))
    assert judge.requests == [["r1", "r2"]]


def test_thirty_refusals_in_a_row_end_no_run() -> None:
    judge = FakeIndependentJudge(lambda question: "MET" if question.submission.response == "last" else REFUSED)
    rows = [*({"response": f"text {n}"} for n in range(30)), {"response": "last"}]
    limits = CallLimits(max_concurrency=1)
    graded = list(grade_many(rows, rubric_of("r1", "r2"), PerCriterionGrader(judge, limits=limits)))
    assert [row.report is not None and row.report.score for row in graded] == [None] * 30 + [1.0]


def test_question_without_an_answer_fails_alone_after_all_rounds() -> None:
    judge = FakeIndependentJudge({"r1": "MET", "r2": "no answer"})
    report = rubric_of("r1", "r2").grade_sync("a", grader=PerCriterionGrader(judge, on_failure="abstain"))
    assert [row.verdict for row in report.criteria] == ["MET", None]
    assert judge.requests[0] == ["r1", "r2"]
    assert all(request == ["r2"] for request in judge.requests[1:])


def test_conditions_are_part_of_the_first_request() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="names the refund", applies_when="The user asks for a refund"),
            Criterion(requirement="is polite"),
        ]
    )
    judge = FakeIndependentJudge(lambda question: "MET" if question.criterion.requirement == "is polite" else "UNMET")
    report = rubric.grade_sync("a", grader=PerCriterionGrader(judge))
    assert (len(judge.requests), len(judge.requests[0])) == (1, 3)
    assert (report.score, report.criteria[0].not_applicable) == (1.0, True)


def test_criteria_that_see_the_trajectory_are_a_request_of_their_own() -> None:
    trajectory = Trajectory.from_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}])
    rubric = Rubric([Criterion(requirement="r1"), Criterion(requirement="r2", needs=("trajectory",)),
                     Criterion(requirement="r3")])  # fmt: skip
    judge = FakeIndependentJudge()
    rubric.grade_sync(Submission(response="a", trajectory=trajectory, show_trajectory="if_needed"),
                      grader=PerCriterionGrader(judge))  # fmt: skip
    assert sorted(judge.requests) == [["r1", "r3"], ["r2"]]
    judge = FakeIndependentJudge()
    rubric.grade_sync(Submission(response="a", trajectory=trajectory),
                      grader=PerCriterionGrader(judge))  # fmt: skip
    assert judge.requests == [["r1", "r2", "r3"]]


def test_parts_of_a_response_are_requests_of_their_own() -> None:
    options = (Option(label="cold", value=0), Option(label="warm", value=1))
    rubric = Rubric([Criterion(requirement="r1"), Criterion(requirement="tone", options=options),
                     Criterion(requirement="r2")])  # fmt: skip
    judge = FakeIndependentJudge(
        lambda question: "warm" if question.criterion.options
        else "MET" if "second" in question.submission.response else "UNMET"
    )  # fmt: skip
    grader = PerCriterionGrader(judge, text_limits=TextLimits(chunk_size=1_000))
    report = rubric.grade_sync("first " * 150 + "\n\n" + "second " * 130, grader=grader)
    assert sorted(judge.requests) == [["r1", "r2"], ["r1", "r2"], ["tone"]]
    assert [row.verdict for row in report.criteria] == ["MET", "warm", "MET"]
    assert report.criteria[0].reason.startswith("part 2 of 2")


class NoScales(FakeIndependentJudge):
    def refusal(self, criterion: Criterion) -> str | None:
        return "has a scale: use options" if criterion.scale else None


class FourAtMost(FakeIndependentJudge):
    def split(self, questions: Mapping[int, Question]) -> list[dict[int, Question]]:
        return [
            {number: questions[number] for number in list(questions)[start : start + 4]}
            for start in range(0, len(questions), 4)
        ]


def test_judge_splits_a_request() -> None:
    judge = FourAtMost()
    report = TEN.grade_sync("a", grader=PerCriterionGrader(judge))
    assert (report.score, sorted(map(len, judge.requests))) == (1.0, [2, 4, 4])


def test_criterion_that_a_judge_cannot_answer_is_refused_before_the_first_request() -> None:
    judge = NoScales()
    rubric = Rubric([Criterion(requirement="r1"), Criterion(name="depth", requirement="r2", scale=Scale(max=10))])
    for graded in (PerCriterionGrader(judge), PerCriterionGrader(judges=[FakeJudge(), judge])):
        with pytest.raises(ValueError, match=r"`depth` has a scale: use options.*cannot answer it"):
            rubric.grade_sync("a", grader=graded)
        with pytest.raises(ValueError, match=r"`depth`"):
            list(grade_many([{"response": "a"}], rubric, graded))
    assert judge.requests == []


def test_spend_of_a_request_is_counted_once() -> None:
    judge = FakeIndependentJudge({"r1": "MET", "r2": ["no answer", "MET"]}, spend=Spend(calls=1, cost=0.5))
    report = rubric_of("r1", "r2").grade_sync("a", grader=PerCriterionGrader(judge))
    assert report.spend == Spend(calls=2, cost=1.0)


def test_failure_of_the_request_fails_every_criterion() -> None:
    judge = FakeIndependentJudge(JudgeFailure("config", "wrong key", spend=Spend(calls=1, cost=0.5)))
    report = rubric_of("r1", "r2").grade_sync("a", grader=PerCriterionGrader(judge, on_failure="abstain"))
    assert [row.error for row in report.criteria] == ["config: wrong key"] * 2
    assert report.spend == Spend(calls=1, cost=0.5)


def test_stop_when_decided_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`stop_when_decided`.*one request"):
        PerCriterionGrader(FakeIndependentJudge(), stop_when_decided=True)


def test_panel_asks_each_judge_in_its_own_way() -> None:
    together, single = FakeIndependentJudge(), FakeJudge()
    report = TEN.grade_sync("a", grader=PerCriterionGrader(judges=[together, single]))
    assert (report.score, len(together.requests), len(single.questions)) == (1.0, 1, 10)


def test_escalated_questions_go_to_a_strong_judge_one_by_one() -> None:
    cheap = FakeIndependentJudge({"r1": "MET", "r2": "CANNOT_ASSESS", "r3": "CANNOT_ASSESS"})
    strong = FakeJudge("UNMET")
    cascade = Cascade(cheap, strong, escalate_below=0)
    report = rubric_of("r1", "r2", "r3").grade_sync("a", grader=PerCriterionGrader(cascade))
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET", "UNMET"]
    assert (cheap.requests, strong.requirements) == ([["r1", "r2", "r3"]], ["r2", "r3"])


def test_criterion_that_a_cheap_judge_cannot_answer_goes_to_the_strong_one() -> None:
    rubric = Rubric([Criterion(requirement="r1"), Criterion(name="depth", requirement="r2", scale=Scale(max=10))])
    cheap, strong = NoScales(), FakeJudge({"r2": "7"})
    report = rubric.grade_sync("a", grader=PerCriterionGrader(Cascade(cheap, strong, escalate_below=0)))
    assert ([row.verdict for row in report.criteria], cheap.requests) == (["MET", "7"], [["r1"]])
    only_scales = Rubric(rubric.criteria[1:])
    assert only_scales.grade_sync(
        "a", grader=PerCriterionGrader(Cascade(NoScales(), strong, escalate_below=0))
    ).complete
    for cascade in (
        Cascade(NoScales(), escalate_below=0),
        Cascade(FakeIndependentJudge(), NoScales(), escalate_below=0),
    ):
        with pytest.raises(ValueError, match=r"`depth` has a scale: use options"):
            rubric.grade_sync("a", grader=PerCriterionGrader(cascade))


def test_cascade_splits_requests_for_each_of_its_judges() -> None:
    cheap, strong = FakeIndependentJudge("CANNOT_ASSESS"), FourAtMost()
    report = TEN.grade_sync("a", grader=PerCriterionGrader(Cascade(cheap, strong, escalate_below=0)))
    assert (report.score, sorted(map(len, strong.requests))) == (1.0, [2, 4, 4])
