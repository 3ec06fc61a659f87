"""Optimize a program that answers customers with BootstrapFewShot, MIPROv2 and GEPA, all on one rubric.

    python examples/optimize/optimize.py                                   # simulated: no key, no network
    python examples/optimize/optimize.py --student openai/gpt-5-nano --judge openai/gpt-5-mini

Prints the mean score and the mean of each criterion before and after, and how many calls to the judge were made and
saved.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy
import simulated
from dspy.teleprompt import MIPROv2
from dspy.teleprompt.gepa.gepa import GEPA
from rich.console import Console
from rich.table import Table

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import lm_from_fn

RUBRIC = Rubric.from_file(Path(__file__).with_name("rubric.yaml"))
MAIL = [
    ("Ana", "My parcel came late. (R2)"), ("Bo", "The lamp is broken. (R1)"), ("Carla", "Two cups are missing. (R4)"),
    ("Dev", "I was charged twice. (R3)"), ("Elif", "The colour is wrong. (R1)"), ("Femi", "I want to cancel. (R5)"),
    ("Gus", "The box was open. (R4)"), ("Hiro", "May I send it back? (R5)"), ("Ines", "No invoice came. (R3)"),
    ("Jon", "The size is wrong. (R1)"), ("Katja", "It never arrived. (R2)"), ("Luis", "Where is my refund? (R3)"),
]  # fmt: skip
DATA = [dspy.Example(customer=name, message=text).with_inputs("customer", "message") for name, text in MAIL]
CALLS_PER_GRADE = sum(criterion.check is None for criterion in RUBRIC.criteria)
TRAIN, VAL = DATA[:6], DATA[6:]


def bootstrap(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Collect demonstrations from the student's own replies that pass."""
    return dspy.BootstrapFewShot(metric=metric, max_labeled_demos=0).compile(program, trainset=TRAIN)


def mipro(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Search for instructions and demonstrations together."""
    optimizer = MIPROv2(
        metric=metric, prompt_model=writer, auto=None, num_candidates=4, max_labeled_demos=0, num_threads=4
    )
    return optimizer.compile(program, trainset=TRAIN, valset=VAL, num_trials=6, minibatch=False)


def gepa(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Improve the instructions with the judge's reasons as feedback."""
    optimizer = GEPA(
        metric=metric, max_metric_calls=80, reflection_lm=writer, num_threads=4,
        gepa_kwargs={"frontier_type": "hybrid"},
    )  # fmt: skip
    return optimizer.compile(program, trainset=TRAIN, valset=VAL)


def by_criterion(metric: RubricMetric, program: dspy.Module) -> dict[str, float]:
    """Return the means of the score and of each criterion on the validation set; an avoided penalty counts 1."""
    results = dspy.Evaluate(devset=VAL, metric=metric, display_progress=False, num_threads=4)(program).results
    scores: list[Any] = [score for _, _, score in results]
    means = {name: fmean(score.objective_scores[name] for score in scores) for name in RUBRIC.keys}
    return {"score": fmean(float(score) for score in scores), **means}


def main() -> None:
    """Run the three optimizers, and print their results as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", help="a model such as openai/gpt-5-nano; by default a simulated one")
    parser.add_argument("--judge", help="a model such as openai/gpt-5-mini, which also writes the instructions")
    arguments = parser.parse_args()
    console = Console()
    if not arguments.student or not arguments.judge:
        console.print(
            "SIMULATED: functions (simulated.py) stand in for models that you did not name.",
            style="yellow",
        )
    student = dspy.LM(arguments.student) if arguments.student else lm_from_fn(simulated.student)
    writer = dspy.LM(arguments.judge) if arguments.judge else lm_from_fn(simulated.writer)
    judge: Any = arguments.judge or simulated.judge
    logging.disable(logging.INFO)  # otherwise the optimizers log every step

    optimizers: list[Callable[[RubricMetric, dspy.Module, dspy.LM], dspy.Module]] = [bootstrap, mipro, gepa]
    if find_spec("optuna") is None:
        console.print('MIPROv2 is left out: it needs optuna (pip install "dspy[optuna]").', style="yellow")
        optimizers.remove(mipro)
    columns: dict[str, dict[str, float]] = {}
    with dspy.context(lm=student):
        program = dspy.Predict(dspy.Signature("customer, message -> reply", "Reply to the customer."))
        columns["before"] = by_criterion(RubricMetric(RUBRIC, grader=PerCriterionGrader(judge)), program)
        for optimize in optimizers:
            metric = RubricMetric(RUBRIC, grader=PerCriterionGrader(judge))
            compiled = optimize(metric, program, writer)
            summary = metric.summary()
            calls = {"judge's calls": summary["calls"], "calls saved": summary["cached"] * CALLS_PER_GRADE}
            columns[optimize.__name__] = by_criterion(metric, compiled) | calls
    table = Table("on the validation set", *columns, title=RUBRIC.name)
    for row in columns[bootstrap.__name__]:
        means = [column.get(row) for column in columns.values()]
        table.add_row(row, *("" if m is None else str(m) if isinstance(m, int) else f"{m:.2f}" for m in means))
    console.print(table)


if __name__ == "__main__":
    main()
