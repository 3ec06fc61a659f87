"""The judge of the six responses as the model of a local server, for frameworks that name a model by its URL."""

from __future__ import annotations

from tests.hosts.six_responses import judge
from tests.openai_server import Call, Reply


def reply(call: Call) -> Reply:
    """Answer a request as the judge of the six responses does."""
    system, user = (str(message["content"]) for message in call.body["messages"])
    coroutine = judge(system, user)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return Reply(text=done.value)
    raise AssertionError("the judge waits for something, which a script of the server cannot")
