"""Prints the requests, tokens and cost of ten criteria on 100 rows: language models, decision models, and both.

    .venv/bin/python benchmarks/decision_costs.py

A local server answers all requests, so no vendor is billed and no accuracy is measured. Four characters of a request or
a reply count as one token. The beginning of a prompt is cached after its first reply in steps of 128 tokens from 1,024,
as OpenAI documents its cache. A row has 1,000 tokens. 30 % of the answers lose points, and a reason has 40 tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits, Grader, PerCriterionGrader, PerCriterionOneShotGrader
from rubric_integrations.judges import Cascade, DecisionJudge, LMJudge
from tests.decision_server import questions_of, reply_to, respond, state_of
from tests.openai_server import Call, OpenAIServer, Reply

ROWS, CRITERIA, LATENCY = 100, 10, 0.05
RUBRIC = Rubric(
    [Criterion(requirement=f"States the fact with the number {i} in its own words") for i in range(CRITERIA)]
)
TEXTS = [Submission(response=f"Row {i}. " + "word " * 800, query="Which facts?") for i in range(ROWS)]
REASON = "The response says so in its second part. " * 4


class Prices(NamedTuple):
    """US dollars for a million tokens."""

    input: float
    cached: float
    output: float


LLM, JEV, LUNA = Prices(0.25, 0.025, 2.0), Prices(0.042, 0.042, 0.0), Prices(0.10, 0.10, 0.0)


class Request(NamedTuple):
    """A request that the server has answered.

    Attributes:
        model: The name of the model.
        seconds: The time of the request.
        prompt: The text of which the tokens are counted.
        output: The text of the reply.
    """

    model: str
    seconds: float
    prompt: str
    output: str


class Vendor:
    """Answers requests to language models and to decision models, and records them.

    Args:
        escalated: The share of the decision model's answers that are not confident.
    """

    def __init__(self, escalated: float):
        self.requests: list[Request] = []
        self._escalated = escalated

    def __call__(self, call: Call) -> Reply:
        """Answer a request."""
        seconds, model = time.monotonic(), call.body["model"]
        if "questions" in call.body:
            reply = reply_to(call.body, self._plan(call), default=0.95)
            answers = json.dumps(reply["answers"])
            self.requests.append(Request(model, seconds, call.raw.decode(), answers))
            return respond(reply)
        text = _chat_reply(call)
        self.requests.append(Request(model, seconds, call.prompt, text))
        return Reply(text=text, delay=LATENCY)

    def _plan(self, call: Call) -> Mapping[str, float]:
        row = _row(state_of(call)["response"])
        names = [name for name in questions_of(call) if not name.endswith("_sufficient")]
        return {name: self._probability(row, int(name.removeprefix("q")) - 1) for name in names}

    def _probability(self, row: int, criterion: int) -> float:
        share = 0.75 if (row * CRITERIA + criterion) * 37 % 100 < self._escalated * 100 else 0.95
        return 1 - share if _is_lost(row, criterion) else share


def _chat_reply(call: Call) -> str:
    row = _row(call.prompt)
    numbers = re.findall(r"^(\d+)\. \(", call.prompt.rpartition("[[ ## criteria ## ]]")[2], re.MULTILINE)
    if numbers:
        verdicts = {int(number): _verdict(row, int(number) - 1) for number in numbers}
        entries = [{"id": number, "explanation": REASON, "answer": verdict} for number, verdict in verdicts.items()]
        return json.dumps({"judgments": entries})
    verdict = _verdict(row, int(re.findall(r"number (\d+)", call.criterion)[0]))
    if "leave it empty" in call.prompt:  # `reason="if_lost"`
        return json.dumps({"verdict": verdict, "explanation": REASON if verdict == "UNMET" else ""})
    return json.dumps({"explanation": REASON, "verdict": verdict})


def _row(text: str) -> int:
    return int(re.findall(r"Row (\d+)\.", text)[0])


def _is_lost(row: int, criterion: int) -> bool:
    return (row * 7 + criterion * 3) % 10 < 3


def _verdict(row: int, criterion: int) -> str:
    return "UNMET" if _is_lost(row, criterion) else "MET"


class Totals(NamedTuple):
    """The requests and tokens of a run, and their cost in US dollars."""

    requests: int
    input: int
    cached: int
    output: int
    cost: float


def totals(requests: list[Request], prices: Mapping[str, Prices]) -> Totals:
    """Add up requests. Cached tokens are a part of the input."""
    since: dict[int, float] = {}  # by the hash of the beginning of a prompt
    sums, cost = [0, 0, 0], 0.0
    for model, seconds, prompt, output in requests:
        sent, received = len(prompt) // 4, len(output) // 4
        ends = range(1024, sent + 1, 128) if prices[model].cached < prices[model].input else range(0)
        keys = {end: hash(prompt[: 4 * end]) for end in ends}
        cached = max((end for end in ends if since.get(keys[end], float("inf")) <= seconds), default=0)
        for key in keys.values():
            since.setdefault(key, seconds + LATENCY)
        sums = [sums[0] + sent, sums[1] + cached, sums[2] + received]
        price = prices[model]
        cost += (sent - cached) * price.input + cached * price.cached + received * price.output
    return Totals(len(requests), sums[0], sums[1], sums[2], cost / 1e6)


async def grade(grader: Grader) -> None:
    """Grade all rows."""
    async for _ in grade_many(TEXTS, RUBRIC, grader):
        pass


def measure(name: str, decision: Prices, escalated: float = 0.0) -> Totals:
    """Grade all rows in one way, and return its totals."""
    vendor = Vendor(escalated)
    with OpenAIServer(vendor) as server:
        address: dict[str, Any] = {"api_base": server.url, "api_key": "local"}
        limits = CallLimits(max_concurrency=32)

        def language_model(**settings: Any) -> LMJudge:
            return LMJudge("openai/llm", **address, **settings)

        judge = DecisionJudge("decision", **address)
        grader: Grader
        if name == "one shot":
            grader = PerCriterionOneShotGrader(language_model(), limits=limits)
        elif name == "language model":
            grader = PerCriterionGrader(language_model(), limits=limits)
        elif name == "if lost":
            grader = PerCriterionGrader(language_model(reason="if_lost"), limits=limits)
        elif escalated:
            grader = PerCriterionGrader(Cascade(judge, language_model(), escalate_below=0.9), limits=limits)
        else:
            grader = PerCriterionGrader(judge, limits=limits)
        asyncio.run(grade(grader))
    return totals(vendor.requests, {"llm": LLM, "decision": decision})


def main() -> None:
    """Print one row for each way."""
    ways: list[tuple[str, str, Prices, float]] = [
        ("language model, one request a criterion", "language model", JEV, 0.0),
        ('the same, `reason="if_lost"`', "if lost", JEV, 0.0),
        ("language model, all criteria in one request", "one shot", JEV, 0.0),
        ("decision model, Jev's price", "decision", JEV, 0.0),
        ("decision model, Luna's price", "decision", LUNA, 0.0),
    ]
    ways += [(f"Jev's price, {share:.0%} escalated", "cascade", JEV, share) for share in (0.1, 0.35, 0.6)]
    print(f"Prices for a million tokens: language model {LLM.input} input, {LLM.cached} cached, {LLM.output} output.")
    print(f"Jev {JEV.input} input, {JEV.output} output; Luna {LUNA.input} input, {LUNA.output} output.\n")
    print("| way | requests | input | cached | output | cost |")
    print("|---|---:|---:|---:|---:|---:|")
    for title, name, prices, escalated in ways:
        total = measure(name, prices, escalated)
        counts = " | ".join(f"{count:,}" for count in total[:4])
        print(f"| {title} | {counts} | ${total.cost:.3f} |", flush=True)


if __name__ == "__main__":
    main()
