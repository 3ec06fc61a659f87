"""Align a judge with people's labels by each optimizer, and keep what a test set proves.

    python examples/align/run.py                                           # simulated: no key, no network
    python examples/align/run.py --judge openai/gpt-5-nano --reflection-model openai/gpt-5

Prints, for each optimizer, the accuracy on the test set before and after, the gain, whether the aligned judge is kept,
and the calls. Writes the kept judges, and the attempts on the labels, to `--out`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import simulated
from rich.console import Console
from rich.table import Table

from rubric_integrations import Rubric
from rubric_integrations.judges import LMJudge, lm_from_fn
from rubric_integrations.trust import align
from rubric_integrations.trust.alignment.optimizers import OPTIMIZERS

RUBRIC = Rubric.from_file(Path(__file__).with_name("rubric.yaml"))


def main() -> None:
    """Run each optimizer on the same labels, and print their results as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", help="a model such as openai/gpt-5-nano; by default a simulated one")
    parser.add_argument("--reflection-model", help="a model such as openai/gpt-5, which writes the instructions")
    parser.add_argument("--submissions", type=int, default=60, help="how many submissions people have labelled")
    parser.add_argument("--max-cost", type=float, help="the most US dollars for each optimizer")
    parser.add_argument("--out", type=Path, help="the folder of the results; by default a temporary one")
    arguments = parser.parse_args()
    console = Console(file=sys.stdout)  # which is redirected below
    if not arguments.judge or not arguments.reflection_model:
        console.print(
            "SIMULATED: functions (simulated.py) stand in for the raters, and for models that you did not name.",
            style="yellow",
        )
    folder: Path = arguments.out or Path(tempfile.mkdtemp(prefix="align-"))
    folder.mkdir(parents=True, exist_ok=True)
    judge = LMJudge(arguments.judge or lm_from_fn(simulated.judge))
    reflection_model: Any = arguments.reflection_model or lm_from_fn(simulated.writer)
    labels = simulated.labels(RUBRIC, arguments.submissions)
    logging.disable(logging.WARNING)  # otherwise the optimizers log every step

    columns = ("optimizer", "before", "after", "gain, at least", "kept", "calls", "file")
    table = Table(*columns, title=f"Accuracy on the test set of {RUBRIC.name}")
    for name in OPTIMIZERS:
        if name == "reanchor":
            continue  # it weighs probabilities, which this judge does not state
        if name == "miprov2" and find_spec("optuna") is None:
            console.print('MIPROv2 is left out: it needs optuna (pip install "dspy[optuna]").', style="yellow")
            continue
        # DSPy prints its own progress.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            alignment = align(
                judge, labels, name, reflection_model=reflection_model, max_cost=arguments.max_cost,
                ledger=folder / "align.sqlite", attempts=folder / "labels.lock",
                progress=lambda message: console.print(message, style="dim"),
            )  # fmt: skip
        gain, file = alignment.gain, "none"
        if alignment.kept:
            file = f"{name}.json"
            alignment.judge.save(folder / file)
        shown = "undefined" if gain.value is None else f"{gain.value:+.3f}, {gain.low or 0:+.3f}"
        figures = (str(alignment.before), str(alignment.after), shown, "yes" if alignment.kept else "no")
        table.add_row(name, *figures, f"{alignment.spend.calls:,}", file)
    console.print(table)
    console.print(f"The files are in {folder}", soft_wrap=True)


if __name__ == "__main__":
    main()
