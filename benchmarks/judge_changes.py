"""How often `compare_judges` and `drift` decide wrongly, and how often their intervals contain the truth.

    python benchmarks/judge_changes.py [--seeds 1000] [--only judges|drift|recorded]

Each cell is a simulation with a planted truth, over 1,000 seeds. Of `compare_judges`, it has the share of the seeds
that call a judge "good enough", and the share that call it "not good enough", if its true loss of accuracy is the
margin, and the coverage of the 95 % intervals of the differences. Both shares must be at most 5 %.

Of `drift`, it has the share of the seeds that call a judge changed. If the judge only contradicts itself, as often as
before, the share must be at most 5 %.

Recorded judges of `../shared/data`, if it exists, are real examples: the versions of Claude on TTCW as drifts, and the
judges of SummHay as pairs.

A cell is marked with `!` if a rate is above its promise, or a coverage is below .93, by the limits of Clopper and
Pearson over the seeds. The exit code is 1 if a cell is marked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import zlib
from collections.abc import Callable
from functools import cache, partial
from itertools import combinations, permutations
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from rubric_integrations import Criterion, Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import CriterionReport, EvaluationReport, LabelledJudgment
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import Comparability, compare_judges
from rubric_integrations.trust.benchmarks.figures import Benchmark
from rubric_integrations.trust.benchmarks.sets import load_set
from rubric_integrations.trust.certification import lower_bound, upper_bound
from rubric_integrations.trust.comparison import RunChanges, compare_changes, holm
from rubric_integrations.trust.judge_drift import DriftTest, change_tests
from rubric_integrations.trust.judge_pairs import JudgeComparison

Answers = np.ndarray
"""Answers by row and criterion: True is MET."""

PROMISE, COVERAGE = 0.05, 0.93
UNDEFINED = Estimate(None, None, None, 0)


def run_of(answers: Answers, groups: Answers | None = None) -> list[GradedRow]:
    """Make a run of the answers, with the group of each row in its metadata."""
    return [
        GradedRow(
            str(row), _submission(row), _report(tuple(of_row)), None,
            metadata=None if groups is None else {"group": int(groups[row])},
        )
        for row, of_row in enumerate(answers.tolist())
    ]  # fmt: skip


def labels_of(answers: Answers) -> list[LabelledJudgment]:
    """Make human labels of all answers."""
    return [_label(row, place, met) for row, of_row in enumerate(answers.tolist()) for place, met in enumerate(of_row)]


# Records are made once, because pydantic takes most of the time of a draw.


@cache
def _submission(row: int) -> Submission:
    return Submission(response=f"response {row}")


@cache
def _report(answers: tuple[bool, ...]) -> EvaluationReport:
    entries = tuple(
        CriterionReport(
            name=f"c{place}", requirement=f"Does {place}", weight=1.0, verdict="MET" if met else "UNMET",
            value=float(met), passed=bool(met),
        )
        for place, met in enumerate(answers)
    )  # fmt: skip
    score = sum(answers) / len(answers)
    return EvaluationReport(
        score=score, raw_score=score, passed=score >= 0.5, complete=True, coverage=1.0, report=entries
    )


@cache
def _label(row: int, place: int, met: bool) -> LabelledJudgment:
    return LabelledJudgment(
        submission=_submission(row), criterion=_criterion(place), id=str(row), verdict="MET" if met else "UNMET",
        sampled="random", rater="one", blind=True,
    )  # fmt: skip


@cache
def _criterion(place: int) -> Criterion:
    return Criterion(name=f"c{place}", requirement=f"Does {place}")


class Design(NamedTuple):
    """One cell of `compare_judges`: how many labels there are, and what the judges do.

    Attributes:
        rows: The number of labelled responses.
        criteria: The number of criteria.
        met: The share of human MET answers.
        strong: The accuracy of the strong judge.
        loss: How much lower the accuracy of the cheap judge is.
        shared: The share of the strong judge's errors that the cheap judge repeats.
        groups: The number of groups; 0 for independent rows. Errors depend on each other within a group.
        is_one_sided: Whether the judges err only where the human answer is UNMET.
    """

    rows: int
    criteria: int = 1
    met: float = 0.5
    strong: float = 0.9
    loss: float = 0.05
    shared: float = 0.5
    groups: int = 0
    is_one_sided: bool = False


MARGIN = 0.05
JUDGES = {
    "60 rows": Design(60),
    "200 rows": Design(200),
    "500 rows": Design(500),
    "100 rows, 5 criteria": Design(100, 5),
    "200 rows, few errors": Design(200, strong=0.99, shared=0.0),
    "200 rows, .9 MET": Design(200, met=0.9),
    "300 rows, one-sided errors": Design(300, is_one_sided=True),
    "200 rows in 40 groups": Design(200, groups=40),
    "100 rows in 20 groups, 3 criteria": Design(100, 3, groups=20),
    "no loss, 200 rows": Design(200, loss=0.0),
    "no loss, 500 rows": Design(500, loss=0.0),
    "constant, .95 MET, 500 rows": Design(500, met=0.95, strong=0.97, loss=-1.0),
}


class Noise(NamedTuple):
    """One cell of `drift`: a judge that contradicts itself, and how it has changed.

    Attributes:
        rows: The number of rows.
        criteria: The number of criteria.
        flips: The share of answers on which the judge deviates from its usual answer.
        repeat: How often each row is asked again.
        moved: The share of UNMET answers to the first criterion that have become MET.
        mixed: The share of usual answers, to all criteria, that are the opposite now.
        is_joint: Whether a deviation is of all answers of a row, as in one request about all criteria.
        met: The share of usual MET answers.
    """

    rows: int
    criteria: int = 1
    flips: float = 0.05
    repeat: int = 2
    moved: float = 0.0
    mixed: float = 0.0
    is_joint: bool = False
    met: float = 0.5


DRIFTS = {
    "200 rows, 5 % flips": Noise(200),
    "200 rows, 5 % flips, repeat 1": Noise(200, repeat=1),
    "200 rows, 1 % flips": Noise(200, flips=0.01),
    "200 rows, 15 % flips": Noise(200, flips=0.15),
    "200 rows, 5 % flips, .95 MET": Noise(200, met=0.95),
    "50 rows, 5 % flips": Noise(50),
    "200 rows, 5 criteria": Noise(200, 5),
    "100 rows, 5 criteria, one request": Noise(100, 5, is_joint=True),
    "constant judge": Noise(200, flips=0.0),
    "changed: 10 % of UNMET are MET": Noise(200, moved=0.1),
    "changed: 20 % of UNMET are MET": Noise(200, moved=0.2),
    "changed: 10 % opposite": Noise(200, mixed=0.1),
    "changed: 20 % opposite": Noise(200, mixed=0.2),
}


def draw_drift(design: Noise, seed: int) -> tuple[bool, ...]:
    """Draw a judge's earlier and new answers. Return whether it is called changed, and by which tests."""
    rng = np.random.default_rng([seed, zlib.crc32(repr(design).encode())])
    shape = (design.rows, design.criteria)
    usual = rng.random(shape) < design.met
    now = usual ^ (rng.random(shape) < design.mixed)
    now[:, 0] |= ~usual[:, 0] & (rng.random(design.rows) < design.moved)
    deviates = (design.rows, 1) if design.is_joint else shape
    runs = [run_of(answers ^ (rng.random(deviates) < design.flips)) for answers in (usual, *[now] * design.repeat)]
    return is_changed(runs)


TESTS: tuple[DriftTest, ...] = ("direction", "abstentions", "mean", "flips")


def is_changed(runs: list[list[GradedRow]]) -> tuple[bool, ...]:
    """Return whether earlier and new answers show a change, in all and by each test."""
    changes = RunChanges()
    for place, (before, after) in enumerate(zip(runs[0], runs[1], strict=True)):
        changes.add((str(place), 1), before, after)
    # The flips and their kappa decide nothing here.
    with patch("rubric_integrations.trust.comparison._changed_answers", return_value=(0, None, UNDEFINED)):
        comparison = compare_changes(changes, comparable=Comparability(passing=False))
    measured = change_tests(runs, changes, comparison)
    adjusted = holm({test: p for test, p in measured.items() if p is not None})
    return (
        any(p < PROMISE for p in adjusted.values()), *(adjusted.get(test, 1.0) < PROMISE for test in TESTS)
    )  # fmt: skip


class Draw(NamedTuple):
    """One draw: what `compare_judges` decided, and whether the intervals contain the truth."""

    decision: str
    covered: dict[str, bool | None]


def draw_judges(design: Design, seed: int) -> Draw:
    """Draw labels and the answers of two judges, and compare the judges."""
    rng = np.random.default_rng([seed, zlib.crc32(repr(design).encode())])
    shape = (design.rows, design.criteria)
    groups = rng.integers(0, design.groups, design.rows) if design.groups else None

    def happens(rate: float) -> Answers:
        rates = np.full(design.rows, rate)
        if groups is not None and 0 < rate < 1:
            rates = rng.beta(rate * 9, (1 - rate) * 9, design.groups)[groups]
        return rng.random(shape) < rates[:, None]

    people = rng.random(shape) < design.met
    may_err = ~people if design.is_one_sided else np.ones(shape, bool)
    share = (1 - design.met) if design.is_one_sided else 1.0
    errors = happens((1 - design.strong) / share) & may_err
    # The cheap judge repeats some errors, and makes as many others that its accuracy is lower by the loss.
    kept = errors & (rng.random(shape) < design.shared)
    wanted = 1 - design.strong + design.loss - design.shared * (1 - design.strong)
    others = happens(wanted / share / (1 - (1 - design.strong) / share)) & may_err & ~errors
    strong, cheap = people ^ errors, people ^ (kept | others)
    if design.loss < 0:
        cheap = np.ones(shape, bool)
    # P-values decide nothing here, and take most of the time.
    with patch("rubric_integrations.trust.judge_pairs.p_value_of", return_value=None):
        result = compare_judges(
            run_of(strong, groups), run_of(cheap, groups), labels_of(people), margin=MARGIN,
            cluster=None if groups is None else "group",
        )  # fmt: skip
    return Draw(result.decision, _covered(result, design))


def _covered(result: JudgeComparison, design: Design) -> dict[str, bool | None]:
    if design.loss < 0 or design.groups:
        # The true kappa of errors in groups has no simple form.
        truths = {"accuracy": -design.loss} if design.groups else {}
    else:
        truths = {"accuracy": -design.loss, "kappa": _kappa(design, cheap=True) - _kappa(design, cheap=False)}
        # The errors of a judge on the other side cancel out, unless people's answers are unequally frequent.
        one_sided = design.loss if design.is_one_sided else design.loss * (1 - 2 * design.met)
        truths["bias"] = one_sided
        truths["UNMET"] = -design.loss / (1 - design.met if design.is_one_sided else 1.0)
    differences = {
        "accuracy": result.overall.accuracy.difference, "kappa": result.overall.kappa.difference,
        "bias": result.overall.bias.difference, "UNMET": result.overall.recalls["UNMET"].difference,
    }  # fmt: skip
    return {
        name: None if differences[name].low is None else differences[name].low <= truth <= differences[name].high  # type: ignore[operator]
        for name, truth in truths.items()
    }


def _kappa(design: Design, *, cheap: bool) -> float:
    """Return the true kappa of a judge."""
    wrong = 1 - design.strong + (design.loss if cheap else 0.0)
    judge = design.met + wrong if design.is_one_sided else design.met * (1 - wrong) + (1 - design.met) * wrong
    chance = design.met * judge + (1 - design.met) * (1 - judge)
    return (1 - wrong - chance) / (1 - chance)


def _mark(count: int, seeds: int, promise: float) -> str:
    return f"{count / seeds:.3f}{'!' if lower_bound(count, seeds, 0.025) > promise else ''}"


def _coverage(hits: list[bool]) -> str:
    if not hits:
        return "-"
    return f"{np.mean(hits):.3f}{'!' if upper_bound(sum(hits), len(hits), 0.025) < COVERAGE else ''}"


def print_judges(seeds: int, run: Callable[..., list[Draw]]) -> bool:
    """Print the cells of `compare_judges`, and return whether all promises are kept."""
    print(f"{'compare_judges, margin .05':36} good   not    accuracy kappa  bias   UNMET")
    is_kept = True
    for name, design in JUDGES.items():
        draws = run(partial(draw_judges, design), range(seeds))
        counts = [sum(draw.decision == word for draw in draws) for word in ("good enough", "not good enough")]
        at_margin, is_worse = design.loss >= MARGIN, design.loss < 0
        good = _mark(counts[0], seeds, PROMISE) if at_margin or is_worse else f"{counts[0] / seeds:.3f}"
        bad = _mark(counts[1], seeds, PROMISE)
        covered = [
            _coverage([hit for draw in draws if (hit := draw.covered.get(figure)) is not None])
            for figure in ("accuracy", "kappa", "bias", "UNMET")
        ]
        line = f"{name:36} {good:6} {bad:6} {covered[0]:8} {' '.join(f'{text:6}' for text in covered[1:])}"
        is_kept = is_kept and "!" not in line
        print(line, flush=True)
    return is_kept


def print_drifts(seeds: int, run: Callable[..., list[tuple[bool, ...]]]) -> bool:
    """Print the cells of `drift`, and return whether all promises are kept."""
    print(f"{'drift, alpha .05':36} changed {' '.join(TESTS)}")
    is_kept = True
    for name, design in DRIFTS.items():
        shares = np.array(run(partial(draw_drift, design), range(seeds))).sum(axis=0).tolist()
        is_null = not design.moved and not design.mixed
        changed = _mark(shares[0], seeds, PROMISE) if is_null else f"{shares[0] / seeds:.3f}"
        is_kept = is_kept and "!" not in changed
        print(f"{name:36} {changed:7} {' '.join(f'{share / seeds:.3f}' for share in shares[1:])}", flush=True)
    return is_kept


def with_scores(rows: list[GradedRow]) -> list[GradedRow]:
    """Return rows with the mean value of their answers as their scores."""
    scored: list[GradedRow] = []
    for row in rows:
        values = [entry.value for entry in (row.report.criteria if row.report else ()) if entry.value is not None]
        score = sum(values) / len(values) if values else None
        scored.append(row._replace(report=row.report and row.report.model_copy(update={"score": score})))
    return scored


def print_recorded(data: Path) -> None:
    """Print the recorded judges of TTCW as drifts, and those of SummHay as pairs."""
    if not (data / "ttcw").exists():
        print(f"{data}: there are no recorded judges: skipped")
        return
    ttcw, summhay = (Benchmark(load_set(name, data)) for name in ("ttcw", "summhay"))
    judges = [judge for judge in ttcw.data.judges if "claude" in judge.name.lower()]
    for one, other in combinations(judges, 2):
        changed, *tests = is_changed([with_scores(ttcw.rows_of([judge])) for judge in (one, other)])
        shown = ", ".join(name for name, is_shown in zip(TESTS, tests, strict=True) if is_shown)
        print(f"TTCW: {one.label} -> {other.label}: {f'changed ({shown})' if changed else 'not shown to have changed'}")
    for one, other in permutations(summhay.data.judges, 2):
        result = compare_judges(
            summhay.rows_of([one]), summhay.rows_of([other]), summhay.labels, margin=0.03, cluster="cluster"
        )
        difference = result.overall.accuracy.difference.with_limits(signed=True)
        print(f"SummHay: {other.label} in place of {one.label}: {result.decision} ({difference})")


def main() -> int:
    """Print all cells. Return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", choices=["judges", "drift", "recorded"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    with multiprocessing.Pool() as pool:
        run = partial(pool.map, chunksize=10)
        is_kept = print_judges(options.seeds, run) if options.only in (None, "judges") else True
        is_kept = (print_drifts(options.seeds, run) if options.only in (None, "drift") else True) and is_kept
    if options.only in (None, "recorded"):
        print_recorded(options.data)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
