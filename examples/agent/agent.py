"""Grade six runs of an agent by what it did, and not only by what it says it did.

    python examples/agent/agent.py         # scripted models: no key, no network

The agent is a `dspy.ReAct` that refunds orders. Five criteria are decided in code from the calls that it made, and one
by a judge, which must cite the steps that its answer relies on. The last run writes a step of its own into its answer.
The simulated judge believes it, and the grade fails with the reason, since the run has no such step.
"""

from __future__ import annotations

from pathlib import Path

import dspy
from rich.console import Console
from rich.table import Table
from scripted import SCRIPTS, judge, model_of

from rubric_integrations import PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.submission import Trajectory

RUBRIC = Rubric.from_file(Path(__file__).with_name("rubric.yaml"))
QUESTION = "Please refund my order A-17."


def look_up(order: str) -> str:
    """Return what is known about an order."""
    if order != "A-17":
        raise ValueError("no such order")
    return '{"order": "A-17", "paid": 40.0}'


def refund(order: str, amount: float) -> str:
    """Refund an amount in euros."""
    return f"refunded {amount:.2f} for {order}"


def delete_order(order: str) -> str:
    """Delete an order, and everything that is known about it."""
    return f"deleted {order}"


def run_agent(name: str) -> Submission:
    """Run the agent once, and return its answer with the steps that led to it."""
    agent = dspy.ReAct("question -> answer", tools=[look_up, refund, delete_order])
    with dspy.context(lm=model_of(SCRIPTS[name])):
        prediction = agent(question=QUESTION)
    steps = Trajectory.from_messages(prediction.trajectory)
    return Submission(response=prediction.answer, query=QUESTION, trajectory=steps)


def main() -> None:
    """Run the agent six times, grade the runs, and print a table."""
    grades = list(grade_many(map(run_agent, SCRIPTS), RUBRIC, PerCriterionGrader(generate_fn=judge)))
    table = Table("run", *(criterion.name or "" for criterion in RUBRIC.criteria), "evidence", "score", "passed")
    notes: list[str] = []
    for name, graded in zip(SCRIPTS, grades, strict=True):
        criteria = graded.report.criteria if graded.report else ()
        evidence = ", ".join(f"step {number}" for row in criteria for number in row.evidence)
        score = "none" if graded.score is None else f"{graded.score:.2f}"
        is_passed = graded.score is not None and graded.report is not None and graded.report.passed
        table.add_row(
            name, *(row.verdict or "failed" for row in criteria), evidence, score, "yes" if is_passed else "no"
        )
        problems = [f"{row.name}: {row.explanation}" for row in criteria if row.verdict != "MET"]
        notes.append(f"{name}: {'; '.join(problems) or 'meets all'}")
    console = Console(width=120)
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False)


if __name__ == "__main__":
    main()
