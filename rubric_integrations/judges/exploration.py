"""An exploration: requests to a model that reads a long trajectory with tools and chooses the steps that judges see.

This module imports no DSPy. `Explorer`, which calls the model, is in `judges/explorer.py`, the tools are in
`judges/trajectory_tools.py`, and the loop of a grader is in `graders/exploring.py`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from pydantic import Field

from rubric_integrations._util.records import Record


class ExplorerLimits(Record):
    """The limits of one exploration.

    Attributes:
        max_requests: The most requests to the explorer's model, at least 1. Default 8. The last request may only submit.
        max_tool_calls: The most calls of the tools `list`, `read` and `search`, at least 1. Default 16. Further calls
            are not executed. `submit` is not counted.
        max_observation_chars: The most characters of the result of one tool call, at least 3,000. Default 8,000.
        max_shown_chars: The most characters of the steps that the explorer may choose in all, at least 1,000. Default
            50,000. Steps that exceed it are not added to the selection, and the explorer is told.

    Example:
        >>> ExplorerLimits(max_requests=4).max_tool_calls
        16
    """

    max_requests: int = Field(default=8, ge=1, strict=True)
    max_tool_calls: int = Field(default=16, ge=1, strict=True)
    max_observation_chars: int = Field(default=8_000, ge=3_000, strict=True)
    max_shown_chars: int = Field(default=50_000, ge=1_000, strict=True)


@runtime_checkable
class TrajectoryExplorer(Protocol):
    """The protocol of an explorer. `Explorer` implements it with a language model."""

    @property
    def limits(self) -> ExplorerLimits:
        """The limits of one exploration."""
        ...

    def fingerprint(self) -> str | None:
        """Return a text that identifies the model, its settings, the prompts and the limits. None if it cannot."""
        ...


def describe_explorer(explorer: TrajectoryExplorer) -> dict[str, Any]:
    """Describe an explorer as JSON: its fingerprint and its limits, from which `rescore` reads its stored replies."""
    return {"fingerprint": explorer.fingerprint() or "", "limits": explorer.limits.model_dump()}
