"""Limits that several processes share: they hold for all together, whatever happens at the same time."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations.judges.spend import NOTHING, Allowance, Claim, Shares, SpendLimit, SpendLimitReached
from rubric_integrations.scoring import Judgment, Spend


class Claims:
    """What the parts of a run have claimed, as a ledger records it; each claim takes a moment."""

    def __init__(self) -> None:
        self.by_part: dict[str, Allowance] = {}
        self.made = 0

    async def make(self, part: str, claim: Claim) -> Shares:
        await asyncio.sleep(0)
        self.made += 1
        others = NOTHING
        for name, amount in self.by_part.items():
            others = others.plus(amount) if name != part else others
        self.by_part[part] = claim.granted(others)
        await asyncio.sleep(0)
        return Shares(self.by_part[part], others)


class Calls:
    """Calls of all parts, with costs that are drawn up to a highest one."""

    def __init__(self, seed: int = 0, highest: float = 0.0) -> None:
        self.random, self.highest = Random(seed), highest
        self.count, self.cost = 0, 0.0

    async def make(self) -> Judgment:
        self.count += 1
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
        cost = self.random.uniform(0, self.highest)
        self.cost += cost
        return Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=cost))


def make_parts(claims: Claims, count: int, max_calls: int | None, max_cost: float | None) -> list[SpendLimit]:
    parts = [SpendLimit(max_calls, max_cost) for _ in range(count)]
    for part in parts:
        part.share(partial(claims.make, part.part))
    return parts


async def use_up(parts: list[SpendLimit], calls: Calls, highest: float | None = None, each: int = 30) -> None:
    """Make so many calls at the same time in each part; those beyond the limits are refused."""
    requests = (part.call(calls.make, highest) for _ in range(each) for part in parts)
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(result, Judgment | SpendLimitReached) for result in results)
    await asyncio.gather(*(part.record() for part in parts))


@settings(max_examples=40)
@given(parts=st.integers(1, 5), max_calls=st.integers(0, 60), seed=st.integers())
async def test_parts_that_call_at_the_same_time_make_exactly_max_calls_together(
    parts: int, max_calls: int, seed: int
) -> None:
    calls, claims = Calls(seed), Claims()
    # Each part has enough to do for the whole limit, so that none ends with a claim that it does not use.
    await use_up(make_parts(claims, parts, max_calls, None), calls, each=60)
    assert calls.count == max_calls
    assert sum(amount.calls for amount in claims.by_part.values()) == calls.count


@settings(max_examples=40)
@given(parts=st.integers(1, 5), max_cost=st.floats(0.0, 8.0), seed=st.integers())
async def test_parts_that_call_at_the_same_time_never_exceed_max_cost_together(
    parts: int, max_cost: float, seed: int
) -> None:
    calls, claims = Calls(seed, highest=0.2), Claims()
    await use_up(make_parts(claims, parts, None, max_cost), calls, highest=0.2, each=12)
    assert calls.cost <= max_cost + 1e-9
    assert sum(amount.cost for amount in claims.by_part.values()) == pytest.approx(calls.cost)
    # A part is refused only what another one may still need.
    assert calls.count == 12 * parts or calls.cost > max_cost - 0.2 * (30 * parts + 1)


async def test_part_that_was_killed_keeps_what_it_had_claimed() -> None:
    calls, claims = Calls(), Claims()
    claims.by_part["killed"] = Allowance(4, 0.0)
    await use_up(make_parts(claims, 2, 10, None), calls)
    assert calls.count == 6


async def test_part_without_limits_counts_for_the_others() -> None:
    calls, claims = Calls(), Claims()
    await use_up(make_parts(claims, 1, None, None), calls, each=7)
    await use_up(make_parts(claims, 1, 10, None), calls)
    assert calls.count == 10


async def test_fast_calls_one_after_another_claim_in_advance() -> None:
    calls, claims = Calls(), Claims()
    (part,) = make_parts(claims, 1, 100_000, None)
    for _ in range(2_000):
        await part.call(calls.make)
    assert claims.made < 1_000


async def test_refusal_names_what_the_other_parts_have_claimed() -> None:
    claims = Claims()
    claims.by_part["other"] = Allowance(4, 0.75)
    (part,) = make_parts(claims, 1, 4, None)
    with pytest.raises(SpendLimitReached, match="`max_calls` of 4 is reached, with 4 of the run's other processes"):
        await part.call(Calls().make)
    (part,) = make_parts(claims, 1, None, 1.0)
    with pytest.raises(SpendLimitReached, match=r"`max_cost` of \$1 is reached: \$0.7500 are spent"):
        await part.call(Calls().make, highest_cost=0.5)
