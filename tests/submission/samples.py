"""Files of responses in every format, for tests of all readers. A new format is one more entry of `SAMPLES`."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from typing import Any, NamedTuple

import dspy
import openpyxl
import pyarrow
from langchain_core.messages import messages_to_dict
from pyarrow import parquet

from tests.submission.dialects.examples import EXAMPLES, LANGCHAIN
from tests.submission.test_containers import (
    ALPACA_EVAL,
    FORMATS,
    INSPECT,
    LM_EVAL,
    PANDAS,
    PROMPTFOO,
    RAGAS,
    zstandard_archive,
)


class Sample(NamedTuple):
    """The content of one file.

    Attributes:
        name: Its format, for messages.
        suffix: The suffix of the file.
        data: A list of rows, or an object that contains them.
    """

    name: str
    suffix: str
    data: Any


PLAIN = [
    {"id": "a", "response": "The café had 42.", "query": "How many?"},
    {"id": "b", "response": "Nobody knows, 41?", "query": "How few?"},
    {"id": "c", "response": "Zero, in three rows.", "query": None},
]
_CONVERSATIONS = {name: example.conversation for name, example in EXAMPLES.items()}
_CONVERSATIONS["langchain"] = messages_to_dict(LANGCHAIN)
DIALECT_ROWS = {
    name: [{"id": name, "response": value}, PLAIN[0]]
    for name, value in _CONVERSATIONS.items()
    if not isinstance(value, dspy.History) and name != "dspy_react"
}

_STEP = {
    "id": "s",
    "run_type": "tool",
    "name": "times",
    "start_time": "2",
    "inputs": {"a": 6},
    "outputs": {"output": "42"},
}
_RUN = {"id": "r", "run_type": "chain", "name": "agent", "start_time": "1", "inputs": {"question": "6 x 7?"},
        "outputs": {"answer": "It is 42."}, "child_runs": [_STEP]}  # fmt: skip

SAMPLES = [
    *(Sample("plain rows", suffix, PLAIN) for suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")),
    *(Sample(name, ".jsonl", rows) for name, (rows, _) in FORMATS.items()),
    *(Sample(f"pandas {orient}", ".json", data) for orient, data in PANDAS.items()),
    *(Sample(f"rows of {name}", ".jsonl", rows) for name, rows in DIALECT_ROWS.items()),
    Sample("LangSmith runs within a run", ".jsonl", [_RUN]),
    Sample("promptfoo document", ".json", {"evalId": "e", "results": {"version": 3, "results": PROMPTFOO}}),
    Sample("Inspect document", ".json", {"version": 2, "eval": {}, "plan": {}, "samples": INSPECT}),
    Sample("Inspect archive", ".eval", INSPECT),
    Sample("Inspect archive, Zstandard", ".zst.eval", INSPECT),
    Sample("ragas conversations", ".jsonl", RAGAS),
    Sample("lm-eval repeats", ".json", LM_EVAL),
    Sample("AlpacaEval", ".json", ALPACA_EVAL),
    Sample("one conversation", ".json", EXAMPLES["openai_chat"].conversation),
    Sample("one row", ".traj", {"response": EXAMPLES["swe_agent"].conversation, "id": "f"}),
]


def _cells(rows: list[dict[str, Any]]) -> list[list[Any]]:
    header = list(dict.fromkeys(name for row in rows for name in row))
    return [header, *([row.get(name) for name in header] for row in rows)]


def encode(suffix: str, data: Any) -> bytes:
    """Return the file of some rows, or of an object that contains rows."""
    if suffix == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in data).encode()
    if suffix in (".csv", ".tsv"):
        text = io.StringIO()
        csv.writer(text, delimiter="\t" if suffix == ".tsv" else ",").writerows(_cells(data))
        return text.getvalue().encode()
    if suffix == ".parquet":
        sink = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(data), sink)
        return sink.getvalue()
    if suffix == ".xlsx":
        book, sink = openpyxl.Workbook(write_only=True), io.BytesIO()
        sheet = book.create_sheet()
        for cells in _cells(data):
            sheet.append(cells)
        book.save(sink)
        return sink.getvalue()
    if suffix.endswith(".eval"):
        members = {f"samples/{number}.json": json.dumps(row).encode() for number, row in enumerate(data)}
        if suffix == ".zst.eval":
            return zstandard_archive(members)
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return sink.getvalue()
    return json.dumps(data).encode()
