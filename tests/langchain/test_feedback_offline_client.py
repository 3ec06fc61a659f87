"""`offline_client`: whole LangSmith evaluations, during which every connection except to the judge is refused."""

from __future__ import annotations

import asyncio
import http.client
import socket
from typing import Any

import pytest
from langsmith import Client, aevaluate, evaluate
from langsmith.schemas import Run
from langsmith.utils import LangSmithConnectionError
from urllib3.util import Retry

from rubric_integrations.judges import LMJudge
from rubric_integrations.langchain import RubricEvaluator, offline_client
from tests.langchain.helpers import (
    NUMBER_RUBRIC,
    async_number_target,
    chat_model,
    make_examples,
    number_score,
    number_script,
    number_target,
)
from tests.openai_server import OpenAIServer

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")

# The least number with every combination of divisors 2, 3 and 5, on which the scripted verdicts depend.
COUNT = 30


class ConnectionRecorder:
    """Refuses and records connections to anything but the judge's server."""

    def __init__(self, allowed_port: int) -> None:
        self.allowed_port = allowed_port
        self.attempts: list[Any] = []


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> ConnectionRecorder:
    """Record sockets, name look-ups and HTTP requests to other servers, in a process where tracing is enabled."""
    recorder = ConnectionRecorder(int(server.url.split(":")[2].split("/")[0]))
    connect, request, getaddrinfo = socket.socket.connect, http.client.HTTPConnection.request, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[1] != recorder.allowed_port:
            recorder.attempts.append(address)
            raise ConnectionRefusedError("blocked")
        connect(self, address)

    def recorded_request(self: http.client.HTTPConnection, *args: Any, **settings: Any) -> None:
        if self.port != recorder.allowed_port:
            recorder.attempts.append((self.host, self.port))
        request(self, *args, **settings)

    def guarded_getaddrinfo(host: Any, port: Any, *args: Any, **settings: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            recorder.attempts.append((host, port))
            raise socket.gaierror("blocked")
        return getaddrinfo(host, port, *args, **settings)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
    monkeypatch.setattr(http.client.HTTPConnection, "request", recorded_request)
    for name in ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "LANGSMITH_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    return recorder


def online_client(**settings: Any) -> Client:
    """Make an ordinary client, whose server does not exist; it does not wait for seconds before it gives up."""
    return Client(
        api_key="none",
        api_url="http://langsmith.invalid",
        auto_batch_tracing=False,
        retry_config=Retry(total=0),
        **settings,
    )


def answered_share(runs: list[Run], examples: list[Any]) -> dict[str, Any]:
    return {"key": "answered", "score": sum(run.error is None for run in runs) / len(examples)}


@pytest.mark.parametrize("function", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("judge", ["model name", "chat model"])
def test_offline_evaluation_gives_the_right_scores_and_sends_nothing(
    server: OpenAIServer, recorder: ConnectionRecorder, function: str, judge: str
) -> None:
    server.script = number_script
    model = chat_model(server) if judge == "chat model" else LMJudge("openai/mock", api_base=server.url)
    settings: dict[str, Any] = {
        "data": make_examples(COUNT),
        "evaluators": [RubricEvaluator(NUMBER_RUBRIC, judge=model)],
        "summary_evaluators": [answered_share],
        "upload_results": False,
        "client": offline_client(),
        "max_concurrency": 4,
    }

    async def run_async() -> list[Any]:
        return [row async for row in await aevaluate(async_number_target, **settings)]

    rows: list[Any] = list(evaluate(number_target, **settings)) if function == "evaluate" else asyncio.run(run_async())
    results = {row["example"].inputs["number"]: row["evaluation_results"]["results"] for row in rows}
    assert sorted(results) == list(range(COUNT))
    assert {number: total.score for number, (total, *_) in results.items()} == pytest.approx(
        {number: number_score(number) for number in range(COUNT)}
    )
    for number, (total, right, sourced, rude) in results.items():
        keys = [result.key for result in (total, right, sourced, rude)]
        assert keys == ["rubric", "rubric.right", "rubric.sourced", "rubric.rude"]
        if number % 5 == 0:
            assert (sourced.score, sourced.value) == (None, "CANNOT_ASSESS")
        else:
            assert (sourced.score, sourced.value) == (0.0 if number % 3 else 1.0, None)
        assert total.evaluator_info["calls"] == 3
    assert recorder.attempts == []
    assert len(server.calls) == 3 * COUNT


def test_recorder_notices_what_an_ordinary_client_sends(recorder: ConnectionRecorder) -> None:
    with pytest.raises(LangSmithConnectionError):
        online_client().create_run("a run", {"number": 1}, "chain")
    assert recorder.attempts


def test_ordinary_client_in_local_mode_does_not_send_the_judges_runs(
    server: OpenAIServer, recorder: ConnectionRecorder
) -> None:
    evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))
    rows = evaluate(
        number_target,
        data=make_examples(2),
        evaluators=[evaluator],
        upload_results=False,
        client=online_client(info={}),
    )
    assert len(list(rows)) == 2
    assert recorder.attempts == []
