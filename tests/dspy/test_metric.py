"""`RubricMetric` in `dspy.Evaluate`, and its settings."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, Fields, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.dspy import MisnamedField, RubricMetric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import lm_from_fn
from rubric_integrations.scoring import JudgeFailure
from tests.dspy.programs import (
    DEVSET,
    EXPECTED_SCORES,
    RUBRIC,
    Student,
    judge_at,
    metric_at,
    scripted_reply,
    student_lm,
)
from tests.fakes import FakeJudge
from tests.openai_server import OpenAIServer, Reply


def test_evaluate_with_threads_table_and_json_equals_the_scores_by_hand(
    metric: RubricMetric, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "results.json"
    evaluate = dspy.Evaluate(
        devset=DEVSET, metric=metric, num_threads=4, display_table=True, display_progress=False,
        save_as_json=str(saved), save_as_csv=str(tmp_path / "results.csv"), provide_traceback=True,
    )  # fmt: skip
    with dspy.context(lm=student_lm()):
        result = evaluate(Student())
    assert result.score == pytest.approx(100 * sum(EXPECTED_SCORES) / 4)
    assert [float(score) for _, _, score in result.results] == pytest.approx(EXPECTED_SCORES)
    rows = json.loads(saved.read_text())
    assert [float(row["RubricMetric"]) for row in rows] == pytest.approx(EXPECTED_SCORES)
    # With pyarrow, pandas keeps only the digits of a score.
    assert re.search(r"\[0\.200 not passed\]|\[0\.2\]", capsys.readouterr().out)


def test_judge_inside_a_dspy_context_uses_neither_the_students_lm_nor_its_trace(metric: RubricMetric) -> None:
    student = student_lm()
    with dspy.context(lm=student, trace=[]):
        pred = Student()(question="Product 0?")
        before = len(student.history), len(dspy.settings.trace)
        metric(DEVSET[0], pred)
        assert (len(student.history), len(dspy.settings.trace)) == before


def test_rubric_function_grades_each_example_by_its_own_rubric() -> None:
    metric = RubricMetric(lambda example: example.rubric, judge="offline")
    for number, score in [(42, 1.0), (43, 0.0)]:
        rubric = Rubric.from_dict([{"requirement": "right", "check": {"number": number}}])
        assert float(metric(dspy.Example(rubric=rubric, q="?").with_inputs("q"), dspy.Prediction(a="42"))) == score


def test_judge_that_fails_raises_and_is_counted(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    metric = metric_at(server, Rubric([Criterion(requirement="a")]))
    with pytest.raises(JudgeError):
        metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (metric.summary()["failed"], metric.summary()["calls"]) == (1, 1)


@pytest.mark.parametrize("cannot_assess", ["skip", "zero", "fail"])
def test_grade_with_nothing_assessed_is_zero_and_counted_as_undefined_if_skipped(
    server: OpenAIServer, cannot_assess: Any
) -> None:
    server.script = lambda _call: Reply("CANNOT_ASSESS")
    metric = RubricMetric(Rubric([Criterion(requirement="a")]), judge=judge_at(server), cannot_assess=cannot_assess)
    score = metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (float(score), bool(score), score.coverage) == (0.0, False, 0.0)
    assert metric.summary()["undefined"] == (1 if cannot_assess == "skip" else 0)
    assert "CANNOT_ASSESS" in score.feedback


def test_cannot_assess_sets_what_an_abstention_counts(server: OpenAIServer) -> None:
    server.script = lambda call: Reply("CANNOT_ASSESS" if call.criterion == "b" else "MET")
    rubric = Rubric([Criterion(requirement="a", weight=3), Criterion(requirement="b", weight=1)])
    judge = judge_at(server)
    scores = {
        policy: float(RubricMetric(rubric, judge=judge, cannot_assess=policy)(DEVSET[0], dspy.Prediction(answer="x")))
        for policy in ("skip", "zero", "partial", "fail")
    }
    assert scores == {"skip": 1.0, "zero": 0.75, "partial": 0.875, "fail": 0.75}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs either"),
        ({"judge": "offline", "grader": PerCriterionGrader("offline")}, "needs either"),
        ({"judge": "offline", "cache_size": -1}, "`cache_size` must be at least 0 reports, got -1"),
        ({"judge": "offline", "cannot_assess": "ignore"}, "'ignore'"),
        (
            {"judge": "offline", "respond": "first"},
            "`respond` must be 'last', 'transcript' or 'trajectory', got 'first'",
        ),
        ({"grader": PerCriterionGrader("offline"), "cannot_assess": "zero"}, "`cannot_assess` of .* goes with `judge`"),
        ({"grader": PerCriterionGrader("offline"), "limits": CallLimits()}, "`limits` of .* goes with `judge`"),
        ({"judge": "offline", "context": "a", "fields": Fields(context="b")}, "two names of one thing"),
    ],
)
def test_setting_out_of_range_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RubricMetric(RUBRIC, **settings)


@pytest.mark.parametrize("module", [dspy.BestOfN, dspy.Refine])
def test_reward_function_stops_at_the_first_attempt_above_the_threshold(metric: RubricMetric, module: Any) -> None:
    attempts = iter(["No.", "It is 6.", "It is 8, or so I would think."])

    async def answer(system: str, user: str) -> str:
        if "`[[ ## answer ## ]]`" in user:
            return f"[[ ## answer ## ]]\n{next(attempts)}"
        return await scripted_reply(system, user)

    with dspy.context(lm=lm_from_fn(answer)):
        best = module(module=Student(), N=3, reward_fn=metric.as_reward_fn(), threshold=0.9)
        assert best(question="Product 0?").answer == "It is 6."
    assert len(list(attempts)) == 1  # the second attempt reached the threshold


def test_advice_of_refine_is_given_with_the_feedback(metric: RubricMetric) -> None:
    shown: list[str] = []

    async def answer(system: str, user: str) -> str:
        if "[[ ## reward_value ## ]]" in user:
            shown.append(user.split("[[ ## reward_value ## ]]")[1].partition("[[ ## module_names")[0])
            return '[[ ## discussion ## ]]\n-\n[[ ## advice ## ]]\n{"predict": "Give the number."}'
        if "`[[ ## answer ## ]]`" in user:
            return f"[[ ## answer ## ]]\n{'It is 0.' if 'Give the number.' in user else 'No.'}"
        return await scripted_reply(system, user)

    reward = metric.as_reward_fn()
    with dspy.context(lm=lm_from_fn(answer), adapter=dspy.ChatAdapter()):
        dspy.Refine(Student(), N=2, reward_fn=reward, threshold=1.0)(question="Product 0?")
    score = reward({"question": "Product 0?"}, dspy.Prediction(answer="No."))
    assert score.feedback
    assert shown == [f"\n{float(score):.3f} not passed\n{score.feedback}\n\n"]
    assert (0.5 * score, bool(score), f"{score:.2f}") == (0.5 * float(score), False, f"{float(score):.2f}")
    assert str(pickle.loads(pickle.dumps(score))) == str(score)


@pytest.mark.parametrize("module", [dspy.BestOfN, dspy.Refine])
def test_attempt_whose_judge_fails_is_dropped_with_a_warning(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    broken = RubricMetric(RUBRIC, FakeJudge(JudgeFailure("parse", "unreadable")))
    with dspy.context(lm=student_lm()):
        settings: dict[str, Any] = {"reward_fn": broken.as_reward_fn(), "threshold": 1.0}
        assert module(Student(), N=2, **settings)(question="Product 0?") is None
        assert len(re.findall("an attempt has no grade and is dropped: .*unreadable", caplog.text)) == 2
        for limits in ({"N": 3}, {"N": 2, "fail_count": -1}):
            with pytest.raises(JudgeError, match="unreadable"):
                module(Student(), **limits, **settings)(question="Product 0?")


def passages_of(example: dspy.Example) -> Any:
    return example.passages


@pytest.mark.parametrize("context", ["passages", passages_of])
def test_context_of_an_example_reaches_the_judge(context: Any) -> None:
    judge = FakeJudge("MET")
    metric = RubricMetric(Rubric.from_dict([{"requirement": "x"}]), judge, context=context)
    example = dspy.Example(question="Which?", passages=["The Nile.", "The Rhine."]).with_inputs("question")
    metric(example, dspy.Prediction(answer="The Nile."))
    assert judge.questions[0].submission.context == ("The Nile.", "The Rhine.")
    with pytest.raises(MisnamedField, match="`context`"):
        RubricMetric(Rubric.from_dict([{"requirement": "x"}]), judge, context="passage")(
            example, dspy.Prediction(a="b")
        )
