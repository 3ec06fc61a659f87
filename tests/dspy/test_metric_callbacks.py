"""Global DSPy callbacks, such as those of `mlflow.dspy.autolog`, see the program and no call of a judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Cascade, LMJudge
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.submission import Submission
from rubric_integrations.trust import align
from tests.dspy.programs import DEVSET, Student
from tests.dspy.test_metric_judge_model import ModuleJudge, PredictorJudge, judge_function
from tests.langchain.test_runnable import any_strategy_script
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement=text) for text in ("Gives the right product", "Is brief", "Is rude")])


class Recorder(BaseCallback):
    """Records the calls of models and modules that DSPy reports: the name of the model or of the class."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls.append(instance.model)

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls.append(type(instance).__name__)

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.calls.append(type(instance).__name__)


class OwnLM(dspy.LM):
    """A user's LM, whose calls go through DSPy."""


def script(call: Call) -> Reply:
    if call.body["model"] == "student":
        return Reply(text="[[ ## answer ## ]]\nIt is 42.\n\n[[ ## completed ## ]]")
    if "[[ ## reply ## ]]" in call.prompt:
        return Reply(text='[[ ## reply ## ]]\n{"explanation": "-", "verdict": "MET"}\n\n[[ ## completed ## ]]')
    if "## verdict ##" in call.prompt and "explanation" not in call.prompt:
        return Reply(text="[[ ## reasoning ## ]]\n-\n\n[[ ## verdict ## ]]\nMET\n\n[[ ## completed ## ]]")
    return any_strategy_script(call)


def _confident(server: OpenAIServer) -> LMJudge:
    return LMJudge("openai/mock", api_base=server.url, api_key="k", confidence=True)


def _plain(server: OpenAIServer) -> LMJudge:
    return LMJudge("openai/mock", api_base=server.url, api_key="k")


def _own(server: OpenAIServer) -> LMJudge:
    return LMJudge(OwnLM("openai/mock", api_base=server.url, api_key="k", cache=False))


WAYS: dict[str, Callable[[OpenAIServer], dict[str, Any]]] = {
    "by name": lambda server: {"judge": _plain(server)},
    "a model of a user's class": lambda server: {"judge": _own(server)},
    "confidence": lambda server: {"judge": _confident(server)},
    "one request": lambda server: {"grader": PerCriterionOneShotGrader(_own(server))},
    "an overall score": lambda server: {"grader": RubricAsJudgeGrader(_own(server))},
    "a panel": lambda server: {"grader": PerCriterionGrader(judges=[_plain(server), _own(server)])},
    "a cascade": lambda server: {"judge": Cascade(_confident(server), _own(server), escalate_below=0.9)},
    "a module": lambda server: {"judge": ModuleJudge(), "judge_lm": _plain(server).lm},
    "a predictor": lambda server: {"judge": PredictorJudge(), "judge_lm": _plain(server).lm},
    "a function": lambda server: {"judge": judge_function, "judge_lm": _plain(server).lm},
}


@pytest.mark.parametrize("way", WAYS)
def test_callbacks_of_the_settings_see_the_program_and_no_call_of_a_judge(server: OpenAIServer, way: str) -> None:
    server.script = script
    metric, recorder = RubricMetric(RUBRIC, **WAYS[way](server)), Recorder()
    student = dspy.LM("openai/student", api_base=server.url, api_key="k", cache=False)
    with dspy.context(lm=student, callbacks=[recorder]):
        dspy.Evaluate(devset=DEVSET[:2], metric=metric, num_threads=2, display_progress=False)(Student())
    assert len(server.calls) > 2
    assert sorted({*recorder.calls}) == ["ChatAdapter", "Predict", "Student", "openai/student"]
    assert recorder.calls.count("openai/student") == 2


@pytest.mark.parametrize("of_module", [False, True])
def test_callbacks_of_the_model_and_of_the_module_of_a_judge_see_its_calls(
    server: OpenAIServer, of_module: bool
) -> None:
    server.script = script
    recorder, module, judge = Recorder(), ModuleJudge(), _plain(server)
    judge.lm.callbacks.append(recorder)
    if of_module:
        module.callbacks = [recorder]
        module.set_lm(judge.lm)
    RUBRIC.grade_sync("It is 42.", PerCriterionGrader(module if of_module else judge))
    expected = {"openai/mock", "ModuleJudge"} if of_module else {"openai/mock"}
    assert set(recorder.calls) == expected


def test_callbacks_of_the_settings_see_no_call_of_an_alignment(server: OpenAIServer) -> None:
    server.script = script
    labels = [
        LabelledJudgment(
            submission=Submission(response=f"It is {number}."),
            criterion=RUBRIC.criteria[0],
            verdict="UNMET" if number % 3 else "MET",
            sampled="random",
        )
        for number in range(60)
    ]
    recorder = Recorder()
    with dspy.context(callbacks=[recorder]):
        align(_own(server), labels, "bootstrap")
    assert len(server.calls) > 2
    assert recorder.calls == []
