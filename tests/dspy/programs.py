"""The DSPy program, data, scripted models and optimizer runs that the tests of the DSPy adapter share."""

from __future__ import annotations

import json
import re
from typing import Any

import dspy
from dspy.teleprompt import BetterTogether, BootstrapFewShotWithRandomSearch, MIPROv2
from dspy.teleprompt.gepa.gepa import GEPA
from dspy.teleprompt.simba import SIMBA

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge, lm_from_fn
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric(
    [
        Criterion(name="right", weight=8, requirement="Gives the right product", check=None),
        Criterion.model_validate({"name": "brief", "weight": 2, "requirement": "Brief", "check": {"max_words": 4}}),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)
# Every second answer of the student is right; one of the wrong answers is long.
ANSWERS = ["It is 6.", "It is 8, or so I would think.", "It is 12.", "No."]
DEVSET = [dspy.Example(question=f"Product {i}?", answer=a).with_inputs("question") for i, a in enumerate(ANSWERS)]
# The scores of ANSWERS by hand: (8 + 2) / 10, 0 / 10, (8 + 2) / 10, 2 / 10.
EXPECTED_SCORES = [1.0, 0.0, 1.0, 0.2]

HINT = "Be brief and right."
"""The instruction with which the scripted student answers every question correctly."""


class Student(dspy.Module):
    """A program of one predictor, which runs on the LM of `dspy.settings`."""

    def __init__(self) -> None:
        super().__init__()
        self.predict = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.predict(question=question)


def student_lm() -> dspy.LM:
    """Answers each question of DEVSET with the text of ANSWERS, whatever its instructions."""
    by_question = {f"Product {i}?": {"answer": answer} for i, answer in enumerate(ANSWERS)}
    return dspy.utils.DummyLM(by_question)  # pyright: ignore[reportReturnType]


async def scripted_reply(system: str, user: str) -> str:
    """The reply of every model but the judge: the student, and the models that write instructions for it."""
    reply_format = user.rsplit("Respond with", 1)[-1]
    number = re.findall(r"Product (\d)\?", user)
    answer = "It is 6." if HINT in system + user else ANSWERS[int(number[-1])] if number else "none"
    fields = {"answer": answer, "module_advice": json.dumps({"predict": HINT}), "reasoning": "As scripted."}
    if "a JSON object" in reply_format:
        return json.dumps({name: fields.get(name, HINT) for name in re.findall(r"`(\w+)`", reply_format)})
    names = re.findall(r"\[\[ ## (\w+) ## \]\]", reply_format)
    return "\n\n".join(f"[[ ## {name} ## ]]\n{fields.get(name, HINT)}" for name in names)


def task_lm() -> dspy.LM:
    """Answers DEVSET as `student_lm`, and correctly if its instructions contain HINT; proposes HINT as instructions."""
    return lm_from_fn(scripted_reply)


def judge_script(call: Call) -> Reply:
    """The server's judge: the answers with 6 and 12 are right, and none is rude."""
    is_right = "It is 6." in call.prompt or "It is 12." in call.prompt
    return Reply("MET" if call.criterion == "Gives the right product" and is_right else "UNMET")


def judge_at(server: OpenAIServer) -> LMJudge:
    return LMJudge(dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=False, num_retries=0))


def metric_at(
    server: OpenAIServer, rubric: Any = RUBRIC, *, max_outage: float = 300.0, **settings: Any
) -> RubricMetric:
    grader = PerCriterionGrader(judge_at(server), max_retries=0, limits=CallLimits(max_outage=max_outage))
    return RubricMetric(rubric, grader=grader, **settings)


def run_evaluate(metric: Any, lm: Any) -> Any:
    return dspy.Evaluate(devset=DEVSET * 3, metric=metric, num_threads=2, display_progress=False)(Student())


def run_random_search(metric: Any, lm: Any) -> Any:
    search = BootstrapFewShotWithRandomSearch(metric=metric, num_candidate_programs=2, num_threads=2)
    return search.compile(Student(), trainset=DEVSET, valset=DEVSET)


def run_mipro(metric: Any, lm: Any) -> Any:
    optimizer = MIPROv2(metric=metric, prompt_model=lm, task_model=lm, auto=None, num_candidates=2, num_threads=2)
    return optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET, num_trials=3, minibatch=False)


def run_simba(metric: Any, lm: Any) -> Any:
    optimizer = SIMBA(metric=metric, bsize=4, num_candidates=2, max_steps=2, max_demos=2, prompt_model=lm)
    return optimizer.compile(Student(), trainset=DEVSET, seed=1)


def run_gepa(metric: Any, lm: Any) -> Any:
    optimizer = GEPA(metric=metric, max_metric_calls=40, reflection_lm=lm, num_threads=2)
    return optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET)


def run_better_together(metric: Any, lm: Any) -> Any:
    search = BootstrapFewShotWithRandomSearch(metric=metric, num_candidate_programs=1, num_threads=2)
    student = Student()
    student.set_lm(lm)
    return BetterTogether(metric=metric, p=search).compile(student, trainset=DEVSET, valset=DEVSET, strategy="p")
