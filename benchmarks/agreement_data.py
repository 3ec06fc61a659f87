"""Corrects recorded judges by labels drawn from real data, and counts how often the intervals contain the truth.

    python benchmarks/agreement_data.py [--data ../shared/data] [--draws 1000]

LLMBar has 419 pairs of responses, of which people say which is better, and the recorded replies of judges. LLM-Rubric
has 223 dialogues with people's and a judge's answers to nine questions. All of them have labels, so that the truth is
known. Each draw makes a run of as many submissions, drawn from these with replacement, labels a random part of it,
corrects the judge's figure, and compares it with the truth. The column `labels alone` has the interval that the same
labels give without a judge.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.benchmarks.sets import REASONS_FIRST, load_set
from rubric_integrations.trust.corrections import Stratum, corrected_rate, labelled_mean
from rubric_integrations.trust.means import estimate_mean
from rubric_integrations.trust.statistics import cohen_kappa, estimate_rate, level_distances

SIZES = (20, 50, 100, 200)
CHOICE = "which of two is better"
PAIR_JUDGES = (
    f"GPT-4, {CHOICE}, {REASONS_FIRST}",
    f"PaLM2, {CHOICE}",
    f"Falcon, {CHOICE}",
    f"ChatGPT, {CHOICE}, {REASONS_FIRST}",
)
DIALOGUE_JUDGE = "gpt-3.5-turbo-16k"
# With so few pairs of which the first response is better, the truth is rare: 20 of 233.
RARE = 20

Draw = Callable[[np.random.Generator, int], tuple[Estimate, Estimate]]
"""Draws so many labels; returns the corrected figure, and the one by the labels alone."""


class Figure(NamedTuple):
    """A figure of which the truth is known.

    Attributes:
        name: What is measured, and by which judge.
        truth: The figure by people.
        judge: The figure by the judge alone.
        draw: Estimates it from a part of the labels.
        size: How many labels there are.
    """

    name: str
    truth: float
    judge: float
    draw: Draw
    size: int


def main() -> None:
    """Print a table of all figures, or why there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--draws", type=int, default=1000)
    arguments = parser.parse_args()
    console = Console(width=120)
    figures: list[Figure] = []
    for folder, read in (("llmbar", pair_figures), ("llm_rubric", dialogue_figures)):
        if (arguments.data / folder).is_dir():
            figures += read(arguments.data / folder)
        else:
            console.print(f"skipped: {arguments.data / folder} does not exist; name the data with --data")
    if figures:
        console.print(coverage_table(figures, arguments.draws))


def coverage_table(figures: Sequence[Figure], draws: int) -> Table:
    """Make the table of coverages and mean widths."""
    table = Table(title=f"Coverage of the truth (mean width) of 95 % intervals, {draws:,} draws of labels")
    for column in ("figure", "truth", "judge", "labels", "corrected", "labels alone"):
        table.add_column(column)
    for figure in figures:
        for size in (size for size in SIZES if size < figure.size):
            rng = np.random.default_rng(size)
            pairs = [figure.draw(rng, size) for _ in range(draws)]
            cells = [_summary([pair[place] for pair in pairs], figure.truth) for place in (0, 1)]
            table.add_row(figure.name, f"{figure.truth:.3f}", f"{figure.judge:.3f}", str(size), *cells)
    return table


def _summary(estimates: Sequence[Estimate], truth: float) -> str:
    limits = [(low, high) for _, low, high, _ in estimates if low is not None and high is not None]
    hits = np.mean([low <= truth <= high for low, high in limits])
    return f"{hits:.3f} ({np.mean([high - low for low, high in limits]):.3f})"


def pair_figures(folder: Path) -> list[Figure]:
    """Return, for some judges of LLMBar, the share of pairs of which the first response is better, common and rare."""
    data = load_set("llmbar", folder.parent)
    pairs = [(item, name) for item, name in data.references if item.endswith(":ab")]
    first = np.array([data.references[pair] == "1" for pair in pairs])
    rare = np.sort(np.concatenate([np.flatnonzero(~first), np.flatnonzero(first)[:RARE]]))
    judges = {judge.label: judge for judge in data.judges}
    figures: list[Figure] = []
    for judge in PAIR_JUDGES:
        verdicts = np.array([_VERDICTS[judges[judge].answers[pair]] for pair in pairs])
        counts = [[np.sum(verdicts[first == row] == column) for column in ("UNMET", "MET")] for row in (False, True)]
        name = f"{judge}, kappa {cohen_kappa(counts, level_distances([0, 1])).value:.2f}"
        figures += [_rate_figure(name, first, verdicts), _rate_figure(f"{judge}, rare", first[rare], verdicts[rare])]
    return figures


_VERDICTS = {"1": "MET", "2": "UNMET", None: "CANNOT_ASSESS"}


def _rate_figure(name: str, people: np.ndarray, verdicts: np.ndarray) -> Figure:
    def draw(rng: np.random.Generator, n: int) -> tuple[Estimate, Estimate]:
        run = rng.choice(len(people), len(people))
        labelled = run[:n]
        strata: list[Stratum] = []
        for verdict in np.unique(verdicts[run]):
            same = labelled[verdicts[labelled] == verdict]
            strata.append(Stratum(int(np.sum(verdicts[run] == verdict)), len(same), int(people[same].sum())))
        return corrected_rate(strata), estimate_rate(int(people[labelled].sum()), n)

    return Figure(name, float(people.mean()), float(np.mean(verdicts == "MET")), draw, len(people))


def dialogue_figures(folder: Path) -> list[Figure]:
    """Return the mean score of the dialogues of LLM-Rubric: the mean of the answers that apply, from 0 to 1."""
    items = _read_lines(folder / "items.jsonl")
    people = np.array([_score(item["human_labels"].values()) for item in items])
    judge = np.array(
        [_score(reply["raw"] for reply in item["judge_outputs"][DIALOGUE_JUDGE].values()) for item in items]
    )

    def draw(rng: np.random.Generator, n: int) -> tuple[Estimate, Estimate]:
        run = rng.choice(len(people), len(people))
        y = people[run[:n]].tolist()
        return labelled_mean(y, range(n), judge[run]).estimate, estimate_mean(y)

    name = f"LLM-Rubric, {DIALOGUE_JUDGE}, correlation {np.corrcoef(people, judge)[0, 1]:.2f}"
    return [Figure(name, float(people.mean()), float(judge.mean()), draw, len(people))]


def _score(answers: Any) -> float:
    return float(np.mean([(int(answer) - 1) / 3 for answer in answers if str(answer) in "1234"]))


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
