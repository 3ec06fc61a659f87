"""The trajectory in prompts, keys and limits, and the steps that a judge cites."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.dspy import feedback
from rubric_integrations.graders import GRADERS, PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge, Question, as_example
from rubric_integrations.judges.prompts.parse import parse_citations
from rubric_integrations.langchain.feedback import to_feedback
from rubric_integrations.reporting import report_table
from rubric_integrations.runs import Graded, Ledger, rescore
from rubric_integrations.scoring import JudgeFailure, Judgment, LabelledJudgment
from rubric_integrations.submission import Row, Step, ToolCall, Trajectory
from tests.fakes import FakeBatchJudge, FakeJudge, FakeModel, FakeOverallJudge, FakeStore, batch_of
from tests.judges.questions import BINARY, NEEDING, STEPS, with_steps


def cited(*steps: object, verdict: str = "MET") -> str:
    return json.dumps({"explanation": "It looked.", "evidence": steps, "verdict": verdict})


def test_cited_steps_reach_every_report() -> None:
    rubric = Rubric([NEEDING.model_copy(update={"name": "looks"}), BINARY])
    judge = LMJudge(FakeModel(cited("step 3", 2, 3, verdict="UNMET"), '{"explanation": "x", "verdict": "MET"}'))
    report = rubric.grade_sync(with_steps("if_needed"), PerCriterionGrader(judge))
    assert [row.evidence for row in report.criteria] == [(2, 3), ()]
    assert "UNMET (weight 10): Names the river: It looked. (steps 2, 3)" in feedback(report)
    assert to_feedback(rubric, report, "rubric")[1].comment == "It looked. (steps 2, 3)"
    assert report.to_dataframe()["evidence"].tolist() == [(2, 3), ()]
    assert report.model_dump()["report"][0]["evidence"] == (2, 3)
    assert "evidence" not in report.model_dump()["report"][1]
    console = Console(width=200, file=io.StringIO())
    console.print(report_table(Graded(Row("a", with_steps()), report, rubric=rubric)))
    assert "It looked. (steps 2, 3)" in cast("io.StringIO", console.file).getvalue()


@pytest.mark.parametrize("step", [0, 4])
async def test_step_that_does_not_exist_is_requested_again_and_never_left_out(step: int) -> None:
    model = FakeModel(cited(2, step), cited(2))
    report = await Rubric([BINARY]).grade(with_steps(), PerCriterionGrader(model))
    assert (len(model.prompts), report.criteria[0].evidence) == (2, (2,))
    with pytest.raises(
        JudgeError, match=f"parse: the judge cites the step {step}, and the submission has steps 1 to 3"
    ):
        await Rubric([BINARY]).grade(with_steps(), PerCriterionGrader(FakeModel(cited(step)), max_retries=1))


async def test_judge_of_ones_own_is_held_to_the_steps_that_exist() -> None:
    judge = FakeJudge(lambda _question: Judgment(verdict="MET", value=1.0, evidence=(3, 1, 3)))
    report = await Rubric([BINARY]).grade(with_steps("if_needed"), PerCriterionGrader(judge))
    assert report.criteria[0].evidence == (1, 3)
    with pytest.raises(JudgeError, match="cites the step 3, and the submission has no trajectory"):
        await Rubric([BINARY]).grade("text", PerCriterionGrader(judge, max_retries=0))


async def test_each_answer_of_one_request_has_its_own_evidence() -> None:
    def entries(evidence: dict[int, dict[str, object]]) -> str:
        answers = [{"id": number, "explanation": "x", **more, "answer": "MET"} for number, more in evidence.items()]
        return json.dumps({"judgments": answers})

    first = entries({1: {"evidence": [2]}, 2: {}, 3: {"evidence": [9]}})
    model = FakeModel(first, entries({3: {"evidence": "step 1"}}))
    rubric = Rubric([BINARY, Criterion(requirement="Is kind"), Criterion(requirement="Is brief")])
    report = await rubric.grade(with_steps(), PerCriterionOneShotGrader(model))
    assert [row.evidence for row in report.criteria] == [(2,), (), (1,)]
    assert len(model.prompts) == 2


async def test_panel_has_the_evidence_of_the_judges_of_its_verdict() -> None:
    replies = [cited(1), cited(3, 2), cited(1, 2, verdict="UNMET")]
    report = await Rubric([BINARY]).grade(with_steps(), PerCriterionGrader(judges=[FakeModel(r) for r in replies]))
    assert (report.criteria[0].verdict, report.criteria[0].evidence) == ("MET", (1, 2, 3))


async def test_reply_without_evidence_is_an_answer_also_within_prose() -> None:
    model = FakeModel('Here it is: {"explanation": "x", "verdict": "UNMET"}')
    steps = Trajectory(steps=STEPS[:1])
    judgment = await LMJudge(model).judge(Question(with_steps(trajectory=steps), BINARY))
    assert (judgment.verdict, judgment.evidence) == ("UNMET", ())


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ([2, "3", "Step 4", "#5"], [2, 3, 4, 5]),
        ("steps 2, 5", [2, 5]),
        ("[1, 2]", [1, 2]),
        (7, [7]),
        (None, []),
        ("", []),
    ],
)
def test_citations_are_read_as_models_write_them(value: object, steps: list[int]) -> None:
    assert parse_citations(value) == steps


@pytest.mark.parametrize("value", [[1.0], [-1], "-1", [True], ["first"], "2-5", {"step": 1}, [[1]], 2.5])
async def test_citation_that_is_no_number_is_an_unreadable_reply(value: object) -> None:
    reply = json.dumps({"explanation": "x", "evidence": value, "verdict": "MET"})
    with pytest.raises(JudgeFailure, match="which is not the number of a step") as failure:
        await LMJudge(FakeModel(reply)).judge(Question(with_steps(), BINARY))
    assert (failure.value.kind, failure.value.retryable) == ("parse", True)


async def test_probabilities_and_examples_go_with_citations() -> None:
    shares = {"MET": 0.6, "UNMET": 0.2, "CANNOT_ASSESS": 0.2}
    verdict = {"probabilities": shares, "confidence": 0.7}
    model = FakeModel(json.dumps({"explanation": "e", "evidence": [2], "verdict": verdict}))
    label = LabelledJudgment(submission=with_steps(response="9%"), criterion=BINARY, verdict="UNMET")
    judge = LMJudge(model, confidence=True, examples=[label])
    judgment = await judge.judge(Question(with_steps(), BINARY))
    assert (judgment.confidence, judgment.evidence) == (0.7, (2,))
    example = as_example(label)
    prediction = await judge.acall(**example.inputs())
    assert prediction.evidence == [2]


@pytest.mark.parametrize("grader_name", GRADERS)
def test_key_depends_on_the_trajectory_only_where_the_judge_sees_it(grader_name: str) -> None:
    make_judge: Any = {
        "PerCriterionGrader": lambda: FakeJudge(fingerprint="m"),
        "PerCriterionOneShotGrader": lambda: FakeBatchJudge(batch_of({1: "MET"}), fingerprint="m"),
        "RubricAsJudgeGrader": lambda: FakeOverallJudge(50, fingerprint="m"),
    }[grader_name]

    def keys(submission: Submission, criterion: Criterion = BINARY) -> set[str]:
        store = FakeStore()
        GRADERS[grader_name](make_judge()).with_store(store).grade_sync(Rubric([criterion]), submission)
        return set(store.rows)

    plain = keys(Submission(response="8.4%"))
    shorter = Trajectory(steps=STEPS[:2])
    assert keys(with_steps("if_needed")) == plain
    all_keys = [plain, keys(with_steps()), keys(with_steps(trajectory=shorter)), keys(with_steps("as_response"))]
    assert len(set[str]().union(*all_keys)) == 4
    assert keys(with_steps("if_needed"), NEEDING) == keys(with_steps(), NEEDING) == keys(with_steps())


def test_evidence_survives_the_ledger_and_rescore(tmp_path: Path) -> None:
    judge = FakeJudge(lambda _question: Judgment(verdict="MET", value=1.0, evidence=(2,)), fingerprint="fake")
    with Ledger(tmp_path / "run.sqlite") as ledger:
        for _ in range(2):
            [graded] = grade_many([with_steps()], Rubric([BINARY]), PerCriterionGrader(judge), ledger=ledger)
            assert graded.report is not None
            assert graded.report.criteria[0].evidence == (2,)
        [rescored] = rescore(ledger, Rubric([BINARY]))
    assert len(judge.questions) == 1
    assert (rescored.missing, rescored.report.criteria[0].evidence) == (0, (2,))


def test_text_of_a_trajectory_is_rendered_once_and_anew_for_a_shorter_one() -> None:
    call = ToolCall(name="open", result="x" * 300)
    long = Trajectory(steps=(Step(role="assistant", calls=(call,)),))
    assert long.text() is long.text()
    assert len(long.shortened(10).text()) < len(long.text())
