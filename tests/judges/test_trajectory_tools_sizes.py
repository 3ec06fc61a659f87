"""The tools of an explorer reach every line of trajectories from 1 kB to 10 MB, in bounded memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import TextLimits
from rubric_integrations.judges import ExplorerLimits
from rubric_integrations.judges.trajectory_tools import ToolRequest, TrajectoryTools
from rubric_integrations.submission import Step, ToolCall, Trajectory
from rubric_integrations.submission.step_lines import count_characters, count_lines, step_fields
from tests.fakes import FakeExplorer, FakeJudge

WORDS = ["exit code 1", "é", "\x00", "def f():", "x" * 900, "\n", "\r\n", "\t", '"}', "\u2028", "done", "😀"]


def trajectory_of(size: int) -> Trajectory:
    """Make a trajectory of about `size` characters, whose steps are short and long, with texts of all kinds."""
    source, steps, length = random.Random(size), list[Step](), 0
    while length < size:
        count = source.choice([2, 20, 200, 2_000])
        result = " ".join(source.choice(WORDS) for _ in range(count)) + f" end of step {len(steps) + 1}."
        call = ToolCall(name="bash", arguments={"command": f"make {len(steps)}"}, result=result)
        steps.append(Step(role="assistant", text=f"I do part {len(steps)}.", calls=(call,)))
        length += count_characters(steps[-1])
    return Trajectory(steps=tuple(steps))


def run(tools: TrajectoryTools, name: str, **arguments: Any) -> dict[str, Any]:
    (result,) = tools.run([ToolRequest(name, arguments)], is_last=False)
    assert "error" not in result
    return result


@pytest.mark.sizes
@pytest.mark.parametrize("size", [1_000, 30_000, 1_000_000, 10_000_000])
def test_each_line_of_a_trajectory_is_listed_read_and_submitted(size: int) -> None:
    trajectory = trajectory_of(size)
    tools = TrajectoryTools(trajectory, ExplorerLimits(max_tool_calls=10**6, max_shown_chars=10**9))
    page: dict[str, Any] = run(tools, "list")
    listed = {outline["step"]: outline for outline in page["steps"]}
    while "next" in page:
        page = run(tools, "list", first_step=len(listed) + 1)
        listed |= {outline["step"]: outline for outline in page["steps"]}
    assert list(listed) == list(range(1, len(trajectory.steps) + 1))
    for number, step in enumerate(trajectory.steps, start=1):
        lines: list[str] = []
        while len(lines) < count_lines(step):
            part = run(tools, "read", step=number, first_line=len(lines) + 1)["parts"]
            lines += [line.partition("| ")[2] for field in part for line in field["lines"]]
        assert "".join(lines) == "".join(field.text.replace("\n", "") for field in step_fields(step))
    last = len(trajectory.steps)
    assert f'"step": {last},' in json.dumps(run(tools, "search", text=f"END  of step {last}."))
    run(tools, "submit", steps=list(listed)[:500], more=last > 500)
    assert tools.selected().steps == trajectory.steps[:500]


@pytest.mark.sizes
def test_memory_of_many_explorations_in_progress_is_less_than_two_copies_of_their_texts() -> None:
    rows = 64
    steps = [{"role": "assistant", "text": f"{n} " + "x" * 1_000} for n in range(300)]
    line = json.dumps({"response": "Done.", "trajectory": {"steps": steps}})
    explorer = FakeExplorer([("search", {"text": "299 x"}), ("list", {})], [("submit", {"steps": [300]})])
    grader = PerCriterionGrader(FakeJudge(), text_limits=TextLimits(explorer=explorer))
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Works"}])
    tracemalloc.start()
    submissions = (json.loads(line) for _ in range(rows))
    scores = [graded.score for graded in grade_many(submissions, rubric, grader, max_concurrency=rows)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert scores == [1.0] * rows
    # The texts of the rows in progress, and less than one more copy of them.
    assert peak < 2 * rows * len(line)
