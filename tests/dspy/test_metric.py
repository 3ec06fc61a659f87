"""The metric inside DSPy itself: Evaluate, BootstrapFewShot, and what each reads of a score."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.dspy import MisnamedField, RubricMetric, RubricScore, feedback
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric(
    [
        Criterion(name="right", weight=8, requirement="Gives the right product", check=None),
        Criterion.model_validate({"name": "brief", "weight": 2, "requirement": "Brief", "check": {"max_words": 4}}),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)
# The student answers one in two right; one wrong answer is long.
ANSWERS = ["It is 6.", "It is 8, or so I would think.", "It is 12.", "No."]
DEVSET = [dspy.Example(question=f"Product {i}?", answer=a).with_inputs("question") for i, a in enumerate(ANSWERS)]


class Student(dspy.Module):
    """Answers as scripted; its own LM would be `dspy.settings.lm`."""

    def __init__(self) -> None:
        super().__init__()
        self.predict = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.predict(question=question)


def judge_script(call: Call) -> Reply:
    right = "It is 6." in call.prompt or "It is 12." in call.prompt
    return Reply("MET" if call.criterion == "Gives the right product" and right else "UNMET")


def student_lm() -> dspy.LM:
    by_question = {f"Product {i}?": {"answer": answer} for i, answer in enumerate(ANSWERS)}
    return dspy.utils.DummyLM(by_question)  # pyright: ignore[reportReturnType]


@pytest.fixture
def metric(server: OpenAIServer) -> RubricMetric:
    server.script = judge_script
    return RubricMetric(RUBRIC, grader=PerCriterionGrader("openai/mock", api_base=server.url))


# By hand: (8 + 2) / 10, 0 / 10, (8 + 2) / 10, 2 / 10.
EXPECTED = [1.0, 0.0, 1.0, 0.2]


def test_evaluate_with_threads_table_and_json_equals_the_hand_calculation(
    metric: RubricMetric, server: OpenAIServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "results.json"
    student = student_lm()
    evaluate = dspy.Evaluate(
        devset=DEVSET, metric=metric, num_threads=4, display_table=True, display_progress=False,
        save_as_json=str(saved), save_as_csv=str(tmp_path / "results.csv"), provide_traceback=True,
    )  # fmt: skip
    with dspy.context(lm=student):
        result = evaluate(Student())
    assert result.score == pytest.approx(100 * sum(EXPECTED) / 4)
    assert [float(score) for _, _, score in result.results] == pytest.approx(EXPECTED)
    rows = json.loads(saved.read_text())
    assert [float(row["RubricMetric"]) for row in rows] == pytest.approx(EXPECTED)
    assert "[0.200 not passed]" in capsys.readouterr().out
    summary = metric.summary()
    assert (summary["gradings"], summary["passed"], summary["failed"]) == (4, 2, 0)
    assert summary["calls"] == len(server.calls) == 8  # the check costs none
    assert summary["tokens"] == sum(len(c.prompt) // 4 + len(judge_script(c).content) // 4 for c in server.calls)
    assert summary["mean_coverage"] == 1.0


def test_the_judge_never_runs_on_the_students_lm_nor_writes_its_trace(metric: RubricMetric) -> None:
    student = student_lm()
    with dspy.context(lm=student, trace=[]):
        pred = Student()(question="Product 0?")
        before = len(student.history), len(dspy.settings.trace)
        metric(DEVSET[0], pred)
        assert (len(student.history), len(dspy.settings.trace)) == before


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_bootstrapping_keeps_only_what_passed(metric: RubricMetric, threshold: float | None) -> None:
    optimizer = dspy.BootstrapFewShot(metric=metric, metric_threshold=threshold, max_labeled_demos=0)
    with dspy.context(lm=student_lm()):
        compiled = optimizer.compile(Student(), trainset=DEVSET)
    assert sorted(demo["answer"] for demo in compiled.predict.demos) == ["It is 12.", "It is 6."]


def test_the_five_argument_call_gives_feedback_whatever_the_trace(metric: RubricMetric) -> None:
    pred = dspy.Prediction(answer="It is 8, or so I would think.")
    scores = [metric(DEVSET[1], pred), metric(DEVSET[1], pred, [], "predict", []), metric(DEVSET[1], pred, trace=[1])]
    assert len({str(score.feedback) for score in scores}) == 1
    lines = scores[0].feedback.splitlines()
    assert lines[0] == "Score 0.00 (not passed)."
    assert lines[1].startswith("UNMET (weight 8): Gives the right product")
    assert lines[2].startswith("UNMET (weight 2): Brief: has 8 words, more than 4")
    assert lines[3] == "As it should be: Is rude (avoided)"


def test_feedback_names_penalties_abstentions_and_failures() -> None:
    rubric = Rubric([Criterion(requirement=r, weight=w) for r, w in [("a", 1), ("bad", -9), ("b", 3), ("c", 2)]])
    from tests.scoring.test_formula import report_of

    report: EvaluationReport = report_of(rubric, "UNMET", "MET", "CANNOT_ASSESS", "ERROR", on_failure="abstain")
    assert [line.split(":")[0] for line in feedback(report).splitlines()[1:]] == [
        "PENALTY (weight -9)", "UNMET (weight 1)", "CANNOT_ASSESS (weight 3)", "NOT JUDGED (weight 2)",
    ]  # fmt: skip


def test_a_score_is_a_number_a_truth_value_and_json() -> None:
    low = RubricScore(score=0.0, passed=False, feedback="f", coverage=1.0)
    high = RubricScore(score=0.9, passed=True, feedback="f", coverage=1.0)
    assert not low
    assert high
    assert sum([low, high]) == pytest.approx(0.9)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert (low < high, high >= 0.9, max([low, high], key=float) is high) == (True, True, True)
    assert json.loads(json.dumps([low, high])) == ["0.0", "0.9"]
    assert (low == 0.0, high == 0.9, high != low, high == dspy.Prediction(**dict(high.items()))) == (True,) * 4
    for twin in (copy.deepcopy(high), copy.copy(high), pickle.loads(pickle.dumps(high))):
        assert (float(twin), bool(twin), twin.feedback, dict(twin.items())) == (0.9, True, "f", dict(high.items()))
    assert (f"{high}", high * 100, 2 * high) == ("0.900 passed", 90.0, 1.8)


def seen_by(server: OpenAIServer, **settings: Any) -> Any:
    rubric = Rubric([Criterion(requirement="a")])
    return RubricMetric(rubric, grader=PerCriterionGrader("openai/mock", api_base=server.url), **settings)


def prompt_of(server: OpenAIServer) -> str:
    return server.calls[-1].prompt


def test_the_default_fields(server: OpenAIServer) -> None:
    metric = seen_by(server)
    example = dspy.Example(question="Q", context=["one", "two"], answer="gold").with_inputs("question", "context")
    metric(example, dspy.Prediction(reasoning="because", answer="A", sources={"n": 1}))
    prompt = prompt_of(server)
    assert 'question: Q\n\ncontext: ["one", "two"]' in prompt
    assert 'answer: A\n\nsources: {"n": 1}' in prompt
    assert "because" not in prompt
    assert "gold" not in prompt
    metric(dspy.Example(question="Q").with_inputs("question"), dspy.Prediction(reasoning="because", answer="A"))
    assert "\nQ\n" in prompt_of(server)
    assert "\nA\n" in prompt_of(server)
    metric(dspy.Example(question="Q"), "plain text")
    assert "plain text" in prompt_of(server)


def _shout(pred: Any) -> str:
    return pred.answer.upper()


def test_fields_by_name_and_by_function(server: OpenAIServer) -> None:
    metric = seen_by(server, query="question", response=_shout, reference="gold")
    example = dspy.Example(question="Q", gold="exemplar", other="o").with_inputs("question", "other")
    metric(example, dspy.Prediction(answer="abc", note="n"))
    prompt = prompt_of(server)
    for text in ("\nQ\n", "\nABC\n", "\nexemplar\n"):
        assert text in prompt
    assert "\no\n" not in prompt
    with pytest.raises(MisnamedField, match=r"`response` names the field 'missing'.*'answer'"):
        seen_by(server, response="missing")(example, dspy.Prediction(answer="abc"))


def test_the_rubric_may_come_from_the_example(server: OpenAIServer) -> None:
    metric = RubricMetric(lambda example: example.rubric, judge="offline")
    for number, score in [(42, 1.0), (43, 0.0)]:
        rubric = Rubric.from_dict([{"requirement": "right", "check": {"number": number}}])
        assert float(metric(dspy.Example(rubric=rubric, q="?").with_inputs("q"), dspy.Prediction(a="42"))) == score


@pytest.mark.parametrize("pred", [None, dspy.Prediction(answer=""), dspy.Prediction(answer=None), dspy.Prediction()])
def test_a_program_that_gave_nothing_scores_zero_without_a_call(server: OpenAIServer, pred: Any) -> None:
    metric = seen_by(server)
    score = metric(DEVSET[0], pred)
    assert (float(score), bool(score), len(server.calls)) == (0.0, False, 0)
    assert "raised" in score.feedback or "empty" in score.feedback
    assert metric.summary()["nothing_to_grade"] == 1


def test_an_undefined_score_is_the_worst_with_coverage_beside_it(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("CANNOT_ASSESS")
    metric = seen_by(server)
    score = metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (float(score), bool(score), score.coverage, metric.summary()["undefined"]) == (0.0, False, 0.0, 1)


def test_a_judge_that_is_down_raises_and_is_counted(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    metric = seen_by(server)
    with pytest.raises(JudgeError):
        metric(DEVSET[0], dspy.Prediction(answer="x"))
    assert (metric.summary()["failed"], metric.summary()["calls"]) == (1, 1)


def test_a_judge_must_be_named() -> None:
    with pytest.raises(ValueError, match="needs either"):
        RubricMetric(RUBRIC)
    with pytest.raises(ValueError, match="needs either"):
        RubricMetric(RUBRIC, judge="offline", grader=PerCriterionGrader("offline"))


@pytest.mark.parametrize("frontier", ["instance", "objective", "hybrid", "cartesian"])
def test_gepa_keeps_a_front_over_the_criteria(metric: RubricMetric, frontier: str) -> None:
    from dspy.teleprompt.gepa.gepa import GEPA

    reflection_lm = dspy.utils.DummyLM([{"new_instruction": "Try."}] * 50)
    optimizer = GEPA(
        metric=metric, max_metric_calls=12, reflection_lm=reflection_lm, gepa_kwargs={"frontier_type": frontier},
        track_stats=True, num_threads=2,
    )  # fmt: skip
    with dspy.context(lm=student_lm()):
        compiled: Any = optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET)
    best = compiled.detailed_results
    assert best.val_aggregate_scores[0] == pytest.approx(sum(EXPECTED) / 4)
    # By hand: two of four right, all but the long one brief, none rude.
    assert best.val_aggregate_subscores[0] == pytest.approx({"right": 0.5, "brief": 0.75, "rude": 1.0})


def test_objectives_turn_penalties_and_leave_out_abstentions(server: OpenAIServer) -> None:
    server.script = lambda call: Reply({"bad": "MET", "can't tell": "CANNOT_ASSESS"}.get(call.criterion, "UNMET"))
    rubric = Rubric([Criterion(requirement=r, weight=w) for r, w in [("a", 2), ("bad", -1), ("can't tell", 3)]])
    metric = RubricMetric(rubric, grader=PerCriterionGrader("openai/mock", api_base=server.url))
    assert metric(DEVSET[0], dspy.Prediction(answer="x")).objective_scores == {"c1": 0.0, "c2": 0.0}
    assert metric(DEVSET[0], None).objective_scores == {"c1": 0.0, "c2": 0.0, "c3": 0.0}


def test_simba_shows_its_rule_writer_the_reward_and_its_feedback(metric: RubricMetric) -> None:
    """The part of SIMBA that reads a metric."""
    from dspy.teleprompt.simba_utils import wrap_program

    with dspy.context(lm=student_lm()):
        found: Any = wrap_program(Student(), metric)(DEVSET[3])
    assert (type(found["score"]), found["score"]) == (float, 0.2)
    assert "Gives the right product" in found["output_metadata"]["feedback"]


def test_a_misnamed_field_ends_the_run_and_is_no_zero(server: OpenAIServer) -> None:
    metric = RubricMetric(RUBRIC, grader=PerCriterionGrader("openai/mock", api_base=server.url), response="reply")
    said = r"`response` names the field 'reply', but there are only \['answer'\]"
    with pytest.raises(MisnamedField, match=said):
        metric(DEVSET[0], dspy.Prediction(answer="It is 6."))
    with dspy.context(lm=student_lm()), pytest.raises(MisnamedField, match=said):
        dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(Student())
    assert server.calls == []


def test_a_number_that_is_none_is_a_text_like_any_other(metric: RubricMetric) -> None:
    assert float(metric(DEVSET[0], dspy.Prediction(answer=float("nan")))) == 0.2  # brief, and neither right nor rude


def test_a_program_that_raises_is_not_the_judges_failure(metric: RubricMetric) -> None:
    class Broken(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            raise RuntimeError("the program's own fault")

    result = dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(Broken())
    assert result.score == 0.0
    assert metric.summary()["failed"] == 0
