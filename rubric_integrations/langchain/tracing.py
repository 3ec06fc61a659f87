"""Records each evaluation as one run in LangSmith, so that the judge's calls are not traces of their own."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from langsmith.run_helpers import trace
from langsmith.run_trees import RunTree
from langsmith.utils import tracing_is_enabled

from rubric_integrations.langchain.offline import suppress_tracing_if_offline


@contextmanager
def evaluation_run(
    name: str,
    inputs: Mapping[str, Any],
    *,
    run_id: uuid.UUID | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Generator[RunTree | None]:
    """Record the code of the block as one run; the calls of a LangChain judge in it become its children.

    The run is a child of the run that the caller is in, if there is one. An exception in the block is recorded as its
    error.

    Args:
        name: The name of the run.
        inputs: What is graded, as LangSmith should display it.
        run_id: The id of the run; by default a new one.
        metadata: Further metadata of the run.

    Yields:
        The run, whose outputs the caller sets with `end`; None if tracing is disabled.
    """
    with suppress_tracing_if_offline():
        if tracing_is_enabled() is not True:
            yield None
            return
        with trace(name, inputs=dict(inputs), run_id=run_id, metadata=dict(metadata or {})) as run:
            yield run
