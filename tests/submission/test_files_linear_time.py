"""The time of every reader grows with the size of the file, and not with its square."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import ResponsesError, read_responses
from rubric_integrations.submission.dialects.detect import dialect_of
from tests.submission.conversations import CALL, CALL_RESULT
from tests.submission.samples import SAMPLES, Sample, encode
from tests.submission.test_containers import MESSAGE
from tests.submission.test_traces import LANGSMITH_TOOL, langsmith
from tests.submission.traces import (
    ANSWER,
    ASSISTANT_CALL,
    TASK,
    USER,
    export,
    genai,
    io,
    langfuse,
    mlflow,
    mlflow_span,
    part,
    phoenix,
    sdk,
)


def count_calls(path: Path) -> int:
    """Return the number of functions that are called to read a file."""
    count = 0

    def observe(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(observe)
        try:
            with suppress(ResponsesError):
                for _ in read_responses(path):
                    pass
        finally:
            sys.setprofile(None)
    return count


def _chain(count: int) -> list[Any]:
    spans = [langfuse("t1", f"s{n}", f"s{n - 1}" if n else None, "SPAN", "a", output=ANSWER) for n in range(count)]
    return [*spans, *(langfuse("t1", f"x{n}", f"s{n}", "TOOL", "times", input={"a": n}) for n in range(count))]


def _runs_within(count: int) -> list[Any]:
    run: dict[str, Any] = langsmith("r", "tool", **LANGSMITH_TOOL)
    for number in range(count):
        run = langsmith(f"r{number}", outputs={"answer": ANSWER}, child_runs=[run])
    return [run | {"parent_run_id": None}]


def _model(task: str) -> dict[str, Any]:
    return genai("chat", [part("user", content=task)], [part("assistant", content=ANSWER)])


LARGE: dict[str, Callable[[int], list[Any]]] = {
    "roots": lambda n: [sdk("t1", f"{i}", None, _model(TASK)) for i in range(n)],
    "roots with many tasks": lambda n: [
        sdk("t1", f"{i}", None, genai("chat", [USER] * (n if i == n - 1 else 1), [part("assistant", content=ANSWER)]))
        for i in range(n)
    ],
    "traces": lambda n: [langfuse(f"t{i}", "s1", None, "SPAN", "a", input=TASK, output=ANSWER) for i in range(n)],
    "calls of one tool": lambda n: [
        langfuse("t1", "s1", None, "AGENT", "a", input=TASK, output=[*[ASSISTANT_CALL] * n, MESSAGE]),
        *(langfuse("t1", f"x{i}", "s1", "TOOL", "times", input={"a": i}) for i in range(n)),
    ],
    "a chain of parents": _chain,
    "runs within runs": _runs_within,
    "flat keys": lambda n: [sdk("t1", "s1", None, {"openinference.span.kind": "LLM", **{
        f"llm.output_messages.{i}.message.{key}": value for i in range(n)
        for key, value in (("role", "assistant"), ("content", ANSWER))}})],
    "spans of MLflow": lambda n: [mlflow("t1", mlflow_span("s0", None, "AGENT", TASK, ANSWER), *(
        mlflow_span(f"s{i + 1}", f"s{i}", "TOOL", {"a": i}, 42) for i in range(n)))],
    "spans of OTLP": lambda n: [
        export(*(sdk("t1", f"s{i}", f"s{i - 1}" if i else None, _model(TASK)) for i in range(n)))
    ],
    "rows of Phoenix": lambda n: [
        phoenix("t1", f"s{i}", "s0" if i else None, "TOOL" if i else "CHAIN", attributes=io(TASK, ANSWER))
        for i in range(n)
    ],
    "calls with one id": lambda n: [{"response": [
        {"role": "user", "content": TASK}, *[CALL, CALL_RESULT] * n, {"role": "assistant", "content": ANSWER}]}],
    "calls of one message": lambda n: [{"response": [
        *({"type": "function_call", "call_id": f"{i}", "name": "times", "arguments": "{}"} for i in range(n)),
        {"role": "assistant", "content": ANSWER}]}],
    "turns of MT-bench": lambda n: [{"question_id": 1, "model_id": "m", "choices": [{"turns": [ANSWER] * n}]}],
}  # fmt: skip
"""Rows whose size grows in one way, by a number."""


@pytest.mark.parametrize("name", LARGE)
def test_twice_the_input_takes_at_most_twice_the_calls(tmp_path: Path, name: str) -> None:
    counts = list[int]()
    for size in (60, 120):
        path = tmp_path / f"f{size}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in LARGE[name](size)))
        counts.append(count_calls(path))
    assert counts[1] <= 2.2 * counts[0], counts


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of one list, or of one object, of each kind in some data."""
    if isinstance(value, list | dict) and value:
        yield place
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*place, key))


def _grown(data: Any, place: tuple[Any, ...], size: int) -> Any:
    holder = [copy.deepcopy(data)]
    value, *keys = holder, *place
    last: Any = 0
    for key in keys:
        value, last = value[last], key
    old = value[last]
    value[last] = [*old] * size if isinstance(old, list) else old | {f"more.{number}.x": "y" for number in range(size)}
    return holder[0]


@pytest.mark.sizes
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.suffix in (".jsonl", ".json")], ids=lambda s: s.name)
def test_each_list_and_each_object_of_a_sample_may_be_long(tmp_path: Path, sample: Sample) -> None:
    kinds = {tuple(key for key in place if isinstance(key, str)): place for place in _places(sample.data)}
    for place in kinds.values():
        counts = list[int]()
        for size in (25, 25, 50, 100):  # the first time, modules are imported and caches filled
            path = tmp_path / f"f{sample.suffix}"
            path.write_bytes(encode(sample.suffix, _grown(sample.data, place, size)))
            counts.append(count_calls(path))
        del counts[0]
        # With a quadratic time, the second growth is four times the first one.
        assert counts[2] - counts[1] <= 2.5 * max(counts[1] - counts[0], 0) + 2_000, (place, counts)


@pytest.mark.parametrize("text", ["```bash\nx", "<mswea_bash_command>"])
def test_text_with_commands_that_do_not_end_is_searched_once(text: str) -> None:
    # With a quadratic time, it takes several minutes.
    messages = [{"role": "user", "content": TASK}, {"role": "assistant", "content": text * 50_000}]
    assert dialect_of(messages) == "openai_chat"


def test_answers_of_mt_bench_with_too_many_turns_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "question.jsonl").write_text(json.dumps({"question_id": 1, "turns": [TASK] * 101}))
    path = tmp_path / "f.jsonl"
    row = {"question_id": 1, "model_id": "m", "choices": [{"turns": [ANSWER] * 101}]}
    path.write_text(json.dumps(row))
    assert [row.error for row in read_responses(path)] == [
        "row 1: has no answer: it has more than 100 turns: write one row for each"
    ]


def test_long_python_text_of_messages_is_the_error_of_its_trace(tmp_path: Path) -> None:
    cell = "[" + "{'message': {'role': 'assistant', 'content': 'x'}}, " * 20_000 + "]"
    row = {"name": "x", "context.trace_id": "t1", "context.span_id": "s1", "span_kind": "LLM", "parent_id": None,
           "status_code": "OK", "start_time": "1", "attributes.llm.output_messages": cell}  # fmt: skip
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps(row))
    assert [row.error for row in read_responses(path)] == [
        "row t1: has no answer: its `llm.output_messages` are Python text with too many values to parse: export JSON"
    ]


def test_sample_of_inspect_that_repeats_a_long_attachment_is_an_error(tmp_path: Path) -> None:
    calls = [{"role": "assistant", "content": "attachment://h"}] * 2_000
    row = {"id": "a", "epoch": 1, "input": TASK, "target": "", "messages": [*calls, MESSAGE],
           "output": {"choices": [{"message": MESSAGE}]}}  # fmt: skip
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps({**row, "attachments": {"h": "x" * 50_001}}))
    assert [str(row.error)[:71] for row in read_responses(path)] == [
        "row a: `messages` refers to `attachments` of more than 100,000,000 char"
    ]
