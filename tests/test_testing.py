"""`ScriptedJudge`: scripted answers of every kind, in every grader and host."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dspy
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Scale, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Question
from rubric_integrations.langchain import RubricEvaluator, RubricMiddleware, RubricRunnable
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.testing import ScriptedJudge

RUBRIC = Rubric(
    [
        Criterion(name="margin", weight=3, requirement="States the margin"),
        Criterion(name="source", weight=1, requirement="Names the source"),
    ]
)
MIXED = {"margin": "MET", "Names the source": ("UNMET", "It names none.")}


def verdict_by_length(question: Question) -> str:
    return "MET" if len(question.submission.response) > 5 else "UNMET"


async def reply_later(question: Question) -> tuple[str, str]:
    return verdict_by_length(question), "measured"


@pytest.mark.parametrize("strategy", [PerCriterionGrader, PerCriterionOneShotGrader])
@pytest.mark.parametrize(
    ("answers", "score"),
    [("MET", 1.0), ("UNMET", 0.0), (MIXED, 0.75), (verdict_by_length, 1.0), (reply_later, 1.0)],
    ids=["met", "unmet", "mapping", "function", "async function"],
)
def test_answers_of_every_form_are_given_by_each_grader(answers: Any, score: float, strategy: Any) -> None:
    judge = ScriptedJudge(answers)
    report = RUBRIC.grade_sync("It was 8.4%.", strategy(judge), query="The margin?")
    assert report.score == score
    assert [question.criterion.name for question in judge.questions] == ["margin", "source"]
    assert {question.submission.query for question in judge.questions} == {"The margin?"}


def test_reasons_abstentions_and_failures_reach_the_report() -> None:
    judge = ScriptedJudge({"margin": ("CANNOT_ASSESS", "No figures."), "source": JudgeFailure("transport", "no reply")})
    margin, source = RUBRIC.grade_sync("text", PerCriterionGrader(judge, on_failure="worst_case")).criteria
    assert (margin.verdict, margin.reason) == ("CANNOT_ASSESS", "No figures.")
    assert source.error == "transport: no reply"


def test_options_numbers_and_judgments_are_answers() -> None:
    rubric = Rubric(
        [
            Criterion(name="clear", weight=1, requirement="How clear?", scale=Scale(min=0, max=10)),
            Criterion(name="sure", weight=1, requirement="Is right"),
        ]
    )
    judge = ScriptedJudge({"clear": 7, "sure": Judgment(verdict="MET", value=1.0, confidence=0.5)})
    clear, sure = rubric.grade_sync("text", PerCriterionGrader(judge)).criteria
    assert (clear.verdict, clear.value, sure.verdict) == ("7", 0.7, "MET")


@pytest.mark.parametrize(
    ("answers", "message"),
    [({"margin": "MET"}, "no answer is scripted for 'source': add it, or `default=`"), ("MTE", "'MTE' is no verdict")],
)
def test_missing_or_invalid_answer_is_a_failure_that_names_the_criterion(answers: Any, message: str) -> None:
    with pytest.raises(JudgeError, match=r"source|margin") as caught:
        RUBRIC.grade_sync("text", PerCriterionGrader(ScriptedJudge(answers)))
    assert message in str(caught.value)


def test_default_answers_criteria_that_the_mapping_does_not_contain() -> None:
    judge = ScriptedJudge({"margin": "UNMET"}, default="MET")
    assert RUBRIC.grade_sync("text", PerCriterionGrader(judge)).score == 0.25
    with pytest.raises(ValueError, match="`default` goes with a mapping"):
        ScriptedJudge("MET", default="UNMET")


def test_condition_is_answered_by_its_text() -> None:
    rubric = Rubric([Criterion(name="sum", weight=1, requirement="Names the sum", applies_when="A refund is due")])
    grader = PerCriterionGrader(ScriptedJudge({"A refund is due": "UNMET"}))
    assert rubric.grade_sync("text", grader).criteria[0].not_applicable


def test_score_of_the_whole_is_the_answer_to_overall() -> None:
    report = RUBRIC.grade_sync("text", RubricAsJudgeGrader(ScriptedJudge({"overall": (85, "Mostly right.")})))
    assert report.score == 0.85
    with pytest.raises(JudgeError, match="is not a score"):
        RUBRIC.grade_sync("text", RubricAsJudgeGrader(ScriptedJudge("CANNOT_ASSESS")))


def test_run_with_a_ledger_asks_an_equal_judge_nothing_again(tmp_path: Path) -> None:
    rows, ledger = ["It was 8.4%.", "It was 9%."], str(tmp_path / "run.sqlite")
    counts: list[int] = []
    for judge in (ScriptedJudge(MIXED), ScriptedJudge(dict(MIXED)), ScriptedJudge({**MIXED, "margin": "UNMET"})):
        assert len(list(grade_many(rows, RUBRIC, PerCriterionGrader(judge), ledger=ledger, max_cost=1.0))) == 2
        counts.append(len(judge.questions))
    assert counts == [4, 0, 4]


@pytest.mark.parametrize("answers", ["MET", MIXED, verdict_by_length, JudgeFailure("parse", "no JSON")])
def test_pickled_judge_has_the_same_answers_and_fingerprint(answers: Any) -> None:
    judge = ScriptedJudge(answers)
    copied = pickle.loads(pickle.dumps(judge))
    assert copied.fingerprint() == judge.fingerprint()
    assert repr(copied.answers) == repr(answers)


def test_judges_with_different_functions_have_different_fingerprints() -> None:
    assert ScriptedJudge(lambda _: "MET").fingerprint() != ScriptedJudge(lambda _: "UNMET").fingerprint()


def test_dspy_metric_uses_the_answers() -> None:
    metric = RubricMetric(RUBRIC, judge=ScriptedJudge(MIXED))
    example = dspy.Example(question="The margin?").with_inputs("question")
    assert float(metric(example, dspy.Prediction(answer="It was 8.4%."))) == 0.75


def test_langchain_hosts_use_the_answers() -> None:
    judge = ScriptedJudge(MIXED)
    feedback = RubricEvaluator(RUBRIC, judge=judge)(inputs={"q": "?"}, outputs={"answer": "It was 8.4%."})
    assert feedback["score"] == 0.75
    assert RubricRunnable(RUBRIC, judge=judge).invoke({"output": "It was 8.4%."}).score == 0.75
    middleware = RubricMiddleware(RUBRIC, judge=judge)
    agent = create_agent(GenericFakeChatModel(messages=iter([AIMessage("It was 8.4%.")] * 9)), middleware=[middleware])
    before = len(judge.questions)
    agent.invoke({"messages": [{"role": "user", "content": "The margin?"}]})
    assert len(judge.questions) > before
