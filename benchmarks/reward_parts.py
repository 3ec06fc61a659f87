"""Simulates when one reward for each criterion trains better than their sum, and when it amplifies a judge's errors.

    python benchmarks/reward_parts.py
    python benchmarks/reward_parts.py --groups 20000

Planted verdicts of 12 binary criteria with equal weights are judged with random errors. The figure of a row is the
correlation of the advantages of a batch with the true weighted score, apart from the mean of the group:

- `sum`: the sum of the rewards, normalized within its group (`sum_then_normalize`)
- `sum, batch`: the same, but divided by the deviation of the batch (`scale_rewards="batch"`)
- `parts`: each criterion is normalized within its group before the sum (`normalize_then_sum`)
- `3 parts`: the same for the means of four criteria each, with saturated criteria in every part

`effect` is the mean change of the advantage of a completion, in standard deviations, if the judge errs on one criterion
that all completions of the group meet.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

EPSILON = 1e-4
CRITERIA, GROUP, GROUPS_OF_BATCH = 12, 8, 16


def centered(rewards: Any) -> Any:
    return rewards - rewards.mean(axis=-1, keepdims=True)


def sum_advantages(rewards: Any, *, by_batch: bool = False) -> Any:
    """Return the advantages of the sum. The axes of `rewards` are batch, group, completion and criterion."""
    totals = rewards.sum(axis=-1)
    axes = (1, 2) if by_batch else (2,)
    return centered(totals) / (totals.std(axis=axes, ddof=1, keepdims=True) + EPSILON)


def part_advantages(rewards: Any) -> Any:
    """Return the advantages if each part is normalized within its group before the sum."""
    deviations = rewards.std(axis=2, ddof=1, keepdims=True)
    totals = ((rewards - rewards.mean(axis=2, keepdims=True)) / (deviations + EPSILON)).sum(axis=-1)
    return (totals - totals.mean(axis=(1, 2), keepdims=True)) / (
        totals.std(axis=(1, 2), ddof=1, keepdims=True) + EPSILON
    )


def correlation(advantages: Any, truth: Any) -> float:
    return float(np.corrcoef(advantages.ravel(), centered(truth.sum(axis=-1)).ravel())[0, 1])


def simulate(rates: list[float], error: float, groups: int, seed: int = 0) -> dict[str, float]:
    """Return the correlations for criteria with these pass rates, and the effect of one wrong verdict.

    Args:
        rates: The share of completions that truly meet each criterion.
        error: The share of wrong verdicts.
        groups: The number of groups of completions.
        seed: The random seed.
    """
    rng = np.random.default_rng(seed)
    shape = max(1, groups // GROUPS_OF_BATCH), GROUPS_OF_BATCH, GROUP, len(rates)
    truth = rng.random(shape) < np.array(rates)
    verdicts = (truth ^ (rng.random(shape) < error)).astype(float)
    thirds = np.stack([verdicts[..., part::3].mean(axis=-1) for part in range(3)], axis=-1)
    # One completion of each batch fails a criterion that its group meets.
    met = verdicts.copy()
    met[:, 0, :, -1] = 1.0
    missed = met.copy()
    missed[:, 0, 0, -1] = 0.0

    def effect(advantages: Any) -> float:
        return float((advantages(missed) - advantages(met))[:, 0, 0].mean())

    return {
        "sum": correlation(sum_advantages(verdicts), truth),
        "sum, batch": correlation(sum_advantages(verdicts, by_batch=True), truth),
        "parts": correlation(part_advantages(verdicts), truth),
        "3 parts": correlation(part_advantages(thirds), truth),
        "effect on sum": effect(sum_advantages),
        "effect on parts": effect(part_advantages),
    }


SCENARIOS = [
    ("12 at .5", [0.5] * 12, 0.0),
    ("12 at .5", [0.5] * 12, 0.1),
    ("6 at .5, 6 at .98", [0.5] * 6 + [0.98] * 6, 0.03),
    ("2 at .5, 10 at .95", [0.5] * 2 + [0.95] * 10, 0.03),
    ("2 at .5, 10 at .95", [0.5] * 2 + [0.95] * 10, 0.1),
    ("2 at .5, 10 at .99", [0.5] * 2 + [0.99] * 10, 0.03),
    ("2 at .5, 10 at .99", [0.5] * 2 + [0.99] * 10, 0.1),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=8_000, help="groups of completions for each row")
    groups = parser.parse_args().groups
    for number, (title, rates, error) in enumerate(SCENARIOS):
        figures = simulate(rates, error, groups)
        if not number:
            print(f"{'true pass rates':20} {'errors':>6}", *(f"{name:>15}" for name in figures))
        print(f"{title:20} {error:6.0%}", *(f"{value:15.3f}" for value in figures.values()))


if __name__ == "__main__":
    main()
