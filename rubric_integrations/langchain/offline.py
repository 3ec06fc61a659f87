"""Runs LangSmith evaluations without a network, so that nothing that is graded leaves the process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from langsmith import Client
from langsmith.run_helpers import get_tracing_context, tracing_context


class _OfflineClient(Client):
    """A client that drops every run instead of uploading it."""

    def __init__(self) -> None:
        # An empty `info` prevents the request for the server's settings, and without batching there is no upload
        # thread.
        super().__init__(api_key="offline", info={}, auto_batch_tracing=False)

    def create_run(self, *args: Any, **kwargs: Any) -> None:
        """Drop the run."""

    def update_run(self, *args: Any, **kwargs: Any) -> None:
        """Drop the update."""


def offline_client() -> Client:
    """Make a LangSmith client that sends nothing: `evaluate(..., upload_results=False, client=offline_client())`.

    `upload_results=False` alone does not prevent uploads. `aevaluate` uploads every run of the target, including its
    inputs, and in `evaluate` and `aevaluate` LangChain runnables inside a target or an evaluator are uploaded as
    traces. An ordinary client also requests the server's settings first. This client drops every run and sends no
    request.

    Example:
        >>> offline_client().create_run("a run", {"text": "graded"}, "chain") is None
        True
    """
    return _OfflineClient()


@contextmanager
def suppress_tracing_if_offline() -> Generator[None]:
    """Disable tracing of the judge's runs inside an evaluation that uploads nothing.

    LangChain's tracer would upload these runs although LangSmith's context says `"local"`.
    """
    context: dict[str, Any] = dict(get_tracing_context())
    if context.get("enabled") == "local" or isinstance(context.get("client"), _OfflineClient):
        context["enabled"] = False
    with tracing_context(**context):
        yield
