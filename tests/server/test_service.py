"""What all requests share: grades, the ledger, limits, deadlines, outages, and the end of the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import Cascade, LMJudge, Question
from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.scoring import Judgment, to_judgment
from rubric_integrations.server import GradingService
from tests.hosts.six_responses import RUBRIC, make_grader
from tests.openai_server import Call, OpenAIServer, Reply
from tests.server.serving import serving

pytestmark = pytest.mark.asyncio

BODY = {"response": "It is 42."}
ONE = [{"name": "answer", "requirement": "Says 42"}]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- no event says so
        await asyncio.sleep(0.001)


class SlowJudge:
    """A judge whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.calls, self.may_answer = 0, asyncio.Event()

    def fingerprint(self) -> str:
        return "slow"

    async def __call__(self, _system: str, _user: str) -> str:
        self.calls += 1
        await self.may_answer.wait()
        return json.dumps({"explanation": "so", "verdict": "MET"})

    async def called(self, count: int = 1) -> None:
        await until(lambda: self.calls >= count)


def grader_of(judge: Any, **settings: Any) -> PerCriterionGrader:
    return PerCriterionGrader(judge, max_retries=0, **settings)


async def test_identical_requests_at_the_same_time_share_one_grade() -> None:
    judge = SlowJudge()
    async with serving(ONE, grader_of(judge)) as server:
        requests = [asyncio.create_task(server.post("/grade", BODY)) for _ in range(5)]
        # The same texts in one request of OpenRLHF are another submission, because it has a query.
        requests.append(asyncio.create_task(server.reward(BODY["response"], BODY["response"])))
        await judge.called(2)
        assert server.service.under_way == 2
        judge.may_answer.set()
        answers = await asyncio.gather(*requests)
    assert [answer.status for answer in answers] == [200] * 6
    assert answers[5].data["rewards"] == [1.0, 1.0]
    assert judge.calls == 2


async def test_judgment_of_a_client_that_is_gone_is_stored_and_not_requested_again(tmp_path: Path) -> None:
    judge = SlowJudge()
    with Ledger(tmp_path / "l.sqlite") as ledger:
        async with serving(ONE, grader_of(judge), ledger=ledger) as server:
            with contextlib.suppress(asyncio.TimeoutError):
                await server.post("/grade", BODY, timeout=aiohttp.ClientTimeout(total=0.3))
            await judge.called()
            assert server.service.under_way == 1
            judge.may_answer.set()
            await until(lambda: not server.service.under_way)
            assert len(ledger) == 1
            assert (await server.post("/grade", BODY)).data["score"] == 1.0
            assert server.service.reused == 1
    assert judge.calls == 1


async def test_request_at_its_deadline_is_refused_and_its_grade_goes_on() -> None:
    judge = SlowJudge()
    async with serving(ONE, grader_of(judge), deadline=0.2) as server:
        late = await server.post("/grade", BODY)
        assert (late.status, late.headers["Retry-After"]) == (503, "1")
        assert "it goes on" in late.data["error"]
        second = asyncio.create_task(server.post("/grade", BODY))
        await asyncio.sleep(0.05)
        judge.may_answer.set()
        assert (await second).data["score"] == 1.0
    assert judge.calls == 1


async def test_request_beyond_the_limit_on_grades_is_refused_before_any_call() -> None:
    judge = SlowJudge()
    async with serving(ONE, grader_of(judge), max_waiting=2) as server:
        first = [asyncio.create_task(server.post("/grade", {"response": f"{number}"})) for number in range(2)]
        await judge.called(2)
        refused = await server.post("/grade", {"response": "third"})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert (await server.reward("a", "b")).status == 503
        # A grade that is under way already takes no further place.
        shared = asyncio.create_task(server.post("/grade", {"response": "0"}))
        await asyncio.sleep(0.05)
        judge.may_answer.set()
        assert [(await request).status for request in (*first, shared)] == [200] * 3
        assert (await server.post("/grade", {"response": "third"})).status == 200
    assert judge.calls == 3


async def test_spend_limit_refuses_new_calls_and_serves_what_the_ledger_has(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite") as ledger:
        async with serving(ledger=ledger, max_calls=3) as server:
            assert (await server.post("/grade", BODY)).status == 200
            refused = await server.post("/grade", {"response": "another"})
            assert (refused.status, "Retry-After" in refused.headers) == (503, False)
            assert "`max_calls` of 3 is reached" in refused.data["error"]
            health = await server.get("/healthz")
            assert (health.status, health.data) == (503, {"status": "spend limit reached"})
            assert (await server.post("/grade", BODY)).status == 200


async def test_spend_limit_of_a_run_holds_after_a_restart(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite") as ledger:
        async with serving(ledger=ledger, max_calls=3, run="night") as server:
            assert (await server.post("/grade", BODY)).status == 200
        async with serving(ledger=ledger, max_calls=3, run="night") as server:
            assert (await server.post("/grade", {"response": "another"})).status == 503
        async with serving(ledger=ledger, max_calls=3) as server:
            assert (await server.post("/grade", {"response": "another"})).status == 200


UNPRICED = "the price of a call of 'openai/mine' is not known, .*`--price openai/mine=IN,OUT`"
CHECKED = [{"requirement": "Says 42", "check": {"number": 42}}]


@pytest.mark.parametrize("options", [{"rubric": ONE}, {"rubric": CHECKED, "accept_rubrics": True}])
async def test_max_cost_with_an_unknown_price_is_refused_before_the_server_starts(options: Any) -> None:
    cascade = Cascade(LMJudge("openai/mine", confidence=True), "offline", escalate_below=0.5)
    for judges in (["offline", "openai/mine"], [cascade]):
        with pytest.raises(ValueError, match=UNPRICED):
            GradingService(grader=PerCriterionGrader(judges=judges), max_cost=5, **options)


@pytest.mark.parametrize(
    ("rubric", "options"),
    [
        (ONE, {"max_cost": 5, "prices": {"openai/mine": (0.25, 2.0)}}),
        (ONE, {"max_calls": 5}),
        (CHECKED, {"max_cost": 5}),
        ([{**ONE[0], "judge": "OfflineJudge"}], {"max_cost": 5}),
    ],
)
async def test_server_whose_limit_can_be_enforced_starts(rubric: Any, options: Any) -> None:
    GradingService(rubric, PerCriterionGrader(judges=["offline", "openai/mine"]), **options)


async def test_price_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="`prices` names 'openai/other', and the judges are 'openai/mine'"):
        GradingService(ONE, PerCriterionGrader("openai/mine"), prices={"openai/other": (1.0, 2.0)})


async def test_reply_without_a_cost_ends_judging_and_names_the_price_and_no_limit() -> None:
    class OwnJudge:
        async def judge(self, question: Question) -> Judgment:
            return to_judgment(question.criterion, "MET")

    async with serving(ONE, grader_of(OwnJudge()), max_cost=5) as server:
        assert (await server.post("/grade", BODY)).status == 200
        refused = await server.post("/grade", {"response": "another"})
        assert refused.status == 503
        assert "pass `prices={'OwnJudge': (input, output)}`" in refused.data["error"]
        assert "higher limit" not in refused.data["error"]
        assert (await server.get("/healthz")).data == {"status": "price unknown"}


async def test_outage_of_the_judge_is_an_error_and_shown_until_the_judge_is_back(server: OpenAIServer) -> None:
    judge = LMJudge("openai/m", api_base=server.url)
    grader = PerCriterionGrader(judge, limits=CallLimits(max_outage=0.2))
    server.script = lambda _call: Reply(status=500)
    async with serving(RUBRIC, grader) as grades:
        failed = await grades.reward(*"abcd")
        assert (failed.status, failed.headers["Retry-After"]) == (503, "5")
        assert (await grades.get("/healthz")).data == {"status": "judge down"}
        assert "rubric_integrations_up 0" in (await grades.get("/metrics")).text
        server.script = lambda _call: Reply(verdict="MET")
        # Between two probes of the judge, a request still fails at once, and its client sends it again.
        while True:
            answer = await grades.reward(*"abcd")
            if answer.status != 503:
                break
        assert answer.status == 200
        assert (await grades.get("/healthz")).data == {"status": "ok"}


def answer(reply: Reply, _call: Call) -> Reply:
    return reply


async def test_unreadable_replies_and_refusals_do_not_end_the_server(server: OpenAIServer) -> None:
    grader = grader_of(LMJudge("openai/m", api_base=server.url))
    async with serving(ONE, grader) as grades:
        for reply in (Reply(text="I would rather not."), Reply(status=401)):
            server.script = partial(answer, reply)
            answers = [await grades.post("/grade", {"response": f"{number}"}) for number in range(25)]
            assert {answer.status for answer in answers} == {503}
        server.script = lambda _call: Reply()
        assert (await grades.post("/grade", BODY)).status == 200


async def test_many_requests_with_rubrics_of_their_own_are_read_by_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, peak, own_of = 0, 0, RowRubrics.own_of

    def count(rubrics: RowRubrics, row: Any, own: Any) -> Rubric | None:
        nonlocal reading, peak
        reading += 1
        peak = max(peak, reading)
        time.sleep(0.01)
        reading -= 1
        return own_of(rubrics, row, own)

    monkeypatch.setattr(RowRubrics, "own_of", count)
    async with serving(None, PerCriterionGrader("offline"), accept_rubrics=True) as server:
        names = [f"n{number}" for number in range(50)]
        bodies = [{"response": name, "rubric": [{"requirement": "x", "check": {"contains": name}}]} for name in names]
        answers = await asyncio.gather(*(server.post("/grade", body) for body in bodies))
    assert {answer.data["score"] for answer in answers} == {1.0}
    assert 1 < peak <= 4


async def test_stop_finishes_what_is_under_way_and_refuses_the_rest() -> None:
    judge = SlowJudge()
    async with serving(ONE, grader_of(judge)) as server:
        first = asyncio.create_task(server.post("/grade", BODY))
        await judge.called()
        stopping = asyncio.create_task(server.service.stop(20))
        await asyncio.sleep(0.05)
        refused = await server.post("/grade", {"response": "another"})
        assert (refused.status, (await server.get("/healthz")).data) == (503, {"status": "stopping"})
        judge.may_answer.set()
        assert ((await first).status, await stopping) == (200, 0)


async def test_grade_that_is_cancelled_by_the_stop_is_an_error() -> None:
    judge = SlowJudge()
    async with serving(ONE, grader_of(judge)) as server:
        request = asyncio.create_task(server.post("/grade", BODY))
        await judge.called()
        assert await server.service.stop(0.05) == 1
        assert ((await request).status, "has stopped" in (await request).data["error"]) == (503, True)


async def test_ledger_that_breaks_is_an_error_without_its_path(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    async with serving(ledger=ledger) as server:
        ledger.close()
        answer = await server.post("/grade", BODY)
    assert (answer.status, "the ledger of the server cannot be used" in answer.data["error"]) == (503, True)
    assert str(tmp_path) not in answer.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_waiting": 0}, "`max_waiting` must be at least 1"),
        ({"deadline": 0}, "`deadline` must be above 0"),
        ({"deadline": float("nan")}, "`deadline` must be above 0"),
        ({"max_calls": -1}, "`max_calls` must be at least 0"),
        ({"run": "x"}, "needs a `ledger`"),
    ],
)
async def test_settings_that_are_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GradingService(ONE, make_grader(), **settings)


async def test_grader_that_would_send_a_number_without_a_grade_is_refused() -> None:
    for policy in ("abstain", "worst_case"):
        with pytest.raises(ValueError, match="on_failure"):
            GradingService(ONE, PerCriterionGrader("offline", on_failure=policy))
    with pytest.raises(ValueError, match="stop_when_decided"):
        GradingService(ONE, PerCriterionGrader("offline", stop_when_decided=True))
    with pytest.raises(ValueError, match="there is no `rubric`"):
        GradingService(None, PerCriterionGrader("offline"))
    with pytest.raises(TypeError, match="is a function"):
        GradingService(ONE.copy, PerCriterionGrader("offline"))  # pyright: ignore[reportArgumentType]
