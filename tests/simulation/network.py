"""A scripted model behind a scripted network: which request has which fate is decided by the seed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from rubric_integrations.judges import BatchResult, Question
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend, TokenUsage
from rubric_integrations.scoring.judgment import UNANSWERED_CALL, UNKNOWN_CALL
from tests.simulation.scenario import CALM_AFTER, PRICE, TOKENS, Scenario
from tests.simulation.virtual_loop import Process, VirtualLoop

# Seconds after which a request without a reply has failed. Some late replies come shortly before.
TIMEOUT = 10.0

# The credential of every simulated judge, which replies and failures quote, and what the library replaces it with.
API_KEY = "simulated-key-48151623"
REDACTED = "***"

# A refused request costs nothing.
FREE_REQUEST = Spend(calls=1, cost=0.0)


class Cell(NamedTuple):
    """One judgment, by the text and the requirement."""

    text: str
    criterion: str


class Traffic:
    """What one process has sent.

    Attributes:
        requests: The requests sent.
        cost: What the provider charges for them, in US dollars.
        reported_cost: The cost of those whose cost or tokens the judge has reported.
        reported: Their number.
        under_way: The number of requests without an outcome so far.
        under_way_cells: Their judgments, with how often the process had been paused for long when it requested them.
        failures: The requests that failed.
        is_cost_known: Whether every reply has reported its cost.
        answered_cost: The cost of the requests that were answered, in US dollars.
        is_lower_bound: Whether a request was not answered: it was lost, timed out or was cancelled.
        answered: The judgments that arrived, readable and complete.
        not_before: The time before which the provider wants no request, as far as the process knows.
    """

    def __init__(self) -> None:
        self.requests = self.under_way = self.failures = 0
        self.cost = self.reported_cost = self.answered_cost = self.not_before = 0.0
        self.reported = 0
        self.is_cost_known, self.is_lower_bound = True, False
        self.under_way_cells: dict[Cell, int] = {}
        self.answered: set[Cell] = set()

    def count(self, spend: Spend, price: float) -> None:
        """Count the outcome of a request, by what the judge reports about it."""
        if spend.is_lower_bound:
            self.is_lower_bound = True
            return
        self.answered_cost += price
        is_known = spend.cost is not None or spend.usage is not None
        self.is_cost_known &= is_known
        self.reported += is_known
        self.reported_cost += price * is_known


_WITH_A_REPLY = ("on time", "late", "doubled", "cut", "unreadable")


class Network:
    """The way to the model, and the model.

    Args:
        scenario: The faults.
        loop: The clock.
        before_request: Is called with the process, the cells and the price of each request that is sent.
        record: Records an event for whoever replays the seed.

    Attributes:
        traffic: What each process has sent.
        requesters: The processes that have requested each judgment.
    """

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        before_request: Callable[[Process, Sequence[Cell], float], None],
        record: Callable[[Process, str], None],
    ):
        self._scenario, self._loop, self._before_request, self._record = scenario, loop, before_request, record
        self._attempts = Counter[tuple[Cell, ...]]()
        self.traffic: dict[Process, Traffic] = defaultdict(Traffic)
        self.requesters: dict[Cell, list[Process]] = defaultdict(list)

    async def request(self, process: Process, cells: Sequence[Cell]) -> tuple[dict[Cell, Judgment], Spend]:
        """Send one request; some or all judgments may be missing from its reply.

        Raises:
            JudgeFailure: There is no reply, or no readable one.
        """
        if not process.is_alive:
            raise asyncio.CancelledError
        self._attempts[tuple(cells)] += 1
        chance = Random(f"{self._scenario.seed} {cells} {self._attempts[tuple(cells)]}")
        fate = self._fate(chance)
        if fate in _WITH_A_REPLY and any(cell.text in self._scenario.unanswered for cell in cells):
            fate = "no verdict"
        traffic = self.traffic[process]
        price = 0.0 if fate.startswith(("rate limit", "refused", "outage")) else self._price(traffic)
        self._before_request(process, cells, price)
        traffic.requests += 1
        traffic.cost += price
        traffic.under_way += 1
        for cell in cells:
            self.requesters[cell].append(process)
            traffic.under_way_cells[cell] = process.long_pauses
        number = self._attempts[tuple(cells)]
        self._record(process, f"requests {describe(cells)}, attempt {number}: {fate}")
        try:
            judgments, spend = await self._reply(process, cells, fate, price, chance)
            traffic.count(spend, price)
            if fate != "unreadable":
                traffic.answered.update(judgments)
            return judgments, spend
        except JudgeFailure as failure:
            traffic.failures += 1
            traffic.count(failure.spend, price)
            if failure.rate_limited and failure.retry_after:
                traffic.not_before = max(traffic.not_before, self._loop.time() + failure.retry_after)
            raise
        except (TimeoutError, asyncio.CancelledError):
            traffic.failures += 1
            traffic.is_lower_bound = True
            raise
        finally:
            traffic.under_way -= 1
            for cell in cells:
                traffic.under_way_cells.pop(cell, None)

    def _fate(self, chance: Random) -> str:
        now = self._loop.time()
        if now >= CALM_AFTER:
            return "on time"
        for window in self._scenario.windows:
            if window.begin <= now < window.end:
                return window.fault
        number = chance.random()
        for fault, rate in self._scenario.fault_rates.items():
            if number < rate:
                return fault
            number -= rate
        return "on time"

    def _price(self, traffic: Traffic) -> float:
        tenths = {"equal": 10, "growing": 1 + traffic.requests, "shrinking": 10 - traffic.requests}
        return PRICE * min(10, max(1, tenths[self._scenario.prices])) / 10

    def _spend(self, price: float) -> Spend:
        """What the judge reports about a request."""
        usage = TokenUsage(completion_tokens=round(TOKENS * price / PRICE))
        reports = {"cost": Spend(calls=1, cost=price), "tokens": Spend(calls=1, usage=usage, cost=None)}
        return reports.get(self._scenario.reports, UNKNOWN_CALL)

    async def _reply(
        self, process: Process, cells: Sequence[Cell], fate: str, price: float, chance: Random
    ) -> tuple[dict[Cell, Judgment], Spend]:
        if fate == "hang":
            await self._loop.create_future()
        await asyncio.sleep(chance.uniform(TIMEOUT - 3, TIMEOUT - 0.1) if fate == "late" else chance.uniform(0.05, 2.0))
        if not process.is_alive:
            raise asyncio.CancelledError
        judgments = {cell: true_judgment(self._scenario.seed, cell, API_KEY) for cell in cells}
        spend = self._spend(price)
        match fate:
            case "lost":
                # The timeout of a judge's own client; not every judge turns it into a failure.
                message = f"the request timed out: POST /?key={API_KEY}"
                if self._attempts[tuple(cells)] % 2:
                    raise JudgeFailure("transport", message, retryable=True, spend=UNANSWERED_CALL)
                raise TimeoutError(message)
            case "outage":
                message = f"connection refused: POST /?key={API_KEY}"
                raise JudgeFailure("transport", message, retryable=True, spend=FREE_REQUEST)
            case "refused key":
                raise JudgeFailure("config", f"no such key: {API_KEY}", spend=FREE_REQUEST)
            case "rate limit" | "rate limit with a wait":
                wait = chance.choice((0.3, 2.0, 8.0)) if fate.endswith("wait") else None
                message = f"too many requests of {API_KEY}"
                raise JudgeFailure(
                    "transport", message, retryable=True, rate_limited=True, retry_after=wait, spend=FREE_REQUEST
                )
            case "cut" if len(cells) == 1 or chance.random() < 0.5:
                raise JudgeFailure("parse", f"the reply ends early: {API_KEY}", retryable=True, spend=spend)
            case "cut":
                return dict(list(judgments.items())[: chance.randrange(len(cells))]), spend
            case "no verdict":
                message = f"the judge gave no verdict: {API_KEY}"
                raise JudgeFailure("parse", message, retryable=True, repeats=1, spend=spend)
            case "unreadable":
                # Only the validation of judgments can tell that this is none.
                bad = {"verdict": "MET", "value": 0.0} if chance.random() < 0.5 else {"verdict": "MAYBE", "value": 1.0}
                return {cell: Judgment(**bad) for cell in cells}, spend  # pyright: ignore[reportArgumentType]
            case "doubled":
                self.traffic[process].requests += 1
                self.traffic[process].cost += price
                self.traffic[process].answered_cost += price
                return judgments, spend + spend
            case _:
                return judgments, spend


class ScriptedJudge:
    """A judge of one process, whose requests go through the network."""

    def __init__(self, network: Network, process: Process):
        self._network, self._process, self.api_key = network, process, API_KEY

    def fingerprint(self) -> str:
        return "scripted"

    def highest_cost(self, text_bytes: int) -> float:
        return PRICE

    async def judge(self, question: Question) -> Judgment:
        cell = Cell(question.submission.response, question.criterion.requirement)
        judgments, spend = await self._network.request(self._process, [cell])
        # A judge that reports nothing leaves `spend` out.
        return judgments[cell] if spend is UNKNOWN_CALL else judgments[cell].model_copy(update={"spend": spend})

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        cells = {number: Cell(q.submission.response, q.criterion.requirement) for number, q in questions.items()}
        judgments, spend = await self._network.request(self._process, list(cells.values()))
        return BatchResult({n: judgments[cell] for n, cell in cells.items() if cell in judgments}, {}, spend)


class TruthfulJudge:
    """A judge that always knows the true judgment, at once."""

    def __init__(self, seed: int):
        self._seed = seed

    async def judge(self, question: Question) -> Judgment:
        return true_judgment(self._seed, Cell(question.submission.response, question.criterion.requirement))


def true_judgment(seed: int, cell: Cell, quoted: str = REDACTED) -> Judgment:
    """The only right judgment of a cell; its reason names the cell, and quotes the key or what replaces it."""
    verdict = Random(f"truth {seed} {cell}").choices(("MET", "UNMET", "CANNOT_ASSESS"), (5, 4, 1))[0]
    value = {"MET": 1.0, "UNMET": 0.0}.get(verdict)
    return Judgment(verdict=verdict, value=value, reason=f"{reason_of(cell)}, by {quoted}")


def reason_of(cell: Cell) -> str:
    return f"<{cell.text}, {cell.criterion}>"


def describe(cells: Sequence[Cell]) -> str:
    return " ".join(map(reason_of, cells))
