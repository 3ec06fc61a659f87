"""Malformed files of responses in every format: an error in one line, or the reading of the file as it was before."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from openpyxl.utils.exceptions import IllegalCharacterError

from rubric_integrations.formats.registry import FORMATS
from rubric_integrations.submission import ResponsesError, Row, Step, Trajectory, read_responses
from rubric_integrations.submission.containers import DOCUMENTS
from rubric_integrations.submission.dialects.blocks import NO_NAME
from rubric_integrations.submission.dialects.detect import DIALECTS
from rubric_integrations.submission.inputs import read_row
from rubric_integrations.submission.tool_rows import ROW_FORMATS, find_row_format
from tests.submission.dialects.examples import EXAMPLES, REFUSED
from tests.submission.samples import DIALECT_ROWS, PLAIN, SAMPLES, Sample, encode
from tests.submission.traces import TRACES

Answers = dict[str, tuple[str, str | None]]

# What the JSON library does not write is replaced in the text.
_DOUBLED, _DEEP, _LONG, _LARGE = "DOUBLED", "DEEP", "LONG", "LARGE"
_VALUES: list[Any] = [
    5, None, [], {}, "another text", True, [1, "x"], {"x": 1}, "a\0b", "\ud800", float("nan"), float("inf"), 1.5,
    _DEEP, _LONG, _LARGE,
]  # fmt: skip


class Mutant(NamedTuple):
    """A malformed variant of a sample.

    Attributes:
        data: Its rows, or its object.
        path: The keys of the value that is another one.
        old: The value before.
        new: The value now; None if there is none.
        is_removed: Whether the key was removed or renamed.
        change: What was done to the value.
    """

    data: Any
    path: tuple[Any, ...]
    old: Any
    new: Any
    is_removed: bool = False
    change: str = "replace"


def paths_of(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths_of(value, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


@st.composite
def mutants(draw: st.DrawFn, sample: Sample) -> Mutant:
    """Replace, remove, rename or double one value of a sample."""
    path = draw(st.sampled_from(list(paths_of(sample.data))))
    change = draw(st.sampled_from(["replace", "replace", "remove", "rename", "double"]))
    assume(change == "replace" or isinstance(path[-1], str))
    return mutate(sample.data, path, change, draw(st.sampled_from(_VALUES)) if change == "replace" else None)


def mutate(original: Any, path: tuple[Any, ...], change: str, new: Any = None) -> Mutant:
    """Return a document with another value at a path, or with its key removed, renamed or doubled."""
    data = copy.deepcopy(original)
    parent, key = at(data, path[:-1]), path[-1]
    old = parent[key]
    if change == "replace":
        parent[key] = new
        return Mutant(data, path, old, new)
    if change == "rename":
        parent["x" + key] = old
    if change == "double":
        parent[_DOUBLED + key] = "another text"
    else:
        del parent[key]
    return Mutant(data, path, old, None, change != "double", change)


def encode_mutant(sample: Sample, data: Any) -> bytes:
    """Return the file of a malformed document, which no library writes."""
    is_json = sample.suffix in (".jsonl", ".json", ".traj")
    try:
        content = encode(sample.suffix, data)
    except (TypeError, ValueError, AttributeError, IllegalCharacterError):  # of the libraries that write tables
        assume(False)
        raise
    if is_json:
        content = content.replace(f'"{_DEEP}"'.encode(), b"[" * 5_000 + b"]" * 5_000)
        content = content.replace(f'"{_LARGE}"'.encode(), b"9" * 5_000)
        content = content.replace(f'"{_DOUBLED}'.encode(), b'"')
    return content.replace(_LONG.encode(), b"x" * 10_000_000) if is_json else content


def read_file(path: Path, content: bytes) -> list[Row] | str:
    """Return the rows of a file, or the error that refuses it; no other exception is caught."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(read_responses(path))
        except ResponsesError as error:
            return str(error)


def answers_of(rows: list[Row]) -> Answers:
    return {row.id: (row.submission.response, row.submission.query) for row in rows if row.submission}


def check_errors(result: list[Row] | str) -> list[Row]:
    """Return the rows, after a check that each error is one short line."""
    errors = [result] if isinstance(result, str) else [row.error for row in result if row.submission is None]
    for error in errors:
        assert error
        assert len(error) < 2_000, error[:3_000]
        assert len(error.splitlines()) == 1, error
        assert "Traceback" not in error
    return [] if isinstance(result, str) else result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def call_counts(rows: list[Row], *, with_results: bool) -> dict[str, int]:
    """Return the number of calls in the trajectory of each row, also with the results that have no call."""
    trajectories = {row.id: row.submission.trajectory for row in rows if row.submission and row.submission.trajectory}
    return {
        row_id: len(trajectory.calls) + with_results * sum(step.role == "tool" for step in trajectory.steps)
        for row_id, trajectory in trajectories.items()
    }


class Fact(NamedTuple):
    """One thing that is read: of the steps, in their order, and of the row.

    Attributes:
        kind: What it is, such as the `result` of a call.
        text: What was read; None if there is nothing.
        is_error: Whether a result is that of a tool that failed.
    """

    kind: str
    text: str | None
    is_error: bool | None = None


def facts_of_steps(steps: tuple[Step, ...]) -> list[Fact]:
    facts: list[Fact] = []
    for step in steps:
        facts += [Fact("role", step.role), Fact("name", step.name), Fact("text", step.text)]
        for call in step.calls:
            facts += [Fact("call", call.name), Fact("arguments", text_of(call.arguments))]
            facts.append(Fact("result", call.result, call.is_error))
    return facts


def facts_of_row(row: Row) -> list[Fact]:
    assert row.submission
    texts = {name: getattr(row.submission, name) for name in ("response", "query", "reference")}
    trajectory = row.submission.trajectory
    steps = facts_of_steps(trajectory.steps) if trajectory else []
    return [*(Fact(name, text) for name, text in texts.items()), *steps]


def check_other_type(before: list[Fact], after: list[Fact], path: tuple[Any, ...], old: Any, new: Any) -> None:
    """Fail if a value of another type in place of one that was read is neither an error nor shown in its place.

    - All that was read elsewhere is read as before: the same steps, with the same roles, calls and results.
    - A change is one in which the new value is seen, or the disappearance of what the old value contained.
    - A value without content is one that is missing: it may remove what was in the old value, but no call elsewhere.
    - A span with other arguments is another call than the one in the messages, which is read as before.
    - A text or a number in place of one, or a text in place of the blocks of a message, is not of another type. Such a
      file is another one, but no call is lost outside the old value.
    """
    names = {fact.text for fact in before if fact.kind == "call" and fact.text}
    key = next((key for key in reversed(path) if isinstance(key, str)), None)
    is_text = isinstance(new, str) and isinstance(old, list | dict) and key in ("content", "message")
    if is_empty(new) or is_text:
        assert count_calls(after) >= count_calls(before) - calls_in(old, names), (path, new)
        return
    if is_scalar(old) and is_scalar(new):
        assert count_calls(after) >= count_calls(before) - (old in _FINAL), (path, new)
        return
    if count_calls(after) > count_calls(before):
        assert any(is_shown(new, fact.text) for fact in after), (path, new, after)
        assert Counter(before) <= Counter(after), (path, new, after)
        return
    assert [fact.kind for fact in after] == [fact.kind for fact in before], (path, new, after)
    changes = [(was, now) for was, now in zip(before, after, strict=True) if was != now]
    shown = [was for was, now in changes if now.kind != "role" and was.text != now.text and is_shown(new, now.text)]
    contents = " ".join(forms_of(old))
    lost = [was for was, _ in changes if was not in shown and not (was.text and was.text in contents)]
    assert not lost, (path, new, lost, after)
    assert shown or not changes, (path, new, changes)


# A call of it is the answer.
_FINAL = ("final_answer", "finish")


def count_calls(facts: list[Fact]) -> int:
    return sum(fact.kind == "call" for fact in facts)


def is_empty(value: Any) -> bool:
    """Return whether a value stands for nothing; NaN is what a table has in an empty cell."""
    return value in (None, "", [], {}) or value != value


def is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def is_shown(value: Any, text: str | None) -> bool:
    """Return whether all that a value contains is in a text."""
    if isinstance(value, dict | list):
        return all(is_shown(item, text) for item in (value.values() if isinstance(value, dict) else value))
    return text is not None and any(form in text for form in (text_of(value), str(value)))


ANY_SAMPLE = st.sampled_from(SAMPLES)
_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
UNHARMED: dict[str, list[Row]] = {}


def unharmed_rows(sample: Sample, path: Path) -> list[Row]:
    """Return the rows of a sample; every sample can be read."""
    key = sample.name + sample.suffix
    if key not in UNHARMED:
        rows = read_file(path, encode(sample.suffix, sample.data))
        assert not isinstance(rows, str), rows
        assert answers_of(rows)
        UNHARMED[key] = rows
    return UNHARMED[key]


def unharmed(sample: Sample, path: Path) -> Answers:
    return answers_of(unharmed_rows(sample, path))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.name}{sample.suffix}")
def test_every_sample_is_read(sample: Sample, folder: Path) -> None:
    answers = unharmed(sample, folder / f"f{sample.suffix}")
    if sample.name == "plain rows":
        # An empty cell is a text without characters.
        read = {row_id: (response, query or None) for row_id, (response, query) in answers.items()}
        assert read == {row["id"]: (row["response"], row["query"]) for row in PLAIN}


@pytest.mark.malformed
@_settings
@given(sample=ANY_SAMPLE, data=st.data())
def test_malformed_value_is_an_error_or_changes_no_other_value(
    sample: Sample, data: st.DataObject, folder: Path
) -> None:
    check_mutant(sample, data.draw(mutants(sample)), folder / f"f{sample.suffix}")


def check_mutant(sample: Sample, mutant: Mutant, path: Path) -> None:
    """Fail if a malformed file is read in another way, lacks a row, or lacks a call that is not damaged."""
    before = unharmed(sample, path)
    result = read_file(path, encode_mutant(sample, mutant.data))
    rows = check_errors(result)
    for row_id, answer in answers_of(rows).items():
        check_answer(row_id, answer, before, sample, mutant)
    if not isinstance(result, str):
        check_count(rows, sample, mutant)
    check_calls(rows, unharmed_rows(sample, path), sample, mutant)


def check_count(rows: list[Row], sample: Sample, mutant: Mutant) -> None:
    """Fail if a file lost a row. A trace has several, which may be another trace's now."""
    lists = (at(sample.data, mutant.path[:length]) for length in range(len(mutant.path)))
    # An object may have another list of rows now.
    entries = next((value for value in lists if isinstance(value, list)), [])
    # A table's row without values is a blank line.
    blank = sample.suffix in (".csv", ".tsv", ".xlsx") and len(mutant.path) == 1 and not mutant.new
    if sample.name not in _TRACES:
        assert len(rows) >= (1 if sample.name in _ONE_ROW else len(entries) - blank), (sample.name, mutant.path, rows)


_ONE_ROW = {"one row", "one conversation", "lm-eval samples", "lm-eval repeats", "pandas split", "pandas columns"}
_TRACES = {*TRACES, "LangSmith runs", "LangSmith runs within a run", "openai/evals log"}


def check_calls(rows: list[Row], before: list[Row], sample: Sample, mutant: Mutant) -> None:
    """Fail if a conversation lacks a call that the mutation did not remove."""
    if not sample.name.startswith((*_CONVERSATION, "one ")) or mutant.path[-1] in _SELECTED:
        return
    # Any other text or a number cannot be distinguished from a row's own response.
    if sample.name.startswith("rows of") and mutant.path[1:] == ("response",):
        return
    is_part = isinstance(mutant.old, dict | list) and mutant.change in ("replace", "remove")
    names = {call.name for row in before if row.submission and row.submission.trajectory
             for call in row.submission.trajectory.calls}  # fmt: skip
    # The calls in the value that was there, by the names of their tools.
    removed = calls_in(mutant.old, names) if is_part else 0
    damaged = max(1, calls_in(mutant.old, names))
    # All are there, if not as calls, then as results without one, which a check refuses. Only one may be damaged.
    for with_results, missing in ((True, removed), (False, damaged)):
        counts = call_counts(before, with_results=with_results)
        for row_id, number in call_counts(rows, with_results=with_results).items():
            assert number >= counts.get(row_id, 0) - missing, (row_id, mutant.path, mutant.change, mutant.new)


def calls_in(value: Any, names: set[str]) -> int:
    return sum(json.dumps(value).count(f'"{name}"') for name in names)


# A message that says so belongs to another run.
_SELECTED = {"is_demo"}


@pytest.mark.malformed
@pytest.mark.parametrize("name", DIALECT_ROWS)
def test_conversation_with_a_renamed_key_is_an_error_or_has_all_calls(name: str, folder: Path) -> None:
    sample = next(sample for sample in SAMPLES if sample.name == f"rows of {name}")
    paths = [path for path in paths_of(sample.data[0]["response"], (0, "response")) if isinstance(path[-1], str)]
    # Of the same key in several items of a list, the last one.
    shapes = {tuple(key for key in path if isinstance(key, str)): path for path in paths}
    for path in shapes.values() if settings().max_examples <= 25 else paths:
        check_mutant(sample, mutate(sample.data, path, "rename"), folder / "f.jsonl")


@pytest.mark.malformed
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.name}{sample.suffix}")
def test_file_whose_first_row_lacks_a_key_or_has_it_twice_is_an_error_or_has_all_rows(
    sample: Sample, folder: Path
) -> None:
    first = sample.data[0] if isinstance(sample.data, list) else sample.data
    for key in first:
        path = (0, key) if isinstance(sample.data, list) else (key,)
        for change in ("remove", "double") if sample.suffix in _JSON else ("remove",):
            check_mutant(sample, mutate(sample.data, path, change), folder / f"f{sample.suffix}")


_JSON = (".jsonl", ".json", ".traj")
_OTHERS: list[Any] = [False, {"q9": 77531}, "q9 text", ["q9", 77531], True, 77531]
_CONVERSATIONS = {name: rows[0]["response"] for name, rows in DIALECT_ROWS.items()}


def is_other_type(old: Any, new: Any) -> bool:
    return type(old) is not type(new) and old is not None


@pytest.mark.malformed
@pytest.mark.parametrize("name", [*_CONVERSATIONS, "dspy_react", *REFUSED])
def test_value_of_another_type_in_a_conversation_is_an_error_in_one_line_or_is_shown(name: str) -> None:
    conversation = copy.deepcopy(_CONVERSATIONS.get(name) or REFUSED.get(name) or EXAMPLES[name].conversation)
    errors: list[str] = []
    before = [] if name in REFUSED else facts_of_steps(Trajectory.from_messages(conversation).steps)
    for path in paths_of(conversation):
        holder, old = at(conversation, path[:-1]), at(conversation, path)
        for new in (*_OTHERS, None, [], {}, float("nan")):
            holder[path[-1]] = new
            try:
                after = facts_of_steps(Trajectory.from_messages(conversation).steps)
            except (TypeError, ValueError) as error:
                errors.append(str(error))
                continue
            finally:
                holder[path[-1]] = old
            if is_other_type(old, new) and not _SELECTED & set(path):
                check_other_type(before, after, path, old, new)
    assert [error for error in errors if not error.startswith("`") or "\n" in error] == []


# Other samples have the same rows in another container, or are tables.
_ROW_SAMPLES = [
    sample for sample in SAMPLES if sample.suffix in _JSON and not sample.name.startswith(("rows of", "one "))
]


@pytest.mark.malformed
@pytest.mark.parametrize("sample", _ROW_SAMPLES, ids=lambda sample: f"{sample.name}{sample.suffix}")
def test_value_of_another_type_in_a_row_of_a_tool_is_an_error_or_is_shown(sample: Sample, folder: Path) -> None:
    """Each value is replaced by all others; under the profile for `make test` by one of them, and an object by None."""
    file, data = folder / f"f{sample.suffix}", copy.deepcopy(sample.data)
    before = {row.id: facts_of_row(row) for row in unharmed_rows(sample, file) if row.submission}
    count = 1 if settings().max_examples < 100 else len(_OTHERS)
    for number, path in enumerate(paths_of(data)):
        holder, old = at(data, path[:-1]), at(data, path)
        # A text or a number in place of one may be the id of another trace.
        others = [new for new in _OTHERS if is_other_type(old, new) and not (is_scalar(old) and is_scalar(new))]
        chosen = [others[(number + index) % len(others)] for index in range(min(count, len(others)))]
        for new in [*chosen, None] if isinstance(old, dict | list) else chosen:
            holder[path[-1]] = new
            rows = check_errors(read_file(file, encode(sample.suffix, data)))
            holder[path[-1]] = old
            for row in rows:
                check_row(before, row, path, old, new)


def check_row(before: dict[str, list[Fact]], row: Row, path: tuple[Any, ...], old: Any, new: Any) -> None:
    """Fail if a row is another one, unless the changed value is its id, or all of it, or why it had no answer."""
    if row.submission is None:
        return
    is_row = isinstance(old, dict) and [key for key in path if isinstance(key, int)] == [path[-1]]
    is_answer = is_shown(new, row.submission.response) or row.submission.response in forms_of(new)
    if row.id in before and not (is_row and is_answer):
        check_other_type(before[row.id], facts_of_row(row), path, old, new)
    else:
        assert is_answer or is_shown(new, row.id) or row.id.isdigit(), (path, new, row)


@pytest.mark.malformed
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.name}{sample.suffix}")
def test_file_that_is_cut_off_at_any_tenth_is_an_error_or_reads_as_before(sample: Sample, folder: Path) -> None:
    size = len(encode(sample.suffix, sample.data))
    for place in [size * tenth // 10 for tenth in range(1, 10)] + [size - 2]:
        check_bytes(sample, folder / f"f{sample.suffix}", place)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def forms_of(value: Any) -> set[str]:
    """Return the texts that a value may be read as: itself, its JSON, and those of the values in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {escaped(text_of(value)), escaped(str(value))}.union(*map(forms_of, inner))


def escaped(text: str) -> str:
    """Return a text with its lone surrogates as they are read: as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_reading_of(response: str, before: str | None, sample: Sample, mutant: Mutant) -> bool:
    """Return whether a response is the one before, or differs from it by the value that was changed alone."""
    if response == before or (not mutant.is_removed and response in forms_of(mutant.new)):
        return True
    # A part of the response, which is a text or the JSON of the values around the change.
    parts = {(before or "").replace(old, new) for old in forms_of(mutant.old) for new in {""} | forms_of(mutant.new)}
    around = [mutant.path[:length] for length in range(1, len(mutant.path))]
    parts |= {escaped(text_of(at(mutant.data, path))) for path in around if text_of(at(sample.data, path)) == before}
    # In place of a value that was removed, another beside it.
    siblings = at(mutant.data, mutant.path[:-1]) if mutant.is_removed else ()
    return response in parts or response in forms_of(siblings if isinstance(siblings, dict) else None)


def is_task_of(query: str | None, before: str | None, mutant: Mutant) -> bool:
    """Return whether each word of a task is one of the task before, or of the value that was changed."""
    around = json.dumps(at(mutant.data, mutant.path[:-1]), ensure_ascii=False)
    known = f"{before} {around} {' '.join(forms_of(mutant.new))} {mutant.path}"
    return words_of(query) <= words_of(known) | words_of(text_of(mutant.old)) | _RENDERED


def words_of(text: str | None) -> set[str]:
    return set(re.findall(r"\w+", (text or "").replace("\\n", " ")))


# What the text of a conversation has beside the texts of its messages.
_RENDERED = words_of(
    "step 1 2 3 4 5 6 7 8 9 10 true thought "
    "role user system assistant tool content type text tool_calls name arguments result null is_error error bash None "
    f"command u0000b {NO_NAME}"
)
# With another value of these, or none, a row is another one: a part of a run is a run, and a span one of another trace.
_MEANINGS = {"parent_run_id", "traceId", "trace_id"}
# Samples whose responses are conversations, and where these are.
_CONVERSATION = ("rows of", "tau", "ragas")
_MESSAGES = {"response", "traj", "messages", "user_input"}


def check_answer(row_id: str, answer: tuple[str, str | None], before: Answers, sample: Sample, mutant: Mutant) -> None:
    """Fail if a row has a text that neither it had before, nor the mutation gave it."""
    response, query = answer
    # The second value of a key must not be read, nor the first.
    if mutant.change == "double":
        assert before.get(row_id) == answer, (row_id, answer, mutant.path)
        return
    # A row that had an error, or has another id now.
    candidates = [before[row_id]] if row_id in before else [*before.values(), (None, None)]
    if any(
        is_reading_of(response, old, sample, mutant) and is_task_of(query, task, mutant) for old, task in candidates
    ):
        return
    # A conversation without one of its parts has no other text than it had; its JSON is not a reading.
    place = next((length for length, key in enumerate(mutant.path[:-1], start=1) if key in _MESSAGES), None)
    if sample.name.startswith(_CONVERSATION) and place is not None:
        value = at(mutant.data, mutant.path[:place])
        messages = escaped(text_of(value))
        # The damaged request of Gemini has no other key, and is an object like any other.
        is_json = response == messages and (isinstance(value, list) or set(value) != set(mutant.path[place:]))
        if words_of(f"{response} {query or ''}") <= words_of(messages) | _RENDERED and not is_json:
            return
    # Without a key that a tool always writes, the row is one of the user's own.
    row = mutant.data[mutant.path[0]] if isinstance(mutant.data, list) and len(mutant.path) in (1, 2) else None
    if isinstance(row, dict):
        plain = read_row(row, row_id, warns=False).submission
        if not _MEANINGS.isdisjoint(mutant.path) or (plain and answer == (plain.response, plain.query)):
            return
    pytest.fail(f"{row_id}: {answer!r:.500}\nbefore: {before.get(row_id)!r:.500}\n{mutant.path} {mutant.new!r:.100}")


@pytest.mark.malformed
@_settings
@given(sample=ANY_SAMPLE, data=st.data())
def test_file_that_is_cut_off_or_has_other_bytes_is_an_error_or_reads_as_before(
    sample: Sample, data: st.DataObject, folder: Path
) -> None:
    # A spreadsheet has the time in it, and so never the same length.
    place = data.draw(st.integers(0, 99_999)) % (len(encode(sample.suffix, sample.data)) + 1)
    added = data.draw(st.sampled_from([None, b"\0", b"\xed\xa0\x80", b"\xff"]))
    check_bytes(sample, folder / f"f{sample.suffix}", place, added)


def check_bytes(sample: Sample, path: Path, place: int, added: bytes | None = None) -> None:
    """Check a file that is cut off at a place, or has bytes added there."""
    before, content = unharmed(sample, path), encode(sample.suffix, sample.data)
    content = content[:place] if added is None else content[:place] + added + content[place:]
    result = read_file(path, content)
    rows = check_errors(result)
    if sample.suffix == ".jsonl" and sample.name not in _TRACES and not isinstance(result, str):
        # Several rows of lm-eval are one answer.
        lines = 1 if sample.name == "lm-eval samples" else sum(bool(line.strip()) for line in content.split(b"\n"))
        assert len(rows) >= (lines if content.strip() else 0), (sample.name, place, added)
    if sample.suffix in (".csv", ".tsv") and added != b"\0" and content.count(b'"') % 2 == 0:
        # A cell at the end of a table does not show that it is cut off, but a quote that is not closed does.
        rows = rows[:-1]
    for row_id, (response, query) in answers_of(rows).items():
        clean = row_id.replace("\0", "")
        assert clean in before or clean.isdigit()
        pairs = [before[clean]] if clean in before else list(before.values())
        assert (response.replace("\0", ""), query and query.replace("\0", "")) in pairs


@pytest.mark.malformed
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.name}{sample.suffix}")
def test_text_file_in_another_encoding_is_an_error_or_reads_as_before(sample: Sample, folder: Path) -> None:
    if sample.suffix in (".parquet", ".xlsx", ".eval", ".zst.eval"):
        pytest.skip("is not a file of text")
    path = folder / f"f{sample.suffix}"
    before, text = unharmed(sample, path), encode(sample.suffix, sample.data).decode()
    assert answers_of(check_errors(read_file(path, text.encode("utf-16")))) == before
    for encoding in ("utf-16-le", "utf-32", "cp1252"):
        rows = check_errors(read_file(path, text.encode(encoding)))
        assert answers_of(rows) in ({}, before)


def test_no_file_is_claimed_by_the_reader_of_another_format() -> None:
    documents = {sample.name: sample.data for sample in SAMPLES if isinstance(sample.data, dict)}
    for name, data in documents.items():
        owners = {known.name for known in DOCUMENTS if known.matches(data)}
        assert len(owners) <= 1, (name, owners)
        assert not find_row_format(data), name
    rows = {sample.name: sample.data for sample in SAMPLES if isinstance(sample.data, list)}
    for name, row in [(name, row) for name, values in rows.items() for row in values]:
        # A trace may be a file of its own, and a row of one.
        own = {name, *(known for known, names in _ALSO.items() if name in names)}
        assert {known.name for known in DOCUMENTS if known.matches(row)} <= own, name
        assert len([known.name for known in ROW_FORMATS if known.matches(row)]) <= 1, name
        claimed = find_row_format(row)
        assert claimed is None or name in (claimed.name, *_ALSO.get(claimed.name, ())), (name, claimed)
    for name, data in [*documents.items(), *rows.items()]:
        # The reader of OpenAI's messages reads every list that no other matches.
        dialects = [dialect for dialect, own in DIALECTS.items() if dialect != "openai_chat" and own.matches(data)]
        assert not dialects, (name, dialects)
        rubrics = {key for key, own in FORMATS.items() if key != "native" and own.matches(data)}
        assert not rubrics, (name, rubrics)


_ALSO = {
    "LangSmith runs": ("LangSmith runs within a run",),
    "Inspect log": ("Inspect archive", "Inspect archive, Zstandard"),
    "ragas results": ("ragas conversations",),
    "lm-eval samples": ("lm-eval repeats",),
}
"""The samples in the form of a tool that have another name."""
