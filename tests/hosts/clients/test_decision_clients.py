"""Real clients of decision models: they read the replies of the tests' server and send the requests of a judge.

The clients are typesafe-sdk, DSPy's `TypeSafe` and LangChain's `OpenAIDecisions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import dspy
import pytest
from dspy import experimental

from rubric_integrations import Criterion, Option, Scale, Submission
from rubric_integrations.judges import DecisionJudge, Question, as_judge
from tests.decision_server import deciding
from tests.openai_server import Call, OpenAIServer

OPTIONS = (Option(label="plain", value=1), Option(label="ornate", description="many", value=0))
CRITERIA = (
    Criterion(requirement="Names the river"),
    Criterion(requirement="Tone", options=OPTIONS),
    Criterion(requirement="Depth", scale=Scale(min=1, max=3, levels={1: "none", 2: "some", 3: "all"})),
)
SUBMISSION = Submission(response='The "Nile".', query="Which river?", context=("A book.",))
PLAN = {"q1": 0.2, "q2": [0.1, 0.7, 0.2], "q3": [0.1, 0.2, 0.7]}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("TYPESAFE_API_KEY", "TYPESAFE_BASE_URL", "OPENAI_ORG_ID", "LANGSMITH_GATEWAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def decision_server() -> Iterator[OpenAIServer]:
    with OpenAIServer(deciding(PLAN)) as running:
        yield running


def request_of(judge: Any, server: OpenAIServer) -> Call:
    """Ask a judge about all criteria, and return its request."""
    questions = {number: Question(SUBMISSION, criterion) for number, criterion in enumerate(CRITERIA, start=1)}
    batch = asyncio.run(judge.judge_batch(questions))
    assert [batch.answers[number].verdict for number in questions] == ["UNMET", "ornate", "3"]
    return server.calls[-1]


def sent_alike(one: Call, other: Call) -> bool:
    """Whether two requests have the same path, key and JSON."""
    parts = [(call.path, call.headers.get("authorization"), call.body) for call in (one, other)]
    return parts[0] == parts[1]


def test_typesafe_sdk_sends_and_reads_what_the_judge_does(decision_server: OpenAIServer) -> None:
    url = decision_server.url.removesuffix("/v1")
    sent = request_of(DecisionJudge("jev-1.13.0", api_base=url, api_key="sk-1"), decision_server)
    with import_module("typesafe_sdk").TypeSafeClient(model="jev-1.13.0", api_key="sk-1", base_url=url) as client:
        reply = client.system_one(state=sent.body["state"], questions=sent.body["questions"])
    assert sent_alike(decision_server.calls[-1], sent)
    assert (reply.answers["q1"].noul, reply.answers["q2"].choice) == (0.2, "ornate")
    assert reply.answers["q3"].score == pytest.approx(1.6)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (88, 3)


def test_judge_of_dspys_client_sends_to_its_address_with_its_key(decision_server: OpenAIServer) -> None:
    url = decision_server.url.removesuffix("/v1")
    client: Any = experimental.TypeSafe("jev-1.13.0", base_url=url, api_key="sk-2", cache=False)
    sent = request_of(as_judge(client), decision_server)
    assert client(state=sent.body["state"], questions=sent.body["questions"])["q1"]["noul"] == 0.2
    assert sent_alike(decision_server.calls[-1], sent)


def test_dspy_reads_the_replies_of_the_server(decision_server: OpenAIServer) -> None:
    decision_server.script = deciding({"river": 0.8, "depth": [0.1, 0.2, 0.7]})
    types: Any = experimental
    signature: Any = dspy.make_signature(
        {
            "response": (str, dspy.InputField()),
            "river": (bool, dspy.OutputField(desc="Names the river")),
            "depth": (types.Score["none", "some", "all"], dspy.OutputField(desc="Depth")),
        },
        "Judge.",
    )
    lm: Any = types.TypeSafe("jev-1.13.0", base_url=decision_server.url.removesuffix("/v1"), api_key="sk", cache=False)
    prediction: Any = dspy.Predict(signature)(response="The Nile.", lm=lm)
    assert (prediction.river, prediction.depth.level) == (True, 2)


def _question(types: Any, part: dict[str, Any]) -> Any:
    text = part["instructions"]
    if part["type"] == "predicate":
        return types.Predicate(instructions=text)
    if part["type"] == "score":
        return types.Score(instructions=text, levels=[level["label"] for level in part["levels"]])
    choices = {choice["value"]: choice.get("description") for choice in part["choices"]}
    return types.Choice(instructions=text, choices=choices)


def test_judge_of_langchains_client_sends_to_its_address_with_its_key(decision_server: OpenAIServer) -> None:
    types: Any = import_module("langchain_openai.decisions")
    with pytest.warns(match="beta"):
        client = types.OpenAIDecisions(model="gpt-6-luna", base_url=decision_server.url, api_key="sk-3")
    sent = request_of(as_judge(client), decision_server)
    questions = {part["name"]: _question(types, part) for part in sent.body["questions"]}
    reply = client.invoke({"input": sent.body["input"], "questions": questions})
    assert sent_alike(decision_server.calls[-1], sent)
    assert (reply.predicates["q1"].probability, reply.choices["q2"].choice) == (0.2, "ornate")
    assert reply.scores["q3"].score == pytest.approx(1.6)
