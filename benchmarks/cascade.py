"""Counts how often a certified cascade breaks its promise, and certifies a cascade of recorded judges.

    python benchmarks/cascade.py [--data ../shared/data] [--runs 1000]

The first table has a simulated cheap judge that is wrong in 10.3 % of its answers, and less where it is surer. The
naive threshold is the lowest of the same ones at which the sample has at most alpha of wrong answers. In the second
table each submission has five judgments that are wrong together; one of each counts, or all as if they were
independent.

The third table has the recorded verdicts of LLMBar, where people say which of two responses is better. A cheap judge
answers four times: with both orders of the responses, and with and without reasoning first. The share of the answers
that its verdict has is its confidence, and a tie is an abstention. The expensive judge is GPT-4, with both orders. The
saving is the share of the cost of GPT-4 alone, if a call of it costs 20 times as much. Where nothing is certified, the
table has the wrong answers where the judge is surest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.scoring import CriterionReport, EvaluationReport
from rubric_integrations.trust import Certificate, certify
from rubric_integrations.trust.benchmarks.sets import REASONS_FIRST, RecordedJudge, load_set
from rubric_integrations.trust.certification import SureAnswer, fixed_sequence_steps, thresholds_of

SIZES = (100, 200, 400, 1000)
DELTA = 0.1
# Fixed before: to raise alpha until something is certified would break the promise.
ALPHAS = (0.1, 0.2)
CHEAP = ("ChatGPT", "PaLM2", "LLaMA2")
CHOICE = "which of two is better"
STRONG = f"GPT-4, {CHOICE}, {REASONS_FIRST}"
PRICE_RATIO, CHEAP_CALLS, STRONG_CALLS = 20, 4, 2


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    console = Console(width=140)
    console.print(promise_table(0.10, arguments.runs), promise_table(0.06, arguments.runs))
    console.print(cluster_table(0.10, arguments.runs))
    folder = arguments.data / "llmbar"
    if folder.is_dir():
        console.print(recorded_table(folder))
    else:
        console.print(f"skipped: {folder} does not exist; name the data with --data")


def promise_table(alpha: float, runs: int) -> Table:
    """Make the table of broken promises of independent judgments."""
    table = Table(title=f"Simulated cheap judge, alpha {alpha:g}, delta {DELTA:g}, {runs:,} runs")
    for column in ("labels", "promise broken", "kept cheap", "nothing certified", "naive: broken", "naive: kept"):
        table.add_column(column, justify="right")
    for size in SIZES:
        rng = np.random.default_rng(size)
        certified: list[float | None] = []
        naive: list[float | None] = []
        for _ in range(runs):
            confidences = _confidences(rng, size)
            answers = _answers(confidences, rng.random(size) < _error_at(confidences))
            certified.append(_certified(answers, alpha))
            naive.append(_naive(answers, alpha))
        table.add_row(f"{size:,}", *_outcome(certified, alpha, with_none=True), *_outcome(naive, alpha))
    return table


def cluster_table(alpha: float, runs: int) -> Table:
    """Make the table of broken promises where the five judgments of a submission are wrong together."""
    table = Table(title=f"Five judgments a submission, wrong together: alpha {alpha:g}, delta {DELTA:g}, {runs:,} runs")
    for column in ("submissions", "one each: broken", "kept cheap", "nothing certified", "all: broken", "all: kept"):
        table.add_column(column, justify="right")
    for size in SIZES:
        rng = np.random.default_rng(size)
        one: list[float | None] = []
        pooled: list[float | None] = []
        for _ in range(runs):
            confidences = _confidences(rng, size)
            answers = _answers(confidences, rng.random(size) < _error_at(confidences))
            one.append(_certified(answers, alpha))
            pooled.append(_certified([answer for answer in answers for _ in range(5)], alpha))
        table.add_row(f"{size:,}", *_outcome(one, alpha, with_none=True), *_outcome(pooled, alpha))
    return table


def recorded_table(folder: Path) -> Table:
    """Make the table of certificates of recorded judges."""
    data = load_set("llmbar", folder.parent)
    judges = {judge.label: judge for judge in data.judges}
    pairs = list(dict.fromkeys(item.cluster for item in data.items))
    table = Table(title=f"LLMBar: from a cheap judge to {STRONG}, delta {DELTA:g}")
    for column in ("cheap", "pairs", "truth", "wrong", *(f"alpha {alpha:g}: kept, wrong, saved" for alpha in ALPHAS)):
        table.add_column(column, justify="right" if column == "wrong" else "left")
    for subset in ("Natural", "Adversarial", ""):
        chosen = [pair for pair in pairs if pair.startswith(subset)]
        people = [_report(_VERDICTS[data.references[f"{pair}:ab", "better"]], None) for pair in chosen]
        strong = [_report(*_majority(pair, [judges[STRONG]])) for pair in chosen]
        for cheap in CHEAP:
            both = [judges[f"{cheap}, {CHOICE}"], judges[f"{cheap}, {CHOICE}, {REASONS_FIRST}"]]
            votes = [_majority(pair, both) for pair in chosen]
            run = [_report(*vote) for vote in votes]
            for name, truth in (("people", people), (STRONG, strong)):
                answered = [i for i, (verdict, _) in enumerate(votes) if verdict != "CANNOT_ASSESS"]
                errors = sum(votes[i][0] != truth[i].criteria[0].verdict for i in answered)
                certificates = [certify(run, truth, alpha=alpha, delta=DELTA) for alpha in ALPHAS]
                label = f"{subset or 'all'} ({len(chosen)})"
                table.add_row(cheap, label, name, f"{errors / len(answered):.0%}", *map(_cell, certificates))
    return table


def _cell(certificate: Certificate) -> str:
    if certificate.threshold is None:
        first = certificate.steps[0]
        return f"not certifiable ({first.errors} of {first.kept})"
    kept = certificate.kept.value or 0.0
    saved = kept - CHEAP_CALLS / (STRONG_CALLS * PRICE_RATIO)
    return f"{kept:.0%}, {certificate.errors} of {certificate.kept_labels}, {saved:.0%}"


_VERDICTS = {"1": "MET", "2": "UNMET"}


def _majority(pair: str, judges: Sequence[RecordedJudge]) -> tuple[str, float | None]:
    """Return the verdict on "the first response is better" of most answers, and their share; a tie is an abstention."""
    answers = [judge.answers[f"{pair}:{order}", "better"] for judge in judges for order in ("ab", "ba")]
    counts = Counter(_VERDICTS[answer] for answer in answers if answer is not None).most_common()
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return "CANNOT_ASSESS", 0.5
    return counts[0][0], counts[0][1] / (2 * len(judges))


def _report(verdict: str, confidence: float | None) -> EvaluationReport:
    value = {"MET": 1.0, "UNMET": 0.0}.get(verdict)
    answer: dict[str, Any] = {"verdict": verdict, "value": value, "confidence": confidence}
    entry = CriterionReport(name="better", requirement="The first response is better", weight=1, **answer)
    return EvaluationReport(score=None, raw_score=None, passed=False, complete=True, coverage=1, report=(entry,))


def _confidences(rng: np.random.Generator, size: int) -> np.ndarray:
    # Judges state few different numbers.
    return np.round(rng.beta(5, 1, size), 2)


def _error_at(confidences: np.ndarray) -> np.ndarray:
    return np.minimum(0.5, 0.62 * (1 - confidences))


def _answers(confidences: np.ndarray, wrong: np.ndarray) -> list[SureAnswer]:
    return [SureAnswer(float(c) or None, bool(w)) for c, w in zip(confidences, wrong, strict=True)]


def _steps(answers: Sequence[SureAnswer]) -> list[tuple[float, float]]:
    return [(threshold, 0.0) for threshold in thresholds_of([a.confidence for a in answers if a.confidence])]


def _certified(answers: Sequence[SureAnswer], alpha: float) -> float | None:
    held = [step.threshold for step in fixed_sequence_steps(answers, _steps(answers), alpha, DELTA) if step.holds]
    return held[-1] if held else None


def _naive(answers: Sequence[SureAnswer], alpha: float) -> float | None:
    best = None
    for threshold, _ in _steps(answers):
        kept = [answer.is_wrong for answer in answers if (answer.confidence or 0) >= threshold]
        best = threshold if sum(kept) <= alpha * len(kept) else best
    return best


def _outcome(thresholds: Sequence[float | None], alpha: float, *, with_none: bool = False) -> list[str]:
    """Return how often the true error is above alpha, what is kept on average, and how often nothing is certified."""
    truths = [(0.0, 0.0) if threshold is None else _truth(threshold) for threshold in thresholds]
    broken = np.mean([error > alpha for _, error in truths])
    cells = [f"{broken:.1%}", f"{np.mean([kept for kept, _ in truths]):.0%}"]
    return [*cells, f"{np.mean([threshold is None for threshold in thresholds]):.0%}"] if with_none else cells


_POPULATION = _confidences(np.random.default_rng(1), 1_000_000)


@cache
def _truth(threshold: float) -> tuple[float, float]:
    """Return the true share that a threshold keeps, and the true error rate among that."""
    kept = threshold <= _POPULATION
    return float(kept.mean()), float(_error_at(_POPULATION[kept]).mean())


if __name__ == "__main__":
    main()
