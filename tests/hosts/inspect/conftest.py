"""Inspect evaluations of fixed responses, without a model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="Inspect is not installed: make test-host-inspect")

Respond = Callable[[Any], str]


def answering(respond: Respond) -> Any:
    """Return a solver that sets the completion. `generate` would load the tables of a tokenizer from a server."""
    model: Any = import_module("inspect_ai.model")
    solver: Any = import_module("inspect_ai.solver").solver

    @solver
    def answer() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output = model.ModelOutput.from_content("mockllm/model", respond(state))
            state.messages.append(state.output.message)
            return state

        return solve

    return answer()


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a task on samples and a scorer, and return its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))
    inspect_ai: Any = import_module("inspect_ai")

    def run(samples: list[Any], scorer: Any, respond: Respond, epochs: Any = None) -> Any:
        task = inspect_ai.Task(dataset=samples, solver=answering(respond), scorer=scorer, epochs=epochs)
        [log] = inspect_ai.eval(task, model="mockllm/model", display="none")
        assert log.status == "success", log.error
        return log

    return run
