"""Judges that are written with DSPy: they run on a model of their own, and leave nothing in the student's records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import JudgeOutage, RubricMetric
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.scoring import Judgment, to_judgment
from tests.dspy.programs import DEVSET, Student
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(name="right", weight=1, requirement="Gives the right product")])


async def judge_function(system_prompt: str, user_prompt: str) -> str:
    prediction = await dspy.Predict("system_prompt, user_prompt -> reply").acall(
        system_prompt=system_prompt, user_prompt=user_prompt
    )
    return prediction.reply


class ModuleJudge(dspy.Module):
    """A judge that is a DSPy module."""

    def __init__(self) -> None:
        super().__init__()
        self.decide = dspy.ChainOfThought("response, requirement -> verdict")

    async def aforward(self, response: str, requirement: str) -> dspy.Prediction:
        return await self.decide.acall(response=response, requirement=requirement)

    async def judge(self, question: Question) -> Judgment:
        prediction = await self.acall(response=question.submission.response, requirement=question.criterion.requirement)
        return to_judgment(question.criterion, prediction.verdict)


class PredictorJudge:
    """A judge with a predictor, which it calls without `await`."""

    def __init__(self) -> None:
        self.decide = dspy.Predict("response, requirement -> verdict")

    async def judge(self, question: Question) -> Judgment:
        prediction = self.decide(response=question.submission.response, requirement=question.criterion.requirement)
        return to_judgment(question.criterion, prediction.verdict)

    def fingerprint(self) -> str:
        return "predictor"


JUDGES: list[Any] = [judge_function, ModuleJudge, PredictorJudge]


def make(judge: Any) -> Any:
    return judge() if isinstance(judge, type) else judge


@pytest.fixture(params=JUDGES, ids=["function", "module", "class"])
def judge(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server that answers both the student and a judge of whatever form, whichever model is named."""
    verdict = json.dumps({"explanation": "as scripted", "verdict": "MET"})
    fields = {"reasoning": "as scripted", "answer": "It is 6.", "reply": verdict, "verdict": "MET"}
    text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"
    with OpenAIServer(lambda _call: Reply(text=text)) as server:
        yield server


def lm_at(server: OpenAIServer, model: str) -> dspy.LM:
    return dspy.LM(f"openai/{model}", api_base=server.url, api_key="none", cache=False, num_retries=0)


def models(calls: list[Call]) -> list[str]:
    return [call.body["model"] for call in calls]


def test_judge_written_with_dspy_never_runs_on_the_student_model(server: OpenAIServer, judge: Any) -> None:
    student, metric = lm_at(server, "student"), RubricMetric(RUBRIC, judge=judge)
    with dspy.context(lm=student):
        prediction = Student()(question="Product 2?")
        with pytest.raises(JudgeOutage, match=r"`judge_lm=dspy.LM\(.*set_lm"):
            metric(DEVSET[2], prediction)
    assert models(server.calls) == ["student"]
    assert len(student.history) == 1


def test_judge_lm_is_the_model_of_a_judge_written_with_dspy(server: OpenAIServer, judge: Any) -> None:
    student, judge_lm = lm_at(server, "student"), lm_at(server, "judge")
    metric, program = RubricMetric(RUBRIC, judge=judge, judge_lm=judge_lm), Student()
    with dspy.context(lm=student, track_usage=True):
        result = dspy.Evaluate(devset=DEVSET, metric=metric, num_threads=2, display_progress=False)(program)
    assert result.score == 100.0
    # One answer for all questions, so that one grade is requested, unless two threads request it at the same time.
    assert models(server.calls).count("student") == len(DEVSET) == len(student.history)
    assert models(server.calls).count("judge") == metric.summary()["gradings"]
    for _, prediction, _ in result.results:
        assert list(prediction.get_lm_usage()) == ["openai/student"]


def test_judge_written_with_dspy_leaves_nothing_in_the_records_of_a_program(server: OpenAIServer, judge: Any) -> None:
    metric = RubricMetric(RUBRIC, judge=judge, judge_lm=lm_at(server, "judge"))

    class GradedStudent(Student):
        def forward(self, question: str) -> dspy.Prediction:
            prediction = super().forward(question)
            self.score = float(metric(dspy.Example(question=question).with_inputs("question"), prediction))
            return prediction

    program = GradedStudent()
    with dspy.context(lm=lm_at(server, "student"), trace=[]), dspy.track_usage() as usage:
        program(question="Product 2?")
        trace = list(dspy.settings.trace)
    assert program.score == 1.0
    assert [predictor for predictor, _, _ in trace] == [program.predict]
    assert list(usage.get_total_tokens()) == ["openai/student"]
    assert [entry["model"] for entry in program.history] == ["openai/student"]


def test_optimizer_that_reads_the_trace_sees_only_the_steps_of_the_program(server: OpenAIServer, judge: Any) -> None:
    metric, lengths = RubricMetric(RUBRIC, judge=judge, judge_lm=lm_at(server, "judge")), list[int]()

    def traced(example: Any, prediction: Any, trace: Any = None) -> bool:
        is_passed = bool(metric(example, prediction, trace))
        lengths.append(len(trace))
        return is_passed

    with dspy.context(lm=lm_at(server, "student")):
        compiled = dspy.BootstrapFewShot(metric=traced, max_labeled_demos=0).compile(Student(), trainset=DEVSET)
    assert lengths == [1] * len(DEVSET)
    assert len(compiled.predict.demos) == len(DEVSET)


def test_function_does_not_get_the_adapter_of_the_judge(server: OpenAIServer) -> None:
    adapters: list[object] = []

    async def judge(system_prompt: str, user_prompt: str) -> str:
        adapters.append(dspy.settings.adapter)
        return await judge_function(system_prompt, user_prompt)

    metric = RubricMetric(RUBRIC, judge=judge, judge_lm=lm_at(server, "judge"))
    assert float(metric(DEVSET[0], dspy.Prediction(answer="It is 6."))) == 1.0
    assert adapters == [None]


def test_judge_with_a_model_of_its_own_keeps_it(server: OpenAIServer) -> None:
    judge = ModuleJudge()
    judge.set_lm(lm_at(server, "own"))
    with dspy.context(lm=lm_at(server, "student")):
        assert float(RubricMetric(RUBRIC, judge=judge)(DEVSET[0], dspy.Prediction(answer="It is 6."))) == 1.0
    assert models(server.calls) == ["own"]


def test_run_without_a_student_names_the_remedy(server: OpenAIServer, judge: Any) -> None:
    with dspy.context(lm=lm_at(server, "configured")):
        run = grade_many(["It is 6."], RUBRIC, PerCriterionGrader(judge))
        assert list(run) == []
    assert "set_lm" in str(run.summary.stopped)
    assert server.calls == []


@pytest.mark.parametrize("judge", ["openai/gpt-5-mini", "offline", LMJudge("openai/gpt-5-mini")])
def test_judge_lm_with_a_judge_that_has_a_model_is_refused(judge: Any) -> None:
    with pytest.raises(ValueError, match="`judge_lm` is for a judge written with DSPy"):
        RubricMetric(RUBRIC, judge=judge, judge_lm=dspy.LM("openai/mock"))


def test_judge_lm_with_a_grader_is_refused() -> None:
    with pytest.raises(ValueError, match="`judge_lm` of `RubricMetric` goes with `judge`"):
        RubricMetric(RUBRIC, grader=PerCriterionGrader(ModuleJudge()), judge_lm=dspy.LM("openai/mock"))


def test_judgments_of_another_judge_lm_are_requested_again(server: OpenAIServer, tmp_path: Path) -> None:
    prediction = dspy.Prediction(answer="It is 6.")
    for model in ("first", "first", "second"):
        metric = RubricMetric(
            RUBRIC, judge=PredictorJudge(), judge_lm=lm_at(server, model), ledger=tmp_path / "ledger.sqlite"
        )
        assert float(metric(DEVSET[0], prediction)) == 1.0
    assert models(server.calls) == ["first", "second"]
