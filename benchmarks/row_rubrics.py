"""Grades rows that bring a rubric each in every way in: the same scores, seconds, memory, and the size of the ledger.

python benchmarks/row_rubrics.py [ROWS]
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
os.environ.setdefault("LANGSMITH_TRACING", "false")
REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.openai_server import Call, OpenAIServer, Reply

CRITERION = re.compile(r"\d+-\d+: [a-z ]+")
PHRASES = ("names the dose", "asks for the age", "warns of an allergy", "says when to see a doctor", "stays calm")


def make_rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows in the shape of HealthBench: a conversation, a response, and about eleven criteria of its own."""
    chance = random.Random(18)  # noqa: S311
    for number in range(count):
        criteria = [
            {
                "criterion": f"{number}-{place}: {' '.join(chance.choices(PHRASES, k=8))}",
                "points": chance.choice((10, 7, 5, 3, -5, -8)) if place else 5,
                "tags": [f"axis:{chance.choice(('accuracy', 'completeness', 'communication'))}"],
            }
            for place in range(chance.randint(5, 17))
        ]
        yield {
            "id": f"row-{number}",
            "prompt": [{"role": "user", "content": " ".join(chance.choices(PHRASES, k=25))}],
            "response": f"Response {number}: " + " ".join(chance.choices(PHRASES, k=60)),
            "rubrics": criteria,
        }


def answer(call: Call) -> Reply:
    """Answer by a hash of the criterion, whatever else the prompt contains."""
    criterion = CRITERION.findall(call.body["messages"][-1]["content"])[-1]
    return Reply("MET" if hashlib.sha256(criterion.encode()).digest()[0] % 2 else "UNMET")


def by_grade_many(path: Path, url: str) -> list[float | None]:
    """Grade the file with `grade_many` and a ledger."""
    from rubric_integrations import PerCriterionGrader, grade_many
    from rubric_integrations.judges import LMJudge
    from rubric_integrations.submission import read_responses

    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=url))
    run = grade_many(read_responses(path), None, grader, ledger=path.with_suffix(".sqlite"))
    return [graded.score for graded in run]


def by_metric(path: Path, url: str) -> list[float | None]:
    """Grade the rows with `dspy.Evaluate(metric=RubricMetric(judge=...))`."""
    import dspy

    from rubric_integrations import Fields
    from rubric_integrations.dspy import RubricMetric
    from rubric_integrations.judges import LMJudge

    class Recorded(dspy.Module):
        """A program that returns the recorded response of each row."""

        def forward(self, prompt: str, response: str) -> dspy.Prediction:
            """Return the response."""
            return dspy.Prediction(answer=response)

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    examples = [
        dspy.Example(prompt=str(row["prompt"]), response=row["response"], rubric=row["rubrics"]).with_inputs(
            "prompt", "response"
        )
        for row in rows
    ]
    metric = RubricMetric(judge=LMJudge("openai/mock", api_base=url), fields=Fields(query="prompt"))
    evaluate = dspy.Evaluate(devset=examples, metric=metric, num_threads=64, display_progress=False)
    return [float(score) for _, _, score in evaluate(Recorded()).results]


def by_langsmith(path: Path, url: str) -> list[float | None]:
    """Grade the rows with `langsmith.evaluate` and `RubricEvaluator(judge=...)`."""
    import uuid

    from langsmith import evaluate
    from langsmith.schemas import Example

    from rubric_integrations import Fields
    from rubric_integrations.judges import LMJudge
    from rubric_integrations.langchain import RubricEvaluator, offline_client

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    examples = [
        Example(
            id=uuid.uuid4(), inputs={"prompt": row["prompt"], "number": number}, metadata={"rubric": row["rubrics"]}
        )
        for number, row in enumerate(rows)
    ]
    evaluator = RubricEvaluator(judge=LMJudge("openai/mock", api_base=url), fields=Fields(query="prompt"))
    results = evaluate(
        lambda inputs: {"output": rows[inputs["number"]]["response"]},
        data=examples, evaluators=[evaluator], upload_results=False, client=offline_client(), max_concurrency=64,
    )  # fmt: skip
    scores = {row["run"].inputs["number"]: row["evaluation_results"]["results"][0].score for row in results}
    return [scores[number] for number in range(len(rows))]


def by_shell(path: Path, url: str) -> list[float | None]:
    """Grade the file with the command `grade`."""
    out = path.with_suffix(".out.jsonl")
    command = ["-m", "rubric_integrations", "grade", str(path), "--judge", "openai/mock", "--api-base", url, "--quiet"]
    subprocess.run(  # noqa: S603
        [sys.executable, *command, "--out", str(out)], check=True, capture_output=True, cwd=REPOSITORY
    )
    return [json.loads(line)["score"] for line in out.read_text().splitlines()]


WAYS = {"grade": by_shell, "grade_many": by_grade_many, "dspy.Evaluate": by_metric, "langsmith.evaluate": by_langsmith}


def main() -> None:
    """Measure all ways, or run one of them in a process of its own and print its scores."""
    if len(sys.argv) > 2:
        _, way, path, url = sys.argv
        print(json.dumps(WAYS[way](Path(path), url)))
        usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        print(max(usage) / 1024)
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    first: list[float | None] | None = None
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder, OpenAIServer() as server:
            server.script = answer
            path = Path(folder) / "rows.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(count)))
            start = time.perf_counter()
            command = [sys.executable, __file__, way, str(path), server.url]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
            seconds = time.perf_counter() - start
            scores, memory = map(json.loads, output.splitlines()[-2:])
            first = first or scores
            same = "the same scores" if scores == first else "OTHER SCORES"
            ledger = sum(file.stat().st_size for file in Path(folder).glob("*.sqlite")) / 1e6
            print(
                f"{way:19} {count} rows, {len(server.calls)} calls, {seconds:.1f} s, {memory:.0f} MB, "
                f"ledger {ledger:.1f} MB, mean {sum(scores) / count:.4f}, {same}",
                flush=True,
            )


if __name__ == "__main__":
    main()
