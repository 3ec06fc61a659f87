"""Criteria that need evidence (`needs`): without it they are abstentions that cost no call, in every grader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.graders.per_criterion import question_order
from rubric_integrations.rubric import Criterion
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.submission import Attachment, Step, Trajectory
from rubric_integrations.submission.submission import missing_evidence
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, batch_of

TRAJECTORY = Trajectory(steps=(Step(role="user", text="What was it?"), Step(role="assistant", text="8.4%")))
LACKING = "needs the trajectory, which the submission does not have"
EVIDENCE: dict[str, dict[str, Any]] = {
    "trajectory": {"trajectory": TRAJECTORY},
    "reference": {"reference": "It was 8.4%."},
    "query": {"query": "What was it?"},
    "image": {"attachments": [Attachment(data="R0lGODlh", mime_type="image/gif")]},
    "context": {"context": "Annual report"},
}


def needing(*needs: str, **fields: object) -> Rubric:
    looks = {"name": "looks", "requirement": "Looks it up", "weight": 3, "needs": list(needs), **fields}
    return Rubric.from_dict([{"name": "kind", "requirement": "Is kind", "weight": 1}, looks])


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_criterion_is_asked_about_only_with_its_evidence(evidence: str) -> None:
    rubric, judge = needing(evidence), FakeJudge()
    report = rubric.grade_sync(Submission(response="8.4%"), PerCriterionGrader(judge))
    assert judge.requirements == ["Is kind"]
    assert [row.verdict for row in report.criteria] == ["MET", "CANNOT_ASSESS"]
    assert report.criteria[1].reason.startswith("needs ")
    assert (report.score, report.coverage, report.complete, report.cannot_assess_count) == (1.0, 0.25, True, 1)
    others = {name: value for key, fields in EVIDENCE.items() if key != evidence for name, value in fields.items()}
    assert missing_evidence(rubric.criteria[1], Submission(response="8.4%", **others)) == report.criteria[1].reason
    report = rubric.grade_sync(Submission(response="8.4%", **EVIDENCE[evidence]), PerCriterionGrader(judge))
    assert report.coverage == 1.0


def test_document_of_the_criterion_is_its_context_and_a_file_is_no_image() -> None:
    own = Criterion(requirement="Agrees with it", needs=("context",), context="Annual report")
    assert missing_evidence(own, Submission(response="8.4%")) is None
    pdf = Submission(
        response="8.4%", query=" ", attachments=(Attachment(data="JVBERg==", mime_type="application/pdf"),)
    )
    several = Criterion(requirement="Agrees with it", needs=("image", "query"))
    assert missing_evidence(several, pdf) == "needs an image and the query, which the submission does not have"


@pytest.mark.parametrize("policy", [("skip", 1.0), ("zero", 0.25), ("partial", 0.625), ("fail", 0.25)])
def test_absent_evidence_counts_by_the_policy_for_abstentions(policy: tuple[Any, float]) -> None:
    grader = PerCriterionGrader(FakeJudge(), cannot_assess=policy[0])
    assert needing("trajectory").grade_sync("8.4%", grader).score == policy[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"check": {"contains": "8.4%"}},
        {"options": [{"label": "yes", "value": 1.0}, {"label": "no", "value": 0.0}]},
        {"scale": {"min": 1, "max": 5}},
        {"weight": -3},
        {"applies_when": {"contains": "8.4%"}},
    ],
)
def test_absent_evidence_is_an_abstention_of_every_kind_of_criterion(fields: dict[str, Any]) -> None:
    report = needing("trajectory", **fields).grade_sync("8.4%", PerCriterionGrader(judge := FakeJudge()))
    assert judge.requirements == ["Is kind"]
    assert (report.criteria[1].verdict, report.criteria[1].reason) == ("CANNOT_ASSESS", LACKING)


def test_absent_evidence_is_the_na_option_where_there_is_one() -> None:
    options = [{"label": "yes", "value": 1.0}, {"label": "no", "value": 0.0}, {"label": "unclear", "na": True}]
    report = needing("trajectory", options=options).grade_sync("8.4%", PerCriterionGrader(FakeJudge()))
    assert (report.criteria[1].verdict, report.criteria[1].value) == ("unclear", None)


def test_condition_is_answered_before_the_evidence_counts() -> None:
    rubric = needing("trajectory", applies_when="There is a question")
    judge = FakeJudge(lambda question: "MET" if question.criterion.requirement == "Is kind" else "UNMET")
    report = rubric.grade_sync("8.4%", PerCriterionGrader(judge))
    assert (len(judge.questions), report.criteria[1].verdict) == (2, "NOT_APPLICABLE")


def test_panel_and_early_stopping_make_no_call_without_evidence() -> None:
    judges = [FakeJudge(), FakeJudge()]
    report = needing("trajectory").grade_sync("8.4%", PerCriterionGrader(judges=judges))
    assert [judge.requirements for judge in judges] == [["Is kind"], ["Is kind"]]
    row = report.criteria[1]
    assert (row.verdict, row.votes, row.not_asked, row.error, report.complete) == ("CANNOT_ASSESS", (), (), None, True)
    judge = FakeJudge()
    report = needing("trajectory", required=True).grade_sync("8.4%", PerCriterionGrader(judge, stop_when_decided=True))
    assert (judge.questions, report.passed, report.not_asked) == ([], False, ("kind",))


def test_one_shot_leaves_the_criterion_out_of_its_request() -> None:
    judge = FakeBatchJudge(batch_of({1: "MET"}))
    report = needing("trajectory").grade_sync("8.4%", PerCriterionOneShotGrader(judge))
    assert judge.requests == [[1]]
    assert [row.verdict for row in report.criteria] == ["MET", "CANNOT_ASSESS"]
    only = Rubric.from_dict([{"requirement": "Looks it up", "needs": ["image"]}])
    assert only.grade_sync("8.4%", PerCriterionOneShotGrader(judge)).spend.calls == 0
    assert judge.requests == [[1]]


def test_holistic_grade_without_evidence_is_a_failure_without_a_call() -> None:
    judge = FakeOverallJudge(80)
    with pytest.raises(JudgeError, match=f"`looks` {LACKING}: a score of the whole cannot leave it out"):
        needing("trajectory").grade_sync("8.4%", RubricAsJudgeGrader(judge))
    assert judge.requests == 0
    assert needing("trajectory").grade_sync(
        Submission(response="8.4%", trajectory=TRAJECTORY), RubricAsJudgeGrader(judge)
    ).score == pytest.approx(0.8)


def test_run_and_rescore_give_the_same_report(tmp_path: Path) -> None:
    rubric, judge = needing("trajectory"), FakeJudge(fingerprint="fake")
    submissions = [Submission(response="8.4%"), Submission(response="8.4%", trajectory=TRAJECTORY)]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        before = [graded.report for graded in grade_many(submissions, rubric, PerCriterionGrader(judge), ledger=ledger)]
        after = list(rescore(ledger, rubric))
    assert [result.missing for result in after] == [0, 0]
    verdicts = [[row.verdict for row in report.criteria] for report in before if report]
    assert verdicts == [["MET", "CANNOT_ASSESS"], ["MET", "MET"]]
    assert [[(row.verdict, row.reason) for row in result.report.criteria] for result in after] == [
        [(row.verdict, row.reason) for row in report.criteria] for report in before if report
    ]


def test_needs_are_written_and_read_and_wrong_ones_are_refused() -> None:
    rubric = needing("trajectory", "image")
    assert Rubric.from_yaml(rubric.to_yaml()).criteria[1].needs == ("trajectory", "image")
    assert "needs" not in Rubric.from_dict([{"requirement": "Is kind"}]).criteria[0].model_dump()
    with pytest.raises(ValueError, match=r"needs.*'trajectory', 'reference', 'query', 'image' or 'context'"):
        needing("tools")
    with pytest.raises(ValueError, match="has 'image' twice"):
        needing("image", "image")


class PricedJudge(FakeJudge):
    """A judge that records how many bytes a call is expected to have."""

    def highest_cost(self, text_bytes: int) -> float:
        self.bytes = text_bytes
        return 0.0


@pytest.mark.parametrize(("show", "needs", "is_shown"), [("always", (), True), ("if_needed", (), False),
    ("if_needed", ("trajectory",), True), ("as_response", ("trajectory",), False)])  # fmt: skip
def test_cost_of_a_call_is_bounded_with_the_steps_that_it_shows(show: Any, needs: Any, is_shown: bool) -> None:
    def highest_bytes(length: int) -> int:
        trajectory = Trajectory(steps=(Step(role="assistant", text="x" * length),))
        submission = Submission(response="8.4%", trajectory=trajectory, show_trajectory=show)
        judge = PricedJudge()
        rubric = Rubric([Criterion(requirement="Looks it up", needs=needs)])
        list(grade_many([submission], rubric, PerCriterionGrader(judge), max_cost=1.0))
        return judge.bytes

    assert highest_bytes(5_000) - highest_bytes(1_000) == (4_000 if is_shown else 0)


def test_question_with_a_long_trajectory_comes_after_a_shorter_one_of_equal_weight() -> None:
    trajectory = Trajectory(steps=(Step(role="assistant", text="x" * 5_000),))
    rubric = Rubric([Criterion(requirement="Looks it up", needs=("trajectory",)), Criterion(requirement="Is kind")])
    orders = [
        list(question_order(rubric, Submission(response="8.4%", trajectory=trajectory, show_trajectory=show)))
        for show in ("always", "if_needed")
    ]
    assert orders == [[1, 0], [1, 0]]
    heavier = Rubric([rubric.criteria[0].model_copy(update={"weight": 11.0}), rubric.criteria[1]])
    submission = Submission(response="8.4%", trajectory=trajectory)
    assert list(question_order(heavier, submission)) == [0, 1]
    assert list(question_order(heavier, submission.model_copy(update={"show_trajectory": "if_needed"}))) == [1, 0]
