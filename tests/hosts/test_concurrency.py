"""The limit of a grader on concurrent calls applies in every host, and so does the smaller limit of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import dspy
import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.judges import LMJudge
from rubric_integrations.langchain import RubricRunnable
from rubric_integrations.runs import grade_batches
from rubric_integrations.training import RubricReward
from tests.openai_server import OpenAIServer, Reply
from tests.server.serving import serving

RUBRIC = Rubric.from_dict([{"requirement": f"Fulfils rule {number}"} for number in range(4)])
TEXTS = [f"text {number}" for number in range(16)]


class Program(dspy.Module):
    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


def evaluate(grader: Grader) -> None:
    devset = [dspy.Example(question=text).with_inputs("question") for text in TEXTS]
    metric = RubricMetric(RUBRIC, grader=grader)
    dspy.Evaluate(devset=devset, metric=metric, num_threads=8, display_progress=False)(Program())


def train(grader: Grader) -> None:
    reward = RubricReward(RUBRIC, grader=grader)

    async def step() -> None:
        # As TRL does with several reward functions.
        await asyncio.gather(*(reward(["q"] * 4, [f"{text} {number}" for text in TEXTS[:4]]) for number in range(4)))

    asyncio.run(step())


def serve(grader: Grader) -> None:
    async def post() -> None:
        async with serving(RUBRIC, grader) as service:
            await asyncio.gather(*(service.post("/grade", {"response": text}) for text in TEXTS))

    asyncio.run(post())


def grade_tables(grader: Grader) -> None:
    import pyarrow as pa

    list(grade_batches([pa.table({"response": TEXTS})], RUBRIC, grader))


HOSTS: dict[str, Callable[[Grader], object]] = {
    "grade_many": lambda grader: list(grade_many(TEXTS, RUBRIC, grader)),
    "grade_batches": grade_tables,
    "Rubric.grade": lambda grader: RUBRIC.grade_sync("text", grader),
    "DSPy": evaluate,
    "LangChain": lambda grader: RubricRunnable(RUBRIC, grader=grader).batch([{"output": text} for text in TEXTS]),
    "training": train,
    "server": serve,
}


@pytest.mark.parametrize("host", HOSTS)
def test_limit_of_the_grader_applies(server: OpenAIServer, host: str) -> None:
    server.script = lambda _call: Reply(delay=0.01)
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url), limits=CallLimits(max_concurrency=2))
    HOSTS[host](grader)
    assert len(server.calls) >= 4
    assert server.peak == 2


@pytest.mark.parametrize(("of_grader", "of_run", "peak"), [(2, 8, 2), (8, 2, 2), (None, 8, 8), (None, 3, 3)])
def test_smaller_limit_applies_in_a_run(server: OpenAIServer, of_grader: int | None, of_run: int, peak: int) -> None:
    server.script = lambda _call: Reply(delay=0.01)
    limits = CallLimits(max_concurrency=of_grader)
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url), limits=limits)
    list(grade_many(TEXTS, RUBRIC, grader, max_concurrency=of_run))
    assert server.peak == peak
