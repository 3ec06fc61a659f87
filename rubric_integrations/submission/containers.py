"""The result files of other tools: where their rows are, and the columns of this library in each row.

A JSON object that contains rows is an entry of `DOCUMENTS`. A row that a tool writes is an entry of `ROW_FORMATS`. Both
are recognized by the keys and types that the tool always writes, so that no file of a user's own is taken for one. A
row without an answer, such as a failed request, is an error and never an empty text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import parse_json, split_path, value_at
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.inputs import (
    USUAL_COLUMNS,
    ColumnNames,
    describe_missing_column,
    field_columns,
    is_row,
    is_state,
    missing_column,
    row_fields,
    task_fields,
)
from rubric_integrations.submission.messages import is_conversation, value_text

Fields = Mapping[str, Any]


class LayoutError(ValueError):
    """The rows of a JSON document cannot be found without a guess; the message does not name the file."""


class ToolAnswer(NamedTuple):
    """One answer in a row of a tool.

    Attributes:
        fields: The row in the columns of this library; at least its `id` if it has an error.
        error: Why there is no answer; None if there is one.
    """

    fields: dict[str, Any]
    error: str | None = None


class RowFormat(NamedTuple):
    """A row that a tool writes.

    Attributes:
        name: The tool and its file, for messages.
        matches: Returns whether a row is one. It never raises an error.
        read: Returns the answers of a row that matches, with ids that are unique in its file. None of them means that
            the row is a part of another.
        tasks_are_in: The file that has the tasks; None if the rows have them.
        repeats: Whether the tool writes one answer in several rows. Those with an equal id and answer are read once.
    """

    name: str
    matches: Callable[[Fields], bool]
    read: Callable[[Fields], Iterable[ToolAnswer]]
    tasks_are_in: str | None = None
    repeats: bool = False


class Document(NamedTuple):
    """A JSON object in which a tool writes rows.

    Attributes:
        name: The tool and its file, for messages.
        matches: Returns whether an object is one. It never raises an error.
        rows: Returns the rows; raises a `LayoutError` if there are none to grade.
    """

    name: str
    matches: Callable[[Fields], bool]
    rows: Callable[[Fields], Iterable[Any]]


def find_row_format(row: object) -> RowFormat | None:
    """Return the format of a row of another tool; None for a row of this library's columns and for any other.

    Example:
        >>> find_row_format({"custom_id": "a", "result": {"type": "expired"}}).name
        'Anthropic batch'
    """
    if not isinstance(row, Mapping):
        return None
    return next((known for known in ROW_FORMATS if known.matches(cast("Fields", row))), None)


def find_rows(data: Fields, columns: ColumnNames = USUAL_COLUMNS) -> Iterable[Any] | None:
    """Return the rows that a JSON object contains; None if the object is a single row, a conversation or a response.

    Raises:
        LayoutError: It contains rows, and their place is not certain; the message names the places.

    Example:
        >>> list(find_rows({"columns": ["response"], "index": [0], "data": [["It is 42."]]}))
        [{'response': 'It is 42.'}]
    """
    document = next((document for document in DOCUMENTS if document.matches(data)), None)
    if document:
        return document.rows(data)
    if columns.response is not None and is_at(data, columns.response):
        return None
    if columns.response is None and (is_single_row(data) or (dialect_of(data) is not None and not is_row(data))):
        return None
    unread = next((unread for unread in UNREAD_DOCUMENTS if data.keys() >= set(unread.keys)), None)
    if unread:
        raise LayoutError(f"is {unread.name}, whose rows are not read without options: {unread.remedy}")
    refuse_rows_within(data)
    if columns.response is not None:
        raise LayoutError(describe_missing_column(data, columns.response))
    return None


def is_single_row(data: Fields) -> bool:
    """Return whether a JSON object is one row: it has a response, and no list of rows, under one of the usual names."""
    if missing_column(data, USUAL_COLUMNS) is not None or not is_row(data):
        return False
    response = row_fields(data, warns=False).get("response")
    # A number is a value of a response that is JSON.
    is_value = response is None or isinstance(response, bool | int | float)
    return not is_value and (not _is_table(response) or is_conversation(response))


def refuse_rows_within(data: Fields) -> None:
    """Refuse an object that contains a list of several objects, or several rows by their ids.

    Raises:
        LayoutError: It does; the message names the first of them and the option that reads it.
    """
    remedy = "a response that is such JSON is read from a `.txt` file"
    tables = _tables(data)
    if tables:
        listed = ", ".join(f"`{path}` ({count:,})" for path, count in tables[:_MAX_LISTED])
        more = f" and {len(tables) - _MAX_LISTED} more" if len(tables) > _MAX_LISTED else ""
        raise LayoutError(
            f"is one object with lists of objects: {listed}{more}; name the one with the rows by `rows` (`--rows "
            f"{tables[0][0]}`), or all would be graded as one response; {remedy}"
        )
    values = list(data.values())
    if len(values) > 1 and all(isinstance(v, Mapping) and is_single_row(v) and len(field_columns(v, USUAL_COLUMNS)) > 1
                               for v in values):  # fmt: skip
        raise LayoutError(
            f"is one object with {len(values):,} rows by their ids: write a list of them, each with its `id`, or all "
            f"would be graded as one response; {remedy}"
        )


_MAX_LISTED = 5


def _tables(data: Fields) -> list[tuple[str, int]]:
    """Return the paths and the lengths of the outermost lists of several objects, the least deep ones first."""
    tables: list[tuple[str, int]] = []
    level: list[tuple[str, Any]] = [(str(name), value) for name, value in data.items()]
    while level:
        inner: list[tuple[str, Any]] = []
        for path, value in level:
            if _is_table(value):
                tables.append((path, len(value)))
            elif isinstance(value, Mapping):
                inner += [(f"{path}.{name}", item) for name, item in cast("Fields", value).items()]
            elif isinstance(value, list):
                inner += [(f"{path}.{index}", item) for index, item in enumerate(cast("list[Any]", value))]
        level = inner
    return tables


def _is_table(value: object) -> bool:
    """Return whether a value is a list of more than one object."""
    return isinstance(value, list) and len(value) > 1 and all(isinstance(item, Mapping) for item in value)


def rows_at(data: object, path: str) -> Sequence[Any]:
    """Return the list at a path of a JSON document, such as `results.results`.

    Raises:
        LayoutError: There is no list.
    """
    try:
        rows = value_at(data, split_path(path))
    except LookupError as error:
        raise LayoutError(f"has no `{path}` for `rows` (`--rows`): {error}; write the path of the list") from None
    if not isinstance(rows, list):
        raise LayoutError(f"has no list at `{path}` for `rows` (`--rows`), but {type(rows).__name__}: name a list")
    return cast("list[Any]", rows)


def is_at(fields: Fields, path: str) -> bool:
    """Return whether a row has a value at a path."""
    with suppress(LookupError):
        return value_at(fields, split_path(path)) is not None
    return False


# Objects that contain rows.


def _promptfoo_rows(data: Fields) -> list[Any]:
    return data["results"]["results"]


def _is_promptfoo(data: Fields) -> bool:
    results = data.get("results")
    return "evalId" in data and isinstance(results, Mapping) and isinstance(results.get("results"), list)


def _inspect_rows(data: Fields) -> list[Any]:
    samples = data.get("samples")
    if not isinstance(samples, list) or not samples:
        raise LayoutError(
            f"is an Inspect log without samples (status {data.get('status')!r}): there is nothing to grade"
        )
    return cast("list[Any]", samples)


def _is_split_frame(data: Fields) -> bool:
    columns, rows = data.get("columns"), data.get("data")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return False
    # Without its index, it could be the table that a model was asked for.
    is_frame = "index" in data or not _has_no_response(dict.fromkeys(map(str, cast("list[Any]", columns))))
    is_plain = data.keys() <= {"columns", "index", "data", "index_names", "column_names"}
    return is_frame and is_plain and all(isinstance(row, list) and len(row) == len(columns) for row in rows)


def _split_rows(data: Fields) -> Iterator[dict[str, Any]]:
    return (dict(zip(map(str, data["columns"]), row, strict=True)) for row in data["data"])


def _is_column_frame(data: Fields) -> bool:
    """Return whether an object has columns with the same rows, by their numbers."""
    columns = list(data.values())
    numbers = list(_mapping(columns[0] if columns else None))
    if not numbers or not all(isinstance(column, Mapping) and list(column) == numbers for column in columns):
        return False
    # Other numbers than these could be the years of a response.
    is_counted = numbers == [str(number) for number in range(len(numbers))]
    return is_counted or (all(number.isdigit() for number in numbers) and not _has_no_response(data))


def _column_rows(data: Fields) -> Iterator[dict[str, Any]]:
    for number in next(iter(data.values())):
        yield {name: column[number] for name, column in data.items()}


def _has_no_response(row: Fields) -> bool:
    return missing_column(row, USUAL_COLUMNS) is not None


def _is_table_frame(data: Fields) -> bool:
    return "data" in data and "pandas_version" in _mapping(data.get("schema"))


def _has(*names: str) -> Callable[[Fields], bool]:
    """Return a test for the keys that a row or an object of a tool always has."""
    return lambda fields: fields.keys() >= set(names)


DOCUMENTS = (
    Document("promptfoo results", _is_promptfoo, _promptfoo_rows),
    Document("Inspect log", _has("version", "eval", "plan"), _inspect_rows),
    Document("pandas table", _is_split_frame, _split_rows),
    Document("pandas table", _is_table_frame, partial(rows_at, path="data")),
    Document("pandas table", _is_column_frame, _column_rows),
)
"""The objects that contain rows, by tool; the first that matches is read."""


class UnreadDocument(NamedTuple):
    """A JSON object of a tool whose rows are not read without options.

    Attributes:
        name: The tool and its file, for the message.
        keys: The keys that it always has.
        remedy: The options that read it.
    """

    name: str
    keys: tuple[str, ...]
    remedy: str


UNREAD_DOCUMENTS = (
    UnreadDocument(
        "a trajectory of SWE-agent", ("trajectory", "history", "info"),
        "`--response-column history` grades its conversation, `--response-column info.submission` its patch",
    ),
    UnreadDocument(
        "a test run of deepeval", ("testCases", "metricsScores"),
        "use `--rows testCases --response-column actualOutput --query-column input`",
    ),
    UnreadDocument(
        "a result file of tau2", ("simulations", "tasks", "info"),
        "use `--rows simulations --response-column messages`",
    ),
    UnreadDocument("an export of OpenTelemetry", ("resourceSpans",), "write a line with a `response` for each trace"),
    UnreadDocument(
        "a trace of Langfuse", ("trace", "observations"),
        "use `--response-column trace.output --query-column trace.input`",
    ),
)  # fmt: skip


# Rows of tools.


def _failed(row_id: str, reason: object) -> ToolAnswer:
    if isinstance(reason, Mapping):
        error = cast("Fields", reason)
        reason = error.get("message") or error.get("code") or error
    text = " ".join(str(reason or "no reason is recorded").split())
    return ToolAnswer({"id": row_id}, f"row {row_id}: has no answer: {text[:_MAX_REASON]}")


# Characters of a provider's error message, which may contain a page of HTML.
_MAX_REASON = 300


def _openai_batch(row: Fields) -> Iterable[ToolAnswer]:
    row_id, response = str(row["custom_id"]), row.get("response") or {}
    body = response.get("body") or {}
    error = row.get("error") or (body.get("error") if isinstance(body, Mapping) else None)
    status = response.get("status_code")
    if error or not isinstance(body, Mapping) or not body or (isinstance(status, int) and status >= 400):
        return [_failed(row_id, error or f"status {status}")]
    if isinstance(body.get("output"), list):
        return [ToolAnswer({"id": row_id, "response": body["output"], "metadata": _short(body, "model")})]
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        return [_failed(row_id, f"its body is `{body.get('object')}`, without `choices` or `output`")]
    answers = list[ToolAnswer]()
    for index, choice in enumerate(cast("list[Fields]", choices), start=1):
        choice_id = row_id if len(choices) == 1 else f"{row_id}-choice{index}"
        message = choice.get("message")
        metadata = _short(body, "model") | _short(choice, "finish_reason")
        fields = {"id": choice_id, "metadata": metadata}
        if isinstance(message, Mapping):
            answers.append(ToolAnswer({**fields, "response": [message]}))
        else:
            answers.append(ToolAnswer({**fields, "response": choice.get("text")}))
    return answers


def _anthropic_batch(row: Fields) -> Iterable[ToolAnswer]:
    row_id, result = str(row["custom_id"]), row["result"]
    message = result.get("message")
    if result["type"] != "succeeded" or not isinstance(message, Mapping):
        error = result.get("error") or {}
        return [_failed(row_id, error.get("error") or error or f"the request is {result['type']}")]
    if not message.get("content"):
        return [_failed(row_id, message.get("stop_details") or f"stop_reason {message.get('stop_reason')!r}")]
    metadata = _short(message, "model", "stop_reason")
    response = [{"role": "assistant", "content": message["content"]}]
    return [ToolAnswer({"id": row_id, "response": response, "metadata": metadata})]


def _promptfoo(row: Fields) -> Iterable[ToolAnswer]:
    row_id = f"test{row['testIdx']}-prompt{row['promptIdx']}"
    response = row.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    # 1 is a failed assertion about an answer, 2 is an error of the provider.
    if row.get("failureReason") == 2 or output is None:
        return [_failed(row_id, row.get("error") or (isinstance(response, Mapping) and response.get("error")))]
    prompt, provider = _mapping(row.get("prompt")), _mapping(row.get("provider"))
    case = _mapping(row.get("testCase"))
    metadata = _short(case, "description") | _short(_mapping(row.get("vars")))
    metadata |= {"provider": provider.get("label") or provider.get("id"), "prompt": prompt.get("label")}
    fields = {"id": row_id, "response": _response(output), "query": _task(prompt.get("raw"))}
    return [ToolAnswer({**fields, "metadata": {name: value for name, value in metadata.items() if value is not None}})]


def _inspect_sample(row: Fields) -> Iterable[ToolAnswer]:
    epoch = row.get("epoch")
    row_id = str(row["id"]) if epoch in (None, 1) else f"{row['id']}-epoch{epoch}"
    error, output = row.get("error"), _mapping(row.get("output"))
    if error or not output.get("choices"):
        return [_failed(row_id, error or output.get("error") or "its `output` has no choices")]
    target = row.get("target")
    reference = "\n".join(map(str, target)) if isinstance(target, list) else target
    conversation = {name: row.get(name) for name in ("messages", "output", "attachments", "epoch")}
    metadata = dict(_mapping(row.get("metadata")))
    fields = {"id": row_id, "response": conversation, "reference": reference or None}
    return [ToolAnswer({**fields, "rubric": metadata.pop("rubric", None), "metadata": metadata})]


def _langsmith_run(row: Fields) -> Iterable[ToolAnswer]:
    if row.get("parent_run_id"):
        return []  # A step of another run.
    row_id = str(row.get("id") or row.get("run_id"))
    outputs = _parsed(row.get("outputs"))
    if row.get("error") or not outputs:
        return [_failed(row_id, row.get("error") or "it has no `outputs`")]
    fields = {"id": row_id, "query": _query(_parsed(row.get("inputs"))), "metadata": _short(row, "name", "run_type")}
    if not isinstance(outputs, Mapping):
        return [ToolAnswer({**fields, "response": _response(outputs)})]
    generations = outputs.get("generations")
    if isinstance(generations, list) and generations:
        first = generations[0][0] if isinstance(generations[0], list) and generations[0] else generations[0]
        return [ToolAnswer({**fields, "response": first.get("text") if isinstance(first, Mapping) else None})]
    if len(outputs) == 1 and not is_state(outputs):
        return [ToolAnswer({**fields, "response": _response(next(iter(outputs.values())))})]
    if is_row(outputs) or dialect_of(outputs) is not None:
        # A conversation has its task, as in LangChain's hosts.
        query = None if is_state(outputs) else fields["query"]
        return [ToolAnswer({**fields, "query": query, "response": outputs})]
    return [_unclear(row_id, [f"outputs.{name}" for name in outputs])]


def _langsmith_frame(row: Fields) -> Iterable[ToolAnswer]:
    row_id = str(row.get("id") or row.get("example_id"))
    groups = {kind: _prefixed(row, f"{kind}.") for kind in ("inputs", "outputs", "reference")}
    outputs = groups["outputs"]
    usual = row_fields(outputs, warns=False).get("response") if len(outputs) > 1 else next(iter(outputs.values()), None)
    if _has_value(row.get("error")):
        return [_failed(row_id, row["error"])]
    if usual is None and len(outputs) > 1:
        return [_unclear(row_id, [f"outputs.{name}" for name in outputs])]
    references = groups["reference"]
    reference = next(iter(references.values())) if len(references) == 1 else references or None
    reference = value_text(reference) if isinstance(reference, Mapping | list) else reference
    fields = {"id": row_id, "query": _query(groups["inputs"]), "response": usual, "reference": reference}
    return [ToolAnswer(fields)]


def _unclear(row_id: str, places: Sequence[str]) -> ToolAnswer:
    return ToolAnswer(
        {"id": row_id},
        f"row {row_id}: has several outputs ({', '.join(places)[:_MAX_REASON]}): name the one to grade by "
        f"`response_column` (`--response-column {places[0]}`)",
    )


def _ragas(row: Fields) -> Iterable[ToolAnswer]:
    task, response = row["user_input"], row.get("response")
    fields = {
        name: value for name, value in row.items() if name not in ("user_input", "retrieved_contexts", "response")
    }
    if any(str(name).startswith("score") for name in _mapping(row.get("rubrics"))):
        del fields["rubrics"]  # The descriptions of ragas' own scores.
    if _has_value(row.get("retrieved_contexts")):
        fields["context"] = _repr_list(row["retrieved_contexts"])
    messages = _repr_list(task)
    if not _is_ragas_chat(messages):
        return [ToolAnswer({**fields, "query": task, "response": response})]
    conversation = _ragas_messages(messages)
    if _has_value(response):
        return [ToolAnswer({**fields, "query": conversation, "response": response})]
    return [ToolAnswer({**fields, "response": conversation})]


def _ragas_messages(messages: Sequence[Fields]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's form, with the ids of calls that ragas does not write: results are in order."""
    roles, made, waiting = {"human": "user", "ai": "assistant"}, 0, list[str]()
    converted = list[dict[str, Any]]()
    for message in messages:
        kind = str(message.get("type"))
        item: dict[str, Any] = {"role": roles.get(kind, kind), "content": message.get("content")}
        calls = message.get("tool_calls") or []
        if calls:
            waiting = [f"call{made + index}" for index in range(len(calls))]
            made += len(calls)
            item["tool_calls"] = [
                {"id": call_id, "function": {"name": call.get("name"), "arguments": call.get("args")}}
                for call_id, call in zip(waiting, calls, strict=True)
            ]
        elif kind == "tool" and waiting:
            item["tool_call_id"] = waiting.pop(0)
        converted.append(item)
    return converted


def _lm_eval(row: Fields) -> Iterable[ToolAnswer]:
    row_id, responses = str(row["doc_id"]), row["resps"]
    arguments = row["arguments"]
    is_choice = len(arguments) > 1 or any(
        isinstance(answers[0], list) and len(answers[0]) == 2 for answers in responses
    )
    if is_choice:
        raise LayoutError("has lm-eval samples of multiple choice, which have probabilities and no text to grade")
    first = next(iter(arguments.values())) if isinstance(arguments, Mapping) else arguments[0]
    prompt = next(iter(first.values()), None) if isinstance(first, Mapping) else first[0]
    shared = {"query": _task(prompt), "reference": str(row.get("target") or "") or None}
    answers = responses[0]
    ids = [row_id if len(answers) == 1 else f"{row_id}-repeat{number}" for number in range(1, len(answers) + 1)]
    return [ToolAnswer({"id": own, "response": answer, **shared}) for own, answer in zip(ids, answers, strict=True)]


def _is_lm_eval(row: Fields) -> bool:
    answers, arguments = row.get("resps"), row.get("arguments")
    has_keys = (
        _has("doc_id", "doc")(row)
        and _has_no_response(row)
        and isinstance(arguments, Mapping | list)
        and bool(arguments)
    )
    return has_keys and isinstance(answers, list) and bool(answers) and all(isinstance(a, list) and a for a in answers)


def _mt_bench(row: Fields) -> Iterable[ToolAnswer]:
    answers, choices = list[ToolAnswer](), cast("list[Fields]", row["choices"])
    for number, choice in enumerate(choices, start=1):
        choice_id = str(row["question_id"]) if len(choices) == 1 else f"{row['question_id']}-choice{number}"
        for turn, text in enumerate(choice["turns"], start=1):
            row_id = f"{choice_id}-turn{turn}"
            # FastChat writes these texts in place of an answer that failed.
            if text in ("$ERROR$", "ERROR"):
                answers.append(_failed(row_id, "FastChat wrote an error"))
            else:
                answers.append(ToolAnswer({"id": row_id, "response": text, "metadata": _short(row, "model_id")}))
    return answers


def _is_mt_bench(row: Fields) -> bool:
    choices = row.get("choices")
    return (
        "question_id" in row
        and _has_no_response(row)
        and _all(choices, lambda choice: isinstance(choice.get("turns"), list))
    )


_SHAREGPT_ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "system": "system",
}  # fmt: skip


def _sharegpt(row: Fields) -> Iterable[ToolAnswer]:
    turns = cast("list[Fields]", row["conversations"])
    unknown = next((turn["from"] for turn in turns if turn["from"] not in _SHAREGPT_ROLES), None)
    row_id = row.get("id")
    if unknown is not None:
        return [_failed(str(row_id), f"the sender {unknown!r} is not known: use {', '.join(_SHAREGPT_ROLES)}")]
    messages = [{"role": _SHAREGPT_ROLES[turn["from"]], "content": turn["value"]} for turn in turns]
    if isinstance(system := row.get("system"), str) and system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return [ToolAnswer({"id": row_id, "response": messages})]


def _dspy(row: Fields) -> Iterable[ToolAnswer]:
    (name,) = _prefixed(row, "pred_")
    fields = {key: value for key, value in row.items() if key not in (f"pred_{name}", f"example_{name}")}
    return [ToolAnswer({**fields, "response": row[f"pred_{name}"], "reference": row[f"example_{name}"]})]


def _is_dspy(row: Fields) -> bool:
    """Return whether exactly one field of the prediction, and the same one of the example, has DSPy's prefix."""
    fields = _prefixed(row, "pred_")
    return len(fields) == 1 and list(fields) == list(_prefixed(row, "example_")) and _has_no_response(row)


def _is_openai_batch(row: Fields) -> bool:
    response = row.get("response")
    if "custom_id" not in row or "response" not in row or "result" in row:
        return False
    return ("body" in response or "status_code" in response) if isinstance(response, Mapping) else (
        response is None and bool(row.get("error"))
    )  # fmt: skip


def _is_anthropic_batch(row: Fields) -> bool:
    return "custom_id" in row and isinstance(_mapping(row.get("result")).get("type"), str)


def _is_langsmith_run(row: Fields) -> bool:
    return _has("run_type", "inputs", "start_time")(row) and ("outputs" in row or _has_no_response(row))


def _is_langsmith_frame(row: Fields) -> bool:
    return bool(_prefixed(row, "outputs.")) and bool(_prefixed(row, "inputs.")) and _has_no_response(row)


def _is_ragas(row: Fields) -> bool:
    return "user_input" in row and ("response" in row or _is_ragas_chat(row["user_input"]))


def _is_sharegpt(row: Fields) -> bool:
    return _all(row.get("conversations"), _has("from", "value")) and _has_no_response(row)


def _unread(name: str, remedy: str) -> Callable[[Fields], Iterable[ToolAnswer]]:
    def read(_: Fields) -> Iterable[ToolAnswer]:
        raise LayoutError(f"is {name}, which has no answers: {remedy}")

    return read


ROW_FORMATS = (
    RowFormat(
        "OpenAI batch input", _has("custom_id", "method", "url", "body"),
        _unread("the input of an OpenAI batch", "name its output file"),
    ),
    RowFormat("OpenAI batch", _is_openai_batch, _openai_batch, "the input file of the batch"),
    RowFormat("Anthropic batch", _is_anthropic_batch, _anthropic_batch, "the requests of the batch"),
    RowFormat("promptfoo results", _has("testIdx", "promptIdx", "testCase"), _promptfoo),
    RowFormat("Inspect log", _has("id", "epoch", "input", "target", "messages", "output"), _inspect_sample),
    RowFormat("LangSmith runs", _is_langsmith_run, _langsmith_run),
    RowFormat(
        "LangSmith dataset", _has("dataset_id", "inputs", "outputs"),
        _unread("a LangSmith dataset", "its `outputs` are references; name an export of the runs"),
    ),
    RowFormat("LangSmith experiment", _is_langsmith_frame, _langsmith_frame),
    RowFormat("ragas results", _is_ragas, _ragas),
    RowFormat("lm-eval samples", _is_lm_eval, _lm_eval, repeats=True),
    RowFormat("MT-bench answers", _is_mt_bench, _mt_bench, "`question.jsonl`"),
    RowFormat("ShareGPT", _is_sharegpt, _sharegpt),
    RowFormat("DSPy evaluation", _is_dspy, _dspy),
)  # fmt: skip
"""The rows that tools write; the first that matches reads a row."""


def _is_ragas_chat(value: object) -> bool:
    return _all(value, lambda message: message.get("type") in ("human", "ai", "tool") and "content" in message)


def _all(values: object, test: Callable[[Fields], bool]) -> bool:
    """Return whether a value is a list of objects that all pass a test, and has one."""
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(value, Mapping) and test(cast("Fields", value)) for value in cast("list[Any]", values))


def _mapping(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _short(fields: Fields, *names: str) -> dict[str, Any]:
    """Return the short values of an object, or of these names in it, for the metadata of a row."""
    chosen = {name: fields.get(name) for name in names} if names else fields
    return {name: v for name, v in chosen.items() if isinstance(v, bool | int | float | str) and len(str(v)) <= 200}


def _prefixed(row: Fields, prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix)}


def _has_value(value: object) -> bool:
    return value is not None and value != "" and value == value  # noqa: PLR0124


def _parsed(value: object) -> Any:
    """Return the value of a text of JSON; any other value unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            return parse_json(value)
    return value


def _task(prompt: object) -> Any:
    """Return a prompt: a text, or its messages if it is a conversation, also as JSON."""
    messages = _parsed(prompt)
    if is_conversation(messages):
        return messages
    return value_text(prompt) if isinstance(prompt, Mapping | list) else prompt


def _query(inputs: object) -> Any:
    return task_fields(inputs).get("query") if inputs else None


def _response(output: object) -> Any:
    """Return an output: a text, a conversation, or the JSON of another value."""
    return output if isinstance(output, str) or is_conversation(output) else value_text(output)


def _repr_list(value: object) -> Any:
    """Return the list that a cell of a CSV file holds as Python or JSON; any other value unchanged."""
    if isinstance(value, str) and value.startswith("["):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            parsed = ast.literal_eval(value)
            return cast("list[Any]", parsed) if isinstance(parsed, list) else value
    return value
