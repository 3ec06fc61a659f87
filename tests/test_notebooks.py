"""The notebooks run from top to bottom, without a key or a network, and produce the outputs that are stored in them."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 60_000

# Paths, addresses and times, which differ between machines and runs.
LOCAL = re.compile(
    r"(?<![\w.:/])/(?:home|private|root|tmp|Users|usr|var|work)/|[A-Z]:\\\\|\b0x[0-9a-f]{6,}|\b\d\d:\d\d:\d\d\b"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


@pytest.fixture(autouse=True)
def _isolate_from_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("OPENAI_API_KEY", "LANGSMITH_API_KEY", "LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "dspy"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):  # nothing listens there; the tests' socket guard does not cover a kernel
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def outputs_of(notebook: Any) -> list[list[tuple[str, str]]]:
    """Return the outputs of each code cell, as pairs of a kind and a text; consecutive parts of a stream are joined."""
    cells: list[list[tuple[str, str]]] = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            pieces = [
                (str(out.name), str(out.text))
                if out.output_type == "stream"
                else (str(out.output_type), str(out.get("data", {}).get("text/plain", "")))
                for out in cell.outputs
            ]
            joined = groupby(pieces, key=lambda piece: piece[0])
            cells.append([(kind, "".join(text for _, text in run)) for kind, run in joined])
    return cells


def outdated_cells(notebook: Any, folder: Path) -> dict[int, Any]:
    """Run a notebook in a new kernel, and return the stored and the new outputs of the cells where they differ."""
    stored = outputs_of(notebook)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    pairs = zip(stored, outputs_of(notebook), strict=True)
    return {number: (before, after) for number, (before, after) in enumerate(pairs) if before != after}


@pytest.mark.notebooks
@each_notebook
def test_notebook_that_is_run_has_the_stored_outputs(path: Path, tmp_path: Path) -> None:
    assert outdated_cells(read(path), tmp_path) == {}


@each_notebook
def test_stored_notebook_was_run_from_top_to_bottom_and_has_no_warnings_paths_addresses_or_times(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size <= MOST_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(outputs) for outputs in outputs_of(notebook)) >= len(code) // 2
    assert not any(cell.metadata for cell in notebook.cells), "a cell has metadata, such as its time: clear it"
    outputs = [out for cell in code for out in cell.outputs]
    assert {kind for out in outputs for kind in out.get("data", {})} <= {"text/plain"}
    for kind, text in [pair for cell in outputs_of(notebook) for pair in cell]:
        assert kind != "stderr"
        assert not LOCAL.search(text)


@pytest.mark.notebooks
def test_comparison_finds_each_outdated_output(tmp_path: Path) -> None:
    cells: list[tuple[str, dict[str, Any]]] = [
        ("6 * 7", {"output_type": "execute_result", "data": {"text/plain": "42"}}),
        ("6 * 7", {"output_type": "execute_result", "data": {"text/plain": "41"}}),
        ("print(42)", {"output_type": "stream", "name": "stdout", "text": "41\n"}),
        ("6 * 7;", {"output_type": "execute_result", "data": {"text/plain": "42"}}),
    ]
    notebook: Any = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(code, outputs=[nbformat.v4.new_output(**output)]) for code, output in cells
    ]
    assert list(outdated_cells(notebook, tmp_path)) == [1, 2, 3]


@pytest.mark.parametrize("text", ["/tmp/run.sqlite", "see /root/x", "<Rubric at 0x7f00deadbeef>", "took 10:17:40"])
def test_pattern_matches_paths_addresses_and_times(text: str) -> None:
    assert LOCAL.search(text)
