"""Optimize a program that answers customers with BootstrapFewShot, MIPROv2 and GEPA, all on one rubric.

    python examples/optimize/optimize.py                                   # simulated: no key, no network
    python examples/optimize/optimize.py --student openai/gpt-5-nano --judge openai/gpt-5-mini

Prints what each criterion was worth before and after, and how many of the judge's calls were made and how many saved.
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
CALLS_A_GRADE = sum(criterion.check is None for criterion in RUBRIC.criteria)
TRAIN, VAL = DATA[:6], DATA[6:]


def bootstrap(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Demonstrations from the student's own replies that pass."""
    return dspy.BootstrapFewShot(metric=metric, max_labeled_demos=0).compile(program, trainset=TRAIN)


def mipro(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Instructions and demonstrations, searched together."""
    optimizer = MIPROv2(
        metric=metric, prompt_model=writer, auto=None, num_candidates=4, max_labeled_demos=0, num_threads=4
    )
    return optimizer.compile(program, trainset=TRAIN, valset=VAL, num_trials=6, minibatch=False)


def gepa(metric: RubricMetric, program: dspy.Module, writer: dspy.LM) -> dspy.Module:
    """Instructions that grow out of the judge's reasons."""
    optimizer = GEPA(
        metric=metric, max_metric_calls=80, reflection_lm=writer, num_threads=4,
        gepa_kwargs={"frontier_type": "hybrid"},
    )  # fmt: skip
    return optimizer.compile(program, trainset=TRAIN, valset=VAL)


def by_criterion(metric: RubricMetric, program: dspy.Module) -> dict[str, float]:
    """The mean score on the validation set, and that of each criterion; a penalty's is the share that avoids it."""
    results = dspy.Evaluate(devset=VAL, metric=metric, display_progress=False, num_threads=4)(program).results
    scores: list[Any] = [score for _, _, score in results]
    means = {name: fmean(score.objective_scores[name] for score in scores) for name in RUBRIC.keys}
    return {"score": fmean(float(score) for score in scores), **means}


def main() -> None:
    """Run the three optimizers and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", help="a model such as openai/gpt-5-nano; by default a simulated one")
    parser.add_argument("--judge", help="a model such as openai/gpt-5-mini, which writes instructions too")
    chosen = parser.parse_args()
    console = Console()
    if not chosen.student or not chosen.judge:
        console.print("SIMULATED: what has no model is played by a few lines of rules (simulated.py).", style="yellow")
    student = dspy.LM(chosen.student) if chosen.student else lm_from_fn(simulated.student)
    writer = dspy.LM(chosen.judge) if chosen.judge else lm_from_fn(simulated.writer)
    judge: Any = chosen.judge or simulated.judge
    logging.disable(logging.INFO)  # the optimizers tell every step

    optimizers: list[Callable[[RubricMetric, dspy.Module, dspy.LM], dspy.Module]] = [bootstrap, mipro, gepa]
    if find_spec("optuna") is None:
        console.print('MIPROv2 is left out: it needs optuna (pip install "dspy[optuna]").', style="yellow")
        optimizers.remove(mipro)
    columns: dict[str, dict[str, float]] = {}
    with dspy.context(lm=student):
        program = dspy.Predict(dspy.Signature("customer, message -> reply", "Reply to the customer."))
        columns["as written"] = by_criterion(RubricMetric(RUBRIC, grader=PerCriterionGrader(judge)), program)
        for optimize in optimizers:
            metric = RubricMetric(RUBRIC, grader=PerCriterionGrader(judge))
            compiled = optimize(metric, program, writer)
            done = metric.summary()
            bought = {"judge's calls": done["calls"], "calls saved": done["cached"] * CALLS_A_GRADE}
            columns[optimize.__name__] = by_criterion(metric, compiled) | bought
    table = Table("on the validation set", *columns, title=RUBRIC.name)
    for row in columns[bootstrap.__name__]:
        means = [column.get(row) for column in columns.values()]
        table.add_row(row, *("" if m is None else str(m) if isinstance(m, int) else f"{m:.2f}" for m in means))
    console.print(table)


if __name__ == "__main__":
    main()
