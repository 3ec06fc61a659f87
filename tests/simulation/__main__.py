"""Replays one seed, or plays many: `python -m tests.simulation SEED` or `python -m tests.simulation FIRST LAST`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.driver import simulate


def main(arguments: Sequence[str]) -> int:
    """Play the seeds, and return the exit code: 1 if an invariant did not hold."""
    first, *last = [int(argument) for argument in arguments]
    return _play_many(range(first, last[0] + 1)) if last else _replay(first)


def _replay(seed: int) -> int:
    result = simulate(seed)
    print("\n".join([result.scenario.describe(), *result.events, *(f"FAULT: {fault}" for fault in result.faults)]))
    print(f"{result.steps} steps, {result.seconds:.0f} s of virtual time, {len(result.faults)} faults")
    return bool(result.faults)


def _play_many(seeds: range) -> int:
    failed = 0
    with ProcessPoolExecutor() as pool:
        for seed, faults in zip(seeds, pool.map(_faults_of, seeds, chunksize=50), strict=True):
            if faults:
                failed += 1
                print(f"seed {seed}: {faults[0]} (replay: python -m tests.simulation {seed})", flush=True)
    print(f"{len(seeds)} seeds, {failed} failed")
    return bool(failed)


def _faults_of(seed: int) -> list[str]:
    return simulate(seed).faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
