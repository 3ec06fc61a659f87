"""What happens in one simulation, drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from rubric_integrations import Criterion, Rubric

# Seconds. After it, the network has no faults, and whoever is started again is left alone.
CALM_AFTER = 90.0
# US dollars for one request at most.
PRICE = 0.01

# The tokens of the most expensive reply, and the least that the library reserves for any reply.
TOKENS, FEWEST_RESERVED = 10_000, 2_000

# The largest share of the requests that each fault takes.
FAULT_RATES = {
    "late": 0.3,
    "lost": 0.2,
    "doubled": 0.1,
    "cut": 0.15,
    "unreadable": 0.1,
    "rate limit": 0.2,
    "rate limit with a wait": 0.2,
    "hang": 0.06,
}


class Window(NamedTuple):
    """A time during which every request has one fault.

    Attributes:
        begin: Its begin, in seconds.
        end: Its end.
        fault: `outage`, `hang` or `refused key`.
    """

    begin: float
    end: float
    fault: str


class Action(NamedTuple):
    """Something that happens to a process.

    Attributes:
        kind: `crash`, `interrupt` or `pause`.
        after_step: After which of its steps.
        seconds: How long a pause lasts.
    """

    kind: str
    after_step: int
    seconds: float = 0.0


class Life(NamedTuple):
    """One start of a process.

    Attributes:
        begin: Seconds to wait before it.
        actions: What happens to it.
        max_calls: The limit on the calls of its run; None for no limit.
        max_cost: The limit on the cost of its run; None for no limit.
    """

    begin: float
    actions: tuple[Action, ...] = ()
    max_calls: int | None = None
    max_cost: float | None = None


class Scenario(NamedTuple):
    """Everything that is decided before a simulation begins.

    Attributes:
        seed: The seed.
        texts: The submissions; two may be equal.
        unanswered: Those about which the judge never gives a verdict.
        rubric: The rubric.
        lives: For each process, how it is started again and again; after that, it is left alone.
        one_host: Whether the processes can see which of the others have ended.
        fault_rates: The share of the requests that each fault takes, until `CALM_AFTER`.
        windows: Times with one fault.
        clock_jumps: When the wall clock jumps, and by how many seconds.
        max_concurrency: A setting of each run, as are the next ones.
        ordered: Whether results come in the order of the submissions.
        max_retries: Retries after a failed call.
        max_outage: Seconds for which an outage is waited for.
        on_failure: `raise` or `abstain`.
        one_request: Whether all criteria are asked about in one request.
        prices: Whether requests have `equal` prices, or each costs more than the one before it, or less.
        reports: What the judge says about the price of a request: the `cost`, and the most that one can cost; the
            `tokens`; or `nothing`. Of the last two, the price of a token is a setting of the run.
    """

    seed: int
    texts: tuple[str, ...]
    unanswered: frozenset[str]
    rubric: Rubric
    lives: tuple[tuple[Life, ...], ...]
    one_host: bool
    fault_rates: dict[str, float]
    windows: tuple[Window, ...]
    clock_jumps: tuple[tuple[float, float], ...]
    max_concurrency: int
    ordered: bool
    max_retries: int
    max_outage: float
    on_failure: str
    one_request: bool
    prices: Literal["equal", "growing", "shrinking"]
    reports: Literal["cost", "tokens", "nothing"]

    def describe(self) -> str:
        """Describe the scenario in a few lines, for a person who replays it."""
        values = [f"  {name}: {value!r}" for name, value in self._asdict().items() if name not in ("seed", "rubric")]
        return "\n".join([f"seed {self.seed}, {len(self.rubric)} criteria", *values])


def draw_scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    chance = Random(f"scenario {seed}")
    process_count = chance.choices((1, 2, 3, 4), (8, 7, 3, 2))[0]
    lives = tuple(
        tuple(_draw_life(chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))) for _ in range(process_count)
    )
    texts = [f"text {number}" for number in range(chance.randint(1, 7))]
    if chance.random() < 0.2:
        texts.append(chance.choice(texts))
    # With numbers of its own, so that the rest of each scenario does not depend on it.
    reports = Random(f"reports {seed}").choice(("cost", "cost", "tokens", "nothing"))
    if reports == "nothing":
        # As many requests as with reported costs, each of which counts with what is reserved for it.
        share = FEWEST_RESERVED / TOKENS
        lives = tuple(
            tuple(life._replace(max_cost=life.max_cost and life.max_cost * share) for life in process)
            for process in lives
        )
    # Who sends a request twice without a word about it exceeds any limit.
    is_limited = any(life.max_calls or life.max_cost for process in lives for life in process)
    faults = [name for name in FAULT_RATES if chance.random() < 0.5 and not (is_limited and name == "doubled")]
    return Scenario(
        seed=seed,
        texts=tuple(texts),
        unanswered=_draw_unanswered(seed, texts),
        rubric=Rubric(
            [Criterion(name=f"c{i}", weight=i + 1, requirement=f"r{i}") for i in range(chance.randint(1, 4))]
        ),
        lives=lives,
        one_host=chance.random() < 0.6,
        fault_rates={name: FAULT_RATES[name] * chance.random() for name in faults},
        windows=tuple(_draw_window(chance) for _ in range(chance.choice((0, 0, 0, 1, 2)))),
        clock_jumps=tuple((chance.uniform(0, 60), chance.uniform(-1e5, 1e5)) for _ in range(chance.choice((0, 0, 1)))),
        max_concurrency=chance.randint(1, 6),
        ordered=chance.random() < 0.5,
        max_retries=chance.choice((0, 1, 2, 2, 3)),
        max_outage=chance.choice((5.0, 30.0)),
        on_failure=chance.choice(("raise", "raise", "raise", "abstain")),
        one_request=chance.random() < 0.25,
        prices=chance.choice(("equal", "growing", "shrinking")),
        reports=reports,
    )


def _draw_unanswered(seed: int, texts: Sequence[str]) -> frozenset[str]:
    # With numbers of its own, so that the rest of each scenario does not depend on it.
    chance = Random(f"unanswered {seed}")
    return frozenset(chance.sample(texts, chance.randint(1, len(texts))) if chance.random() < 0.2 else ())


def _draw_life(chance: Random) -> Life:
    actions = tuple(_draw_action(chance) for _ in range(chance.choice((0, 1, 1, 2))))
    limit = chance.choice(("none", "none", "calls", "cost"))
    calls = chance.randint(1, 20)
    return Life(
        begin=chance.uniform(0, 15),
        actions=actions,
        max_calls=calls if limit == "calls" else None,
        max_cost=calls * PRICE if limit == "cost" else None,
    )


def _draw_action(chance: Random) -> Action:
    kind = chance.choice(("crash", "crash", "interrupt", "pause", "pause"))
    seconds = chance.choice((1.0, chance.uniform(6, 40)))
    return Action(kind, int(10 ** chance.uniform(0.3, 3.2)), seconds)


def _draw_window(chance: Random) -> Window:
    begin = chance.uniform(0, 40)
    return Window(begin, begin + chance.uniform(1, 40), chance.choice(("outage", "outage", "hang", "refused key")))
