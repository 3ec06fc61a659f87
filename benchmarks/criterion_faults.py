"""Counts how often `probe_criteria` finds planted faults of criteria, and how often it accuses a good rubric.

    python benchmarks/criterion_faults.py [--seeds 1000] [--criteria 5]

Each seed is a rubric. Each criterion has four cases, two of which are MET. Each unchanged case is asked five times, and
each kind of mutation has ten mutants from either side, as by default. A planted fault is one of the first criterion:

- blind: without its evidence, or with changed evidence, the answer stays as it is, but for the judge's noise
- length: 95 % of the padded responses lose their MET
- gullible: 95 % of the appended claims turn UNMET into MET
- flaky: each answer is a coin toss

The other criteria are good: a change of the evidence flips the answer, an addition does not, and each answer is wrong
by chance with the probability `noise`. `borderline`: on one MET case of each criterion, it is wrong with .3, and faults
need not be found. `touchy`: the judge repeats its answer to a text, but 5 % of the changed texts get another answer.
`unrepeated`: nothing is repeated, and the assumed noise is used.

`accused` is the share of rubrics in which any good criterion has a finding. The intervals are those of Clopper and
Pearson. The exit code is 1 if a fault is found in less than 80 % of the rubrics, or if the lower limit of `accused` is
above 5 %. 1,000 seeds take about a minute.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.trust.certification import lower_bound, upper_bound
from rubric_integrations.trust.criterion_faults import CaseFlips, CriterionFlips, FaultKind, find_faults
from rubric_integrations.trust.mutations import AdditionKind

MUTANTS, REPEAT, CASES, STRENGTH, COIN = 10, 5, 2, 0.95, 0.5
ADDITIONS: tuple[AdditionKind, ...] = ("length", "tone", "format", "claim")
FAULTS: tuple[FaultKind, ...] = ("blind", "length", "claim", "flaky")
Generator = Any


class Judge(NamedTuple):
    """The answers of a judge to a good criterion.

    Attributes:
        noise: The probability that an answer is wrong by chance.
        borderline: This probability on the first case of a criterion, or None.
        touchy: The probability that a changed text gets another answer, which the judge then repeats.
        repeat: How often each unchanged case is asked.
    """

    noise: float
    borderline: float | None = None
    touchy: float = 0.0
    repeat: int = REPEAT


JUDGES = {
    "noise 0": Judge(0.0),
    "noise .02": Judge(0.02),
    "noise .05": Judge(0.05),
    "noise .02, borderline": Judge(0.02, borderline=0.3),
    "touchy": Judge(0.0, touchy=0.05),
    "noise .02, unrepeated": Judge(0.02, repeat=1),
}


def draw_criterion(random: Generator, judge: Judge, fault: FaultKind | None) -> CriterionFlips:
    """Draw the flips of a criterion, with a planted fault or without one."""
    additions: dict[tuple[AdditionKind, bool], list[CaseFlips]] = {}
    evidence, differing, answers = (0, 0), 0, 0
    for from_lowest in (False, True):
        for number in range(CASES):
            noise = judge.noise if judge.borderline is None or number or from_lowest else judge.borderline
            noise = COIN if fault == "flaky" else noise
            wrong = random.random(judge.repeat) < noise
            if judge.repeat > 1:
                differing += int(min(wrong.sum(), judge.repeat - wrong.sum()))
                answers += judge.repeat
            if wrong[0]:
                continue
            mutants = MUTANTS // CASES
            if not from_lowest:
                rate = noise if fault == "blind" else 1 - noise
                evidence = evidence[0] + int((random.random(mutants) < rate).sum()), evidence[1] + mutants
            for kind in ADDITIONS:
                if kind == "claim" and not from_lowest:
                    continue
                planted = fault == kind and from_lowest == (kind == "claim")
                rate = STRENGTH if planted else noise + judge.touchy
                flips = CaseFlips(
                    int((random.random(mutants) < rate).sum()), mutants, int(wrong[1:].sum()), judge.repeat - 1
                )
                additions.setdefault((kind, from_lowest), []).append(flips)
    return CriterionFlips({"removed": evidence}, additions, differing, answers)


class Shares(NamedTuple):
    """How many rubrics have the planted fault as a finding, and how many have a finding on a good criterion."""

    hits: int
    accused: int


def simulate(judge: Judge, fault: FaultKind | None, criteria: int, seeds: int) -> Shares:
    """Count the findings in rubrics, one for each seed."""
    hits = accused = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        drawn = {str(number): draw_criterion(random, judge, None if number else fault) for number in range(criteria)}
        findings = {name: result.faults for name, result in find_faults(drawn).items()}
        hits += fault in findings["0"]
        accused += any(faults for name, faults in findings.items() if fault is None or name != "0")
    return Shares(hits, accused)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--criteria", type=int, default=5)
    options = parser.parse_args()
    table = Table("judge", "planted", "found", "accused")
    least, most = options.seeds, 0
    for name, judge in JUDGES.items():
        for fault in (None, *FAULTS):
            if judge.repeat == 1 and fault == "flaky":
                continue
            hits, accused = simulate(judge, fault, options.criteria, options.seeds)
            table.add_row(
                name, fault or "-", _share(hits, options.seeds) if fault else "-", _share(accused, options.seeds)
            )
            least = min(least, hits) if fault is not None and judge.borderline is None else least
            most = max(most, accused)
    console = Console(width=100)
    console.print(table)
    console.print(
        f"found in at least {100 * least / options.seeds:.0f} %, accused in at most {100 * most / options.seeds:.1f} %"
    )
    return int(least < 0.8 * options.seeds or lower_bound(most, options.seeds, 0.025) > 0.05)


def _share(count: int, seeds: int) -> str:
    return f"{count / seeds:.3f} [{lower_bound(count, seeds, 0.025):.3f}, {upper_bound(count, seeds, 0.025):.3f}]"


if __name__ == "__main__":
    sys.exit(main())
