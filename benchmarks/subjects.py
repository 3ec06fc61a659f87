"""The subjects of `speed.py`: each library grades the same submissions, in the way that its documentation shows."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CRITERIA = [f"Requirement {number} of the response" for number in range(12)]
QUERY = "query " * 100
Grade = Callable[[list[str]], Awaitable[int]]
"""Grades texts against all criteria, and returns the number of judgments."""


def floor_aiohttp(url: str, cap: int) -> Grade:
    """Make the lower bound: requests of the same size with aiohttp alone, whose replies are not parsed."""
    import aiohttp

    def body(text: str) -> bytes:
        return json.dumps({"model": "mock", "messages": [{"role": "user", "content": f"{'s' * 2400}{text}"}]}).encode()

    async def grade(texts: list[str]) -> int:
        async def ask(text: str) -> None:
            async with session.post(f"{url}/chat/completions", data=body(text)) as answer:
                await answer.read()

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=cap)) as session:
            await asyncio.gather(*(ask(text) for text in texts for _ in CRITERIA))
        return len(texts) * len(CRITERIA)

    return grade


def ours(url: str, cap: int, ledger: bool = False, model: str = "openai/mock", max_cost: float | None = None) -> Grade:
    """Make the subject of this library: `grade_many` with all its parts."""
    from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
    from rubric_integrations.judges import LMJudge

    rubric = Rubric([Criterion(requirement=text) for text in CRITERIA])
    grader = PerCriterionGrader(LMJudge(model, api_base=url))

    async def grade(texts: list[str]) -> int:
        submissions = [Submission(response=text, query=QUERY) for text in texts]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.ledger" if ledger else None
            run = grade_many(submissions, rubric, grader, max_concurrency=cap, ledger=path, max_cost=max_cost)
            return sum([len(graded.report.criteria) async for graded in run if graded.report])

    return grade


def ours_with_ledger(url: str, cap: int) -> Grade:
    """Make the same subject, with each judgment stored in a ledger."""
    return ours(url, cap, ledger=True)


def ours_with_max_cost(url: str, cap: int) -> Grade:
    """Make the same subject, with a spend limit that is not reached, and a model whose price is known."""
    return ours(url, cap, model="openai/gpt-4.1-nano", max_cost=1_000.0)


def dspy_predict(url: str, cap: int) -> Grade:
    """Make the subject of plain DSPy: our signature in `dspy.Predict.acall`, with DSPy's default adapter."""
    import dspy

    from rubric_integrations.judges.prompts.signatures import JudgeCriterion

    lm = dspy.LM("openai/mock", api_base=url, api_key="none", cache=False)
    predict = dspy.Predict(JudgeCriterion)

    async def grade(texts: list[str]) -> int:
        slots, is_met = asyncio.Semaphore(cap), list[bool]()

        async def ask(text: str, criterion: str) -> None:
            async with slots:
                inputs = {"guidelines": "", "reference": "", "kind": "requirement"}
                answer = await predict.acall(lm=lm, query=QUERY, submission=text, criterion=criterion, **inputs)
                is_met.append(answer.verdict == "MET")

        await asyncio.gather(*(ask(text, criterion) for text in texts for criterion in CRITERIA))
        return sum(is_met)

    return grade


def rubric(url: str, cap: int) -> Grade:
    """Make the subject of the `rubric` package: its `generate_fn` uses one shared AsyncOpenAI client."""
    from openai import AsyncOpenAI
    from rubric import Criterion, Rubric
    from rubric.autograders import PerCriterionGrader

    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def grade(texts: list[str]) -> int:
        slots = asyncio.Semaphore(cap)

        async def generate(system_prompt: str, user_prompt: str, **_: Any) -> Any:
            messages: Any = [{"role": "system", "content": system_prompt}, {"role": "user", "content": user_prompt}]
            async with slots:
                answer = await client.chat.completions.create(model="mock", messages=messages)
            return _typed(answer.choices[0].message.content or "")

        graded = Rubric([Criterion(weight=1.0, requirement=text) for text in CRITERIA])
        grader = PerCriterionGrader(generate_fn=generate)
        reports = await asyncio.gather(*(graded.grade(text, autograder=grader, query=QUERY) for text in texts))
        return sum(len(report.report or []) for report in reports)

    return grade


def _typed(reply: str) -> Any:
    """Return what the `rubric` package expects from a `generate_fn`: typed output since 2.0, the text before."""
    if find_spec("rubric.types") is None:
        return reply
    import rubric

    output = getattr(rubric, "PerCriterionOutput", None)
    return reply if output is None else output.model_validate(json.loads(reply))


def autorubric(url: str, cap: int) -> Grade:
    """Make the subject of `autorubric`, with its own concurrency limit."""
    from autorubric import Criterion, LLMConfig, Rubric
    from autorubric.graders import CriterionGrader

    config = LLMConfig(model="openai/mock", api_base=url, api_key="none", max_parallel_requests=cap)
    grader = CriterionGrader(llm_config=config)
    graded = Rubric([Criterion(name=f"c{i}", weight=1.0, requirement=text) for i, text in enumerate(CRITERIA)])

    async def grade(texts: list[str]) -> int:
        reports = await asyncio.gather(*(graded.grade(text, grader=grader, query=QUERY) for text in texts))
        return sum(len(report.report or []) for report in reports)

    return grade


def openevals(url: str, cap: int) -> Grade:
    """Make the subject of `openevals`: one `create_async_llm_as_judge` on one shared client, called per criterion."""
    from openai import AsyncOpenAI
    from openevals.llm import create_async_llm_as_judge

    client: Any = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    prompt = "Is it true of the output? {criterion}\n<input>{inputs}</input>\n<output>{outputs}</output>"
    judge: Any = create_async_llm_as_judge(prompt=prompt, judge=client, model="mock")

    async def grade(texts: list[str]) -> int:
        slots = asyncio.Semaphore(cap)

        async def ask(text: str, criterion: str) -> None:
            async with slots:
                await judge(inputs=QUERY, outputs=text, criterion=criterion)

        await asyncio.gather(*(ask(text, criterion) for text in texts for criterion in CRITERIA))
        return len(texts) * len(CRITERIA)

    return grade


SUBJECTS: dict[str, Callable[[str, int], Grade]] = {
    "aiohttp alone": floor_aiohttp,
    "rubric_integrations": ours,
    "rubric_integrations, ledger": ours_with_ledger,
    "dspy.Predict": dspy_predict,
    "rubric": rubric,
    "autorubric": autorubric,
    "openevals": openevals,
}
