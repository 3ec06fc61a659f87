"""How often the intervals of `rubric_integrations.trust` contain the truth, and how often its decisions are wrong.

    python benchmarks/coverage.py [--draws 2000]

Each cell of a table is a simulation with a known truth: a 95 % interval should contain it in about 95 % of the draws,
and a test at 5 % should find a difference that is not there in about 5 %. 2,000 draws take about three minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.calibration import (
    Stratum,
    corrected_mean,
    corrected_rate,
    rogan_gladen_rate,
    weight_table,
)
from rubric_integrations.trust.confidence import StatedJudgment, estimate_loss, squared_error
from rubric_integrations.trust.gates import SequentialGate, decide_mean
from rubric_integrations.trust.statistics import (
    Count,
    cohen_kappa,
    difference_p_value,
    estimate_clustered_difference,
    estimate_clustered_rate,
    estimate_rate_difference,
    level_distances,
)

JUDGES = {".99/.99": (0.99, 0.99), ".95/.90": (0.95, 0.90), ".80/.70": (0.80, 0.70), ".55/.50": (0.55, 0.50)}
"""The sensitivity and the specificity of the simulated judges."""
RATES = (0.05, 0.2, 0.5, 0.8, 0.95)
RUBRICS = ((1.0,) * 8, (1.0,) * 3, (1.0, 1.0, -1.0))
"""The weights of the simulated rubrics."""

Rng = np.random.Generator
Cell = tuple[Estimate, float]
"""An interval, and the truth that it should contain."""


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    draws, console = parser.parse_args().draws, Console(width=110)
    for table in (rates, means, kappas, differences, clusters, gates):
        console.print(table(draws))


def rates(draws: int) -> Table:
    """Simulate corrected rates: labels at random, by the judge's verdict, and of others, if these suffice."""
    table = Table("judge", "n", "at random", "by verdict", "from elsewhere", title="A rate: coverage (mean width)")
    for (name, judge), n in product(JUDGES.items(), (20, 50, 200)):
        cells = [_summary(draw, draws, n, judge) for draw in (_rate_at_random, _rate_by_verdict, _rate_from_elsewhere)]
        table.add_row(name, str(n), *cells)
    return table


def _summary(
    draw: Callable[[Rng, float, int, int, tuple[float, float]], Cell | None],
    draws: int,
    n: int,
    judge: tuple[float, float],
) -> str:
    coverages: list[float] = []
    widths: list[float] = []
    for rate, judged in product(RATES, (500, 2000)):
        cells = [draw(np.random.default_rng(seed), rate, judged, n, judge) for seed in range(draws)]
        kept = [cell for cell in cells if cell is not None]
        if kept:
            coverages.append(float(np.mean([_contains(*cell) for cell in kept])))
            widths.append(float(np.mean([_width(estimate) for estimate, _ in kept])))
    return f"{min(coverages):.3f}-{max(coverages):.3f} ({np.mean(widths):.2f})" if coverages else "undefined"


def _shares(rate: float, judge: tuple[float, float]) -> list[float]:
    """Return the shares of judgments: both MET, only people's MET, only the judge's, none."""
    sens, spec = judge
    return [rate * sens, rate * (1 - sens), (1 - rate) * (1 - spec), (1 - rate) * spec]


def _rate_at_random(rng: Rng, rate: float, judged: int, n: int, judge: tuple[float, float]) -> Cell:
    both, people, only, none = map(int, rng.multinomial(n, _shares(rate, judge)))
    others = rng.multinomial(judged - n, _shares(rate, judge))
    met = both + only + int(others[0] + others[2])
    return corrected_rate([Stratum(met, both + only, both), Stratum(judged - met, people + none, people)]), rate


def _rate_by_verdict(rng: Rng, rate: float, judged: int, n: int, judge: tuple[float, float]) -> Cell:
    both, people, only, none = map(int, rng.multinomial(judged, _shares(rate, judge)))
    strata = [(both, only), (people, none)]
    drawn = [min(n // 2, true + false) for true, false in strata]
    right = [int(rng.hypergeometric(*sizes, count)) if count else 0 for sizes, count in zip(strata, drawn, strict=True)]
    return corrected_rate([Stratum(sum(s), d, r) for s, d, r in zip(strata, drawn, right, strict=True)]), rate


def _rate_from_elsewhere(rng: Rng, rate: float, judged: int, n: int, judge: tuple[float, float]) -> Cell | None:
    sens, spec = judge
    met = int(rng.binomial(judged, rate * sens + (1 - rate) * (1 - spec)))
    half = n // 2
    sensitivity, specificity = (int(rng.binomial(half, sens)), half), (int(rng.binomial(half, spec)), half)
    estimate = rogan_gladen_rate(met=met, judged=judged, sensitivity=sensitivity, specificity=specificity)
    return None if estimate is None else (estimate, rate)


def means(draws: int) -> Table:
    """Simulate corrected mean scores of rubrics with eight criteria, with three, and with two and a penalty."""
    table = Table("n", "lowest", "highest", "mean", "mean width (8 criteria)", title="A mean score: coverage")
    sizes = (20, 50, 100, 200)
    hits: dict[int, list[float]] = {n: [] for n in sizes}
    widths: dict[int, list[float]] = {n: [] for n in sizes}
    for weights, judge, rate in product(RUBRICS, JUDGES.values(), (0.1, 0.3, 0.6, 0.95)):
        truth = float(_answer(np.random.default_rng(0), rate, judge, weights, 400_000)[0].mean())
        runs = [_answer(np.random.default_rng(seed), rate, judge, weights, 500) for seed in range(draws)]
        for n in sizes:
            estimates = [
                corrected_mean(list(people[:n]), list(scores[:n]), float(scores.mean()), len(scores)).estimate
                for people, scores in runs
            ]
            hits[n].append(float(np.mean([_contains(estimate, truth) for estimate in estimates])))
            if len(weights) == 8:
                widths[n] += map(_width, estimates)
    for n in sizes:
        row = (min(hits[n]), max(hits[n]), np.mean(hits[n]), np.mean(widths[n]))
        table.add_row(str(n), *(f"{figure:.3f}" for figure in row))
    return table


def _answer(
    rng: Rng, rate: float, judge: tuple[float, float], weights: Sequence[float], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return people's and the judge's scores of submissions of different quality."""
    sens, spec = judge
    shape = (count, len(weights))
    quality = np.where(np.array(weights) > 0, rng.beta(4 * rate, 4 * (1 - rate), (count, 1)), 0.2)
    people = rng.random(shape) < quality
    agreed = rng.random(shape) < np.where(people, sens, spec)
    best = sum(weight for weight in weights if weight > 0)
    scores = [np.clip(met @ np.array(weights) / best, 0, 1) for met in (people, np.where(agreed, people, ~people))]
    return scores[0], scores[1]


def kappas(draws: int) -> Table:
    """Simulate the intervals of kappa."""
    columns = ("n", "two levels", "four levels, quadratic", "two levels, by verdict")
    table = Table(*columns, title="Kappa: coverage")
    tables = [np.array([_shares(rate, judge) for judge in JUDGES.values() for rate in (0.2, 0.5, 0.8)])]
    near = np.exp(-np.abs(np.subtract.outer(range(4), range(4))) * 1.2)
    for n in (20, 50, 100):
        two = [
            _kappa_coverage(np.array([[s[3], s[2]], [s[1], s[0]]]), level_distances([0, 1]), n, draws)
            for s in tables[0]
        ]
        skewed = [near * np.outer(share, share) for share in ([1, 1, 1, 1], [4, 2, 1, 1], [1, 1, 2, 6])]
        four = [_kappa_coverage(s / s.sum(), level_distances([0, 1 / 3, 2 / 3, 1]), n, draws) for s in skewed]
        weighted = [_weighted_kappa_coverage(np.array([[s[3], s[2]], [s[1], s[0]]]), n, draws) for s in tables[0]]
        cells = [f"{min(coverages):.3f}-{max(coverages):.3f}" for coverages in (two, four, weighted)]
        table.add_row(str(n), *cells)
    return table


def _kappa_coverage(shares: np.ndarray, distances: np.ndarray, n: int, draws: int) -> float:
    truth = cohen_kappa(np.rint(shares * 1e9), distances).value
    rng = np.random.default_rng(0)
    estimates = [cohen_kappa(rng.multinomial(n, shares.ravel()).reshape(shares.shape), distances) for _ in range(draws)]
    return float(np.mean([_contains(estimate, truth or 0.0) for estimate in estimates if estimate.value is not None]))


def _weighted_kappa_coverage(shares: np.ndarray, n: int, draws: int) -> float:
    """Label as many judgments of each verdict, of a run of 1,000."""
    distances, rng = level_distances([0, 1]), np.random.default_rng(0)
    truth = cohen_kappa(np.rint(shares * 1e9), distances).value or 0.0
    hits: list[bool] = []
    for _ in range(draws):
        run = rng.multinomial(1000, shares.ravel()).reshape(2, 2)
        judged = run.sum(axis=0)
        right = [int(rng.hypergeometric(int(met), int(unmet), min(n // 2, int(unmet + met)))) for unmet, met in run.T]
        drawn = [min(n // 2, int(count)) for count in judged]
        table = np.array([[drawn[0] - right[0], drawn[1] - right[1]], right], float)
        weighted = weight_table(table, ["UNMET", "MET"], {"UNMET": int(judged[0]), "MET": int(judged[1])})
        estimate = cohen_kappa(weighted, distances)
        if estimate.value is not None:
            hits.append(_contains(estimate, truth))
    return float(np.mean(hits))


def differences(draws: int) -> Table:
    """Simulate two equal runs: how often a difference seems significant, or is surely more than 0 by the labels."""
    table = Table("equal runs", "n", "false positives", title="Comparisons at 5 %")
    for n in (10, 20, 50, 100):
        rng = np.random.default_rng(n)
        scores = [np.where(rng.random(n) < 0.62, 0, rng.integers(-4, 5, n) / 8) for _ in range(draws)]
        values = [difference_p_value(list(sample)) for sample in scores]
        table.add_row("scores, 62 % ties", str(n), f"{np.mean([p is not None and p < 0.05 for p in values]):.3f}")
    for n in (20, 50, 100):
        rng = np.random.default_rng(n)
        counts = [rng.multinomial(n, [0.1, 0.1, 0.8]) for _ in range(draws)]
        estimates = [estimate_rate_difference(rose=int(up), fell=int(down), pairs=n) for up, down, _ in counts]
        table.add_row("binary, 20 % discordant", str(n), f"{np.mean([not _contains(e, 0.0) for e in estimates]):.3f}")
    for n in (20, 50, 100):
        rng = np.random.default_rng(n)
        changes = [rng.choice([-0.05, 0.45], n, p=[0.9, 0.1]) + rng.normal(0, 0.01, n) for _ in range(draws)]
        values = [difference_p_value(sample.tolist()) for sample in changes]
        table.add_row("few gain much, mean 0", str(n), f"{np.mean([p is not None and p < 0.05 for p in values]):.3f}")
    for inputs in (4, 10, 40):
        rng = np.random.default_rng(inputs)
        samples = [rng.normal(0, 0.2, (inputs, 1)) + rng.normal(0, 0.15, (inputs, 5)) for _ in range(draws)]
        for name, flat in (("means of 5 samples an input", False), ("samples taken for inputs", True)):
            units = [(sample.ravel() if flat else sample.mean(axis=1)).tolist() for sample in samples]
            values = [difference_p_value(unit) for unit in units]
            table.add_row(name, str(inputs), f"{np.mean([p is not None and p < 0.05 for p in values]):.3f}")
    by_judge, by_labels = np.mean([_taste(np.random.default_rng(seed)) for seed in range(draws)], axis=0)
    table.add_row("a judge lenient to one, by its scores", "500", f"{by_judge:.3f}")
    table.add_row("a judge lenient to one, by 60 labels a run", "500", f"{by_labels:.3f}")
    return table


def _taste(rng: Rng) -> tuple[bool, bool]:
    """Compare two equal runs by a judge that is more lenient to the second; by its scores, and corrected by labels."""
    people = rng.random((2, 500, 8)) < rng.beta(4.8, 3.2, (500, 1))
    scores: list[np.ndarray] = []
    for answers, (sens, spec) in zip(people, ((0.9, 0.85), (0.93, 0.75)), strict=True):
        agreed = rng.random(answers.shape) < np.where(answers, sens, spec)
        scores.append(np.where(agreed, answers, ~answers).mean(axis=1))
    truth = people.mean(axis=2)
    y, f = truth[1] - truth[0], scores[1] - scores[0]
    p_value = difference_p_value(f.tolist())
    corrected = corrected_mean(y[:60].tolist(), f[:60].tolist(), float(f.mean()), len(f), bounded=False).estimate
    return p_value is not None and p_value < 0.05, not _contains(corrected, 0.0)


def clusters(draws: int) -> Table:
    """Simulate intervals over judgments that depend on each other within a submission."""
    columns = ("submissions", "judgments of each", "a rate", "a difference of two panels", "a Brier score")
    table = Table(*columns, title="Judgments that depend on each other: coverage")
    for submissions, size in product((20, 50, 100), (1, 5)):
        cells: list[str] = []
        for coverage in (_clustered_rate, _clustered_difference, _brier):
            values = [coverage(submissions, size, alike, draws) for alike in (0.0, 0.3, 0.8)]
            cells.append(f"{min(map(min, values)):.3f}-{max(map(max, values)):.3f}")
        table.add_row(str(submissions), str(size), *cells)
    return table


def _thresholds(rng: Rng, submissions: int, size: int, alike: float) -> np.ndarray:
    """Draw uniform numbers, of which two of one submission are the same number with a probability of `alike`."""
    shared, own = rng.random((submissions, 1)), rng.random((submissions, size))
    return np.where(rng.random((submissions, size)) < alike**0.5, shared, own)


def _clustered_rate(submissions: int, size: int, alike: float, draws: int) -> list[float]:
    coverages: list[float] = []
    for rate in (0.7, 0.9, 0.97):
        rng = np.random.default_rng(1)
        right = (_thresholds(rng, submissions, size, alike) < rate for _ in range(draws))
        estimates = (estimate_clustered_rate([Count(int(row.sum()), size) for row in draw]) for draw in right)
        coverages.append(float(np.mean([_contains(estimate, rate) for estimate in estimates])))
    return coverages


def _clustered_difference(submissions: int, size: int, alike: float, draws: int) -> list[float]:
    coverages: list[float] = []
    for up, down in ((0.02, 0.02), (0.05, 0.02), (0.1, 0.1), (0.2, 0.05)):
        rng, hits = np.random.default_rng(1), 0
        for _ in range(draws):
            drawn = _thresholds(rng, submissions, size, alike)
            rose, fell = (drawn < up).mean(axis=1), (drawn > 1 - down).mean(axis=1)
            hits += _contains(estimate_clustered_difference(rose.tolist(), fell.tolist()), up - down)
        coverages.append(hits / draws)
    return coverages


def _brier(submissions: int, size: int, alike: float, draws: int) -> list[float]:
    """Simulate judges that state three confidences: one of them is as often right, and the other is right in 60 %."""
    stated = np.array([0.9, 0.95, 1.0])
    coverages: list[float] = []
    for accuracies in (stated, np.full(3, 0.6)):
        truth = float(np.mean(accuracies * (1 - stated) ** 2 + (1 - accuracies) * stated**2))
        rng, hits = np.random.default_rng(1), 0
        for _ in range(draws):
            levels = rng.integers(0, 3, (submissions, size))
            right = _thresholds(rng, submissions, size, alike) < accuracies[levels]
            items = [
                StatedJudgment(row, float(stated[levels[row, place]]), bool(right[row, place]), None, 1.0)
                for row, place in product(range(submissions), range(size))
            ]
            hits += _contains(estimate_loss(items, squared_error, 0.95), truth)
        coverages.append(hits / draws)
    return coverages


def gates(draws: int) -> Table:
    """Simulate programs at the threshold and above it: how often a gate passes them."""
    title = "Gates at 5 %: share that passes (median number of submissions)"
    table = Table("scores", "threshold", "mean", "20", "50", "100", "after each, up to 400", title=title)
    for (name, criteria), threshold, above in product(
        (("eight criteria", 8), ("binary", 1)), (0.7, 0.9), (0.0, 0.03, 0.05, 0.08)
    ):
        mean, rng = threshold + above, np.random.default_rng(1)
        quality = rng.beta(1.4 * mean, 1.4 * (1 - mean), (draws, 400, 1))
        runs = (rng.random((draws, 400, criteria)) < quality).mean(axis=2)
        fixed = [
            np.mean([decide_mean(run[:count].tolist(), threshold).decision == "pass" for run in runs])
            for count in (20, 50, 100)
        ]
        stops = [_passes_at(run.tolist(), threshold) for run in runs]
        passed = [stop for stop in stops if stop is not None]
        median = f"{np.median(passed):.0f}" if passed else "-"
        shares = [f"{share:.3f}" for share in fixed]
        table.add_row(name, f"{threshold:g}", f"{mean:.2f}", *shares, f"{len(passed) / len(stops):.3f} ({median})")
    return table


def _passes_at(scores: list[float], threshold: float) -> int | None:
    gate = SequentialGate(threshold)
    return next((number for number, score in enumerate(scores, start=1) if gate.add(score) == "pass"), None)


def _contains(estimate: Estimate, truth: float) -> bool:
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def _width(estimate: Estimate) -> float:
    return (estimate.high or 0.0) - (estimate.low or 0.0)


if __name__ == "__main__":
    main()
