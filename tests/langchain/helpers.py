"""Rubrics with scripted judges, LangChain models for them, and LangSmith runs and examples."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import openai
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_openai import ChatOpenAI
from langsmith.schemas import Example, Run
from pydantic import SecretStr

from rubric_integrations import Criterion, Rubric
from tests.openai_server import Call, OpenAIServer, Reply, Script

SOURCE_RUBRIC = Rubric(
    [
        Criterion(name="sourced", weight=6, requirement="Names a source"),
        Criterion(name="brief", weight=4, requirement="Is brief"),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)


def source_script(call: Call) -> Reply:
    """Judge `SOURCE_RUBRIC`: sourced if the text contains "source:", always brief, never rude."""
    if call.criterion == "Names a source":
        return Reply("MET" if "source:" in call.prompt else "UNMET")
    return Reply("MET" if call.criterion == "Is brief" else "UNMET")


NUMBER_RUBRIC = Rubric(
    [
        Criterion(name="right", weight=6, requirement="Gives the right product"),
        Criterion(name="sourced", weight=4, requirement="Names its source"),
        Criterion(name="rude", weight=-5, requirement="Is rude"),
    ]
)


def number_script(call: Call) -> Reply:
    """Judge `NUMBER_RUBRIC` for the texts of `number_text`.

    Even numbers are right. Multiples of 3 are sourced, but for multiples of 5 the judge abstains. None is rude.
    """
    number = int(call.prompt.split("answer number ")[1].split()[0])
    if call.criterion == "Gives the right product":
        return Reply("UNMET" if number % 2 else "MET")
    if call.criterion == "Names its source":
        return Reply("CANNOT_ASSESS" if number % 5 == 0 else "UNMET" if number % 3 else "MET")
    return Reply("UNMET")


def number_text(number: int) -> str:
    return f"answer number {number} "


def number_score(number: int) -> float:
    """Compute the score of `NUMBER_RUBRIC` under `number_script` by hand."""
    if number % 5 == 0:
        return 0.0 if number % 2 else 1.0
    return (0 if number % 2 else 6) / 10 + (0 if number % 3 else 4) / 10


def chat_model(server: OpenAIServer, script: Script | None = None, **settings: Any) -> Any:
    """Make a ChatOpenAI that calls the server, which answers by the script; by default without retries."""
    if script is not None:
        server.script = script
    # HTTP clients of our own load no certificates, which would take longer than the calls of most tests. They are of
    # the HTTP library that the SDK needs: httpx, or httpx2 since its version 3.
    clients = {
        "http_client": openai.DefaultHttpxClient(verify=False),
        "http_async_client": openai.DefaultAsyncHttpxClient(verify=False),
    }
    settings = {"max_retries": 0, **clients, **settings}
    return ChatOpenAI(model="mock", base_url=server.url, api_key=SecretStr("none"), **settings)


class AgentModel(FakeMessagesListChatModel):
    """A scripted chat model that `create_agent` accepts, because it has `bind_tools`."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


def make_examples(count: int) -> list[Example]:
    """Make LangSmith examples for the numbers from 0 to `count - 1`."""
    return [
        Example(id=uuid.uuid4(), inputs={"number": number}, outputs={"answer": f"it is {number}"})
        for number in range(count)
    ]


def number_target(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"output": number_text(inputs["number"])}


async def async_number_target(inputs: dict[str, Any]) -> dict[str, Any]:
    return number_target(inputs)


def make_run(outputs: Any, error: str | None = None) -> Run:
    return Run(
        id=uuid.uuid4(),
        name="target",
        start_time=datetime.now(UTC),
        run_type="chain",
        trace_id=uuid.uuid4(),
        inputs={"question": "q"},
        outputs=outputs,
        error=error,
    )
