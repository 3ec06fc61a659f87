"""Counts how often a threshold of `certify(..., by="criterion")` breaks its promise, with planted judges.

    python benchmarks/criterion_certificates.py [--runs 1000]

Each run has 2,000 answers of a judge to one criterion, and human labels of the first ones. The promise about a verdict
is broken if a threshold is certified, and more than alpha of all answers that are called so with at least this
probability are wrong. With delta = .05 for both verdicts, this may happen in at most 2.5 % of the runs. The interval is
that of Clopper and Pearson. The naive threshold is the lowest of the same ones at which the sample has at most alpha of
wrong answers.

The judges: one whose probabilities are right, one that is wrong in 11.8 % of its answers and states 6.2 %, the same
with probabilities rounded to two decimals (55 % of them are 0.00 or 1.00), one that is right about MET and wrong in
every fifth UNMET whatever it states, one that is wrong just above alpha whatever it states, and one on groups of three
equal texts, of which one counts. `labels needed` is the smallest of the sizes with which at least 80 % of the runs
certify something. `of it` are the labels of answers with the verdict that count, and `ungrouped` is the share of broken
promises if each text of a group counts. The exit code is 1 if a promise is broken significantly more often than in 2.5
% of the runs.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.trust.certification import SureAnswer, kept_needed, lower_bound, thresholds_of, upper_bound
from rubric_integrations.trust.criterion_certificates import CalledVerdict, certify_verdict

Array = Any
"""A NumPy array."""

ALPHA = DELTA = 0.05
SIZES = (100, 200, 400, 800, 1600)
ANSWERS = 2_000
GROUP = 3
VERDICTS: tuple[CalledVerdict, ...] = ("MET", "UNMET")


class Planted(NamedTuple):
    """A planted judge.

    Attributes:
        state: Returns the stated probability of MET, from the true one.
        truth: Returns the true probability of MET, from the true one of a judge whose probabilities are right.
        group: The number of answers with one text.
    """

    state: Callable[[Array], Array]
    truth: Callable[[Array], Array]
    group: int = 1


def _unchanged(p: Array) -> Array:
    return p


def _rounded(p: Array) -> Array:
    return np.round(_overconfident(p), 2)


def _one_sided(p: Array) -> Array:
    return np.where(p >= 0.5, p, 0.2)


def _at_the_limit(p: Array) -> Array:
    return np.where(p >= 0.5, 1 - ALPHA - 1e-6, ALPHA + 1e-6)


def _overconfident(p: Array) -> Array:
    with np.errstate(divide="ignore"):
        return 1 / (1 + ((1 - p) / p) ** 2)


JUDGES = {
    "calibrated": Planted(_unchanged, _unchanged),
    "overconfident": Planted(_overconfident, _unchanged),
    "rounded": Planted(_rounded, _unchanged),
    "one-sided": Planted(_unchanged, _one_sided),
    "at the limit": Planted(_overconfident, _at_the_limit),
    "in groups": Planted(_overconfident, _unchanged, GROUP),
}


def draw_answers(planted: Planted, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the stated probability of MET, and the probability that MET is true, of each answer."""
    p = 1 / (1 + np.exp(-4.4 * rng.normal(size=-(-count // planted.group))))
    return tuple(np.repeat(part, planted.group)[:count] for part in (planted.state(p), planted.truth(p)))  # type: ignore[return-value]


class Population:
    """The true rate of wrong answers of one verdict above each threshold, from a million answers."""

    def __init__(self, planted: Planted, verdict: CalledVerdict):
        stated, truth = draw_answers(planted._replace(group=1), 1_000_000, np.random.default_rng(1))
        is_called = (stated >= 0.5) == (verdict == "MET")
        probability = np.where(stated >= 0.5, stated, 1 - stated)[is_called]
        wrong = (1 - truth if verdict == "MET" else truth)[is_called]
        order = np.argsort(-probability)
        self._sorted, self._sum = -probability[order], np.cumsum(wrong[order])

    def error_above(self, threshold: float) -> float:
        """Return the rate of wrong answers among those with at least this probability."""
        count = int(np.searchsorted(self._sorted, -threshold, side="right"))
        return float(self._sum[count - 1] / count) if count else 0.0

    def kept_above(self, threshold: float) -> float:
        """Return the share of the answers that have at least this probability."""
        return float(np.searchsorted(self._sorted, -threshold, side="right") / len(self._sorted))


class Outcome(NamedTuple):
    """The thresholds of one run: the certified one, the naive one, and the certified one if every answer counts."""

    certified: float | None
    naive: float | None
    ungrouped: float | None
    labelled: int


def simulate(planted: Planted, verdict: CalledVerdict, labels: int, rng: np.random.Generator) -> Outcome:
    """Draw a run with labels, and find its thresholds."""
    stated, truth = draw_answers(planted, ANSWERS, rng)
    is_met = np.repeat(rng.random(-(-ANSWERS // planted.group)), planted.group)[:ANSWERS] < truth
    is_called = (stated >= 0.5) == (verdict == "MET")
    probability = np.where(stated >= 0.5, stated, 1 - stated)
    wrong = is_met != (verdict == "MET")
    places = np.flatnonzero(is_called[:labels])
    first = places[places % planted.group == 0]
    every, drawn = (
        [SureAnswer(float(probability[place]), bool(wrong[place])) for place in chosen] for chosen in (places, first)
    )
    called = probability[is_called].tolist()
    certified = certify_verdict(verdict, called, drawn, ALPHA, DELTA / 2).threshold
    ungrouped = certified
    if planted.group > 1:
        ungrouped = certify_verdict(verdict, called, every, ALPHA, DELTA / 2).threshold
    return Outcome(certified, _naive(called, drawn), ungrouped, len(drawn))


def _naive(called: Sequence[float], answers: Sequence[SureAnswer]) -> float | None:
    best = None
    for threshold in thresholds_of(called):
        kept = [answer.is_wrong for answer in answers if (answer.confidence or 0.0) >= threshold]
        best = threshold if kept and sum(kept) <= ALPHA * len(kept) else best
    return best


def main() -> None:
    """Print the table. Exit with 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs: int = parser.parse_args().runs
    table = Table(title=f"alpha {ALPHA:g}, delta {DELTA:g} for both verdicts, {runs:,} runs a line")
    columns = ("judge", "verdict", "labels", "of it", "certified", "kept", "broken [95 %]", "naive", "ungrouped")
    for column in columns:
        table.add_column(column, justify="left" if column in ("judge", "verdict") else "right")
    needed: list[str] = []
    is_broken = False
    for name, planted in JUDGES.items():
        for verdict in VERDICTS:
            population, enough = Population(planted, verdict), "-"
            for labels in SIZES:
                rng = np.random.default_rng([zlib.crc32(f"{name} {verdict}".encode()), labels])
                outcomes = [simulate(planted, verdict, labels, rng) for _ in range(runs)]
                certified = [part.certified for part in outcomes if part.certified is not None]
                broken = _count_broken(population, [part.certified for part in outcomes])
                low, high = lower_bound(broken, runs, 0.025), upper_bound(broken, runs, 0.025)
                is_broken |= low > DELTA / 2
                if enough == "-" and len(certified) >= 0.8 * runs:
                    enough = f"{labels:,}"
                grouped = "" if planted.group == 1 else _share(population, [part.ungrouped for part in outcomes])
                table.add_row(
                    name, verdict, f"{labels:,}", f"{np.mean([part.labelled for part in outcomes]):.0f}",
                    f"{len(certified) / runs:.0%}",
                    f"{np.mean([population.kept_above(t) for t in certified]):.0%}" if certified else "-",
                    f"{broken / runs:.1%} [{low:.1%}, {high:.1%}]",
                    _share(population, [part.naive for part in outcomes]), grouped,
                )  # fmt: skip
            needed.append(f"{name} {verdict} {enough}")
    console = Console()
    console.print(table)
    console.print(f"labels needed: {'; '.join(needed)}; without an error {kept_needed(0.0, ALPHA, DELTA / 2)}")
    sys.exit(int(is_broken))


def _count_broken(population: Population, thresholds: Sequence[float | None]) -> int:
    return sum(threshold is not None and population.error_above(threshold) > ALPHA for threshold in thresholds)


def _share(population: Population, thresholds: Sequence[float | None]) -> str:
    return f"{_count_broken(population, thresholds) / len(thresholds):.0%}"


if __name__ == "__main__":
    main()
