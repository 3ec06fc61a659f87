"""Measures what one exploration for all criteria saves, and the memory of many explorations in progress.

    python benchmarks/exploration.py tokens
    python benchmarks/exploration.py memory

`tokens` compares, for 1, 5, 10 and 19 criteria, the prompts of one exploration and its judgments with one loop of tools
for each criterion. Four characters are one token. The choices of the scripts, which are not those of a real model:

- The run has 400 steps of 2,500 characters, which is 1 MB. Each criterion is decided by another step.
- The one exploration lists the first page, then searches for a word of each criterion (at most fifteen, eight in a
  request), and submits ten lines around each match. It reads no step. Each criterion is judged on all of these lines.
- A loop for one criterion has the same tools, prompts and limits. It lists the first page, searches for the word, reads
  the step that it has found ("reading"; not in the other figure), and ends. Its last reply is the verdict.

In the figures in brackets, a token counts as a tenth if it is in a prefix of the prompt before, which providers cache.
`one request` judges all criteria of the exploration in one request (`PerCriterionOneShotGrader`).

`memory` grades 128 rows of 1 MB (`--mb`), all in progress, and prints the peak of the process above its start, and what
remains of it without the texts of the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, Rubric, Submission, grade_many
from rubric_integrations.graders import Grader, PerCriterionGrader, PerCriterionOneShotGrader, TextLimits
from rubric_integrations.judges import Explorer, LMJudge
from rubric_integrations.submission import Step, ToolCall, Trajectory
from tests.fakes import FakeExplorer, FakeJudge, tool_calls

STEPS, CHARACTERS, ROWS, SEARCHES = 400, 2_500, 128, 15
LINE = "ok " * 16
MET = '{"explanation": "", "verdict": "MET"}'


def shared_prefix(text: str, other: str) -> int:
    """Return the number of equal characters at the beginning of two texts."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((place for place, (one, two) in pairs if one != two), min(len(text), len(other)))


class Recorder:
    """A model with scripted replies, which adds up its prompts and the part of them that was sent before.

    Attributes:
        tokens: The tokens of all prompts.
        uncached: The tokens, of which a repeated prefix counts as a tenth.
    """

    def __init__(self, replies: Sequence[str]):
        self.tokens, self.uncached = 0.0, 0.0
        self._replies, self._calls, self._earlier = replies, 0, ""

    async def __call__(self, system: str, user: str) -> str:
        prompt = f"{system}\n{user}"
        shared = shared_prefix(prompt, self._earlier)
        self.tokens += len(prompt) / 4
        self.uncached += (len(prompt) - 0.9 * shared) / 4
        self._earlier, self._calls = prompt, self._calls + 1
        return self._replies[min(self._calls, len(self._replies)) - 1]


def step_of(number: int) -> int:
    """Return the step that decides a criterion."""
    return 20 * number


def make_run(criteria: int) -> Submission:
    """Make a run in which line 25 of a step has the word of each criterion."""
    places = {step_of(number): f"word{number}word" for number in range(1, criteria + 1)}
    count = CHARACTERS // (len(LINE) + 1)
    steps: list[Step] = []
    for number in range(1, STEPS + 1):
        lines = [f"{LINE}{number}"] * count
        lines[25] = places.get(number, lines[25])
        steps.append(
            Step(role="assistant", text=f"Part {number}.", calls=(ToolCall(name="sh", result="\n".join(lines)),))
        )
    return Submission(response="Done.", query="Build the program.", trajectory=Trajectory(steps=tuple(steps)))


def explorer_script(numbers: Sequence[int], *, reads: bool) -> list[str]:
    """Return the replies of an exploration for these criteria."""
    searches = [("search", {"text": f"word{number}word"}) for number in numbers][:SEARCHES]
    requests: list[list[tuple[str, dict[str, Any]]]] = [[("list", {})]]
    requests += [searches[start : start + 8] for start in range(0, len(searches), 8)]
    if reads:
        requests.append([("read", {"step": step_of(number)}) for number in numbers])
    requests.append([("submit", {"lines": [f"{step_of(number)}:23-32" for number in numbers]})])
    return [tool_calls(*calls) for calls in requests]


async def grade(
    submission: Submission, rubric: Rubric, script: list[str], grader_type: type[Grader] = PerCriterionGrader
) -> tuple[Recorder, Recorder]:
    """Grade a run with one exploration, and return the recorders of the explorer and of the judge."""
    answers = [{"id": number, "explanation": "", "answer": "MET"} for number in range(1, len(rubric.criteria) + 1)]
    is_each = grader_type is PerCriterionGrader
    explorer, judge = Recorder(script), Recorder([MET if is_each else json.dumps({"judgments": answers})])
    grader = grader_type(LMJudge(judge), text_limits=TextLimits(explorer=Explorer(explorer)))
    report = await rubric.grade(submission, grader=grader)
    if report.exploration is None or report.score != 1.0:
        raise RuntimeError(repr(report))
    return explorer, judge


async def compare_tokens() -> None:
    """Print the tokens of both ways for each number of criteria."""
    print("criteria | one exploration + judge (cached) | with one request | loops (cached) | loops, reading (cached)")
    for count in (1, 5, 10, 19):
        submission, numbers = make_run(count), range(1, count + 1)
        rubric = Rubric([Criterion(requirement=f"Part {number} of the program works") for number in numbers])
        script = explorer_script(numbers, reads=False)
        one = await grade(submission, rubric, script)
        batch = await grade(submission, rubric, script, PerCriterionOneShotGrader)
        figures = [f"{one[0].tokens:,.0f} + {one[1].tokens:,.0f} ({total(one, 'uncached'):,.0f})"]
        figures.append(f"{total(batch, 'tokens'):,.0f}")
        for reads in (False, True):
            loops = [
                (await grade(submission, Rubric([criterion]), explorer_script([number], reads=reads)))[0]
                for number, criterion in zip(numbers, rubric.criteria, strict=True)
            ]
            figures.append(f"{total(loops, 'tokens'):,.0f} ({total(loops, 'uncached'):,.0f})")
        print(count, *figures, sep=" | ")


def total(recorders: Sequence[Recorder], name: str) -> float:
    """Return the sum of a figure of recorders."""
    return sum(getattr(recorder, name) for recorder in recorders)


def memory(megabytes: float) -> None:
    """Grade rows from a file with all of them in progress, and print the peak of the process."""
    count = int(megabytes * 10**6 / CHARACTERS)
    steps = [{"role": "assistant", "text": f"{number} " + LINE * (CHARACTERS // len(LINE))} for number in range(count)]
    path = Path(tempfile.mkdtemp(), "runs.jsonl")
    with path.open("w") as file:
        for number in range(ROWS):
            row = {"id": str(number), "response": "Done.", "trajectory": {"steps": steps}}
            file.write(json.dumps(row) + "\n")
    del steps

    def rows() -> Iterator[Any]:
        with path.open() as file:
            yield from map(json.loads, file)

    script = [
        [("list", {}), ("search", {"text": "nowhere"})],
        [("read", {"step": 7})],
        [("submit", {"steps": [7, 8, 9]})],
    ]
    rubric = Rubric([Criterion(requirement="Works")])
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    grader = PerCriterionGrader(FakeJudge(), text_limits=TextLimits(explorer=FakeExplorer(*script)))
    began = time.perf_counter()
    graded = sum(result.score == 1.0 for result in grade_many(rows(), rubric, grader, max_concurrency=ROWS))
    seconds = time.perf_counter() - began
    above = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - start
    print(f"{graded} rows of {megabytes:g} MB: {above:.0f} MB above the {start:.0f} MB of the start, "
          f"{above - ROWS * megabytes / 1.048576:.0f} MB without the texts; {seconds:.1f} s")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Measures what one exploration for all criteria saves, and its memory."
    )
    parser.add_argument("figure", choices=("tokens", "memory"))
    parser.add_argument("--mb", type=float, default=1.0, help="the size of a row in MB")
    options = parser.parse_args()
    if options.figure == "tokens":
        asyncio.run(compare_tokens())
    else:
        memory(options.mb)
