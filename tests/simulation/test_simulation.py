"""Seeds of the simulator, the faults that it must find, and its own promises."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.breakages import BREAKAGES, SEEDS_THAT_FIND
from tests.simulation.driver import simulate

# Seeds in the tests, in blocks that the workers of pytest share. `make test` plays the first block, and `make simulate`
# plays many more seeds.
SEEDS, BLOCK = 200, 25
# How many seeds must be enough to find a fault that was put in on purpose.
SEEDS_FOR_A_BREAKAGE = 200
# Seeds that together contain everything; if scenarios are drawn in another way, others are played as well.
SEEDS_WITH_EVERYTHING = (22, 0, 4, 6, 14, 17)
# Seeds that found a fault in `make simulate`, with what it was.
SEEDS_THAT_FOUND_A_FAULT = {
    460: "the question about another text was sent while the server wanted no request",
    7447: "a rate limit was forgotten because its call ended the run",
    11788: "the question about another text was about one that had no stored answer",
    12778: "the same, while another process requested it",
}


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.simulation) for first in range(BLOCK, SEEDS, BLOCK))]
)
def test_every_invariant_holds_whatever_happens(first: int) -> None:
    failed = {seed: faults for seed in range(first, first + BLOCK) if (faults := simulate(seed).faults)}
    lines = [f"python -m tests.simulation {seed}  # {faults[0]}" for seed, faults in failed.items()]
    assert not failed, "replay with:\n" + "\n".join(lines)


@pytest.mark.parametrize("seed", SEEDS_THAT_FOUND_A_FAULT)
def test_seed_that_found_a_fault_finds_none(seed: int) -> None:
    assert simulate(seed).faults == []


@pytest.mark.simulation
@pytest.mark.parametrize("name", BREAKAGES)
def test_fault_that_is_put_in_on_purpose_is_found(name: str, record_property: Any) -> None:
    seeds = dict.fromkeys([SEEDS_THAT_FIND.get(name, 0), *range(SEEDS_FOR_A_BREAKAGE)])
    with BREAKAGES[name]():
        results = ((seed, simulate(seed).faults) for seed in seeds)
        seed, faults = next(((seed, faults) for seed, faults in results if faults), (None, []))
    assert faults, f"no seed below {SEEDS_FOR_A_BREAKAGE} finds it"
    assert "TypeError" not in faults[0], "the breakage does not fit the code that it replaces"
    record_property("shown", f"simulator, {name}: seed {seed}, {faults[0]}")


@pytest.mark.parametrize("seed", [3, 7])
def test_seed_is_replayed_step_by_step(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.events == second.events
    assert (first.steps, first.seconds) == (second.steps, second.seconds)


def test_simulations_contain_what_they_are_meant_to_contain() -> None:
    missing = [
        "on time", "late", "lost", "doubled", "cut", "unreadable", "rate limit", "rate limit with a wait", "hang",
        "no verdict", "outage", "refused key", "crash after", "interrupt after", "pause after", "`max_calls` of",
        "`max_cost` of", "ends: crashed", "ends: interrupted", "ends: stopped", "ends: done",
    ]  # fmt: skip
    for seed in dict.fromkeys([*SEEDS_WITH_EVERYTHING, *range(60)]):
        events = "\n".join(simulate(seed).events)
        missing = [text for text in missing if text not in events]
        if not missing:
            break
    assert missing == []
