"""LangSmith without the network: nothing that is graded leaves the process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from langsmith import Client
from langsmith.run_helpers import get_tracing_context, tracing_context


class _OfflineClient(Client):
    def __init__(self) -> None:
        super().__init__(api_key="offline", info={}, auto_batch_tracing=False)

    def create_run(self, *args: Any, **settings: Any) -> None:
        """Drop the run."""

    def update_run(self, *args: Any, **settings: Any) -> None:
        """Drop the run."""


def offline_client() -> Client:
    """A LangSmith client for `evaluate(..., upload_results=False, client=offline_client())` that sends no run.

    `upload_results=False` alone is not enough: `aevaluate` uploads every run of the target all the same, inputs
    included, and in both modes LangChain runnables inside a target or an evaluator are uploaded as traces. An
    ordinary client also asks the server for its settings first. This client drops every run and asks nothing.

    Example:
        >>> offline_client().create_run("a run", {"text": "graded"}, "chain") is None
        True
    """
    return _OfflineClient()


@contextmanager
def suppress_tracing_if_offline() -> Generator[None]:
    """Keep the judge's own runs from being uploaded where LangSmith was told to upload nothing."""
    context: dict[str, Any] = dict(get_tracing_context())
    if context.get("enabled") == "local" or isinstance(context.get("client"), _OfflineClient):
        context["enabled"] = False
    with tracing_context(**context):
        yield
