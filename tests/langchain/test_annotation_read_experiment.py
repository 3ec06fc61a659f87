"""`read_experiment`: the feedback of an experiment as a run, equal to the grades that were written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from langsmith import evaluate
from langsmith.schemas import Example, Feedback, FeedbackSourceBase

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import Question
from rubric_integrations.langchain import RubricEvaluator, offline_client, read_experiment
from rubric_integrations.reporting import report_page
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import JudgeFailure, Judgment, to_judgment
from tests.fakes import FakeJudge

NOW = datetime.now(UTC)

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")

RUBRIC = Rubric.from_dict(
    {
        "name": "answers",
        "pass_mark": 0.5,
        "criteria": [
            {"name": "kind", "weight": 3, "requirement": "Is kind"},
            {"name": "rude", "weight": -2, "requirement": "Is rude"},
            {"name": "tone", "weight": 1, "requirement": "Tone?",
             "options": [{"label": "plain", "value": 1}, {"label": "odd", "value": 0.5}, {"label": "x", "value": 0}]},
            {"name": "code", "weight": 1, "requirement": "Runs", "applies_when": "The answer has code"},
        ],
    }
)  # fmt: skip
ANSWERS = {
    "all good": {"Is kind": "MET", "Is rude": "UNMET", "Tone?": "plain", "Runs": "MET", "has code": "MET"},
    "in part": {"Is kind": "MET", "Is rude": "MET", "Tone?": "odd", "Runs": "MET", "has code": "UNMET"},
    "unclear": {"Is kind": "CANNOT_ASSESS", "Is rude": "UNMET", "Tone?": "x", "Runs": "UNMET", "has code": "MET"},
    "lost": {"Is kind": "no verdict", "Is rude": "UNMET", "Tone?": "x", "Runs": "UNMET", "has code": "MET"},
}


async def answer(question: Question) -> Judgment:
    words = ANSWERS[question.submission.response]
    verdict = next(verdict for key, verdict in words.items() if key in question.criterion.requirement)
    if verdict == "no verdict":
        raise JudgeFailure("parse", "no verdict")
    return to_judgment(question.criterion, verdict).model_copy(update={"reason": f"since {verdict}"})


def target(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"answer": inputs["text"]}


def experiment() -> Any:
    examples = [Example(id=uuid.uuid4(), inputs={"question": "How?", "text": text}) for text in ANSWERS]
    evaluators = [RubricEvaluator(RUBRIC, FakeJudge(answer))]
    return evaluate(target, data=examples, evaluators=evaluators, client=offline_client(), upload_results=False)


def grades(run: RunFile) -> dict[str, tuple[Any, ...]]:
    return {
        row.submission.response: (
            row.report.score, row.report.passed, [(c.verdict, c.value, bool(c.error)) for c in row.report.criteria]
        )
        for row in run.rows
        if row.submission and row.report
    }  # fmt: skip


def stored(results: Iterable[Any]) -> Any:
    """Return a client that has an experiment as LangSmith stores it, with an answer of a person beside the judge's."""
    rows = list(results)

    class Stored:
        def list_runs(self, *, project_name: str, is_root: bool) -> list[Any]:
            assert is_root
            return [row["run"] for row in rows] if project_name == "tonight" else []

        def list_examples(self, *, example_ids: list[uuid.UUID]) -> list[Any]:
            return [row["example"] for row in rows if row["example"].id in example_ids]

        def list_feedback(self, *, run_ids: list[uuid.UUID]) -> Iterable[Feedback]:
            for row in rows:
                for result in row["evaluation_results"]["results"]:
                    fields: dict[str, Any] = {
                        "id": uuid.uuid4(),
                        "run_id": row["run"].id,
                        "trace_id": row["run"].id,
                        "key": result.key,
                        "created_at": NOW,
                        "modified_at": NOW,
                    }
                    source = FeedbackSourceBase(type="model", metadata=result.evaluator_info)
                    yield Feedback(
                        **fields, score=result.score, value=result.value, comment=result.comment, feedback_source=source
                    )
                    yield Feedback(**fields, score=0.25, feedback_source=FeedbackSourceBase(type="app"))

    return Stored()


def test_feedback_becomes_the_grades_that_were_written() -> None:
    results = experiment()
    run = read_experiment(results, RUBRIC)
    by_text = grades(run)
    met, unmet = ("MET", 1.0, False), ("UNMET", 0.0, False)
    assert by_text["all good"] == (1.0, True, [met, unmet, ("plain", 1.0, False), met])
    score, passed, answers = by_text["in part"]
    assert (score, passed) == (pytest.approx((3 - 2 + 0.5) / 4), False)
    assert answers == [met, met, ("odd", 0.5, False), ("NOT_APPLICABLE", None, False)]
    assert by_text["unclear"][2][0] == ("CANNOT_ASSESS", None, False)
    assert by_text["lost"][2][0] == (None, None, True)
    assert (run.rubric, run.pass_mark) == ("answers", 0.5)
    assert [row.is_graded for row in run.rows].count(False) == 1
    assert report_page([run])
    assert grades(read_experiment("tonight", RUBRIC, client=stored(results))) == by_text


def test_criteria_that_were_not_asked_are_read_as_such() -> None:
    gated = Rubric([RUBRIC.criteria[0].model_copy(update={"required": True}), *RUBRIC.criteria[1:]])
    evaluator = RubricEvaluator(gated, grader=PerCriterionGrader(FakeJudge(answer), stop_when_decided=True))
    example = Example(id=uuid.uuid4(), inputs={"question": "How?", "text": "unclear"})
    results = evaluate(target, data=[example], evaluators=[evaluator], client=offline_client(), upload_results=False)
    for run in (read_experiment(results, gated), read_experiment("tonight", gated, client=stored(results))):
        report = run.rows[0].report
        assert report is not None
        assert (report.not_asked, report.failed_count, report.passed) == (("rude", "tone", "code"), 0, False)
        assert (report.score, report.cannot_assess_count, run.rows[0].is_graded) == (None, 1, True)


def test_experiment_without_feedback_of_the_evaluator_is_refused() -> None:
    with pytest.raises(ValueError, match="no run of the experiment has feedback 'quality'"):
        read_experiment(experiment(), RUBRIC, name="quality")
    with pytest.raises(ValueError, match="no run of the experiment"):
        read_experiment("never", RUBRIC, client=stored([]))
